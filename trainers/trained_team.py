"""A team with its learners: loaded, updated, saved and restored together."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from trainers.advantages import AdvantageReport
from trainers.batch import TrainingBatch
from trainers.checkpoint import Checkpoint
from trainers.config import PolicySettings, Settings
from trainers.engine_choice import attach_engines
from trainers.learner import Learner, PolicyUpdate
from trainers.remote_policy import RemotePolicy, remote_policy
from trainers.rollout import Seats
from trainers.seeds import derive_seed
from trainers.team import LanguagePolicy, load_team

__all__ = ["TrainedTeam"]


class TrainedTeam:
    """Policies, and a learner for each that is not frozen.

    Args:
        settings: Settings of the run.
        folders: Policy id -> folder or hub name of the model it started from.
        checkpoint: Where to go on from; None starts anew.
    """

    def __init__(self, settings: Settings, folders: Mapping[str, str | Path], checkpoint: Checkpoint | None) -> None:
        self._settings = settings
        weights = dict(folders)
        adapters: dict[str, Path] = {}
        here = {policy_id: policy for policy_id, policy in settings.policies.items() if policy.endpoint is None}
        self.remote = {
            policy_id: remote_policy(policy_id, policy)
            for policy_id, policy in settings.policies.items()
            if policy.endpoint is not None
        }
        """Policies behind an endpoint."""
        for policy_id, policy in here.items() if checkpoint else ():
            assert checkpoint is not None
            (adapters if policy.lora else weights)[policy_id] = checkpoint.folder / policy_id
        self.policies: dict[str, LanguagePolicy] = load_team(
            here,
            weights,
            adapters=adapters,
            seed=settings.seed,
            max_prompt_tokens=settings.rollout.max_prompt_tokens,
            call_deadline_s=settings.rollout.call_deadline_s,
        )
        self.learners = {
            policy_id: self._learner(policy_id, policy, folders[policy_id])
            for policy_id, policy in settings.policies.items()
            if not policy.frozen
        }
        if checkpoint is not None:
            self._restore(checkpoint)
        self._engines = attach_engines(
            self.policies, settings.policies, with_own_weights=settings.rollout.async_lag > 0
        )

    def close(self) -> None:
        """End the engines' processes; safe to call twice."""
        for engine in self._engines:
            engine.close()
        for policy in self.remote.values():
            policy.close()

    def seats(
        self,
        policy_of: Mapping[str, str],
        role_of: Mapping[str, str],
        *,
        temperature: float | None = None,
        top_p: float | None = None,
    ) -> Seats:
        """Who answers for which agent, sampling at the policies' own temperature and top_p unless others are given."""
        everybody: dict[str, LanguagePolicy | RemotePolicy] = {**self.policies, **self.remote}
        seated = {policy_id: policy.resampled(temperature, top_p) for policy_id, policy in everybody.items()}
        return Seats(dict(seated), dict(policy_of), dict(role_of))

    def update(self, batch: TrainingBatch, advantages: AdvantageReport, *, iteration: int) -> dict[str, PolicyUpdate]:
        """Train each policy on its rows; policy id -> what happened. Engines have the new weights after `sync`."""
        updates = {}
        for policy_id, learner in self.learners.items():
            mine = [i for i, row in enumerate(batch.rows) if row.policy_id == policy_id and advantages.is_kept[i]]
            seed = derive_seed(self._settings.seed, "minibatches", policy_id, iteration)
            updates[policy_id] = learner.update([batch.rows[i] for i in mine], advantages.advantages[mine], seed=seed)
        return updates

    def sync(self) -> None:
        """Hand the engines of trained policies the new weights; nothing may be generating."""
        for policy_id in self.learners:
            self.policies[policy_id].sync()

    def state(self) -> dict[str, Any]:
        """The small part of the state, for a checkpoint's manifest."""
        return {
            "num_updates": {policy_id: learner.num_updates for policy_id, learner in self.learners.items()},
            "versions": {policy_id: policy.version for policy_id, policy in self.policies.items()},
        }

    def save(self, folder: Path) -> None:
        """Write each policy into a folder of its name, and the optimizers beside them."""
        self.save_policies(folder)
        for policy_id, learner in self.learners.items():
            learner.save(folder / f"{policy_id}-optimizer.safetensors")

    def save_policies(self, folder: Path) -> None:
        """Write each policy as an ordinary transformers or PEFT folder."""
        for policy_id, policy in self.policies.items():
            policy.save(folder / policy_id)

    def _restore(self, checkpoint: Checkpoint) -> None:
        for policy_id, learner in self.learners.items():
            path = checkpoint.folder / f"{policy_id}-optimizer.safetensors"
            learner.load(path, checkpoint.state["num_updates"][policy_id])
        for policy_id, policy in self.policies.items():
            policy.version = int(checkpoint.state["versions"][policy_id])

    def _learner(self, policy_id: str, settings: PolicySettings, start: str | Path) -> Learner:
        policy = self.policies[policy_id]
        algorithm = self._settings.algorithm
        return Learner(
            policy.model,
            settings,
            algorithm,
            total_updates=self._settings.iterations * algorithm.num_updates,
            token_budget=self._settings.token_budget,
            temperature=settings.sampling.temperature,
            max_completion_tokens=settings.sampling.max_tokens,
            parameters=policy.trained_parameters(),
            activate=policy.activate,
            reference=self._reference(policy, settings, start) if algorithm.kl.coef > 0.0 else None,
        )

    def _reference(
        self, policy: LanguagePolicy, settings: PolicySettings, start: str | Path
    ) -> Callable[[], AbstractContextManager[Any]]:
        """The model a KL penalty compares with: the base of an adapter, else a frozen copy of the start."""
        if policy.adapter is not None:
            return policy.base_only
        frozen = load_team({"reference": settings}, {"reference": start})["reference"].model
        frozen.eval().requires_grad_(False)

        @contextlib.contextmanager
        def reference() -> Iterator[Any]:
            yield frozen

        return reference
