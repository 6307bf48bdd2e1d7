"""Lines of `metrics.jsonl`: what an iteration and an evaluation looked like, agent by agent."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainers.advantages import AdvantageReport, AgentAdvantageStats, advantage_stats
from trainers.batch import TrainingBatch
from trainers.evaluate import Evaluation, Score
from trainers.learner import AgentUpdate, PolicyUpdate
from trainers.metrics import rollout_record
from trainers.rollout import Rollout, TurnRecord, frequent_failures

__all__ = ["evaluation_record", "iteration_record", "spread", "training_transcripts"]

_HISTOGRAM_EDGES = np.array([-4.0, -3.0, -2.5, -2.0, -1.5, -1.0, -0.5, -1e-9, 1e-9, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0])
"""A bin of its own for exact zeros; the outer bins take whatever lies beyond."""


def iteration_record(  # noqa: PLR0913  # all that happened in one iteration
    iteration: int,
    rollouts: Sequence[Rollout],
    batch: TrainingBatch,
    advantages: AdvantageReport,
    updates: Mapping[str, PolicyUpdate],
    seconds: Mapping[str, float],
    *,
    role_of: Mapping[str, str],
    policy_of: Mapping[str, str],
) -> dict[str, Any]:
    """One iteration as plain values; the layout that `trainers.report` reads."""
    known = [rollout.success for rollout in rollouts if rollout.success is not None]
    stats = advantage_stats(batch.rewards, batch.group_ids, batch.agent_ids, batch.rollout_ids, advantages)
    agents = {}
    for agent_id, role in role_of.items():
        policy_id = policy_of[agent_id]
        turns = [turn for rollout in rollouts for turn in rollout.turns if turn.agent_id == agent_id]
        update = updates[policy_id].agents.get(agent_id) if policy_id in updates else None
        agents[agent_id] = {
            "role": role,
            "policy_id": policy_id,
            **_turn_figures(agent_id, turns, rollouts),
            **_advantage_figures(agent_id, stats.get(agent_id), batch, advantages),
            **_update_figures(update),
        }
    return {
        "kind": "iteration",
        "iteration": iteration,
        "success": float(np.mean(known)) if known else float("nan"),
        "num_rollouts": len(rollouts),
        "num_groups": len({rollout.group_id for rollout in rollouts}),
        "lost_rollouts": sum(rollout.status == "lost" for rollout in rollouts),
        "truncated_rollouts": sum(rollout.status == "truncated" for rollout in rollouts),
        "reward_terms": sorted({term for rollout in rollouts for turn in rollout.turns for term in turn.reward_terms}),
        "failures": _counted(frequent_failures(rollouts)),
        "seconds": dict(seconds),
        "agents": agents,
        "policies": {policy_id: _policy_figures(update) for policy_id, update in updates.items()},
        "alarms": [],
    }


def evaluation_record(result: Evaluation, iteration: int) -> dict[str, Any]:
    """One evaluation as plain values."""
    return {
        "kind": "evaluation",
        "iteration": iteration,
        "tasks": result.tasks,
        "n": result.n,
        **_score_figures(result.overall),
        "by_source": {source: _score_figures(score) for source, score in result.by_source.items()},
        "agents": {agent_id: {**vars(use)} for agent_id, use in result.agents.items()},
        "unfinished": result.unfinished,
        "failures": _counted(result.failures),
    }


def _counted(failures: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"error": error, "count": count} for error, count in failures.items()]


def _score_figures(score: Score) -> dict[str, Any]:
    return {
        "num_tasks": score.num_tasks,
        "avg_at_k": score.avg_at_k,
        "interval": list(score.interval),
        "pass_at_k": {str(k): value for k, value in score.pass_at_k.items()},
    }


def _turn_figures(agent_id: str, turns: Sequence[TurnRecord], rollouts: Sequence[Rollout]) -> dict[str, Any]:
    return {
        "num_turns": len(turns),
        "turns_per_episode": len(turns) / len(rollouts),
        "valid_frac": sum(turn.valid for turn in turns) / len(turns) if turns else float("nan"),
        "return_mean": float(np.mean([rollout.returns.get(agent_id, 0.0) for rollout in rollouts])),
        "prompt_tokens": sum(turn.reply.num_prompt_tokens for turn in turns),
        "completion_tokens": sum(turn.reply.num_completion_tokens for turn in turns),
        "seconds": sum(turn.reply.seconds for turn in turns),
    }


def _advantage_figures(
    agent_id: str, stats: AgentAdvantageStats | None, batch: TrainingBatch, advantages: AdvantageReport
) -> dict[str, Any]:
    if stats is None:
        return {}
    mine = np.array([other == agent_id for other in batch.agent_ids])
    counts, _ = np.histogram(
        np.clip(advantages.advantages[mine], _HISTOGRAM_EDGES[0], _HISTOGRAM_EDGES[-1]), _HISTOGRAM_EDGES
    )
    return {
        "reward_mean": stats.reward_mean,
        "reward_std": stats.reward_std,
        "advantage_mean": stats.advantage_mean,
        "advantage_rms": stats.advantage_rms,
        "advantage_histogram": {"edges": _HISTOGRAM_EDGES.tolist(), "counts": counts.tolist()},
        "zero_advantage_frac": stats.zero_frac,
        "lone_frac": stats.lone_frac,
        "zero_std_frac": stats.zero_std_frac,
        "guarded_frac": stats.guarded_frac,
        "inflation": stats.predicted_inflation,
        "predicted_second_moment": stats.predicted_second_moment,
    }


def _update_figures(update: AgentUpdate | None) -> dict[str, Any]:
    if update is None:
        return {}
    return {
        "grad_norm": float(np.mean(update.grad_norms)) if update.grad_norms else float("nan"),
        "grad_norm_max": max(update.grad_norms, default=float("nan")),
        "entropy": update.entropy,
        "clip_frac": update.per_token("clipped"),
        "dual_clip_frac": update.per_token("dual_clipped"),
        "approx_kl": update.per_token("old_less_new"),
        "reference_kl": update.per_token("reference_kl"),
        "importance_capped_frac": update.per_token("capped"),
        "engine_gap": update.engine_gap,
    }


def _policy_figures(update: PolicyUpdate) -> dict[str, Any]:
    return {
        "grad_norm_mean": float(np.mean(update.grad_norms)) if update.grad_norms else float("nan"),
        "grad_norm_max": max(update.grad_norms, default=float("nan")),
        "loss": float(np.mean(update.losses)) if update.losses else float("nan"),
        "lr": update.lr,
        "num_updates": len(update.grad_norms),
        "skipped_updates": update.skipped,
        "over_threshold_updates": update.over_threshold,
    }


def spread(rollouts: Sequence[Rollout], most: int) -> list[Rollout]:
    """At most this many rollouts, spread over all of them."""
    return list(rollouts[:: max(1, len(rollouts) // max(1, most))][:most])


def training_transcripts(
    rollouts: Sequence[Rollout], iteration: int, batch: TrainingBatch, advantages: AdvantageReport
) -> list[dict[str, Any]]:
    """Rollouts word for word, each turn with the reward it was trained on and its advantage; NaN where it was not."""
    transcripts = []
    for rollout in rollouts:
        rows = [batch.places.get((rollout.rollout_id, turn)) for turn in range(len(rollout.turns))]
        rewards = [float("nan") if row is None else float(batch.rewards[row]) for row in rows]
        values = [float("nan") if row is None else float(advantages.advantages[row]) for row in rows]
        transcripts.append(rollout_record(rollout, iteration, rewards, values))
    return transcripts
