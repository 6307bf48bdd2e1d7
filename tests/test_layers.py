"""Rules about the whole tree that a machine can check: layers, prints, public names."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("mas_envs", "adapters", "trainers")
FORBIDDEN = {"mas_envs": {"adapters", "trainers"}, "adapters": {"trainers"}, "trainers": set[str]()}
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
INITS = [path for path in FILES if path.name == "__init__.py" and path.read_text("utf-8").count("\n") > 1]
NOT_AT_IMPORT = ("torch", "transformers", "trainers", "adapters", "ray", "pyarrow", "sympy", "math_verify", "pandas")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "."


def modules_after(statement: str) -> set[str]:
    script = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stdout))


def test_every_package_is_scanned() -> None:
    assert {name_of(path).split("/")[0] for path in FILES} == set(PACKAGES)


@pytest.mark.parametrize(
    "statement", ["import mas_envs", "import mas_envs; mas_envs.make('MathLoop-v0').reset(seed=0)"]
)
def test_environments_need_no_training_library(statement: str) -> None:
    assert modules_after(statement).isdisjoint(NOT_AT_IMPORT)


def test_import_needs_no_network_client_and_no_environment_module() -> None:
    loaded = modules_after("import mas_envs")
    assert loaded.isdisjoint({"httpx", "requests", "mas_envs.math_loop.env", "mas_envs.math_loop.grading"})


def test_advantages_alone_need_no_torch() -> None:
    loaded = modules_after("from trainers import compute_advantages")
    assert loaded.isdisjoint({"torch", "transformers", "ray", "mas_envs.math_loop.env"})


def test_adapters_are_imported_one_by_one() -> None:
    assert not {module for module in modules_after("import adapters") if module.startswith("adapters.")}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_point_one_way_and_are_absolute(path: Path) -> None:
    package = name_of(path).split("/")[0]
    roots = {module.split(".")[0] for module in imports_of(path)}
    assert roots.isdisjoint(FORBIDDEN[package])
    assert "" not in roots


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_library_code_prints_nothing(path: Path) -> None:
    calls = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert calls == []


@pytest.mark.parametrize("path", INITS, ids=name_of)
def test_package_says_what_is_public(path: Path) -> None:
    assigned = [
        node
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.Assign)
        and any(isinstance(name, ast.Name) and name.id == "__all__" for name in node.targets)
    ]
    assert len(assigned) == 1
    names = ast.literal_eval(assigned[0].value)
    assert len(set(names)) == len(names)
