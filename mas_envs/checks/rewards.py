"""Rewards: finite numbers, each accounted once, whoever acts; and their named parts add up."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from mas_envs.checks.actors import actors_for
from mas_envs.checks.episodes import SHORT_EPISODE, actor_rng, is_over, start
from mas_envs.checks.findings import Fault, SkipCheckError
from mas_envs.checks.subject import AnyEnv, Subject
from mas_envs.conversation import ConversationEnv, Outcome

__all__ = ["rewards_accounted", "rewards_paid"]

_NUM_EPISODES = 4


def rewards_accounted(subject: Subject) -> Iterator[Fault]:
    """What `last()` returns is the sum of `rewards` since the agent's own last turn, and of its `reward_terms`."""
    for name, actor in actors_for(subject).items():
        for seed in range(subject.seed, subject.seed + _NUM_EPISODES):
            env = subject.fresh()
            start(env, seed)
            rng = actor_rng("rewards", name, seed)
            owed = dict.fromkeys(env.possible_agents, 0.0)
            turn = 0
            while env.agents and turn < SHORT_EPISODE:
                agent_id = env.agent_selection
                _, reward, terminated, truncated, info = env.last(observe=False)
                yield from _account(agent_id, turn, reward, owed[agent_id], info)
                owed[agent_id] = 0.0
                live = not (terminated or truncated)
                env.step(actor(env, agent_id, env.observe(agent_id), rng) if live else None)
                for payee, amount in env.rewards.items() if live else ():
                    yield from _number(payee, turn + 1, amount)
                    owed[payee] = owed.get(payee, 0.0) + float(amount)
                turn += live
            for agent_id, amount in owed.items() if not env.agents else ():
                if abs(amount) > 1e-9:
                    yield Fault(
                        field="rewards",
                        agent_id=agent_id,
                        turn=turn,
                        found=f"{amount:g} that no last() ever reported",
                        expected="every agent gets a dead step, in which it learns its last reward",
                        remedy="end the episode by setting the flags and calling _deads_step_first(); do not empty "
                        "`agents` yourself",
                    )


def rewards_paid(subject: Subject) -> Iterator[Fault]:
    """What `receive` pays reaches its payees, also those that are not acting."""
    for name, actor in actors_for(subject).items():
        for seed in range(subject.seed, subject.seed + _NUM_EPISODES):
            env = subject.fresh()
            if not isinstance(env.unwrapped, ConversationEnv):
                raise SkipCheckError("not a ConversationEnv, so there is no receive() that says who is to be paid")
            outcomes: list[Outcome] = []
            _record_outcomes(env.unwrapped, outcomes)
            start(env, seed)
            rng = actor_rng("paid", name, seed)
            for turn in range(1, SHORT_EPISODE):
                if is_over(env):
                    break
                agent_id = env.agent_selection
                outcomes.clear()
                env.step(actor(env, agent_id, env.observe(agent_id), rng))
                if outcomes:
                    yield from _paid(env, agent_id, turn, outcomes[-1])


def _record_outcomes(env: ConversationEnv, outcomes: list[Outcome]) -> None:
    receive = env.receive

    def recording(agent_id: str, text: str) -> Outcome:
        outcome = receive(agent_id, text)
        outcomes.append(outcome)
        return outcome

    env.receive = recording  # type: ignore[method-assign]  # this one environment is ours alone


def _paid(env: AnyEnv, acting: str, turn: int, outcome: Outcome) -> Iterator[Fault]:
    for agent_id, terms in outcome.rewards.items():
        due = float(sum(terms.values()))
        got = float(env.unwrapped.rewards.get(agent_id, 0.0))
        if agent_id != acting and not math.isclose(due, got, abs_tol=1e-9):
            yield Fault(
                field=f"rewards[{agent_id!r}]",
                agent_id=agent_id,
                turn=turn,
                found=f"{got:g} after {acting} acted",
                expected=f"{due:g}, which receive() paid",
                remedy="pay agents that are not acting too; last() keeps it for them until their next turn",
            )


def _number(agent_id: str, turn: int, amount: Any) -> Iterator[Fault]:
    is_number = isinstance(amount, int | float | np.integer | np.floating) and not isinstance(amount, bool)
    if not is_number or not math.isfinite(amount):
        yield Fault(
            field=f"rewards[{agent_id!r}]",
            agent_id=agent_id,
            turn=turn,
            found=f"{amount!r:.60} of type {type(amount).__name__}",
            expected="a finite number",
            remedy="look for a division by zero or a missing value where the reward is computed",
        )


def _account(agent_id: str, turn: int, reward: Any, owed: float, info: Any) -> Iterator[Fault]:
    value = float(reward)
    if math.isfinite(owed) and not math.isclose(value, owed, abs_tol=1e-9):
        yield Fault(
            field="reward of last()",
            agent_id=agent_id,
            turn=turn,
            found=f"{value:g}",
            expected=f"{owed:g}, the sum of `rewards` since {agent_id}'s own last turn",
            remedy="at an agent's step set its cumulative reward to 0, clear `rewards`, write the new ones, and call "
            "_accumulate_rewards() once",
        )
    terms = info.get("reward_terms") if isinstance(info, dict) else None
    if isinstance(terms, dict) and math.isfinite(value):
        total = float(sum(terms.values()))
        if not math.isclose(value, total, abs_tol=1e-9):
            yield Fault(
                field="infos['reward_terms']",
                agent_id=agent_id,
                turn=turn,
                found=f"parts that sum to {total:g}: {terms!r:.100}",
                expected=f"parts of the reward {value:g} that last() returns",
                remedy="name every part of every reward, and start anew when the agent acts",
            )
