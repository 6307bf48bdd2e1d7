"""From the settings of the algorithm to its parts: names that are looked up, the batch, the advantages."""

from collections.abc import Sequence

from trainers.advantages import AdvantageReport, advantage_report
from trainers.batch import Overlong, TrainingBatch, training_batch
from trainers.config import AlgorithmSettings, Settings
from trainers.estimators import ESTIMATORS
from trainers.input_errors import TrainingInputError
from trainers.losses import LOSSES
from trainers.names import NameTable
from trainers.overrides import SettingsError
from trainers.reward_terms import REWARD_TERMS
from trainers.rollout import Rollout

__all__ = ["check_names", "make_batch", "normalise"]


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


def make_batch(settings: Settings, rollouts: Sequence[Rollout], trained: frozenset[str]) -> TrainingBatch:
    """The training rows of rollouts, with the rewards that the settings ask for.

    Args:
        settings: Of the run.
        rollouts: Of one iteration.
        trained: Policies that learn.
    """
    algorithm, overlong = settings.algorithm, settings.algorithm.overlong
    limits = {policy_id: policy.sampling.max_tokens for policy_id, policy in settings.policies.items()}
    return training_batch(
        rollouts,
        trained,
        weights=algorithm.reward_weights,
        discount=algorithm.discount,
        overlong=Overlong(limits, overlong.buffer, overlong.weight) if overlong.buffer else None,
        terms={name: REWARD_TERMS[name] for name in algorithm.reward_terms},
    )


def normalise(algorithm: AlgorithmSettings, batch: TrainingBatch) -> AdvantageReport:
    """The advantage of each row, by the estimator that the settings name."""
    return advantage_report(
        batch.rewards,
        batch.group_ids,
        batch.agent_ids,
        batch.rollout_ids,
        algorithm.estimator,
        eps=algorithm.eps,
        ddof=algorithm.ddof,
        lone=algorithm.lone,
        min_std=algorithm.min_std or None,
        on_zero_std=algorithm.on_zero_std,
        step_weight=algorithm.step_weight,
        turns=batch.turn_indices,
        anchors=batch.anchors,
    )
