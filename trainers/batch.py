"""From rollouts to training rows: one turn, one row, with the reward it is trained on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainers.returns import overlong_penalty
from trainers.reward_terms import RewardTerm
from trainers.rollout import Rollout, TurnRecord

__all__ = ["Overlong", "TrainingBatch", "TrainingRow", "is_trainable", "training_batch", "turn_rewards"]

OWN_TURN_TERMS = frozenset({"invalid"})
"""Reward terms that count for the turn they were charged to and for no earlier one: the format penalty."""


@dataclass(frozen=True)
class TrainingRow:
    """One turn as the learner needs it."""

    agent_id: str
    """Who acted."""
    policy_id: str
    """Policy that is trained on it."""
    prompt_ids: tuple[int, ...]
    """Token ids given."""
    completion_ids: tuple[int, ...]
    """Token ids as sampled; never empty."""
    behaviour_logprobs: tuple[float, ...]
    """Natural log, one per completion token, from the engine."""


@dataclass(frozen=True)
class TrainingBatch:
    """The rows of one iteration, with the ids that advantages are computed from."""

    rows: tuple[TrainingRow, ...]
    """R rows."""
    rewards: NDArray[np.float64]
    """[R] reward each row is trained on, in the task's unit."""
    group_ids: tuple[str, ...]
    """R group ids."""
    agent_ids: tuple[str, ...]
    """R agent ids."""
    rollout_ids: tuple[str, ...]
    """R rollout ids."""
    turn_indices: tuple[int, ...]
    """R positions among the agent's own turns of the episode, from 0."""
    anchors: tuple[tuple[int, ...], ...]
    """R states the turns were taken in, equal for equal prompts; for step-level estimators."""
    places: dict[tuple[str, int], int]
    """(rollout id, position in the episode) -> row, for transcripts."""


@dataclass(frozen=True)
class Overlong:
    """Soft penalty on completions that come near the limit; see `trainers.returns.overlong_penalty`."""

    max_tokens: Mapping[str, int]
    """Policy id -> most tokens of a completion."""
    buffer: int
    """Tokens over which the penalty grows."""
    weight: float = 1.0
    """What the full penalty costs, in the unit of rewards."""

    def reward(self, turn: TurnRecord) -> float:
        """The penalty of one turn, <= 0."""
        limit = self.max_tokens[turn.policy_id]
        lengths = [len(turn.reply.completion_ids)]
        return self.weight * float(overlong_penalty(lengths, limit, min(self.buffer, limit))[0])


def is_trainable(rollout: Rollout) -> bool:
    """Whether a rollout may be learnt from: it ended by the rules or a turn limit, not by a failure around it."""
    return rollout.status == "completed" or (rollout.status == "truncated" and rollout.error is None)


Weights = Mapping[str, float | Mapping[str, float]]
"""Reward term -> weight, or role or agent id -> (reward term -> weight); 1 where none is given."""


def term_weight(weights: Weights, turn: TurnRecord, term: str) -> float:
    """The weight of a reward term for the agent of a turn: its own entry, else its role's, else the common one."""
    for owner in (turn.agent_id, turn.role):
        own = weights.get(owner)
        if isinstance(own, Mapping) and term in own:
            return own[term]
    common = weights.get(term, 1.0)
    return common if isinstance(common, float | int) else 1.0


def turn_rewards(
    turns: Sequence[TurnRecord],
    *,
    weights: Weights,
    discount: float = 1.0,
    overlong: Overlong | None = None,
    terms: Mapping[str, RewardTerm] | None = None,
) -> list[float]:
    """The reward each turn of one episode is trained on: its own terms and the agent's later ones.

    With `discount` 1 every turn of an agent gets what the agent earned from then on, so an outcome reward reaches all
    its turns; the format penalty stays with the turn that caused it.

    Source: the published code of arXiv 2602.08847 (each turn: outcome reward less its own penalty); differs in:
    rewards given in mid-episode go to the turns before them only.

    Args:
        turns: All turns of an episode, in order.
        weights: Reward term -> weight, for all agents or for one role or agent; 1 where none is given.
        discount: Weight of a reward one turn later of the same agent, in [0, 1].
        overlong: Penalty on completions that nearly use up their tokens; None charges none.
        terms: Further terms by name; each counts for its turn alone.
    """
    later: dict[str, float] = {}
    rewards: list[float] = []
    for turn in reversed(turns):
        weighted = {term: term_weight(weights, turn, term) * amount for term, amount in turn.reward_terms.items()}
        own = sum(amount for term, amount in weighted.items() if term in OWN_TURN_TERMS)
        if overlong is not None:
            own += overlong.reward(turn)
        own += sum(term_weight(weights, turn, name) * term(turn) for name, term in (terms or {}).items())
        shared = sum(amount for term, amount in weighted.items() if term not in OWN_TURN_TERMS)
        later[turn.agent_id] = shared + discount * later.get(turn.agent_id, 0.0)
        rewards.append(later[turn.agent_id] + own)
    return rewards[::-1]


def training_batch(
    rollouts: Sequence[Rollout],
    trained_policies: frozenset[str],
    *,
    weights: Weights,
    discount: float = 1.0,
    overlong: Overlong | None = None,
    terms: Mapping[str, RewardTerm] | None = None,
) -> TrainingBatch:
    """The rows of trainable rollouts, but for empty completions of policies that learn.

    Turns of frozen policies are rows too, which no learner takes: the baseline of a group runs over all its agents.

    Args:
        rollouts: Rollouts of one iteration.
        trained_policies: Ids of the policies that learn.
        weights: See `turn_rewards`, as for the next two.
        discount: Weight of a reward one turn later.
        overlong: Penalty on long completions.
        terms: Further reward terms by name.
    """
    rows: list[TrainingRow] = []
    rewards: list[float] = []
    keys: list[tuple[str, str, str, int]] = []
    places: dict[tuple[str, int], int] = {}
    for rollout in filter(is_trainable, rollouts):
        own_turns: dict[str, int] = {}
        earned = turn_rewards(rollout.turns, weights=weights, discount=discount, overlong=overlong, terms=terms)
        for position, (turn, reward) in enumerate(zip(rollout.turns, earned, strict=True)):
            own_index = own_turns[turn.agent_id] = own_turns.get(turn.agent_id, -1) + 1
            if turn.policy_id in trained_policies and not turn.reply.completion_ids:
                continue
            places[rollout.rollout_id, position] = len(rows)
            keys.append((rollout.group_id, turn.agent_id, rollout.rollout_id, own_index))
            rewards.append(reward)
            rows.append(
                TrainingRow(
                    agent_id=turn.agent_id,
                    policy_id=turn.policy_id,
                    prompt_ids=turn.reply.prompt_ids,
                    completion_ids=turn.reply.completion_ids,
                    behaviour_logprobs=turn.reply.behaviour_logprobs,
                )
            )
    return TrainingBatch(
        rows=tuple(rows),
        rewards=np.array(rewards, dtype=np.float64),
        group_ids=tuple(key[0] for key in keys),
        agent_ids=tuple(key[1] for key in keys),
        rollout_ids=tuple(key[2] for key in keys),
        turn_indices=tuple(key[3] for key in keys),
        anchors=tuple(row.prompt_ids for row in rows),
        places=places,
    )
