"""What a run writes down: `metrics.jsonl`, TensorBoard and transcripts."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainers.rollout import Rollout

__all__ = ["RunLog", "plain", "rollout_record"]


class RunLog:
    """Appends records to a run directory; a run that goes on from a checkpoint drops what came after it.

    Args:
        run_dir: The run directory.
        resume_at: Iterations finished by the checkpoint the run goes on from; None starts anew.
        tensorboard: Whether to write TensorBoard events as well.
    """

    def __init__(self, run_dir: Path, *, resume_at: int | None = None, tensorboard: bool = True) -> None:
        self._metrics = run_dir / "metrics.jsonl"
        self._transcripts = run_dir / "transcripts"
        self._transcripts.mkdir(parents=True, exist_ok=True)
        self._keep_until(resume_at)
        self._writer: Any = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter  # takes a second to import

            self._writer = SummaryWriter(str(run_dir / "tensorboard"), purge_step=resume_at)

    def iterations(self) -> list[dict[str, Any]]:
        """The records of the iterations so far."""
        if not self._metrics.exists():
            return []
        lines = self._metrics.read_text(encoding="utf-8").splitlines()
        return [record for record in map(json.loads, lines) if record.get("kind") == "iteration"]

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record; numbers that are not finite become null."""
        with self._metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(plain(record), ensure_ascii=False) + "\n")
        if self._writer is not None and "iteration" in record:
            for name, value in _numbers(record, str(record.get("kind", "run"))):
                self._writer.add_scalar(name, value, int(record["iteration"]))
            self._writer.flush()

    def write_transcripts(self, name: str, records: Sequence[Mapping[str, Any]]) -> None:
        """Write the rollouts of one iteration or evaluation, one a line."""
        if records:
            lines = [json.dumps(plain(record), ensure_ascii=False) for record in records]
            (self._transcripts / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def close(self) -> None:
        """Flush TensorBoard; safe to call twice."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _keep_until(self, iteration: int | None) -> None:
        if not self._metrics.exists():
            return
        kept = []
        for line in self._metrics.read_text(encoding="utf-8").splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue  # the line a killed run was writing
            if iteration is not None and record.get("iteration", 0) <= iteration:
                kept.append(line)
        self._metrics.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
        for path in self._transcripts.glob("*-*.jsonl"):
            number = path.stem.rpartition("-")[2]
            if iteration is None or (number.isdigit() and int(number) > iteration):
                path.unlink()


def rollout_record(
    rollout: Rollout, iteration: int, rewards: Sequence[float] = (), advantages: Sequence[float] = ()
) -> dict[str, Any]:
    """A rollout as plain values: task, outcome and for each turn text, reward terms, advantage, tokens and seconds.

    Args:
        rollout: The rollout.
        iteration: Iteration it belongs to.
        rewards: Reward each turn was trained on; empty where there was no training.
        advantages: Advantage of each turn; empty where there was no training.
    """
    turns = [
        {
            "agent_id": turn.agent_id,
            "role": turn.role,
            "policy_id": turn.policy_id,
            "text": turn.reply.text,
            "prompt": turn.prompt,
            "valid": turn.valid,
            "reason": turn.error,
            "reward_terms": turn.reward_terms,
            "reward": rewards[index] if rewards else None,
            "advantage": advantages[index] if advantages else None,
            "prompt_tokens": turn.reply.num_prompt_tokens,
            "completion_tokens": turn.reply.num_completion_tokens,
            "seconds": turn.reply.seconds,
            "finish_reason": turn.reply.finish_reason,
        }
        for index, turn in enumerate(rollout.turns)
    ]
    return {
        "iteration": iteration,
        "rollout_id": rollout.rollout_id,
        "group_id": rollout.group_id,
        "task_id": rollout.task_id,
        "source": rollout.source,
        "question": rollout.task.question if rollout.task else None,
        "answer": rollout.task.answer if rollout.task else None,
        "success": rollout.success,
        "status": rollout.status,
        "error": rollout.error,
        "returns": rollout.returns,
        "turns": turns,
    }


def plain(value: Any) -> Any:
    """The value with numbers that JSON cannot hold as null, keys as text and tuples as lists."""
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _numbers(record: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    for key, value in record.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}/{key}")
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and key not in ("iteration", "kind"):
            yield f"{prefix}/{key}", float(value)
