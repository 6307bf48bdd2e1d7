"""The page about RLlib, run as it stands: a real `Algorithm` with an env runner is trained, saved and restored.

It runs in a process of its own, because Ray leaves threads and warnings in the one that started it.
"""

import json
import os
import re
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="needs mas-envs[rllib]")

from adapters.rllib.ray_parts import SUPPORTED
from tests.docs.adapter_pages import DOCS, blocks, promised

ROOT = Path(__file__).parents[3]
PAGE = "rllib.md"
SCRIPT = """
import contextlib, io, json, sys
import ray
from adapters.rllib import ray_session

names, printed = {"__name__": "documentation"}, io.StringIO()
with ray_session(num_cpus=2):
    store_bytes = ray.cluster_resources()["object_store_memory"]
    with contextlib.redirect_stdout(printed):
        for block in json.load(sys.stdin):
            exec(compile(block, "rllib.md", "exec"), names)
    is_used = ray.is_initialized()
print(json.dumps([printed.getvalue().splitlines(), store_bytes, is_used, ray.is_initialized()]))
"""


def processes_with(mark: str) -> list[str]:
    """Command lines of the processes that have `mark` in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text("utf-8", "replace").replace("\0", " ")[:80])
        except OSError:  # it has ended, or is not ours to read
            continue
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    mark = f"MAS_ENVS_RLLIB_TEST={uuid.uuid4()}"
    name, _, value = mark.partition("=")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps(blocks(PAGE)),
        env={**os.environ, "PYTHONPATH": str(ROOT), name: value},
        cwd=tmp_path_factory.mktemp("page"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for _ in range(20):
        if not (left := processes_with(mark)):
            break
        time.sleep(0.1)
    printed, store_bytes, is_used, is_left = json.loads(done.stdout.splitlines()[-1])
    return {"printed": printed, "store": store_bytes, "used": is_used, "left_on": is_left, "processes": left}


def test_page_prints_what_it_says(run: dict[str, Any]) -> None:
    expected = [line for block in blocks(PAGE) for line in promised(block)]
    assert run["printed"] == expected
    assert len(expected) == 3


def test_object_store_is_bounded(run: dict[str, Any]) -> None:
    assert 0 < run["store"] <= 200 * 2**20


def test_ray_that_runs_already_is_used_and_left_running(run: dict[str, Any]) -> None:
    assert run["used"] is True


def test_nothing_of_ray_is_left_afterwards(run: dict[str, Any]) -> None:
    assert run["left_on"] is False
    assert run["processes"] == []


def test_processes_are_found_by_their_mark() -> None:
    mark = f"MAS_ENVS_RLLIB_TEST={uuid.uuid4()}"
    name, _, value = mark.partition("=")
    with subprocess.Popen(["sleep", "60"], env={**os.environ, name: value}) as sleeper:
        try:
            assert processes_with(mark) == ["sleep 60 "]
        finally:
            sleeper.kill()


def test_versions_on_the_page_are_those_that_are_accepted() -> None:
    text = " ".join((DOCS / PAGE).read_text("utf-8").split())
    (low, high) = SUPPORTED
    assert f"a version outside {low[0]}.{low[1]} to {high[0]}.{high[1] - 1}," in text
    assert f'"ray[rllib]>={low[0]}.{low[1]},<{high[0]}.{high[1]}"' in (ROOT / "pyproject.toml").read_text("utf-8")


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([\w./-]+\.md)", (DOCS / PAGE).read_text("utf-8")):
        assert (DOCS / target).is_file(), target
