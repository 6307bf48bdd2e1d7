"""`mas-envs plan`: what a run needs, before anything is downloaded or started."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from trainers.plan import RunPlan
    from trainers.policy_plan import PolicyPlan

__all__ = ["plan"]

console = Console()


def plan(
    recipe: Annotated[str, typer.Argument(help="Name of a recipe, or a .yaml file.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Settings as key=value, as `mas-envs train` takes them.")
    ] = None,
    gpu_gb: Annotated[float, typer.Option(min=1.0, help="Memory of one GPU, GiB.")] = 80.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, in bytes.")] = False,
) -> None:
    """Say what a run needs: memory, disk, calls and tokens. Nothing is downloaded.

    Example: mas-envs plan math-qwen3-4b token_budget=8192 --gpu-gb 141
    """
    from trainers.config import load_settings
    from trainers.plan import make_plan

    found = make_plan(load_settings(recipe, overrides or []), gpu_gib=gpu_gb)
    if as_json:
        derived = {"device": found.device, "num_gpus": found.num_gpus, "fits_one_device": found.fits_one_device}
        typer.echo(json.dumps({**asdict(found), **derived}, indent=1))
    else:
        _show(found)


def _show(found: "RunPlan") -> None:
    console.print(_policy_table(found))
    table = Table(show_header=False, box=None, padding=(0, 2))
    for name, value in _totals(found):
        table.add_row(name, value)
    console.print(table)
    for warning in found.warnings:
        console.print(f"[yellow]Warning:[/yellow] {escape(warning)}", highlight=False, soft_wrap=True)


def _policy_table(found: "RunPlan") -> Table:
    table = Table(
        "GiB", *(escape(policy.policy_id) for policy in found.policies), title=f"Plan of {escape(found.name)}"
    )
    rows = [_cells(policy) for policy in found.policies]
    for name in rows[0]:
        table.add_row(name, *(escape(cells[name]) for cells in rows))
    return table


def _cells(policy: "PolicyPlan") -> dict[str, str]:
    """Row of the table -> what stands in the policy's column."""
    known = policy.parameters is not None
    vllm = f"{_gib(policy.engine_reserved)}, room for {policy.engine_rows:g} longest completions"
    return {
        "plays": ", ".join(policy.agents),
        "model": policy.model,
        "parameters": f"{policy.parameters:,}" if policy.parameters is not None else "not known",
        "trained": f"{policy.trained_parameters:,} ({policy.kind})" if policy.trained_parameters else policy.kind,
        "weights": f"{_gib(policy.weights)} ({policy.dtype})" if known else "",
        "AdamW moments": _gib(policy.moments),
        "reference of the KL penalty": _gib(policy.reference),
        "one copy of the gradients": _gib(policy.gradients),
        "activations of a microbatch": f"{_gib(policy.activations)} ({policy.microbatch_tokens:,} tokens)"
        if policy.activations
        else "",
        "copies of autocast": _gib(policy.copies),
        "logits, in pieces": _gib(policy.logits),
        "peak of an update": _gib(policy.update),
        "engine": f"{policy.engine} ({policy.engine_dtype})" if known else policy.engine,
        "cache per token": f"{policy.cache_per_token / 1024:.0f} KiB" if known else "",
        "cache of a full batch": _gib(policy.cache),
        "vLLM's share": vllm if policy.engine_reserved else "",
        "prompt + completion": f"{policy.max_prompt_tokens:,} + {policy.max_completion_tokens:,} tokens at most",
    }


def _totals(found: "RunPlan") -> Iterator[tuple[str, str]]:
    fits = "fits" if found.fits_one_device else "does not fit"
    memory = f"{_gib(found.resident)} GiB always + {_gib(max(found.update_peak, found.cache_peak))} at the peak"
    yield "device memory", f"{_gib(found.device)} GiB ({memory}); {fits} one device of {found.gpu_gib:g} GiB"
    yield "devices", f"{found.num_gpus} of {found.gpu_gib:g} GiB have as much memory together; one is used"
    calls = "not known" if found.max_calls is None else f"at most {found.max_calls:,} completions"
    tokens = "" if found.max_tokens is None else f", {found.max_tokens / 1e6:,.1f} million tokens read and written"
    yield "an iteration", f"{found.num_rollouts:,} rollouts, {calls}{tokens}"
    yield "iterations", f"{found.iterations:,}"
    yield "download", f"{_gib(found.download) or '0.0'} GiB of weights, unless they are in the cache; data sets apart"
    yield "disk", f"{_gib(found.disk) or '0.0'} GiB for checkpoints of {_gib(found.checkpoint) or '0.0'}"


def _gib(size: int) -> str:
    """Bytes as GiB; nothing for nothing."""
    return f"{size / 2**30:,.1f}" if size else ""
