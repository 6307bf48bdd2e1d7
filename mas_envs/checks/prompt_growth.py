"""Prompt growth: what an agent is shown grows with what was said, and not faster."""

import random
from collections.abc import Iterator
from typing import Any

from mas_envs.checks.actors import Actor, actors_for, texts_in
from mas_envs.checks.episodes import actor_rng, start, turns
from mas_envs.checks.findings import Fault
from mas_envs.checks.subject import AnyEnv, Subject

__all__ = ["prompts_grow_linearly"]

_FILLER = "and then we look at the next part of it " * 50
_COPIES_ALLOWED = 3
_OWN_CHARS_PER_TURN = 4_000
_MAX_TURNS = 16
_MAX_CHARS = 4_000_000


def prompts_grow_linearly(subject: Subject) -> Iterator[Fault]:
    """No observation is longer than the first, three times what was said, and 4,000 characters a turn."""
    subject.require_text()
    for name, actor in actors_for(subject).items():
        env = subject.fresh()
        start(env, subject.seed)
        first = {agent_id: _num_chars(env.observe(agent_id)) for agent_id in env.possible_agents}
        said: list[int] = []
        for turn in turns(env, _long_winded(actor, said), actor_rng("growth", name), max_turns=_MAX_TURNS):
            sizes = {agent_id: _num_chars(env.observe(agent_id)) for agent_id in env.possible_agents}
            for agent_id, size in sizes.items():
                allowed = first[agent_id] + _COPIES_ALLOWED * sum(said) + _OWN_CHARS_PER_TURN * turn
                if size > allowed:
                    yield Fault(
                        field="observation",
                        agent_id=agent_id,
                        turn=turn,
                        found=f"{size:,} characters after {sum(said):,} were said in {turn} turns; "
                        f"{first[agent_id]:,} at the start",
                        expected=f"at most {allowed:,}: growth in step with what was said",
                        remedy="show each earlier turn once: build the prompt from the turns, not from earlier prompts",
                        level="warning",
                    )
                    return
            if max(sizes.values()) > _MAX_CHARS:
                return


def _long_winded(actor: Actor, said: list[int]) -> Actor:
    def act(env: AnyEnv, agent_id: str, observation: Any, rng: random.Random) -> Any:
        text = _FILLER + str(actor(env, agent_id, observation, rng))
        said.append(len(text))
        return text

    return act


def _num_chars(observation: Any) -> int:
    return sum(len(text) for _, text in texts_in(observation))
