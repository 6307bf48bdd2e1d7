"""Ids, versions, hints, specs; plug-ins are tested in `test_plugins.py`."""

import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gymnasium import error as gym_error
from pettingzoo import AECEnv

import mas_envs
from mas_envs.math_loop.env import MathLoopEnv, MathSoloEnv
from mas_envs.registration import EnvArgumentError, EnvSpec, Registry

LOOP = "mas_envs.math_loop.env:MathLoopEnv"


@pytest.fixture
def registry() -> Registry:
    registry = Registry()
    registry.register("Loop-v0", LOOP)
    registry.register("Loop-v1", LOOP, max_loops=3)
    registry.register("space/Solo-v2", "mas_envs.math_loop.env:MathSoloEnv")
    registry.register("Plain", LOOP)
    return registry


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path, whose modules are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_id_makes_the_environment_with_its_spec(registry: Registry) -> None:
    env = registry.make("Loop-v1", invalid_penalty=0.5).unwrapped
    assert isinstance(env, MathLoopEnv)
    assert (env.max_loops, env.invalid_penalty) == (3, 0.5)
    assert env.spec.id == "Loop-v1"
    assert env.spec.kwargs == {"max_loops": 3, "invalid_penalty": 0.5}
    assert (env.spec.namespace, env.spec.name, env.spec.version) == (None, "Loop", 1)


def test_spec_makes_the_same_environment_again(registry: Registry) -> None:
    spec = registry.make("Loop-v1", max_loops=5).unwrapped.spec
    assert registry.make(spec).unwrapped.max_loops == 5
    assert registry.make(spec, max_loops=1).unwrapped.max_loops == 1
    assert mas_envs.make(EnvSpec("Unlisted-v0", LOOP)).possible_agents == ["solver_0", "verifier_0"]


def test_nothing_is_imported_before_make(registry: Registry) -> None:
    registry.register("Far-v0", "no.such.module:Env")
    assert registry.find("Far-v0").entry_point == "no.such.module:Env"
    with pytest.raises(
        gym_error.RegistrationError, match=r"entry point 'no\.such\.module:Env' of 'Far-v0' cannot be imp"
    ):
        registry.make("Far-v0")


def test_id_without_version_is_the_newest_with_a_warning(registry: Registry) -> None:
    with pytest.warns(UserWarning, match="'Loop' has no version; using the newest, 'Loop-v1'; name it to keep"):
        assert registry.find("Loop").id == "Loop-v1"
    with pytest.warns(UserWarning, match="'space/Solo' has no version; using the newest, 'space/Solo-v2'"):
        assert isinstance(registry.make("space/Solo").unwrapped, MathSoloEnv)


def test_id_registered_without_version_is_found_silently(registry: Registry) -> None:
    assert registry.find("Plain").version is None


def test_old_version_is_made_with_a_deprecation_warning(registry: Registry) -> None:
    with pytest.warns(DeprecationWarning, match="'Loop-v0' is out of date; consider 'Loop-v1'"):
        assert registry.make("Loop-v0").unwrapped.spec.id == "Loop-v0"


def test_missing_version_lists_those_there_are(registry: Registry) -> None:
    with pytest.raises(gym_error.VersionNotFound, match="no version v7 of 'Loop'; there is Loop-v0, Loop-v1"):
        registry.find("Loop-v7")


@pytest.mark.parametrize("env_id", ["MathLop-v0", "mathloop-v0", "MathLoop_v0", "math_loop_v0", "MathLoops-v0"])
def test_near_names_are_suggested(env_id: str) -> None:
    with pytest.raises(gym_error.NameNotFound, match=f"no environment '{env_id}'; did you mean 'MathLoop-v0'"):
        mas_envs.make(env_id)


def test_id_without_its_namespace_is_suggested_with_it(registry: Registry) -> None:
    with pytest.raises(gym_error.NameNotFound, match=r"did you mean 'space/Solo-v2'\?"):
        registry.find("Solo-v2")


def test_unknown_names_and_namespaces_are_told_apart(registry: Registry) -> None:
    with pytest.raises(gym_error.NamespaceNotFound, match="nothing is registered under 'other'"):
        registry.find("other/Zzz-v0")
    with pytest.raises(gym_error.NameNotFound, match="registered are Loop-v0, Loop-v1, Plain, space/Solo-v2; install"):
        registry.find("Qwxyz-v0")


@pytest.mark.parametrize("env_id", ["", "Math Loop-v0", "a/b/C-v0", "Loop-v0!"])
def test_malformed_id_is_refused(env_id: str, registry: Registry) -> None:
    with pytest.raises(gym_error.Error, match="Malformed environment ID"):
        registry.find(env_id)
    with pytest.raises(gym_error.Error, match="Malformed environment ID"):
        registry.register(env_id, LOOP)


@pytest.mark.parametrize("env_id", [None, 3, ["Loop-v0"]])
def test_id_of_the_wrong_type_is_refused(env_id: Any) -> None:
    with pytest.raises(EnvArgumentError, match=re.escape(f"environment id {env_id!r}: expected a str such as")):
        mas_envs.make(env_id)


@pytest.mark.parametrize("entry_point", ["nocolon", ":Env", "module:", "a:b:c", ".relative:Env", 3])
def test_malformed_entry_point_is_refused(entry_point: Any, registry: Registry) -> None:
    with pytest.raises(gym_error.RegistrationError, match="of 'New-v0': expected a callable, or text such as"):
        registry.register("New-v0", entry_point)


def test_unknown_argument_is_named_with_the_nearest() -> None:
    with pytest.raises(
        EnvArgumentError, match=r"'MathLoop-v0' does not take the argument 'max_loop'; did you mean 'max_loops'\?"
    ):
        mas_envs.make("MathLoop-v0", max_loop=3)
    with pytest.raises(TypeError, match="does not take the argument 'zzz'; it takes tasks, max_loops, reward"):
        mas_envs.make("MathLoop-v0", zzz=3)


def test_entry_point_that_makes_no_environment_is_an_error(registry: Registry) -> None:
    registry.register("Odd-v0", lambda: 3)
    with pytest.raises(EnvArgumentError, match="the entry point of 'Odd-v0' returned int, not a PettingZoo AECEnv"):
        registry.make("Odd-v0")


def test_callable_with_free_arguments_takes_any(registry: Registry) -> None:
    def create(**kwargs: Any) -> AECEnv[Any, Any, Any]:
        return MathLoopEnv(max_loops=kwargs["anything"])

    registry.register("Free-v0", create)
    assert registry.make("Free-v0", anything=4).unwrapped.max_loops == 4


def test_registered_arguments_are_copies(registry: Registry) -> None:
    options = {"name": "arithmetic", "level": 1}
    registry.register("Copy-v0", LOOP, tasks=options)
    options["level"] = 5
    made = registry.make("Copy-v0").unwrapped
    assert made.tasks.name == "arithmetic-1-train"
    made.spec.kwargs["tasks"]["level"] = 3
    assert registry.make("Copy-v0").unwrapped.tasks.name == "arithmetic-1-train"


def test_second_registration_by_the_same_package_warns_and_counts(registry: Registry) -> None:
    with pytest.warns(UserWarning, match="'Loop-v1' is registered again by 'mas_envs'; the newer entry counts"):
        registry.register("Loop-v1", LOOP, max_loops=9)
    assert registry.make("Loop-v1").unwrapped.max_loops == 9


def test_id_of_another_package_cannot_be_taken(registry: Registry) -> None:
    with pytest.raises(
        gym_error.RegistrationError, match="'Loop-v1' is registered by 'mas_envs' and again by 'other'; ren"
    ):
        registry.register("Loop-v1", "other.module:Env")
    assert registry.find("Loop-v1").entry_point == LOOP


def test_versions_and_no_version_do_not_mix_under_one_name(registry: Registry) -> None:
    with pytest.raises(gym_error.RegistrationError, match=r"'Plain-v1' would mix ids .* \('Plain' is registered\)"):
        registry.register("Plain-v1", LOOP)


def test_module_before_the_colon_is_imported_first(own_module: Path) -> None:
    code = "import mas_envs\nif 'Mine-v0' not in mas_envs.registry:\n    mas_envs.register('Mine-v0', '{}')\n"
    (own_module / "registers_mine.py").write_text(code.format(LOOP))
    try:
        assert mas_envs.make("registers_mine:Mine-v0").unwrapped.spec.id == "Mine-v0"
        assert mas_envs.spec("Mine-v0").origin == "mas_envs"
    finally:
        mas_envs.registry._specs.pop("Mine-v0", None)


@pytest.mark.parametrize("module", ["no_such_module", ".relative", "./path"])
def test_module_that_cannot_be_imported_is_named(module: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=re.escape(f"'{module}:X-v0': cannot import '{module}'")):
        mas_envs.make(f"{module}:X-v0")


def test_listing_groups_ids_by_namespace(registry: Registry) -> None:
    assert registry.pprint() == ("===== built-in =====\nLoop-v0\nLoop-v1\nPlain\n\n===== space =====\nspace/Solo-v2")
    assert "MathLoop-v0" in mas_envs.pprint_registry()
    assert (len(registry), set(registry)) == (4, {"Loop-v0", "Loop-v1", "Plain", "space/Solo-v2"})


def test_newest_version_is_made_without_a_warning(registry: Registry) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert registry.make("Loop-v1").possible_agents == ["solver_0", "verifier_0"]
