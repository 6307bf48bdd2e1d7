"""Installed plug-ins: real distributions with entry points on `sys.path`, good ones and broken ones."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gymnasium import error as gym_error

from mas_envs.registration import PLUGIN_GROUP, Registry

LOOP = "mas_envs.math_loop.env:MathLoopEnv"
GOOD = f"def register(add):\n    add('good/Talk-v0', '{LOOP}', max_loops=4)\n"
Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a distribution with one plug-in on the path: namespace and the code of its module."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def put(namespace: str, code: str) -> None:
        (tmp_path / f"plugin_{namespace}.py").write_text(code)
        info = tmp_path / f"plugin_{namespace}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: plugin-{namespace}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{PLUGIN_GROUP}]\n{namespace} = plugin_{namespace}:register\n")

    yield put
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def registry() -> Registry:
    registry = Registry(PLUGIN_GROUP)
    registry.register("Loop-v0", LOOP)
    return registry


def test_plugin_is_loaded_when_an_id_is_unknown(install: Install, registry: Registry) -> None:
    install("good", GOOD)
    registry.make("Loop-v0")
    assert "plugin_good" not in sys.modules
    env = registry.make("good/Talk-v0").unwrapped
    assert env.max_loops == 4
    assert registry.find("good/Talk-v0").origin == "plugin_good"


def test_plugin_is_loaded_for_a_listing(install: Install, registry: Registry) -> None:
    install("good", GOOD)
    assert "good/Talk-v0" not in registry
    assert "===== good =====\ngood/Talk-v0" in registry.pprint()


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("raise RuntimeError('no luck')", "RuntimeError: no luck"),
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("x = 1", "AttributeError: module 'plugin_bad' has no attribute 'register'"),
        (f"def register(add):\n    add('bad/A-v0', '{LOOP}')\n    1 / 0", "ZeroDivisionError: division by zero"),
        (f"def register(add):\n    add('Loop-v0', '{LOOP}')", "RegistrationError: the plug-in 'bad' may only register"),
        (f"def register(add):\n    add('good/B-v0', '{LOOP}')", "'good/B-v0' should be 'bad/B-v0'"),
    ],
)
def test_broken_plugin_warns_once_and_breaks_nothing_else(
    code: str, fault: str, install: Install, registry: Registry
) -> None:
    install("bad", code)
    install("good", GOOD)
    with pytest.warns(UserWarning, match="the plug-in 'bad' .* failed to load and is left out") as caught:
        assert registry.make("good/Talk-v0").possible_agents == ["solver_0", "verifier_0"]
    assert len(caught) == 1
    assert fault in str(caught[0].message)
    assert set(registry) == {"Loop-v0", "good/Talk-v0"}
    with pytest.raises(
        gym_error.NamespaceNotFound, match="no environment 'bad/A-v0': the plug-in 'bad' failed to load"
    ):
        registry.make("bad/A-v0")  # and no second warning, which would be an error here


def test_warning_turned_into_an_error_stops_no_other_plugin(install: Install, registry: Registry) -> None:
    install("bad", "raise RuntimeError('no luck')")
    install("good", GOOD)
    with pytest.raises(UserWarning, match="no luck"):
        registry.load_plugins()
    assert "good/Talk-v0" in registry


def test_command_lists_a_plugin_and_reports_a_broken_one(install: Install, tmp_path: Path) -> None:
    install("bad", "raise RuntimeError('no [luck]')")
    install("odd", "def make():\n    raise OSError('needs [data]')\ndef register(add):\n    add('odd/No-v0', make)\n")
    install("good", GOOD)
    done = subprocess.run(
        [sys.executable, "-c", "from mas_envs.cli import main; main()", "list"],
        env={"PYTHONPATH": f"{Path.cwd()}:{tmp_path}", "COLUMNS": "120"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "good/Talk-v0" in done.stdout
    assert "(needs [data])" in done.stdout
    assert "Warning: the plug-in 'bad'" in done.stderr
    assert "no [luck]" in done.stderr
