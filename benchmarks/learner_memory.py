"""Peak memory and tokens per second of one update, by what the learner does about them.

    python -m benchmarks.learner_memory [--layers 4] [--hidden 256] [--vocabulary 32768] [--device cpu] [--json FILE]

Four prompts of 256 tokens with eight completions of up to 256 tokens each, float32, two threads. `all logits at once`
is the plain way (pad to the longest, logits of every position, one pass); the others are the learner of this project
with one setting changed. Each case runs in a process of its own; memory is what came on top of the model and its
optimizer state.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CASES: dict[str, dict[str, Any]] = {
    "all logits at once": {"plain": True},
    "the learner": {},
    "prompts not shared": {"share": False},
    "microbatches of 2,048 tokens": {"token_budget": 2048},
    "gradient checkpointing": {"learner": {"gradient_checkpointing": True}},
    "bfloat16 autocast": {"learner": {"autocast": "bfloat16"}},
}
_NUM_PROMPTS, _GROUP, _PROMPT, _COMPLETION = 4, 8, 256, 256
_UPDATES = 3


def run_case(settings: dict[str, Any]) -> dict[str, float]:
    """Seconds of an update (the fastest of three), tokens per second, and memory on top of the resting state."""
    import numpy as np
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from trainers import logprobs
    from trainers.batch import TrainingRow
    from trainers.config import AlgorithmSettings, PolicySettings
    from trainers.learner import Learner

    torch.set_num_threads(settings["threads"])
    torch.manual_seed(0)
    shape = {"hidden_size": settings["hidden"], "num_hidden_layers": settings["layers"], "num_attention_heads": 4}
    config = Qwen3Config(
        **shape,
        num_key_value_heads=2,
        head_dim=settings["hidden"] // 4,
        intermediate_size=3 * settings["hidden"],
        vocab_size=settings["vocabulary"],
        tie_word_embeddings=True,
        max_position_embeddings=2048,
    )
    model = Qwen3ForCausalLM(config).to(settings["device"])
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(_NUM_PROMPTS):
        prompt = tuple(rng.integers(2, settings["vocabulary"], _PROMPT).tolist())
        for length in rng.integers(_COMPLETION // 4, _COMPLETION + 1, _GROUP).tolist():
            completion = tuple(rng.integers(2, settings["vocabulary"], length).tolist())
            rows.append(TrainingRow("solver_0", "p", prompt, completion, (-10.0,) * len(completion)))
    advantages = rng.standard_normal(len(rows))
    if settings.get("share") is False:
        logprobs.sharing_pays = lambda prompts, completions: False
    learner = Learner(
        model,
        PolicySettings(lr=1e-4, weight_decay=0.0, learner=settings.get("learner", {})),
        AlgorithmSettings(),
        total_updates=_UPDATES,
        token_budget=settings.get("token_budget", 16_384),
        temperature=1.0,
        max_completion_tokens=_COMPLETION,
    )

    def update() -> None:
        if settings.get("plain"):
            plain_update(model, learner.optimizer, rows, advantages)
        else:
            learner.update(rows, advantages, seed=0)

    learner.update(rows[:1], advantages[:1], seed=0)  # optimizer state and gradients are there now
    rest = memory(settings["device"])
    seconds = []
    for _ in range(_UPDATES):
        began = time.perf_counter()
        update()
        if settings["device"] == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    num_tokens = sum(len(row.prompt_ids) + len(row.completion_ids) for row in rows)
    return {
        "seconds": min(seconds),
        "tokens_per_s": num_tokens / min(seconds),
        "peak_mb": (memory(settings["device"]) - rest) / 2**20,
    }


def plain_update(model: Any, optimizer: Any, rows: Any, advantages: Any) -> None:
    """The update as a script would do it: one padded batch, logits of all positions."""
    import torch

    width = max(len(row.prompt_ids) + len(row.completion_ids) for row in rows)
    device = model.device
    ids, mask = torch.zeros(len(rows), width, dtype=torch.long), torch.zeros(len(rows), width, dtype=torch.bool)
    for index, row in enumerate(rows):
        tokens = torch.tensor([*row.prompt_ids, *row.completion_ids])
        ids[index, : len(tokens)] = tokens
        mask[index, len(row.prompt_ids) : len(tokens)] = True
    ids, mask = ids.to(device), mask.to(device)
    model.train()
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1].float()
    scores = torch.log_softmax(logits, dim=-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    weights = torch.as_tensor(advantages, dtype=torch.float32, device=device)[:, None] * mask[:, 1:]
    loss = -(weights * (scores - scores.detach()).exp()).sum() / mask.sum()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def memory(device: str) -> int:
    """Peak bytes so far."""
    if device == "cuda":
        import torch

        return int(torch.cuda.max_memory_allocated())
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--vocabulary", type=int, default=32_768)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    common = {name: getattr(arguments, name) for name in ("layers", "hidden", "vocabulary", "threads", "device")}
    if arguments.case:
        print(json.dumps(run_case({**common, **CASES[arguments.case]})))
        return
    environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads), "OMP_WAIT_POLICY": "PASSIVE"}
    options = [f"--{name}={value}" for name, value in common.items()]
    rows = []
    print(f"load at the start: {os.getloadavg()[0]:.1f}")
    print(f"{'case':>30} {'update s':>9} {'tokens/s':>9} {'memory MB':>10}")
    for case in CASES:
        command = [sys.executable, "-m", "benchmarks.learner_memory", *options, "--case", case]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        figures = {"case": case, **json.loads(done.stdout.strip().splitlines()[-1])}
        rows.append(figures)
        print(f"{case:>30} {figures['seconds']:9.2f} {figures['tokens_per_s']:9,.0f} {figures['peak_mb']:10,.0f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
