"""Signs that a run is going wrong, said in words while it can still be stopped."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Alarms"]

_WINDOW = 5
"""Iterations that are looked at together, so that one odd batch raises nothing."""
_COLLAPSE_FRAC = 0.5
_MIN_PEAK = 0.1
_NO_ENTROPY = 0.02
_NO_SIGNAL_FRAC = 0.95
_MIN_VALID_FRAC = 0.5
_SPIKE_FACTOR = 10.0


class Alarms:
    """Looks at each iteration's record and says what is wrong; each alarm sounds once until it has gone away.

    The alarms: `reward_collapse`, `never_called`, `no_entropy`, `gradient_spike`, `not_finite`, `invalid_actions`,
    `no_signal`, `lost_rollouts` and `unearned_term`.

    Args:
        weighted_terms: Reward terms that settings weigh, and that somebody should earn.
    """

    def __init__(self, weighted_terms: Sequence[str] = ()) -> None:
        self._weighted_terms = tuple(weighted_terms)
        self._history: list[Mapping[str, Any]] = []
        self._sounding: set[tuple[str, str]] = set()

    def check(self, record: Mapping[str, Any]) -> list[dict[str, str]]:
        """Alarms that start with this iteration.

        Args:
            record: A line of `metrics.jsonl`, kind `iteration`.

        Returns:
            One `{"agent_id", "name", "message"}` each; `agent_id` is `team` for what concerns everyone.
        """
        self._history.append(record)
        found = [*self._of_team(record)]
        for agent_id in record["agents"]:
            found += self._of_agent(agent_id, [past["agents"].get(agent_id, {}) for past in self._history])
        keys = {(alarm["agent_id"], alarm["name"]) for alarm in found}
        new = [alarm for alarm in found if (alarm["agent_id"], alarm["name"]) not in self._sounding]
        self._sounding = keys
        return new

    def _of_team(self, record: Mapping[str, Any]) -> list[dict[str, str]]:
        found = []
        successes = [past["success"] for past in self._history]
        numbers = [past.get("iteration", index) for index, past in enumerate(self._history, start=1)]
        means = [_mean(successes[max(0, end - _WINDOW) : end]) for end in range(1, len(successes) + 1)]
        if len(means) >= _WINDOW and max(means) > _MIN_PEAK and means[-1] < _COLLAPSE_FRAC * max(means):
            found.append(
                _alarm(
                    "team",
                    "reward_collapse",
                    f"success has fallen to {means[-1]:.0%} from {max(means):.0%} in iteration "
                    f"{numbers[means.index(max(means))]}: an update since did harm; lower lr or set max_grad_norm, "
                    "and go on from the best checkpoint",
                )
            )
        if record["lost_rollouts"]:
            found.append(
                _alarm(
                    "team",
                    "lost_rollouts",
                    f"{record['lost_rollouts']} of {record['num_rollouts']} rollouts were lost because a policy "
                    f"failed: {_most_frequent(record)}",
                )
            )
        earned = {term for past in self._history for term in past.get("reward_terms", ())}
        if unearned := [term for term in self._weighted_terms if term not in earned]:
            found.append(
                _alarm(
                    "team",
                    "unearned_term",
                    f"algorithm.reward_weights weighs {', '.join(unearned)}, which no turn has earned so far; the "
                    f"environment pays {', '.join(sorted(earned)) or 'nothing yet'}: mend the name",
                )
            )
        for policy_id, policy in record["policies"].items():
            if policy["skipped_updates"]:
                found.append(
                    _alarm(
                        "team",
                        "not_finite",
                        f"an update of policy {policy_id!r} was skipped: loss or gradient was "
                        "not finite; the batch is in bad_batches/",
                    )
                )
        return found

    def _of_agent(self, agent_id: str, past: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
        recent = past[-_WINDOW:]
        found = []
        if len(past) >= _WINDOW and not any(each.get("num_turns") for each in recent):
            found.append(
                _alarm(
                    agent_id,
                    "never_called",
                    f"no turn in {_WINDOW} iterations: the team no longer calls this agent, so it cannot learn",
                )
            )
        entropies = _numbers(recent, "entropy")
        if len(entropies) == _WINDOW and _mean(entropies) < _NO_ENTROPY:
            found.append(
                _alarm(
                    agent_id,
                    "no_entropy",
                    f"entropy is {_mean(entropies):.3f} nats a token: the agent says the same "
                    "every time and explores no more",
                )
            )
        norms = _numbers(past, "grad_norm_max")
        if len(norms) > _WINDOW and norms[-1] > _SPIKE_FACTOR * max(_mean(norms[-2 * _WINDOW - 1 : -1]), 1e-3):
            found.append(
                _alarm(
                    agent_id,
                    "gradient_spike",
                    f"gradient norm {norms[-1]:.3g} is over {_SPIKE_FACTOR:g} times the "
                    "mean of the iterations before; under grpo or drmas_std look at the agent's mean advantage",
                )
            )
        valid = _numbers(recent, "valid_frac")
        if len(valid) == _WINDOW and _mean(valid) < _MIN_VALID_FRAC:
            found.append(_alarm(agent_id, "invalid_actions", self._about_format(agent_id, _mean(valid))))
        zeros = _numbers(recent, "zero_advantage_frac")
        if len(zeros) == _WINDOW and _mean(zeros) > _NO_SIGNAL_FRAC:
            found.append(
                _alarm(
                    agent_id,
                    "no_signal",
                    f"{_mean(zeros):.0%} of the turns have advantage 0: all rollouts of a group "
                    "earn the same; use harder or easier tasks, larger groups, or dynamic sampling",
                )
            )
        return found

    def _about_format(self, agent_id: str, now: float) -> str:
        """Why the format is wrong: it was never right, or an update broke it."""
        low = f"only {now:.0%} of the actions have the right format"
        shares = [(n, past["agents"].get(agent_id, {})) for n, past in enumerate(self._history, start=1)]
        good = [(n, agent["valid_frac"]) for n, agent in shares if (agent.get("valid_frac") or 0.0) > _MIN_VALID_FRAC]
        if not good:
            return f"{low}; look at the transcripts: raise max_tokens or the format penalty, or warm-start it longer"
        last, share = good[-1]
        number = self._history[last - 1].get("iteration", last)
        return (
            f"{low}, {share:.0%} had it in iteration {number}: an update since broke the agent; lower the lr of its "
            "policy, set max_grad_norm, and go on from the best checkpoint"
        )


def _most_frequent(record: Mapping[str, Any]) -> str:
    failures = record.get("failures")
    return str(failures[0]["error"]) if failures else "see 'error' in the transcripts"


def _alarm(agent_id: str, name: str, message: str) -> dict[str, str]:
    return {"agent_id": agent_id, "name": name, "message": message}


def _numbers(records: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    values = [record.get(name) for record in records]
    return [value for value in values if isinstance(value, float | int) and math.isfinite(value)]


def _mean(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else float("nan")
