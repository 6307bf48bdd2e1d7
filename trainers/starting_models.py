"""The models a run starts from: folders and hub names as they are, tiny ones made on the spot and warm-started."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mas_envs.conversation import Skill
from trainers.config import PolicySettings, Settings, SettingsError, SkillSettings, TinyModelSettings, WarmStartSettings
from trainers.demonstrations import Demonstration, collect_demonstrations
from trainers.evaluate import evaluate
from trainers.metrics import RunLog
from trainers.policy_settings import TINY
from trainers.progress import Reporter
from trainers.rollout import EnvPool, Seats
from trainers.seeds import derive_seed
from trainers.team import LanguagePolicy, load_policy
from trainers.tiny_model import make_tiny_model
from trainers.warm_start import clone, spoil, tokenise

__all__ = ["StartingModels"]

_TOKENIZER_EPISODES = 500
_MEASURED_TASKS = 128
_LOGGED_EVERY = 10


@dataclass(frozen=True, kw_only=True)
class StartingModels:
    """Makes and finds the models of a run; `prepare` does it all."""

    settings: Settings
    """Settings of the run."""
    folder: Path
    """Where models made here are saved."""
    envs: EnvPool
    """Environments, for demonstrations and measurements."""
    role_of: Mapping[str, str]
    """Agent id -> role."""
    log: RunLog
    """Where losses are written."""
    reporter: Reporter
    """Who is told about progress."""
    check_stop: Callable[[], None]
    """Called between steps; raises to stop."""

    def prepare(self) -> dict[str, str | Path]:
        """Policy id -> folder or hub name of the model it starts from.

        Each distinct model is made and warm-started once; all policies that name it start as copies, as in the paper.
        A run that goes on finds them as they were: adapters need their base, a KL penalty its reference.

        Raises:
            SettingsError: If a tiny model is asked for without a warm start.
            MasEnvsError: If the environment has no scripted experts to learn from.
        """
        noted = self.folder / "starting.json"
        if noted.exists():
            return dict(json.loads(noted.read_text(encoding="utf-8")))
        started: dict[str, str | Path] = {}
        here = {key: policy for key, policy in self.settings.policies.items() if policy.endpoint is None}
        names: dict[tuple[str, TinyModelSettings | None], str] = {}
        for policy_id, policy in here.items():
            default = policy.model if policy.tiny_model is None else f"{TINY}-{policy_id}"
            name = names.setdefault((policy.model, policy.tiny_model), default)
            if name not in started:
                started[name] = self._start(policy, name)
        folders = {key: started[names[policy.model, policy.tiny_model]] for key, policy in here.items()}
        self.folder.mkdir(parents=True, exist_ok=True)
        noted.write_text(json.dumps({key: str(value) for key, value in folders.items()}), encoding="utf-8")
        return folders

    def _start(self, policy: PolicySettings, name: str) -> str | Path:
        warm = self.settings.warm_start
        source: str | Path = policy.model
        if policy.model == TINY:
            if warm is None:
                raise SettingsError("a model of 'tiny' knows nothing; add a 'warm_start' section, or name a model")
            source = self._make_tiny(warm, policy.tiny_model or self.settings.tiny_model, name)
        return source if warm is None else self._warm_start(policy, warm, source, name)

    def _make_tiny(self, warm: WarmStartSettings, size: TinyModelSettings, name: str) -> Path:
        shown = self._demonstrate("tokenizer", warm, None, num_episodes=min(_TOKENIZER_EPISODES, warm.num_episodes))
        texts = [message["content"] for each in shown for message in each.messages] + [each.text for each in shown]
        seed = derive_seed(self.settings.seed, "weights")
        return make_tiny_model(texts, self.folder / name, size, seed=seed)

    def _warm_start(self, policy: PolicySettings, warm: WarmStartSettings, source: str | Path, name: str) -> Path:
        """Clone the experts, spoil if asked, save; returns the folder."""
        learner = load_policy("warm start", policy.model_copy(update={"lora": None}), source)

        def cloned(step: int, loss: float) -> None:
            self.check_stop()
            self.reporter.advance(f"loss {loss:.3f}")
            if step % _LOGGED_EVERY == 0:
                self.log.write({"kind": "warm_start", "phase": "clone", "step": step, "loss": loss})

        def spoiled(step: int, success: float) -> None:
            self.check_stop()
            self.reporter.advance(f"success {success:.0%}")
            self.log.write({"kind": "warm_start", "phase": "spoil", "step": step, "success": success})

        pairs = tokenise(self._demonstrate("clean", warm, None), learner.codec)
        self.reporter.start("Warm start: cloning the experts", warm.steps)
        clone(learner.model, pairs, warm, seed=derive_seed(self.settings.seed, "clone"), on_step=cloned)
        self.reporter.finish()
        if warm.spoiled:
            pairs = tokenise(self._demonstrate("mediocre", warm, _skills(warm.spoiled)), learner.codec)
            self.reporter.start("Warm start: down to a mediocre level", None)
            seed = derive_seed(self.settings.seed, "spoil")
            spoil(learner.model, pairs, warm, lambda: self._success(learner), seed=seed, on_step=spoiled)
            self.reporter.finish()
        target = self.folder / "warm-start" / name.replace("/", "--")
        learner.save(target)
        learner.engine.close()
        return target

    def _demonstrate(
        self, name: str, warm: WarmStartSettings, target: Mapping[str, Skill] | None, num_episodes: int | None = None
    ) -> list[Demonstration]:
        env = self.envs.take()
        episodes = num_episodes or warm.num_episodes
        self.reporter.start(f"Demonstrations ({name})", episodes)
        found = collect_demonstrations(
            env,
            episodes,
            seed=derive_seed(self.settings.seed, name),
            behaviour=_skills(warm.behaviour),
            target=target,
            on_episode=self.reporter.advance,
        )
        self.reporter.finish()
        self.envs.give_back(env)
        return found

    def _success(self, policy: LanguagePolicy) -> float:
        """Success of a team that all speaks with this policy, on training tasks."""
        policy.sync()
        env = self.envs.take()
        tasks = env.unwrapped.tasks
        self.envs.give_back(env)
        seats = Seats({"warm start": policy}, dict.fromkeys(self.role_of, "warm start"), dict(self.role_of))
        seed = derive_seed(self.settings.seed, "measure")
        result, _ = evaluate(tasks[: min(_MEASURED_TASKS, len(tasks))], self.envs, seats, n=1, seed=seed)
        return result.overall.avg_at_k


def _skills(skills: Mapping[str, SkillSettings]) -> dict[str, Skill]:
    return {role: Skill(accuracy=skill.accuracy, malformed=skill.malformed) for role, skill in skills.items()}
