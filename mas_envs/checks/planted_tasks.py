"""Tasks whose hidden parts are secrets that cannot stand anywhere by chance."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from mas_envs.checks.episodes import start
from mas_envs.checks.findings import SkipCheckError
from mas_envs.checks.subject import AnyEnv, Subject
from mas_envs.error_texts import describe_error
from mas_envs.tasks import Task, TaskSet

__all__ = ["METADATA", "metadata_keys", "plant_task", "sample_tasks"]

METADATA = "metadata."
_MOST_TASKS = 100
_NUMBER_SECRET = "748159263017"
_TEXT_SECRET = "Qzvanswerxkw"
_EXTRA_SECRET = "Qzvmetadataxkw"
_FIELD_NUMBER = 61_907_483_250_000
"""Numbers in metadata become this plus their place, so that each can be told from the others."""


def plant_task(subject: Subject, env: AnyEnv, parts: Collection[str]) -> dict[str, str]:
    """Starts an episode of a task in which hidden parts are secrets.

    Args:
        subject: The environment under test.
        env: A fresh environment.
        parts: What is hidden from anybody: `answer`, `metadata.KEY`.

    Returns:
        Secret -> the part of the task that it stands in: `answer`, `metadata`, `metadata.KEY`.

    Raises:
        SkipCheckError: If the environment takes no task, or nothing is hidden.
    """
    keys = metadata_keys(parts)
    original = max(sample_tasks(subject, env), key=lambda task: sum(key in task.metadata for key in keys))
    if not parts:
        raise SkipCheckError("hidden_from() hides the answer from nobody")
    secrets: dict[str, str] = {}
    metadata = dict(original.metadata)
    for key in keys:
        if key in metadata:
            metadata[key] = _hidden_value(metadata[key], f"{METADATA}{key}", secrets)
    answer = original.answer
    if "answer" in parts:
        answers = (answer,) if isinstance(answer, str) else answer
        is_number = all(text.strip().lstrip("-").replace(".", "", 1).isdigit() for text in answers)
        secret = _NUMBER_SECRET if is_number else _TEXT_SECRET
        answer = secret if isinstance(answer, str) else (secret,)
        metadata = {**_with_secret(metadata, answers, secret), "planted_by_check_env": _EXTRA_SECRET}
        secrets |= {secret: "answer", _EXTRA_SECRET: "metadata"}
    planted: Task = replace(original, answer=answer, metadata=metadata)
    try:
        start(env, subject.seed, {"task": planted})
    except Exception as error:
        raise SkipCheckError(f"a task with planted secrets is refused: {describe_error(error)}") from error
    present: object = env.unwrapped.task
    if present is not planted:
        raise SkipCheckError("options={'task': ...} is not followed, so no answer can be planted")
    return secrets


def sample_tasks(subject: Subject, env: AnyEnv) -> list[Task]:
    """The task of the seed, and some more of the task set, if there is one.

    Raises:
        SkipCheckError: If the environment has no task.
    """
    start(env, subject.seed)
    task = getattr(env.unwrapped, "task", None)
    if not isinstance(task, Task):
        raise SkipCheckError("the environment has no attribute `task`, so no answer can be planted")
    tasks = getattr(env.unwrapped, "tasks", None)
    return [task, *(tasks[:_MOST_TASKS] if isinstance(tasks, TaskSet) else ())]


def metadata_keys(parts: Collection[str]) -> list[str]:
    """The KEYs of `metadata.KEY` among the hidden parts."""
    return [part.removeprefix(METADATA) for part in parts if part.startswith(METADATA)]


def _hidden_value(value: Any, part: str, secrets: dict[str, str]) -> Any:
    """A secret of the same type, written into `secrets`; containers keep their form."""
    if isinstance(value, dict):
        return {key: _hidden_value(inner, part, secrets) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_hidden_value(inner, part, secrets) for inner in value)
    number = _FIELD_NUMBER + len(secrets)
    if isinstance(value, bool) or value is None:
        return value  # a secret of one bit cannot be found again
    if isinstance(value, int | float):
        secrets[str(number)] = part
        return type(value)(number)
    secret = str(number) if str(value).strip().isdigit() else f"Qzvfield{len(secrets)}xkw"
    secrets[secret] = part
    return secret


def _with_secret(value: Any, answers: tuple[str, ...], secret: str) -> Any:
    """Metadata in which texts that are the answer are the secret."""
    if isinstance(value, dict):
        return {key: _with_secret(part, answers, secret) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_with_secret(part, answers, secret) for part in value)
    return secret if value in answers else value
