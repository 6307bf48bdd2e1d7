"""Keeps the batch of an update that was not finite, so that it can be looked at."""

import dataclasses
import json
from collections.abc import Collection
from pathlib import Path

from trainers.advantages import AdvantageReport
from trainers.batch import TrainingBatch

__all__ = ["write_batch"]


def write_batch(path: Path, batch: TrainingBatch, advantages: AdvantageReport, policy_ids: Collection[str]) -> None:
    """Write the rows of these policies with tokens, logprobs, reward and advantage as a JSON list."""
    rows = [
        {**dataclasses.asdict(row), "reward": float(batch.rewards[i]), "advantage": float(advantages.advantages[i])}
        for i, row in enumerate(batch.rows)
        if row.policy_id in policy_ids
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows), encoding="utf-8")
