"""Information leaks: secrets are planted in what must stay hidden and searched for in what agents are shown.

An environment says what is hidden with a method `hidden_from(agent_id)` that returns a set of

- `"answer"`: the task's answer and metadata,
- `"thoughts"`: what other agents write inside `<think>`,
- agent ids: everything that these agents write, and what only they are shown at the start.

Without that method only the answer is hidden, from everyone: in most conversations what is said is said to all.
"""

import random
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from mas_envs.checks.actors import Actor, actors_for, babble, echo_form, shown_forms, texts_in
from mas_envs.checks.episodes import actor_rng, is_over, start, turns
from mas_envs.checks.findings import Fault, SkipCheckError, describe_error, short
from mas_envs.checks.subject import AnyEnv, Subject
from mas_envs.tasks import Task

__all__ = ["ANSWER", "THOUGHTS", "answer_hidden", "texts_hidden"]

ANSWER = "answer"
THOUGHTS = "thoughts"

_NUMBER_SECRET = "748159263017"
_TEXT_SECRET = "Qzvanswerxkw"
_EXTRA_SECRET = "Qzvmetadataxkw"
_LEAST_LINE_CHARS = 20
_MARK = re.compile(r"Qzv(?:text|thought)\w*?xkw")


def answer_hidden(subject: Subject) -> Iterator[Fault]:
    """The ground truth of a planted task is shown to nobody before the episode ends."""
    for name, actor in (("babble", babble), ("echo", echo_form)):
        env = subject.fresh()
        task = _plant_task(subject, env)
        secrets = (*_answers(task), _EXTRA_SECRET)
        for turn in turns(env, actor, actor_rng("answer", name), limit_s=subject.step_limit_s):
            if is_over(env):
                break
            for agent_id in env.possible_agents:
                if ANSWER not in _hidden_from(env, agent_id):
                    continue
                for path, text in texts_in(env.observe(agent_id)):
                    secret = next((secret for secret in secrets if secret in text), None)
                    if secret is not None:
                        what = "metadata" if secret == _EXTRA_SECRET else "answer"
                        yield Fault(
                            field=f"observation{path}",
                            agent_id=agent_id,
                            turn=turn,
                            found=f"the {what} of the task: ...{_around(text, secret)}...",
                            expected="no ground truth in what an agent is shown while the episode runs",
                            remedy=f"keep task.{what} out of prompts; if an agent is meant to know it, leave 'answer' "
                            "out of what hidden_from(agent_id) returns",
                        )
                        return


def texts_hidden(subject: Subject) -> Iterator[Fault]:
    """What the environment declares private to some agents is not shown to the others."""
    subject.require_text()
    probe = subject.fresh()
    hidden = {agent_id: _hidden_from(probe, agent_id) - {ANSWER} for agent_id in probe.possible_agents}
    yield from _known_names(hidden)
    if not any(hidden.values()):
        raise SkipCheckError("everything said is public: hidden_from() names neither agents nor 'thoughts'")
    for name, actor in actors_for(subject).items():
        env = subject.fresh()
        start(env, subject.seed)
        own_lines = _own_lines(env, hidden)
        for turn in turns(env, _marking(actor), actor_rng("texts", name), limit_s=subject.step_limit_s):
            for viewer in env.possible_agents:
                secrets = {
                    **{_mark(author): f"what {author} said" for author in hidden[viewer] if author != THOUGHTS},
                    **{line: f"what only {author} was told" for author, line in own_lines.get(viewer, ())},
                }
                if THOUGHTS in hidden[viewer]:
                    others = (author for author in env.possible_agents if author != viewer)
                    secrets |= {_mark(author, "thought"): f"the thoughts of {author}" for author in others}
                for path, text in texts_in(env.observe(viewer)):
                    for secret, what in secrets.items():
                        if secret in text:
                            yield Fault(
                                field=f"observation{path}",
                                agent_id=viewer,
                                turn=turn,
                                found=f"{what}: ...{_around(text, secret)}...",
                                expected=f"nothing of it: hidden_from({viewer!r}) says that it is hidden",
                                remedy="leave it out of that agent's prompt (strip_thoughts() drops thoughts), or "
                                "declare it public",
                            )
                            return


def _hidden_from(env: AnyEnv, agent_id: str) -> frozenset[str]:
    declare = getattr(env.unwrapped, "hidden_from", None)
    return frozenset({ANSWER} if declare is None else declare(agent_id))


def _known_names(hidden: Mapping[str, Collection[str]]) -> Iterator[Fault]:
    for agent_id, names in hidden.items():
        for unknown in sorted(set(names) - set(hidden) - {THOUGHTS} | (set(names) & {agent_id})):
            yield Fault(
                field="hidden_from()",
                agent_id=agent_id,
                found=repr(unknown),
                expected=f"'answer', 'thoughts' or the ids of other agents: {', '.join(hidden)}",
                remedy="mend the name",
            )


def _plant_task(subject: Subject, env: AnyEnv) -> Task:
    """Starts an episode of a task whose answer and metadata are secrets that cannot stand anywhere by chance."""
    start(env, subject.seed)
    original = getattr(env.unwrapped, "task", None)
    if not isinstance(original, Task):
        raise SkipCheckError("the environment has no attribute `task`, so no answer can be planted")
    if not any(ANSWER in _hidden_from(env, agent_id) for agent_id in env.possible_agents):
        raise SkipCheckError("hidden_from() hides the answer from nobody")
    answers = (original.answer,) if isinstance(original.answer, str) else original.answer
    is_number = all(answer.strip().lstrip("-").replace(".", "", 1).isdigit() for answer in answers)
    secret = _NUMBER_SECRET if is_number else _TEXT_SECRET
    planted: Task = replace(
        original,
        answer=secret if isinstance(original.answer, str) else (secret,),
        metadata={**_with_secret(dict(original.metadata), answers, secret), "planted_by_check_env": _EXTRA_SECRET},
    )
    try:
        start(env, subject.seed, {"task": planted})
    except Exception as error:
        raise SkipCheckError(f"a task with a planted answer is refused: {describe_error(error)}") from error
    present: object = env.unwrapped.task
    if present is not planted:
        raise SkipCheckError("options={'task': ...} is not followed, so no answer can be planted")
    return planted


def _with_secret(value: Any, answers: tuple[str, ...], secret: str) -> Any:
    """Metadata in which texts that are the answer are the secret."""
    if isinstance(value, dict):
        return {key: _with_secret(part, answers, secret) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_with_secret(part, answers, secret) for part in value)
    return secret if value in answers else value


def _answers(task: Task) -> tuple[str, ...]:
    return (task.answer,) if isinstance(task.answer, str) else task.answer


def _own_lines(env: AnyEnv, hidden: Mapping[str, Collection[str]]) -> dict[str, list[tuple[str, str]]]:
    """Viewer -> (author, line) for each long line that only an agent hidden from the viewer is shown at the start."""
    lines = {
        agent_id: {
            line.strip()
            for _, text in texts_in(env.observe(agent_id))
            for line in text.splitlines()
            if len(line.strip()) >= _LEAST_LINE_CHARS and not shown_forms(line)  # forms are there to be said
        }
        for agent_id in env.possible_agents
    }
    return {
        viewer: [
            (author, line) for author in names if author in lines for line in sorted(lines[author] - lines[viewer])
        ]
        for viewer, names in hidden.items()
    }


def _mark(agent_id: str, kind: str = "text") -> str:
    return f"Qzv{kind}{agent_id.replace('_', '')}xkw"


def _marking(actor: Actor) -> Actor:
    """An actor whose texts hold marks: in the thoughts, in the open, and inside the last block or box."""

    def act(env: AnyEnv, agent_id: str, observation: Any, rng: random.Random) -> Any:
        said = _MARK.sub("", str(actor(env, agent_id, observation, rng)))  # to repeat what one was shown is no leak
        mark, thought = _mark(agent_id), _mark(agent_id, "thought")
        if rng.random() < 0.5:  # a free text in a block; otherwise the block stays as it is, as a verdict must
            head, closing, tail = said.rpartition("</")
            said = f"{head} {mark} {closing}{tail}" if closing else said
        return f"<think>{thought}</think>{mark} {said}"

    return act


def _around(text: str, secret: str) -> str:
    at = text.index(secret)
    return short(text[max(0, at - 40) : at + len(secret) + 20], 120)
