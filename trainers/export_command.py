"""`mas-envs export`: one trained agent as an ordinary transformers or PEFT folder."""

import json
import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from trainers.commands_setup import need_torch, quiet_threads

__all__ = ["export", "export_agent"]

console = Console()


def export(
    run: Annotated[Path, typer.Argument(help="Run directory.")],
    agent: Annotated[str, typer.Argument(help="Agent such as solver_0, or role, or policy.")],
    out: Annotated[Path, typer.Option(help="Folder to write; must not exist.")],
    best: Annotated[
        bool, typer.Option("--best/--newest", help="The weights of the best evaluation, or of the newest checkpoint.")
    ] = False,
    merge: Annotated[bool, typer.Option("--merge", help="Add an adapter to its base and write plain weights.")] = False,
) -> None:
    """Write one agent's model and tokenizer as a folder that transformers, PEFT and vLLM load.

    Example: mas-envs export runs/math-tiny-1 solver_0 --out my-solver
    """
    quiet_threads()
    need_torch()
    source = export_agent(run, agent, out, best=best, merge=merge)
    console.print(f"{agent}: {source} written to {out}", highlight=False, soft_wrap=True)


def export_agent(run: Path, agent: str, out: Path, *, best: bool = False, merge: bool = False) -> str:
    """Copy the policy of an agent out of a run; returns what was copied, in words.

    Args:
        run: Run directory.
        agent: Agent id, role or policy id.
        out: Folder to write; must not exist.
        best: Take the weights of the best evaluation instead of the newest checkpoint.
        merge: Add an adapter to its base.

    Raises:
        SettingsError: If there is no such run, agent or weights, or `out` exists.
    """
    from trainers.checkpoint import latest_checkpoint
    from trainers.config import SettingsError
    from trainers.trainer import Trainer

    trainer = Trainer.resume(run)
    if out.exists():
        raise SettingsError(f"--out {out}: exists; expected a new folder, or remove this one")
    policy_id = trainer.policy_id_of(agent)
    if best:
        folder, what = run / "best" / policy_id, "the best evaluation's weights"
    else:
        newest = latest_checkpoint(run / "checkpoints")
        folder = newest.folder / policy_id if newest else run / "none"
        what = f"the checkpoint of iteration {newest.iteration}" if newest else ""
    if not folder.is_dir():
        kind = "best evaluation" if best else "whole checkpoint"
        raise SettingsError(f"{run} has no {kind} yet; train further first")
    adapter = folder / "adapter_config.json"
    if not adapter.is_file():
        shutil.copytree(folder, out)
        return what
    started = json.loads((run / "models" / "starting.json").read_text(encoding="utf-8"))
    base = started[policy_id]
    if merge:
        _merge(base, folder, out)
        return f"{what}, merged into its base,"
    shutil.copytree(folder, out)
    config = json.loads(adapter.read_text(encoding="utf-8"))
    config["base_model_name_or_path"] = str(Path(base).resolve()) if Path(base).exists() else base
    (out / "adapter_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    return f"{what} (an adapter on {config['base_model_name_or_path']})"


def _merge(base: str, adapter: Path, out: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from trainers.quiet import no_progress_bars

    with no_progress_bars():
        model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter)
        model.merge_and_unload().save_pretrained(out)
        AutoTokenizer.from_pretrained(adapter).save_pretrained(out)
