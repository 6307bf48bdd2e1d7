"""One training step of ours and of TRL's GRPOTrainer: same model, batch, precision and machine, side by side.

    python -m benchmarks.step_vs_trl --trl-python ~/trl/bin/python [--sizes 0.5M 3M 10M] [--rounds 2] [--json FILE]

TRL lives in an environment of its own: `python3 -m venv ~/trl && ~/trl/bin/pip install torch==2.13.0 trl==1.16.0`. A
step samples 32 completions of 128 tokens (4 prompts of 128, 8 each; no end token, so that all are full) and makes one
update on all of them, in float32. Each side runs in a process of its own; the two take turns, medians count.
`--device cuda` runs both on a GPU.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SIZES: dict[str, dict[str, Any]] = {
    "0.5M": {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
             "head_dim": 32, "intermediate_size": 384, "vocab_size": 1024},
    "3M": {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
           "head_dim": 64, "intermediate_size": 768, "vocab_size": 1024},
    "10M": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 6, "num_key_value_heads": 2,
            "head_dim": 64, "intermediate_size": 1152, "vocab_size": 2048},
}  # fmt: skip
OURS = "import sys; from benchmarks.step_vs_trl import our_step; our_step(sys.argv[1])"


def our_step(text: str) -> None:
    """Our side, in this process: the trainer's engine and learner; prints one JSON line."""
    settings = json.loads(text)
    import numpy as np
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from trainers.batch import TrainingRow
    from trainers.config import AlgorithmSettings, PolicySettings
    from trainers.engines.base import Request, Sampling
    from trainers.engines.transformers_engine import TransformersEngine
    from trainers.learner import Learner

    torch.set_num_threads(settings["threads"])
    torch.manual_seed(0)
    config = Qwen3Config(**settings["shape"], tie_word_embeddings=True, max_position_embeddings=2048)
    model = Qwen3ForCausalLM(config).to(settings["device"])
    engine = TransformersEngine(model, eos_token_ids=())
    policy = PolicySettings(lr=1e-4, weight_decay=0.0)
    learner = Learner(
        model,
        policy,
        AlgorithmSettings(),
        total_updates=settings["steps"],
        token_budget=16_384,
        temperature=1.0,
        max_completion_tokens=settings["new_tokens"],
    )
    rng = np.random.default_rng(1)
    sampling = Sampling(max_tokens=settings["new_tokens"])
    whole, generation = [], []
    for step in range(settings["steps"]):
        began = time.perf_counter()
        prompts = rng.integers(2, 12, (settings["prompts"], settings["prompt_tokens"])).tolist()
        requests = [
            Request(f"{step}/{p}/{g}", tuple(prompt), sampling, seed=1000 * step + 10 * p + g)
            for p, prompt in enumerate(prompts)
            for g in range(settings["group"])
        ]
        engine.submit(requests)
        done = {}
        while completions := engine.poll():
            done.update({completion.request_id: completion for completion in completions})
        generated = time.perf_counter()
        rows = [
            TrainingRow(
                "solver_0", "p", each.prompt_ids, done[each.request_id].token_ids, done[each.request_id].logprobs
            )
            for each in requests
        ]
        assert all(len(row.completion_ids) == settings["new_tokens"] for row in rows)
        learner.update(rows, rng.standard_normal(len(rows)), seed=step)
        engine.sync(model.state_dict(), step + 1)
        ended = time.perf_counter()
        whole.append(ended - began)
        generation.append(generated - began)
    figures = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "step_s": statistics.median(whole[1:]),
        "generate_s": statistics.median(generation[1:]),
        "peak_rss_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }
    print(json.dumps(figures))


def run(command: list[str], settings: dict[str, Any]) -> dict[str, Any]:
    """The figures that a process prints last."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(settings["threads"]), "OMP_WAIT_POLICY": "PASSIVE"}
    environment |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
    done = subprocess.run(
        [*command, json.dumps(settings)], capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl-python", type=Path, required=True, help="interpreter of an environment with TRL 1.16")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sides = {
        "ours": [sys.executable, "-c", OURS],
        "trl": [str(arguments.trl_python), str(Path(__file__).with_name("trl_step.py"))],
    }
    rows: list[dict[str, Any]] = []
    print(f"load at the start: {os.getloadavg()[0]:.1f}")
    print(f"{'size':>6} {'side':>5} {'step s':>8} {'generate':>9} {'update':>8} {'peak RSS':>9}")
    for size in arguments.sizes:
        settings = {
            "shape": SIZES[size],
            "prompts": 4,
            "group": 8,
            "prompt_tokens": 128,
            "new_tokens": 128,
            "steps": arguments.steps,
            "threads": arguments.threads,
            "device": arguments.device,
        }
        measured: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
        for _ in range(arguments.rounds):
            for side, command in sides.items():
                measured[side].append(run(command, settings))
        medians = {
            side: {name: statistics.median(each[name] for each in found) for name in found[0]}
            for side, found in measured.items()
        }
        for side, median in medians.items():
            update = median["step_s"] - median["generate_s"]
            memory = f"{median['peak_rss_bytes'] / 1e9:6.2f} GB"
            print(f"{size:>6} {side:>5} {median['step_s']:8.2f} {median['generate_s']:9.2f} {update:8.2f} {memory}")
            rows.append({"size": size, "side": side, **median})
        print(f"{'':>6} ratio {medians['trl']['step_s'] / medians['ours']['step_s']:7.2f}x", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
