"""Rewards of turns and what becomes a training row."""

import pytest

from trainers.batch import is_trainable, training_batch, turn_rewards
from trainers.rollout import Rollout, Status, TurnRecord, TurnReply


def turn(
    agent_id: str, terms: dict[str, float], *, policy_id: str = "p", tokens: tuple[int, ...] = (5, 6)
) -> TurnRecord:
    reply = TurnReply("r", "text", (1, 2), tokens, (-0.5,) * len(tokens), "stop", 0, 0.1)
    return TurnRecord(agent_id, agent_id.split("_")[0], policy_id, "prompt", reply, True, None, terms)


def rollout(*turns: TurnRecord, status: Status = "completed", error: str | None = None) -> Rollout:
    return Rollout("r0", "g0", None, "t", "s", turns, {}, True, status, error)


SOLVED_AT_SECOND_TRY = (
    turn("solver_0", {"invalid": -0.1}),
    turn("verifier_0", {"correct": 1.0}),
    turn("solver_0", {"correct": 1.0}),
)


def test_outcome_reaches_every_turn_and_the_penalty_only_its_own() -> None:
    assert turn_rewards(SOLVED_AT_SECOND_TRY, weights={}) == pytest.approx([0.9, 1.0, 1.0])


def test_discount_counts_the_agents_own_turns() -> None:
    assert turn_rewards(SOLVED_AT_SECOND_TRY, weights={}, discount=0.5) == pytest.approx([0.4, 1.0, 1.0])


def test_reward_terms_are_weighted_by_name() -> None:
    rewards = turn_rewards(SOLVED_AT_SECOND_TRY, weights={"invalid": 2.0, "correct": 3.0})
    assert rewards == pytest.approx([2.8, 3.0, 3.0])


def test_mid_episode_reward_goes_to_earlier_turns_only() -> None:
    turns = [turn("verifier_0", {"verdict": 1.0}), turn("verifier_0", {"verdict": 0.0})]
    assert turn_rewards(turns, weights={}) == [1.0, 0.0]


def test_frozen_policies_count_for_baselines_and_empty_completions_do_not() -> None:
    played = rollout(
        turn("solver_0", {"correct": 1.0}),
        turn("verifier_0", {"correct": 1.0}, policy_id="frozen", tokens=()),
        turn("solver_0", {"correct": 1.0}, tokens=()),
    )
    batch = training_batch([played], frozenset({"p"}), weights={})
    assert [(row.agent_id, row.policy_id) for row in batch.rows] == [("solver_0", "p"), ("verifier_0", "frozen")]
    assert batch.places == {("r0", 0): 0, ("r0", 1): 1}
    assert batch.rewards.tolist() == [2.0, 1.0]


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        ("completed", None, True),
        ("truncated", None, True),
        ("truncated", "the retriever is down", False),
        ("lost", "the policy failed", False),
    ],
)
def test_rollouts_that_failed_around_the_team_are_not_learnt_from(
    status: Status, error: str | None, expected: bool
) -> None:
    assert is_trainable(rollout(turn("solver_0", {}), status=status, error=error)) is expected


def test_a_registered_term_counts_for_its_turn_alone_and_has_a_weight() -> None:
    turns = [turn("solver_0", {"correct": 1.0}), turn("solver_0", {}, tokens=(1, 2, 3)), turn("verifier_0", {})]
    terms = {"length": lambda turn: float(len(turn.reply.completion_ids))}
    plain = turn_rewards(turns, weights={})
    added = turn_rewards(turns, weights={"solver": {"length": 0.5}}, terms=terms)
    lengths = [len(each.reply.completion_ids) for each in turns]
    weights = [0.5, 0.5, 1.0]
    assert added == [before + weight * n for before, weight, n in zip(plain, weights, lengths, strict=True)]
