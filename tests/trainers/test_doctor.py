"""`mas-envs doctor`: every line says what is there and what that means."""

import importlib.metadata
import json
import sys
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner, Result

from trainers.doctor import Finding, examine, memory_limit
from trainers.doctor_command import doctor

NAMES = (
    "python cores memory torch GPU transformers peft httpx datasets ray trl faiss vllm chromium hub_cache "
    "shared_memory threads"
).split()


def ask(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(doctor)
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "250"})


def findings(**environ: str) -> dict[str, Finding]:
    return {finding.name: finding for finding in examine(environ)}


def test_every_line_says_what_it_found_and_what_that_means() -> None:
    found = examine({})
    assert [finding.name.replace(" ", "_") for finding in found] == NAMES
    assert all(finding.found and finding.meaning for finding in found)
    by_name = {finding.name: finding for finding in found}
    assert by_name["torch"] == Finding("torch", "fine", str(torch.__version__), by_name["torch"].meaning)
    assert by_name["GPU"].status == ("fine" if torch.cuda.is_available() else "missing")


def test_table_and_json_say_the_same() -> None:
    table, plain = ask(), ask("--json")
    assert (table.exit_code, plain.exit_code) == (0, 0)
    read = json.loads(plain.output)
    assert read["fine"] is True
    assert [each["name"].replace(" ", "_") for each in read["findings"]] == NAMES
    for each in read["findings"]:
        assert each["meaning"][:20] in table.output


@pytest.mark.parametrize(("module", "name"), [("torch", "torch"), ("faiss", "faiss")])
def test_library_that_does_not_import_is_broken(module: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    finding = findings()[name]
    assert finding.status == "broken"
    assert "ModuleNotFoundError" in finding.found
    assert "does not import; install" in finding.meaning
    assert ask().exit_code == 1


def test_bare_installation_is_told_which_extra_brings_what(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", none)
    found = findings()
    for name, extra in (
        ("torch", "train"),
        ("peft", "train"),
        ("faiss", "search"),
        ("datasets", "data"),
        ("trl", "trl"),
    ):
        assert found[name].status == "missing"
        assert f"pip install 'mas-envs[{extra}]'" in found[name].meaning
    assert "docs/engines.md" in found["vllm"].meaning
    assert ask().exit_code == 0


@pytest.mark.parametrize(
    ("environ", "status", "meaning"),
    [
        ({}, "fine", "training commands set OMP_WAIT_POLICY=PASSIVE"),
        ({"OMP_WAIT_POLICY": "passive"}, "fine", "training commands set OMP_WAIT_POLICY=PASSIVE"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "poor", "waiting threads spin"),
    ],
)
def test_spinning_threads_are_noticed(environ: dict[str, str], status: str, meaning: str) -> None:
    finding = findings(**environ)["threads"]
    assert finding.status == status
    assert meaning in finding.meaning


def test_models_in_the_hub_cache_are_named(tmp_path: Path) -> None:
    (tmp_path / "hub" / "models--Qwen--Qwen3-4B").mkdir(parents=True)
    finding = findings(HF_HOME=str(tmp_path), HF_HUB_OFFLINE="1")["hub cache"]
    assert f"{tmp_path / 'hub'}: Qwen/Qwen3-4B; " in finding.found
    assert finding.meaning == "HF_HUB_OFFLINE is set: only these load, and folders"
    assert "no models" in findings(HF_HUB_CACHE=str(tmp_path / "none"))["hub cache"].found


@pytest.mark.parametrize(
    ("meminfo", "limit", "memory"),
    [
        ("MemTotal:  2048 kB\nMemFree: 1 kB\n", None, 2048 * 1024),
        ("MemTotal:  2048 kB\n", "max", 2048 * 1024),
        ("MemTotal:  2048 kB\n", "1000\n", 1000),
        (None, None, None),
    ],
)
def test_memory_is_that_of_the_container(
    meminfo: str | None, limit: str | None, memory: int | None, tmp_path: Path
) -> None:
    for name, text in (("proc/meminfo", meminfo), ("sys/fs/cgroup/memory.max", limit)):
        if text is not None:
            (tmp_path / name).parent.mkdir(parents=True)
            (tmp_path / name).write_text(text, encoding="ascii")
    assert memory_limit(tmp_path) == memory
