"""The trainer: collect rollouts, normalise advantages by agent, update each policy, and write it all down."""

import contextlib
import logging
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from pettingzoo import AECEnv

import mas_envs
from mas_envs.errors import MasEnvsError
from mas_envs.tasks import TaskSet, load_tasks
from trainers.advantages import AdvantageReport, advantage_report
from trainers.batch import TrainingBatch, training_batch
from trainers.checkpoint import latest_checkpoint, write_checkpoint
from trainers.config import PolicySettings, Settings, SettingsError, load_settings
from trainers.evaluate import Evaluation, evaluate
from trainers.learner import Learner, PolicyUpdate
from trainers.metrics import RunLog, rollout_record
from trainers.progress import Reporter, SilentReporter
from trainers.records import evaluation_record, iteration_record
from trainers.report import write_report
from trainers.rollout import Deadlines, EnvPool, EpisodeStart, Rollout, Seats, collect_rollouts
from trainers.seeds import derive_seed
from trainers.starting_models import StartingModels
from trainers.task_order import TaskOrder
from trainers.team import LanguagePolicy, assign_agents, load_policy

__all__ = ["RunResult", "Trainer", "TrainingInterrupted"]

logger = logging.getLogger(__name__)


class TrainingInterrupted(MasEnvsError, KeyboardInterrupt):
    """Training was stopped from outside; the message says how to go on."""


@dataclass(frozen=True)
class RunResult:
    """What a finished run leaves."""

    run_dir: Path
    """The run directory."""
    before: Evaluation | None
    """Held-out success before RL; None when the run was resumed."""
    after: Evaluation
    """Held-out success at the end."""
    report: Path
    """The report page."""


class Trainer:
    """Trains a team on an environment; a run is a directory.

    Args:
        settings: All settings, see `load_settings`.
        run_dir: Where the run goes; must not hold another run, unless `resume`.
        resume: Go on from the directory's newest whole checkpoint, under its own settings' directory.
        reporter: Who is told about progress; None tells nobody.

    Raises:
        SettingsError: If the settings do not fit the environment or the directory holds a run already.
    """

    def __init__(
        self, settings: Settings, run_dir: str | Path, *, resume: bool = False, reporter: Reporter | None = None
    ) -> None:
        self.settings = settings
        self.run_dir = Path(run_dir)
        self.reporter = reporter or SilentReporter()
        if not resume and (self.run_dir / "settings.yaml").exists():
            raise SettingsError(
                f"{self.run_dir} already holds a run; go on with it by `mas-envs train --resume {self.run_dir}`, or "
                "choose another run directory"
            )
        if settings.threads:
            torch.set_num_threads(settings.threads)
        self._envs = EnvPool(self._make_env)
        env = self._envs.take()
        role_of = {agent_id: env.unwrapped.role_of(agent_id) for agent_id in env.possible_agents}
        self._policy_of = assign_agents(settings.agents, role_of)
        self._role_of = role_of
        self.tasks: TaskSet = env.unwrapped.tasks
        self.held_out = self._held_out_tasks()
        self._envs.give_back(env)
        self._checkpoint = latest_checkpoint(self.run_dir / "checkpoints") if resume else None
        self.iteration = self._checkpoint.iteration if self._checkpoint else 0
        self._stop = threading.Event()

    @classmethod
    def resume(cls, run_dir: str | Path, *, reporter: Reporter | None = None) -> "Trainer":
        """The trainer of a run that was stopped or killed, ready to go on from its newest whole checkpoint."""
        path = Path(run_dir) / "settings.yaml"
        if not path.is_file():
            raise SettingsError(f"{run_dir} holds no run (no settings.yaml); check the path")
        return cls(load_settings(path), run_dir, resume=True, reporter=reporter)

    def train(self) -> RunResult:
        """Train to the end; Ctrl-C finishes the iteration, writes a checkpoint and raises `TrainingInterrupted`."""
        with self._interruptible():
            self._prepare()
            before = self._evaluate() if self.iteration == 0 else None
            self._save_checkpoint()
            self.reporter.start("RL", self.settings.iterations, done=self.iteration)
            while self.iteration < self.settings.iterations:
                self._train_iteration()
                self._save_when_due()
                self._stop_when_asked()
            self.reporter.finish()
            after = self._evaluate() if before is None or self.settings.iterations else before
            self._log.close()
        return RunResult(self.run_dir, before, after, write_report(self.run_dir))

    def measure(
        self, *, tasks: Any = None, n: int = 1, num_tasks: int | None = None, temperature: float | None = None
    ) -> Evaluation:
        """Success of the newest checkpoint on some tasks; writes nothing into the run.

        Args:
            tasks: What `load_tasks` takes; None is the run's held-out tasks.
            n: Rollouts per task.
            num_tasks: Tasks to use, from the start of the set; None is all.
            temperature: None takes each policy's own.

        Raises:
            SettingsError: If the run has no checkpoint yet.
        """
        if self._checkpoint is None:
            raise SettingsError(f"{self.run_dir} has no whole checkpoint to measure; train further first")
        self._load_policies(self._model_folders())
        chosen = self.held_out if tasks is None else load_tasks(tasks)
        chosen = chosen[: num_tasks or len(chosen)]
        self.reporter.start("Evaluation", len(chosen) * n)
        result, _ = evaluate(
            chosen,
            self._envs,
            self._seats(temperature),
            n=n,
            seed=derive_seed(self.settings.seed, "evaluation"),
            deadlines=self._deadlines(),
            on_finished=lambda _: self.reporter.advance(),
        )
        self.reporter.finish()
        return result

    def _train_iteration(self) -> None:
        """One iteration of group-based RL, as in the paper's algorithm."""
        began = time.perf_counter()
        rollouts = collect_rollouts(
            self._next_starts(), self._envs, self._seats(), seed=self.settings.seed, deadlines=self._deadlines()
        )
        collected = time.perf_counter()
        batch = self._batch(rollouts)
        advantages = self._advantages(batch)
        updates = {policy_id: self._update(policy_id, batch, advantages) for policy_id in self._learners}
        self.iteration += 1
        ended = time.perf_counter()
        seconds = {"rollout": collected - began, "update": ended - collected, "total": ended - began}
        self._write_down(rollouts, batch, advantages, updates, seconds)

    def _batch(self, rollouts: Sequence[Rollout]) -> TrainingBatch:
        algorithm = self.settings.algorithm
        return training_batch(
            rollouts, frozenset(self._learners), weights=algorithm.reward_weights, discount=algorithm.discount
        )

    def _advantages(self, batch: TrainingBatch) -> AdvantageReport:
        algorithm = self.settings.algorithm
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
            turns=batch.turn_indices,
        )

    def _update(self, policy_id: str, batch: TrainingBatch, advantages: AdvantageReport) -> PolicyUpdate:
        """Train one policy on its rows and hand its engine the new weights."""
        mine = [i for i, row in enumerate(batch.rows) if row.policy_id == policy_id and advantages.is_kept[i]]
        update = self._learners[policy_id].update(
            [batch.rows[i] for i in mine],
            advantages.advantages[mine],
            seed=derive_seed(self.settings.seed, "minibatches", policy_id, self.iteration),
        )
        self.policies[policy_id].sync()
        return update

    def _next_starts(self) -> list[EpisodeStart]:
        """Every drawn task, `group_size` times."""
        rollout, iteration = self.settings.rollout, self.iteration
        return [
            EpisodeStart(f"{iteration}-{group}-{member}", f"{iteration}-{group}", self.tasks[task])
            for group, task in enumerate(self._order.take(rollout.num_groups))
            for member in range(rollout.group_size)
        ]

    def _evaluate(self) -> Evaluation:
        """Measure on held-out tasks, write the result and some transcripts down."""
        settings = self.settings.evaluation
        self.reporter.start("Evaluation", len(self.held_out) * settings.n)
        result, rollouts = evaluate(
            self.held_out,
            self._envs,
            self._seats(settings.temperature),
            n=settings.n,
            seed=derive_seed(self.settings.seed, "evaluation"),
            deadlines=self._deadlines(),
            on_finished=lambda _: self.reporter.advance(),
        )
        record = evaluation_record(result, self.iteration)
        self.reporter.finish()
        self._log.write(record)
        kept = rollouts[: self.settings.transcripts_per_iteration * 4]
        self._log.write_transcripts(
            f"evaluation-{self.iteration:06d}", [rollout_record(rollout, self.iteration) for rollout in kept]
        )
        self.reporter.evaluation(record)
        return result

    def _write_down(
        self,
        rollouts: Sequence[Rollout],
        batch: TrainingBatch,
        advantages: AdvantageReport,
        updates: Mapping[str, PolicyUpdate],
        seconds: Mapping[str, float],
    ) -> None:
        record = iteration_record(
            self.iteration,
            rollouts,
            batch,
            advantages,
            updates,
            seconds,
            role_of=self._role_of,
            policy_of=self._policy_of,
        )
        self._log.write(record)
        kept = []
        for rollout in rollouts[:: max(1, len(rollouts) // max(1, self.settings.transcripts_per_iteration))]:
            rows = [batch.places.get((rollout.rollout_id, turn)) for turn in range(len(rollout.turns))]
            rewards = [float("nan") if row is None else float(batch.rewards[row]) for row in rows]
            values = [float("nan") if row is None else float(advantages.advantages[row]) for row in rows]
            kept.append(rollout_record(rollout, self.iteration, rewards, values))
        self._log.write_transcripts(f"iteration-{self.iteration:06d}", kept[: self.settings.transcripts_per_iteration])
        self.reporter.iteration(record)
        every = self.settings.evaluation.every
        if every and self.iteration % every == 0 and self.iteration < self.settings.iterations:
            self._evaluate()

    # Setting up, saving, stopping.

    def _prepare(self) -> None:
        """Models (made on the spot, warm-started, or from the checkpoint), learners and the log."""
        self.run_dir.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(self.settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
        (self.run_dir / "settings.yaml").write_text(text, encoding="utf-8")
        self._log = RunLog(self.run_dir, resume_at=self._checkpoint.iteration if self._checkpoint else None)
        self._load_policies(self._model_folders())
        self._learners = {
            policy_id: self._make_learner(policy_id, policy)
            for policy_id, policy in self.settings.policies.items()
            if not policy.frozen
        }
        state: dict[str, Any] = self._checkpoint.state if self._checkpoint else {"cursor": 0}
        self._order = TaskOrder(len(self.tasks), self.settings.seed, int(state["cursor"]))
        if self._checkpoint:
            for policy_id, learner in self._learners.items():
                learner.load(
                    self._checkpoint.folder / f"{policy_id}-optimizer.safetensors", state["num_updates"][policy_id]
                )
                self.policies[policy_id].version = int(state["versions"][policy_id])

    def _load_policies(self, folders: Mapping[str, str | Path]) -> None:
        rollout = self.settings.rollout
        self.policies: dict[str, LanguagePolicy] = {
            policy_id: load_policy(
                policy_id,
                policy,
                folders[policy_id],
                max_prompt_tokens=rollout.max_prompt_tokens,
                call_deadline_s=rollout.call_deadline_s,
            )
            for policy_id, policy in self.settings.policies.items()
        }

    def _model_folders(self) -> dict[str, str | Path]:
        if self._checkpoint:
            return {policy_id: self._checkpoint.folder / policy_id for policy_id in self.settings.policies}
        return StartingModels(
            settings=self.settings,
            folder=self.run_dir / "models",
            envs=self._envs,
            role_of=self._role_of,
            log=self._log,
            reporter=self.reporter,
            check_stop=self._stop_when_asked,
        ).prepare()

    def _make_learner(self, policy_id: str, policy: PolicySettings) -> Learner:
        return Learner(
            self.policies[policy_id].model,
            policy,
            self.settings.algorithm,
            total_updates=self.settings.iterations * self.settings.algorithm.num_updates,
            token_budget=self.settings.token_budget,
            temperature=policy.sampling.temperature,
            max_completion_tokens=policy.sampling.max_tokens,
        )

    def _save_when_due(self) -> None:
        every = self.settings.checkpoint.every
        if self.iteration == self.settings.iterations or (every and self.iteration % every == 0):
            self._save_checkpoint()

    def _save_checkpoint(self) -> None:
        """Write a checkpoint; a disk that is full costs the checkpoint, not the run."""
        root = self.run_dir / "checkpoints"
        state = {
            "cursor": self._order.cursor,
            "num_updates": {policy_id: learner.num_updates for policy_id, learner in self._learners.items()},
            "versions": {policy_id: policy.version for policy_id, policy in self.policies.items()},
        }
        try:
            self._checkpoint = write_checkpoint(
                root, self.iteration, state, self._write_weights, keep_last=self.settings.checkpoint.keep_last
            )
        except OSError as error:
            self.reporter.message(f"checkpoint at iteration {self.iteration} could not be written ({error}); going on")
            logger.warning("checkpoint at iteration %s could not be written: %s", self.iteration, error)

    def _write_weights(self, folder: Path) -> None:
        for policy_id, policy in self.policies.items():
            policy.save(folder / policy_id)
        for policy_id, learner in self._learners.items():
            learner.save(folder / f"{policy_id}-optimizer.safetensors")

    def _stop_when_asked(self) -> None:
        if not self._stop.is_set():
            return
        self.reporter.finish()
        if not hasattr(self, "_order"):
            shutil.rmtree(self.run_dir, ignore_errors=True)
            raise TrainingInterrupted("stopped before the first iteration; nothing to resume, run the command again")
        self._save_checkpoint()
        self._log.close()
        raise TrainingInterrupted(
            f"stopped after iteration {self.iteration}; go on with: mas-envs train --resume {self.run_dir}"
        )

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """The first Ctrl-C asks for a stop at the end of the iteration, the second stops at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def ask(signum: int, frame: Any) -> None:
            if self._stop.is_set():
                raise KeyboardInterrupt
            self._stop.set()
            self.reporter.message("stopping after this iteration; press Ctrl-C again to stop at once")

        before = signal.signal(signal.SIGINT, ask)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _make_env(self) -> AECEnv[Any, Any, Any]:
        return mas_envs.make(self.settings.env.id, **self.settings.env.kwargs)

    def _held_out_tasks(self) -> TaskSet:
        evaluation = self.settings.evaluation
        tasks = self.tasks if evaluation.tasks is None else load_tasks(evaluation.tasks)
        return tasks[: min(evaluation.num_tasks, len(tasks))]

    def _deadlines(self) -> Deadlines:
        return Deadlines(episode_s=self.settings.rollout.episode_deadline_s)

    def _seats(self, temperature: float | None = None) -> Seats:
        policies = {policy_id: policy.with_temperature(temperature) for policy_id, policy in self.policies.items()}
        return Seats(dict(policies), self._policy_of, self._role_of)
