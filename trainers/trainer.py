"""The trainer: collect rollouts, normalise advantages by agent, update each policy, and write it all down."""

import contextlib
import json
import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from pettingzoo import AECEnv

import mas_envs
from mas_envs.tasks import TaskSet, load_tasks
from trainers.advantages import AdvantageReport
from trainers.alarms import Alarms
from trainers.algorithm import check_names, make_batch, normalise
from trainers.bad_batches import write_batch
from trainers.batch import TrainingBatch
from trainers.checkpoint import latest_checkpoint, replace_folder, write_checkpoint
from trainers.collection import Collection
from trainers.config import Settings, SettingsError, load_settings
from trainers.evaluate import Evaluation, evaluate
from trainers.groups import collect_groups, group_starts
from trainers.interrupt import StopRequest
from trainers.learner import PolicyUpdate
from trainers.metrics import RunLog, rollout_record
from trainers.progress import Reporter, SilentReporter
from trainers.records import evaluation_record, iteration_record, spread, training_transcripts
from trainers.remote_policy import check_endpoints
from trainers.report import write_report
from trainers.rollout import Deadlines, EnvPool, Rollout, Seats, collect_rollouts
from trainers.run_events import Callback, RunResult, TrainingDiverged, TrainingInterrupted
from trainers.seeds import derive_seed
from trainers.starting_models import StartingModels
from trainers.task_order import TaskOrder
from trainers.team import assign_agents
from trainers.team_names import check_team_names, weighted_terms
from trainers.trained_team import TrainedTeam

__all__ = ["Callback", "RunResult", "Trainer", "TrainingDiverged", "TrainingInterrupted"]

logger = logging.getLogger(__name__)


class Trainer:
    """Trains a team on an environment; a run is a directory.

    Args:
        settings: All settings, see `load_settings`.
        run_dir: Where the run goes; must not hold another run, unless `resume`.
        resume: Go on from the directory's newest whole checkpoint.
        reporter: Who is told about progress; None tells nobody.
        callbacks: Who else is told.

    Raises:
        SettingsError: If the settings do not fit the environment or the directory holds a run already.
    """

    def __init__(
        self,
        settings: Settings,
        run_dir: str | Path,
        *,
        resume: bool = False,
        reporter: Reporter | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.settings = settings
        self.run_dir = Path(run_dir)
        self.reporter = reporter or SilentReporter()
        self.callbacks = list(callbacks)
        if not resume and (self.run_dir / "settings.yaml").exists():
            raise SettingsError(
                f"{self.run_dir} already holds a run; go on with it by `mas-envs train --resume {self.run_dir}`, or "
                "choose another run directory"
            )
        check_names(settings.algorithm)
        if settings.threads:
            torch.set_num_threads(settings.threads)
        self._envs = EnvPool(self._make_env, step_threads=settings.rollout.step_threads)
        env = self._envs.take()
        self._role_of = {agent_id: env.unwrapped.role_of(agent_id) for agent_id in env.possible_agents}
        self._policy_of = assign_agents(settings.agents, self._role_of)
        check_team_names(settings, self._role_of)
        self.tasks: TaskSet = env.unwrapped.tasks
        self._envs.give_back(env)
        self.held_out = self._held_out_tasks()
        self._checkpoint = latest_checkpoint(self.run_dir / "checkpoints") if resume else None
        state = self._checkpoint.state if self._checkpoint else {}
        self.iteration = self._checkpoint.iteration if self._checkpoint else 0
        self._cursor = int(state.get("cursor", 0))
        self._order = TaskOrder(len(self.tasks), settings.seed, self._cursor)
        self._collection = Collection(self._collect, lag=settings.rollout.async_lag)
        self._best = float(state.get("best", -1.0))
        self._bad_updates = int(state.get("bad_updates", 0))
        self._alarms = Alarms(weighted_terms(settings))
        self._stop = StopRequest(
            lambda: self.reporter.message("stopping after this iteration; press Ctrl-C again to stop at once")
        )
        self.team: TrainedTeam | None = None

    @classmethod
    def resume(
        cls, run_dir: str | Path, *, reporter: Reporter | None = None, callbacks: Sequence[Callback] = ()
    ) -> "Trainer":
        """The trainer of a run that was stopped or killed, ready to go on from its newest whole checkpoint."""
        path = Path(run_dir) / "settings.yaml"
        if not path.is_file():
            raise SettingsError(f"{run_dir} holds no run (no settings.yaml); check the path")
        return cls(load_settings(path), run_dir, resume=True, reporter=reporter, callbacks=callbacks)

    def train(self) -> RunResult:
        """Train to the end; Ctrl-C finishes the iteration, writes a checkpoint and raises `TrainingInterrupted`.

        Raises:
            TrainingInterrupted: After Ctrl-C.
            TrainingDiverged: If updates are not finite several times in a row.
        """
        with self._stop, contextlib.closing(self._start()) as team:
            self.team = team
            before = self._evaluate(team) if self.iteration == 0 else None
            self._save_checkpoint(team)
            self.reporter.start("RL", self.settings.iterations, done=self.iteration)
            while self.iteration < self.settings.iterations:
                self._train_iteration(team)
                self._evaluate_when_due(team)
                self._save_when_due(team)
                self._stop_when_asked()
            self.reporter.finish()
            after = self._evaluate(team) if before is None or self.settings.iterations else before
            self._log.close()
        return RunResult(self.run_dir, before, after, write_report(self.run_dir))

    def policy_id_of(self, agent: str) -> str:
        """The policy of an agent id, a role or itself.

        Raises:
            SettingsError: If the team has none of that name.
        """
        by_role = {role: self._policy_of[agent_id] for agent_id, role in self._role_of.items()}
        known = {**{name: name for name in self.settings.policies}, **by_role, **self._policy_of}
        if agent not in known:
            raise SettingsError(f"{self.run_dir} has no agent {agent!r}; expected one of {', '.join(sorted(known))}")
        return known[agent]

    @property
    def team_names(self) -> set[str]:
        """Agent ids, roles and policies."""
        return {*self._role_of, *self._role_of.values(), *self.settings.policies}

    def stop(self) -> None:
        """Ask for a stop at the end of this iteration, as the first Ctrl-C does."""
        self._stop.ask()

    def _train_iteration(self, team: TrainedTeam) -> None:
        """One iteration of group-based RL, as in the paper's algorithm."""
        began = time.perf_counter()
        rollouts, num_dropped = self._collection.take(self.iteration)
        self._cursor = self._order.cursor
        if self.iteration + 1 < self.settings.iterations:
            self._collection.start(self.iteration + 1)
        collected = time.perf_counter()
        batch = make_batch(self.settings, rollouts, frozenset(team.learners))
        advantages = normalise(self.settings.algorithm, batch)
        updates = team.update(batch, advantages, iteration=self.iteration)
        self._collection.settle()
        team.sync()
        self.iteration += 1
        ended = time.perf_counter()
        seconds = {"rollout": collected - began, "update": ended - collected, "total": ended - began}
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
        self._write_down({**record, "dropped_groups": num_dropped}, rollouts, batch, advantages)
        self._stop_when_diverged(batch, advantages, updates)

    def _collect(self, iteration: int) -> tuple[list[Rollout], int]:
        """The rollouts of an iteration, and how many groups were dropped and drawn anew."""
        team = self.team
        assert team is not None
        rollout, sampling = self.settings.rollout, self.settings.algorithm.dynamic_sampling

        def play(num_groups: int, first: int) -> list[Rollout]:
            starts = group_starts(
                [self.tasks[task] for task in self._order.take(num_groups)], rollout.group_size, iteration, first
            )
            seats = team.seats(self._policy_of, self._role_of)
            return collect_rollouts(starts, self._envs, seats, seed=self.settings.seed, deadlines=self._deadlines())

        return collect_groups(play, rollout.num_groups, max_refills=sampling.max_refills if sampling.enabled else None)

    # Measuring and writing down.

    def measure(
        self,
        *,
        tasks: Any = None,
        n: int = 1,
        num_tasks: int | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
    ) -> Evaluation:
        """Success of the newest checkpoint, or of models that are all frozen; writes nothing into the run.

        Args:
            tasks: What `load_tasks` takes; None is the run's held-out tasks.
            n: Rollouts per task.
            num_tasks: Tasks to use, from the start of the set; None is all.
            temperature: None takes each policy's own.
            top_p: In (0, 1]; None takes each policy's own.

        Raises:
            SettingsError: If the run has no checkpoint yet.
        """
        if self._checkpoint is not None:
            folders = json.loads((self.run_dir / "models" / "starting.json").read_text(encoding="utf-8"))
        elif all(policy.frozen for policy in self.settings.policies.values()):
            folders = {policy_id: policy.model for policy_id, policy in self.settings.policies.items()}
        else:
            raise SettingsError(f"{self.run_dir} has no whole checkpoint to measure; train further first")
        check_endpoints(self.settings.policies, self.reporter)
        chosen = self.held_out if tasks is None else load_tasks(tasks)
        with contextlib.closing(TrainedTeam(self.settings, folders, self._checkpoint)) as team:
            seats = team.seats(self._policy_of, self._role_of, temperature=temperature, top_p=top_p)
            return self._play(seats, chosen[: num_tasks or len(chosen)], n)[0]

    def _play(self, seats: Seats, tasks: TaskSet, n: int) -> tuple[Evaluation, list[Rollout]]:
        self.reporter.start("Evaluation", len(tasks) * n)
        found = evaluate(
            tasks,
            self._envs,
            seats,
            n=n,
            seed=derive_seed(self.settings.seed, "evaluation"),
            prices=self.settings.price_table(),
            deadlines=self._deadlines(),
            on_finished=lambda _: self.reporter.advance(),
        )
        self.reporter.finish()
        return found

    def _evaluate(self, team: TrainedTeam) -> Evaluation:
        """Measure on held-out tasks; write the result, some transcripts and the best policies down."""
        settings = self.settings.evaluation
        seats = team.seats(self._policy_of, self._role_of, temperature=settings.temperature, top_p=settings.top_p)
        result, rollouts = self._play(seats, self.held_out, settings.n)
        record = evaluation_record(result, self.iteration)
        self._log.write(record)
        kept = rollouts[: self.settings.transcripts_per_iteration * 4]
        self._log.write_transcripts(
            f"evaluation-{self.iteration:06d}", [rollout_record(rollout, self.iteration) for rollout in kept]
        )
        self.reporter.evaluation(record)
        for callback in self.callbacks:
            callback.on_evaluation(self, record)
        if self.iteration and result.overall.avg_at_k > self._best:
            self._best = result.overall.avg_at_k
            if self.settings.checkpoint.keep_best:
                self._try_to_write("best", lambda: self._save_best(team))
        return result

    def _evaluate_when_due(self, team: TrainedTeam) -> None:
        every = self.settings.evaluation.every
        if every and self.iteration % every == 0 and self.iteration < self.settings.iterations:
            self._evaluate(team)

    def _write_down(
        self, record: dict[str, Any], rollouts: Sequence[Rollout], batch: TrainingBatch, advantages: AdvantageReport
    ) -> None:
        record["alarms"] = self._alarms.check(record)
        self._log.write(record)
        kept = spread(rollouts, self.settings.transcripts_per_iteration)
        transcripts = training_transcripts(kept, self.iteration, batch, advantages)
        self._log.write_transcripts(f"iteration-{self.iteration:06d}", transcripts)
        self.reporter.iteration(record)
        for callback in self.callbacks:
            callback.on_iteration(self, record)

    # Starting, saving, stopping.

    def _start(self) -> TrainedTeam:
        """Models (made on the spot, warm-started, or from the checkpoint), learners and the log."""
        check_endpoints(self.settings.policies, self.reporter)
        self.run_dir.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(self.settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
        (self.run_dir / "settings.yaml").write_text(text, encoding="utf-8")
        self._log = RunLog(self.run_dir, resume_at=self._checkpoint.iteration if self._checkpoint else None)
        for record in self._log.iterations():
            self._alarms.check(record)  # what sounded before a resume sounds no second time
        folders = StartingModels(
            settings=self.settings,
            folder=self.run_dir / "models",
            envs=self._envs,
            role_of=self._role_of,
            log=self._log,
            reporter=self.reporter,
            check_stop=self._stop_when_asked,
        ).prepare()
        return TrainedTeam(self.settings, folders, self._checkpoint)

    def _save_when_due(self, team: TrainedTeam) -> None:
        every = self.settings.checkpoint.every
        if self.iteration == self.settings.iterations or (every and self.iteration % every == 0):
            self._save_checkpoint(team)

    def _save_checkpoint(self, team: TrainedTeam) -> None:
        root, keep_last = self.run_dir / "checkpoints", self.settings.checkpoint.keep_last
        state = {
            **team.state(),
            "cursor": self._cursor,  # that of a batch made ahead is drawn again after a resume
            "best": self._best,
            "bad_updates": self._bad_updates,
        }
        self._try_to_write(
            f"checkpoint at iteration {self.iteration}",
            lambda: write_checkpoint(root, self.iteration, state, team.save, keep_last=keep_last),
        )

    def _save_best(self, team: TrainedTeam) -> None:
        """Replace `best/` by the policies as they are, as ordinary transformers or PEFT folders."""
        note = json.dumps({"iteration": self.iteration, "success": self._best})

        def write(folder: Path) -> None:
            team.save_policies(folder)
            (folder / "best.json").write_text(note, encoding="utf-8")

        replace_folder(self.run_dir / "best", write)

    def _try_to_write(self, what: str, write: Any) -> None:
        """Write; a disk that is full costs the checkpoint, not the run."""
        try:
            write()
        except OSError as error:
            self.reporter.message(f"{what} could not be written ({error}); going on, the one before is intact")
            logger.warning("%s could not be written: %s", what, error)

    def _stop_when_asked(self) -> None:
        if not self._stop.is_set:
            return
        self.reporter.finish()
        self._log.close()
        if self.team is None:
            shutil.rmtree(self.run_dir, ignore_errors=True)
            raise TrainingInterrupted("stopped before the first iteration; nothing to resume, run the command again")
        self._save_checkpoint(self.team)
        raise TrainingInterrupted(
            f"stopped after iteration {self.iteration}; go on with: mas-envs train --resume {self.run_dir}"
        )

    def _stop_when_diverged(
        self, batch: TrainingBatch, advantages: AdvantageReport, updates: Mapping[str, PolicyUpdate]
    ) -> None:
        """Save the batch of an update that was not finite; stop after several in a row."""
        bad = [policy_id for policy_id, update in updates.items() if update.skipped]
        if not bad:
            self._bad_updates = 0
            return
        self._bad_updates += 1
        path = self.run_dir / "bad_batches" / f"iteration-{self.iteration:06d}.json"
        self._try_to_write("the bad batch", lambda: write_batch(path, batch, advantages, bad))
        if self._bad_updates >= self.settings.algorithm.max_bad_updates:
            self._log.close()
            raise TrainingDiverged(
                f"loss or gradient of policy {bad[0]!r} was not finite in {self._bad_updates} iterations in a row; its "
                f"weights are those before, the batches are in {path.parent}; lower lr or max_grad_norm, set min_std, "
                f"and go on with: mas-envs train --resume {self.run_dir}"
            )

    def _make_env(self) -> AECEnv[Any, Any, Any]:
        return mas_envs.make(self.settings.env.id, **self.settings.env.kwargs)

    def _held_out_tasks(self) -> TaskSet:
        evaluation = self.settings.evaluation
        tasks = self.tasks if evaluation.tasks is None else load_tasks(evaluation.tasks)
        return tasks[: min(evaluation.num_tasks, len(tasks))]

    def _deadlines(self) -> Deadlines:
        return Deadlines(episode_s=self.settings.rollout.episode_deadline_s)
