"""Transcripts: what was said, by whom, in a form that survives JSON."""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from mas_envs.checks.actors import actors_for
from mas_envs.checks.episodes import play
from mas_envs.checks.findings import Fault, SkipCheckError
from mas_envs.checks.subject import AnyEnv, Subject
from mas_envs.error_texts import short

__all__ = ["transcript_faithful"]

_FIELDS = ("agent_id", "text", "valid")


def transcript_faithful(subject: Subject) -> Iterator[Fault]:
    """`env.unwrapped.transcript` holds each turn once, as it was said, and comes back equal from JSON."""
    for actor in actors_for(subject).values():
        env = subject.fresh()
        frames = [frame for frame in play(env, actor, subject.seed, limit_s=subject.step_limit_s) if frame.live]
        transcript = getattr(env.unwrapped, "transcript", None)
        if not isinstance(transcript, list):
            yield Fault(
                field="transcript",
                found=short(repr(transcript)),
                expected="a list of records with agent_id, text and valid",
                remedy="offer a property `transcript` on the environment, as ConversationEnv does",
            )
            return
        if not subject.is_textual:
            raise SkipCheckError("the actions of this environment are not text")
        transcript = [entry for entry in transcript if getattr(entry, "agent_id", None) not in _played(env)]
        for turn, (entry, frame) in enumerate(zip(transcript, frames, strict=False)):
            yield from _entry(turn, entry, frame.agent_id, str(frame.action))
        if len(transcript) != len(frames):
            yield Fault(
                field="transcript",
                found=f"{len(transcript)} records",
                expected=f"{len(frames)}, one for each turn of this episode",
                remedy="add a record for every action, also an invalid one, and begin an empty list in reset",
            )


def _played(env: AnyEnv) -> set[str]:
    """Agents inside that a wrapper plays itself: their turns stand in the transcript, and are not steps outside."""
    return set(env.unwrapped.possible_agents) - set(env.possible_agents)


def _entry(turn: int, entry: Any, agent_id: str, action: str) -> Iterator[Fault]:
    missing = [name for name in _FIELDS if not hasattr(entry, name)]
    if missing:
        yield Fault(
            field=f"transcript[{turn}]",
            turn=turn,
            found=f"a {type(entry).__name__} without {', '.join(missing)}",
            expected="a record with agent_id, text and valid",
            remedy="use mas_envs.Turn",
        )
        return
    if (entry.agent_id, entry.text) != (agent_id, action):
        yield Fault(
            field=f"transcript[{turn}]",
            agent_id=agent_id,
            turn=turn,
            found=f"{entry.agent_id!r} saying {short(entry.text, 80)!r}",
            expected=f"{agent_id!r} saying {short(action, 80)!r}",
            remedy="record the action as it was taken, before anything is parsed from it",
        )
    if dataclasses.is_dataclass(entry) and not isinstance(entry, type):
        try:
            kept = json.loads(json.dumps(dataclasses.asdict(entry)))
        except (TypeError, ValueError) as error:
            kept = error
        if isinstance(kept, Exception) or type(entry)(**kept) != entry:
            yield Fault(
                field=f"transcript[{turn}]",
                agent_id=agent_id,
                turn=turn,
                found=f"{short(repr(kept), 100)} after a round trip through JSON",
                expected=short(repr(entry), 100),
                remedy="keep str, bool, numbers and None in the record: no tuples, sets or objects",
            )
