"""Tokens per second of our engine and of `model.generate`, side by side in one run.

    python -m benchmarks.engines --threads 2 --json engines.json

Each round runs every way once, in turn, so that a slow moment of the machine hits all of them; the median counts.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from trainers.engines.base import Request, Sampling
from trainers.engines.transformers_engine import TransformersEngine


@dataclass(frozen=True)
class Workload:
    """One model and what is asked of it."""

    name: str
    shape: dict[str, int]
    """Settings of `Qwen3Config`."""
    prompts: int
    """Distinct prompts."""
    group: int
    """Completions of each prompt."""
    prompt_tokens: int
    new_tokens: int


TINY: dict[str, int] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
}
SMALL: dict[str, int] = {
    "vocab_size": 512,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 384,
}
MEDIUM: dict[str, int] = {
    "vocab_size": 512,
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "intermediate_size": 704,
}
WORKLOADS = [
    Workload("84k, 8 x 8", TINY, 8, 8, 12, 8),
    Workload("84k, 16 x 8", TINY, 16, 8, 12, 8),
    Workload("0.5M, 8 x 8", SMALL, 8, 8, 128, 128),
    Workload("3M, 8 x 8", MEDIUM, 8, 8, 128, 128),
]


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    workload: str
    parameters: int
    way: str
    tokens_per_s: float
    """Sampled tokens in a second, median over the rounds."""
    ratio: float
    """Against `model.generate` in the same run."""


def build_model(shape: dict[str, int], device: str) -> Any:
    """A random Qwen3 model."""
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(**shape, tie_word_embeddings=True, max_position_embeddings=512))
    return model.to(device).eval()


def draw_prompts(workload: Workload) -> torch.Tensor:
    """[prompts, prompt_tokens] int64."""
    generator = torch.Generator().manual_seed(1)
    size = (workload.prompts, workload.prompt_tokens)
    return torch.randint(3, workload.shape["vocab_size"], size, generator=generator)


def run_generate(model: Any, workload: Workload, prompts: torch.Tensor) -> int:
    """Tokens sampled by transformers, every completion of full length."""
    token_ids = prompts.repeat_interleave(workload.group, dim=0).to(model.device)
    result = model.generate(
        input_ids=token_ids,
        attention_mask=torch.ones_like(token_ids),
        do_sample=True,
        temperature=1.0,
        top_k=0,
        max_new_tokens=workload.new_tokens,
        min_new_tokens=workload.new_tokens,
        pad_token_id=0,
    )
    return int(result[:, workload.prompt_tokens :].numel())


def run_engine(engine: TransformersEngine, workload: Workload, prompts: torch.Tensor) -> int:
    """Tokens sampled by our engine, with logprobs, from lists to lists."""
    sampling = Sampling(max_tokens=workload.new_tokens)
    requests = [
        Request(f"{index}-{member}", tuple(prompt), sampling, seed=index * workload.group + member)
        for index, prompt in enumerate(prompts.tolist())
        for member in range(workload.group)
    ]
    engine.submit(requests)
    tokens = 0
    while ended := engine.poll():
        tokens += sum(len(completion.token_ids) for completion in ended)
    return tokens


def measure(workload: Workload, rounds: int, device: str) -> list[Row]:
    """Every way, interleaved; the first round is a warm-up."""
    model = build_model(workload.shape, device)
    prompts = draw_prompts(workload)
    fused = TransformersEngine(model, eos_token_ids=(), fused=True)
    module = TransformersEngine(model, eos_token_ids=(), fused=False)
    ways: dict[str, Callable[[], int]] = {
        "model.generate": lambda: run_generate(model, workload, prompts),
        "engine, module forward": lambda: run_engine(module, workload, prompts),
        "engine": lambda: run_engine(fused, workload, prompts),
    }
    speeds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds + 1):
        for way, run in ways.items():
            start = time.perf_counter()
            tokens = run()
            speeds[way].append(tokens / (time.perf_counter() - start))
    medians = {way: statistics.median(values[1:]) for way, values in speeds.items()}
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return [
        Row(workload.name, parameters, way, speed, speed / medians["model.generate"]) for way, speed in medians.items()
    ]


def main() -> None:
    """Measure, print a table, and write it as JSON on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (default: 1)")
    parser.add_argument("--rounds", type=int, default=7, help="measured rounds (default: 7)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--workload", default="", help="only workloads whose name contains this")
    parser.add_argument("--json", help="write the rows to this file as well")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"| {'workload':<12} | {'parameters':>10} | {'way':<22} | {'tokens/s':>8} | ratio |")
    print("| --- | ---: | --- | ---: | ---: |")
    rows: list[Row] = []
    for workload in WORKLOADS:
        if options.workload in workload.name:
            for row in measure(workload, options.rounds, options.device):
                rows.append(row)
                print(
                    f"| {row.workload:<12} | {row.parameters:>10,} | {row.way:<22} "
                    f"| {row.tokens_per_s:>8,.0f} | {row.ratio:.2f} |",
                    flush=True,
                )
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"threads": options.threads, "rows": [asdict(row) for row in rows]}, file, indent=1)


if __name__ == "__main__":
    main()
