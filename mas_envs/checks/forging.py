"""Forged tags: what one agent writes cannot pass for the environment's own tags or a chat turn in another's prompt."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from mas_envs.checks.actors import Actor, actors_for, texts_in, with_content
from mas_envs.checks.episodes import Frame, actor_rng, play, replayed, start, turns
from mas_envs.checks.findings import Fault, SkipCheckError
from mas_envs.checks.subject import AnyEnv, Subject

__all__ = ["CHAT_MARKERS", "tags_not_forged"]

CHAT_MARKERS = (
    "<|im_end|>",
    "<|im_start|>",
    "<|eot_id|>",
    "<|start_header_id|>",
    "<|endoftext|>",
    "</s>",
    "[INST]",
    "[/INST]",
    "<<SYS>>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<\uff5cUser\uff5c>",
)
"""Markers that chat templates put between turns."""

_TAG = re.compile(r"</?[A-Za-z_][\w-]{0,40}>")
_DEEPEST_TURN = 6


def tags_not_forged(subject: Subject) -> Iterator[Fault]:
    """A text full of tags raises the count of raw tags in no other agent's observation, against the same text without.

    Two environments with one seed take the same actions up to a turn; there one agent's action is followed by tags (or
    has them in its block) in one of them, and by the same words in harmless brackets in the other. They are compared
    only where both then stand at the same point, so that an action which the tags made invalid is not held against the
    environment.
    """
    subject.require_text()
    if len(subject.agent_ids) < 2:
        raise SkipCheckError("there is one agent only, so nothing is shown to another")
    envs = subject.fresh(), subject.fresh()
    for actor in actors_for(subject).values():
        frames = play(subject.fresh(), actor, subject.seed, limit_s=subject.step_limit_s)
        tags = _tags_shown(frames)
        live = [frame for frame in frames if frame.live][:_DEEPEST_TURN]
        reported: set[str] = set()
        for depth in range(len(live)):
            for forged in (CHAT_MARKERS, *((tag,) for tag in tags)):
                if reported.isdisjoint(forged):
                    faults = [
                        fault
                        for place in (_after, with_content)
                        for fault in _forged_at(subject, envs, live, depth, forged, place)
                    ]
                    reported |= {tag for fault, tag in faults}
                    yield from (fault for fault, _ in faults)
        if reported:
            return


def _forged_at(
    subject: Subject,
    envs: tuple[AnyEnv, AnyEnv],
    live: list[Frame],
    depth: int,
    forged: tuple[str, ...],
    place: Callable[[Any, str], str | None],
) -> Iterator[tuple[Fault, str]]:
    author = live[depth].agent_id
    raw = " ".join((*forged, *(_nested(tag) for tag in forged)))
    harmless = raw.replace("<", "(").replace(">", ")").replace("[", "(").replace("]", ")")
    for env, addition in zip(envs, (harmless, raw), strict=True):
        action = place(live[depth].action, addition)
        if action is None:
            return
        start(env, subject.seed)
        _say(env, replayed([*live[:depth], replace(live[depth], action=action)]), depth + 1)
    quiet, loud = envs
    if _flow(quiet) != _flow(loud):
        return
    for viewer in subject.agent_ids:
        if viewer == author:
            continue
        for tag in forged:
            expected, found = (_count(env.observe(viewer), tag) for env in (quiet, loud))
            if found > expected:
                fault = Fault(
                    field="observation",
                    agent_id=viewer,
                    turn=depth + 1,
                    found=f"{found} raw {tag!r} after {author} wrote it, {expected} after the same text without tags",
                    expected="as many as without: what one agent wrote cannot forge a tag or a chat turn",
                    remedy="pass others' text through mas_envs.actions.defuse(text, tags) before it is shown, with "
                    "every tag that your prompts use",
                )
                yield fault, tag


def _say(env: AnyEnv, actor: Actor, num_turns: int) -> None:
    for _ in turns(env, actor, actor_rng("say"), max_turns=num_turns):
        pass


def _after(said: Any, addition: str) -> str:
    return f"{said} {addition}"


def _nested(tag: str) -> str:
    """A tag that appears when the tag inside it is taken out in a single pass."""
    middle = len(tag) // 2
    return tag[:middle] + tag + tag[middle:]


def _flow(env: AnyEnv) -> Any:
    """Where an episode stands, without what is shown."""
    valid = {agent_id: info.get("valid_action") for agent_id, info in env.infos.items()}
    return env.agent_selection, dict(env.terminations), dict(env.truncations), valid, dict(env.rewards)


def _count(observation: Any, tag: str) -> int:
    """Occurrences of a tag in any case, with or without spaces inside."""
    inner = re.escape(tag[1:-1].strip())
    slash = r"/\s*" if inner.startswith("/") else ""
    pattern = re.compile(
        rf"{re.escape(tag[0])}\s*{slash}{inner.removeprefix('/')}\s*{re.escape(tag[-1])}", re.IGNORECASE
    )
    return sum(len(pattern.findall(text)) for _, text in texts_in(observation))


def _tags_shown(frames: list[Frame]) -> list[str]:
    """The tags that the environment's own prompts hold."""
    tags: dict[str, None] = {}
    for frame in frames:
        for name, value in frame.fields.items():
            if name.startswith("observation of"):
                for _, text in texts_in(value):
                    tags |= dict.fromkeys(_TAG.findall(text))
    return list(tags)
