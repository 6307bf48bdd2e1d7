"""Estimators, losses and reward terms that settings name, looked up before anything starts."""

from trainers.config import AlgorithmSettings
from trainers.estimators import ESTIMATORS
from trainers.input_errors import TrainingInputError
from trainers.losses import LOSSES
from trainers.names import NameTable
from trainers.overrides import SettingsError
from trainers.reward_terms import REWARD_TERMS

__all__ = ["check_names"]


def check_names(algorithm: AlgorithmSettings) -> None:
    """Refuse names that nothing is registered under.

    Raises:
        SettingsError: Names the setting and the nearest name.
    """
    wanted: list[tuple[str, NameTable[object], str]] = [
        ("estimator", ESTIMATORS, algorithm.estimator),  # type: ignore[list-item]  # values are not looked at
        ("loss", LOSSES, algorithm.loss),  # type: ignore[list-item]
        *(("reward_terms", REWARD_TERMS, name) for name in algorithm.reward_terms),  # type: ignore[list-item]
    ]
    for setting, table, name in wanted:
        try:
            table[name]
        except TrainingInputError as error:
            raise SettingsError(f"algorithm.{setting}: {error}") from error
