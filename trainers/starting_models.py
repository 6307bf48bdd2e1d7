"""The models a run starts from: folders and hub names as they are, tiny ones made on the spot and warm-started."""

from collections.abc import Callable, Mapping
from pathlib import Path

from mas_envs.conversation import Skill
from trainers.config import PolicySettings, Settings, SettingsError, SkillSettings, WarmStartSettings
from trainers.demonstrations import Demonstration, collect_demonstrations
from trainers.evaluate import evaluate
from trainers.metrics import RunLog
from trainers.progress import Reporter
from trainers.rollout import EnvPool, Seats
from trainers.seeds import derive_seed
from trainers.team import LanguagePolicy, load_policy
from trainers.tiny_model import make_tiny_model
from trainers.warm_start import clone, spoil, tokenise

__all__ = ["TINY", "prepare_models"]

TINY = "tiny"
"""The `model` of policies that start from a model made on the spot."""

_TOKENIZER_EPISODES = 500
_MEASURED_TASKS = 128


def prepare_models(  # noqa: PLR0913  # everything a warm start touches, once at the start of a run
    settings: Settings,
    folder: Path,
    envs: EnvPool,
    role_of: Mapping[str, str],
    log: RunLog,
    reporter: Reporter,
    *,
    check_stop: Callable[[], None],
) -> dict[str, str | Path]:
    """Policy id -> folder or hub name of the model it starts from.

    Each distinct model is made and warm-started once; all policies that name it start as copies, as in the paper.

    Args:
        settings: Settings of the run.
        folder: Where models made here are saved.
        envs: Environments, for demonstrations and measurements.
        role_of: Agent id -> role.
        log: Where losses are written.
        reporter: Who is told about progress.
        check_stop: Called between steps; raises to stop.

    Raises:
        SettingsError: If a tiny model is asked for without a warm start.
        MasEnvsError: If the environment has no scripted experts to learn from.
    """
    started: dict[str, str | Path] = {}
    for policy in settings.policies.values():
        if policy.model in started:
            continue
        source: str | Path = policy.model
        if policy.model == TINY:
            if settings.warm_start is None:
                raise SettingsError("a model of 'tiny' knows nothing; add a 'warm_start' section, or name a model")
            source = _make_tiny(settings, folder / TINY, envs)
        if settings.warm_start is not None:
            source = _warm_start(
                settings, policy, settings.warm_start, source, folder, envs, role_of, log, reporter, check_stop
            )
        started[policy.model] = source
    return {policy_id: started[policy.model] for policy_id, policy in settings.policies.items()}


def _make_tiny(settings: Settings, folder: Path, envs: EnvPool) -> Path:
    env = envs.take()
    seed = derive_seed(settings.seed, "tokenizer")
    shown = collect_demonstrations(env, _TOKENIZER_EPISODES, seed=seed, behaviour=_mediocre(settings))
    envs.give_back(env)
    texts = [message["content"] for each in shown for message in each.messages] + [each.text for each in shown]
    return make_tiny_model(texts, folder, settings.tiny_model, seed=derive_seed(settings.seed, "weights"))


def _warm_start(  # noqa: PLR0913
    settings: Settings,
    policy: PolicySettings,
    warm: WarmStartSettings,
    source: str | Path,
    folder: Path,
    envs: EnvPool,
    role_of: Mapping[str, str],
    log: RunLog,
    reporter: Reporter,
    check_stop: Callable[[], None],
) -> Path:
    """Clone the experts, spoil if asked, save; returns the folder."""
    learner = load_policy("warm start", policy, source)

    def demonstrations(name: str, target: Mapping[str, Skill] | None) -> list[Demonstration]:
        env = envs.take()
        reporter.start(f"Demonstrations ({name})", warm.num_episodes)
        found = collect_demonstrations(
            env,
            warm.num_episodes,
            seed=derive_seed(settings.seed, name),
            behaviour=_mediocre(settings),
            target=target,
            on_episode=reporter.advance,
        )
        reporter.finish()
        envs.give_back(env)
        return found

    def cloned(step: int, loss: float) -> None:
        check_stop()
        reporter.advance(f"loss {loss:.3f}")
        if step % 10 == 0:
            log.write({"kind": "warm_start", "phase": "clone", "step": step, "loss": loss})

    def spoiled(step: int, success: float) -> None:
        check_stop()
        reporter.advance(f"success {success:.0%}")
        log.write({"kind": "warm_start", "phase": "spoil", "step": step, "success": success})

    pairs = tokenise(demonstrations("clean", None), learner.codec)
    reporter.start("Warm start: cloning experts", warm.steps)
    clone(learner.model, pairs, warm, seed=derive_seed(settings.seed, "clone"), on_step=cloned)
    reporter.finish()
    if warm.spoiled:
        pairs = tokenise(demonstrations("mediocre", _skills(warm.spoiled)), learner.codec)
        reporter.start("Warm start: down to a mediocre level", None)
        spoil(
            learner.model,
            pairs,
            warm,
            lambda: _success(settings, learner, envs, role_of),
            seed=derive_seed(settings.seed, "spoil"),
            on_step=spoiled,
        )
        reporter.finish()
    target = folder / "warm-start" / policy.model.replace("/", "--")
    learner.save(target)
    learner.engine.close()
    return target


def _success(settings: Settings, policy: LanguagePolicy, envs: EnvPool, role_of: Mapping[str, str]) -> float:
    """Success of a team that all speaks with this policy, on training tasks."""
    policy.sync()
    env = envs.take()
    tasks = env.unwrapped.tasks  # type: ignore[attr-defined]
    envs.give_back(env)
    seats = Seats({"warm start": policy}, dict.fromkeys(role_of, "warm start"), dict(role_of))
    result, _ = evaluate(
        tasks[: min(_MEASURED_TASKS, len(tasks))], envs, seats, n=1, seed=derive_seed(settings.seed, "measure")
    )
    return result.overall.avg_at_k


def _mediocre(settings: Settings) -> dict[str, Skill] | None:
    return _skills(settings.warm_start.behaviour) if settings.warm_start else None


def _skills(skills: Mapping[str, SkillSettings]) -> dict[str, Skill]:
    return {role: Skill(accuracy=skill.accuracy, malformed=skill.malformed) for role, skill in skills.items()}
