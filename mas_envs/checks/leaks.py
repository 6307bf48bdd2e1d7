"""Information leaks: secrets are planted in what must stay hidden and searched for in what agents are shown.

An environment says what is hidden with a method `hidden_from(agent_id)` that returns a set of

- `"answer"`: the task's answer, and its metadata as a whole,
- `"metadata.KEY"`: what the task's metadata hold under that key, such as the price that only the buyer may know,
- `"thoughts"`: what other agents write inside `<think>`,
- agent ids: everything that these agents write, and what only they are shown at the start.

Without that method only the answer is hidden, from everyone: in most conversations what is said is said to all.
"""

import random
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from mas_envs.checks.actors import Actor, actors_for, babble, echo_form, shown_forms, texts_in
from mas_envs.checks.episodes import actor_rng, is_over, start, turns
from mas_envs.checks.findings import Fault, SkipCheckError
from mas_envs.checks.planted_tasks import METADATA, metadata_keys, plant_task, sample_tasks
from mas_envs.checks.subject import AnyEnv, Subject
from mas_envs.error_texts import short

__all__ = ["ANSWER", "THOUGHTS", "answer_hidden", "texts_hidden"]

ANSWER = "answer"
THOUGHTS = "thoughts"

_LEAST_LINE_CHARS = 20
_MARK = re.compile(r"Qzv(?:text|thought)\w*?xkw")


def answer_hidden(subject: Subject) -> Iterator[Fault]:
    """What `hidden_from` hides of a task, by default its answer from everyone, is not shown before the episode ends."""
    hidden = {agent_id: _hidden_from(env, agent_id) for env in (subject.fresh(),) for agent_id in env.possible_agents}
    yield from _known_keys(subject, hidden)
    for name, actor in (("babble", babble), ("echo", echo_form)):
        env = subject.fresh()
        planted = plant_task(subject, env, _task_parts(hidden))
        for turn in turns(env, actor, actor_rng("answer", name), limit_s=subject.step_limit_s):
            if is_over(env):
                break
            for agent_id in env.possible_agents:
                for path, text in texts_in(env.observe(agent_id)):
                    shown = next(
                        (
                            (secret, part)
                            for secret, part in planted.items()
                            if secret in text and not hidden[agent_id].isdisjoint((part, _whole_of(part)))
                        ),
                        None,
                    )
                    if shown is not None:
                        secret, part = shown
                        yield Fault(
                            field=f"observation{path}",
                            agent_id=agent_id,
                            turn=turn,
                            found=f"the {part} of the task: ...{_around(text, secret)}...",
                            expected="nothing that is hidden from this agent in what it is shown before the end",
                            remedy=f"keep task.{part} out of its prompts; if the agent is meant to know it, leave "
                            f"{part!r} out of what hidden_from(agent_id) returns",
                        )
                        return


def texts_hidden(subject: Subject) -> Iterator[Fault]:
    """What the environment declares private to some agents is not shown to the others."""
    subject.require_text()
    probe = subject.fresh()
    hidden = {
        agent_id: {name for name in _hidden_from(probe, agent_id) if name != ANSWER and not name.startswith(METADATA)}
        for agent_id in probe.possible_agents
    }
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


def _known_keys(subject: Subject, hidden: Mapping[str, Collection[str]]) -> Iterator[Fault]:
    keys = metadata_keys(_task_parts(hidden))
    present = {key for task in sample_tasks(subject, subject.fresh()) for key in task.metadata} if keys else set()
    for unknown in sorted(set(keys) - present):
        yield Fault(
            field="hidden_from()",
            found=f"{METADATA + unknown!r}",
            expected=f"a key of the tasks' metadata: {', '.join(sorted(present)) or 'they have none'}",
            remedy="mend the name",
        )


def _task_parts(hidden: Mapping[str, Collection[str]]) -> list[str]:
    return sorted({name for names in hidden.values() for name in names if name == ANSWER or name.startswith(METADATA)})


def _whole_of(part: str) -> str:
    """What hides a part along with others: hidden metadata go with a hidden answer, unless their key is named."""
    return ANSWER if part == "metadata" else part


def _known_names(hidden: Mapping[str, Collection[str]]) -> Iterator[Fault]:
    for agent_id, names in hidden.items():
        for unknown in sorted(set(names) - set(hidden) - {THOUGHTS} | (set(names) & {agent_id})):
            yield Fault(
                field="hidden_from()",
                agent_id=agent_id,
                found=repr(unknown),
                expected=f"'answer', 'metadata.KEY', 'thoughts' or the ids of other agents: {', '.join(hidden)}",
                remedy="mend the name",
            )


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
