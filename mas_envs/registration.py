"""Ids, specs and plug-ins: `make("MathLoop-v0")` and the registry behind it."""

import copy
import difflib
import functools
import importlib
import importlib.metadata
import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from gymnasium import error as gym_error
from gymnasium.envs.registration import get_env_id, load_env_creator, parse_env_id
from gymnasium.envs.registration import register as gym_register
from gymnasium.envs.registration import registry as gym_registry
from pettingzoo import AECEnv

from mas_envs.errors import MasEnvsError

__all__ = ["EnvArgumentError", "EnvSpec", "Registry", "make", "pprint_registry", "register", "registry", "spec"]

PLUGIN_GROUP = "mas_envs.plugins"
"""Entry-point group of plug-ins: name = namespace, value = `module:register`."""

EnvCreator = Callable[..., AECEnv[Any, Any, Any]]

_ENTRY_POINT = re.compile(r"[^\s:.][^\s:]*:[^\s:]+")


class EnvArgumentError(MasEnvsError, TypeError):
    """An argument of `make` that the environment does not take."""


class BoundRegister(Protocol):
    """What a plug-in's `register` function is called with."""

    def __call__(self, id: str, entry_point: str | EnvCreator, **kwargs: Any) -> None:
        """Register `id` inside the plug-in's namespace."""


@dataclass(frozen=True)
class EnvSpec:
    """Immutable recipe that `make` builds an environment from."""

    id: str
    """`[namespace/]Name-vN`."""
    entry_point: str | EnvCreator
    """What builds it: a callable, or `module:attribute`, imported only by `make`."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments it is built with; `make` may override them."""
    origin: str = "mas_envs"
    """The package that registered it."""

    @property
    def namespace(self) -> str | None:
        """The part before the slash, or None."""
        return parse_env_id(self.id)[0]

    @property
    def name(self) -> str:
        """The name without namespace and version."""
        return parse_env_id(self.id)[1]

    @property
    def version(self) -> int | None:
        """The number after `-v`, or None."""
        return parse_env_id(self.id)[2]


class Registry(Mapping[str, EnvSpec]):
    """A table of environment specs; plug-ins are loaded when an id is not found, or for a listing.

    Args:
        plugin_group: Entry-point group to search for plug-ins; None loads none.
    """

    def __init__(self, plugin_group: str | None = None) -> None:
        self._specs: dict[str, EnvSpec] = {}
        self._plugin_group = plugin_group
        self._plugins_loaded = plugin_group is None
        self._broken: dict[str, str] = {}

    def __getitem__(self, key: str) -> EnvSpec:
        return self._specs[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)

    def register(self, id: str, entry_point: str | EnvCreator, *, origin: str | None = None, **kwargs: Any) -> None:
        """Add an environment; nothing is imported.

        Args:
            id: `[namespace/]Name-vN`.
            entry_point: A callable that returns an AEC environment, or `module:attribute`.
            origin: The package that registers it; None takes it from the entry point.
            **kwargs: Default arguments of the environment.

        Raises:
            gymnasium.error.Error: If the id is malformed.
            gymnasium.error.RegistrationError: If another package registered it, versioned and versionless ids of one
                name would mix, or the entry point is neither callable nor `module:attribute`.
        """
        namespace, name, version = parse_env_id(id)
        if not callable(entry_point) and not _ENTRY_POINT.fullmatch(str(entry_point)):
            raise gym_error.RegistrationError(
                f"the entry point {entry_point!r} of {id!r}: expected a callable, or text such as 'package.module:Name'"
            )
        where = origin or _origin_of(entry_point)
        present = self._specs.get(id)
        if present is not None and present.origin != where:
            raise gym_error.RegistrationError(
                f"{id!r} is registered by {present.origin!r} and again by {where!r}; rename one, or uninstall it"
            )
        if present is not None:
            warnings.warn(f"{id!r} is registered again by {where!r}; the newer entry counts", stacklevel=3)
        siblings = [spec for spec in self._specs.values() if (spec.namespace, spec.name) == (namespace, name)]
        if any((sibling.version is None) != (version is None) for sibling in siblings):
            raise gym_error.RegistrationError(
                f"{id!r} would mix ids with and without a version for one name ({siblings[0].id!r} is registered); "
                "give every id of that name a version"
            )
        self._specs[id] = EnvSpec(id, entry_point, copy.deepcopy(kwargs), where)

    def find(self, env_id: str) -> EnvSpec:
        """The spec of an id; without a version the newest, with a warning; `module:Name-v0` imports `module` first.

        Raises:
            gymnasium.error.UnregisteredEnv: If there is no such namespace, name or version; near ids are named.
            ModuleNotFoundError: If the module before the colon cannot be found.
        """
        if not isinstance(env_id, str):
            raise EnvArgumentError(
                f"environment id {env_id!r:.80}: expected a str such as 'MathLoop-v0', or an EnvSpec"
            )
        module, _, bare_id = env_id.rpartition(":")
        if module:
            _import_module(module, env_id)
        if bare_id in self._specs:
            self._warn_if_old(self._specs[bare_id])
            return self._specs[bare_id]
        self.load_plugins()
        namespace, name, version = parse_env_id(bare_id)
        found = self._specs.get(bare_id) or self._newest(namespace, name, version)
        if found is None:
            raise self._not_found(bare_id, namespace, name, version)
        self._warn_if_old(found)
        return found

    def make(self, id: str | EnvSpec, **kwargs: Any) -> AECEnv[Any, Any, Any]:
        """A new environment, its `spec` set; see `mas_envs.make`."""
        spec = id if isinstance(id, EnvSpec) else self.find(id)
        arguments = {**copy.deepcopy(dict(spec.kwargs)), **kwargs}
        creator = spec.entry_point if callable(spec.entry_point) else _load_creator(spec)
        _check_arguments(spec.id, creator, arguments)
        env = creator(**arguments)
        if not isinstance(env, AECEnv):
            raise EnvArgumentError(
                f"the entry point of {spec.id!r} returned {type(env).__name__}, not a PettingZoo AECEnv; "
                f"mend {spec.origin}"
            )
        env.unwrapped.spec = replace(spec, kwargs=arguments)
        return env

    def load_plugins(self) -> None:
        """Load the installed plug-ins, once; a broken one warns and is left out."""
        if self._plugins_loaded:
            return
        self._plugins_loaded = True
        faults: list[str] = []
        for point in importlib.metadata.entry_points(group=self._plugin_group or ""):
            before = dict(self._specs)
            try:
                point.load()(functools.partial(self._register_plugin, point.name, point.value.split(":")[0]))
            except (Exception, SystemExit) as error:  # noqa: BLE001  # third-party code: the others go on
                self._specs = before
                self._broken[point.name] = f"{type(error).__name__}: {error}"
                faults.append(
                    f"the plug-in {point.name!r} ({point.value}) failed to load and is left out: "
                    f"{self._broken[point.name]}"
                )
        for fault in faults:  # last, so that a warning turned into an error stops no other plug-in
            warnings.warn(fault, stacklevel=3)

    def pprint(self) -> str:
        """The ids in columns of namespace, one line each, as text."""
        self.load_plugins()
        lines: list[str] = []
        by_namespace: dict[str, list[str]] = {}
        for entry in self._specs.values():
            by_namespace.setdefault(entry.namespace or "built-in", []).append(entry.id)
        for namespace, ids in sorted(by_namespace.items(), key=lambda pair: (pair[0] != "built-in", pair[0])):
            lines += [f"===== {namespace} =====", *sorted(ids), ""]
        return "\n".join(lines).rstrip()

    def _register_plugin(
        self, namespace: str, module: str, id: str, entry_point: str | EnvCreator, **kwargs: Any
    ) -> None:
        if parse_env_id(id)[0] != namespace:
            raise gym_error.RegistrationError(
                f"the plug-in {namespace!r} may only register ids under its own namespace; {id!r} should be "
                f"'{namespace}/{id.rpartition('/')[2]}'"
            )
        self.register(id, entry_point, origin=module.split(".")[0], **kwargs)

    def _newest(self, namespace: str | None, name: str, version: int | None) -> EnvSpec | None:
        if version is not None:
            return None
        versions = self._versions(namespace, name)
        if not versions:
            return None
        newest = self._specs[get_env_id(namespace, name, versions[-1])]
        warnings.warn(
            f"{get_env_id(namespace, name, None)!r} has no version; using the newest, {newest.id!r}; name it to keep "
            "results comparable",
            stacklevel=4,
        )
        return newest

    def _versions(self, namespace: str | None, name: str) -> list[int]:
        return sorted(
            entry.version
            for entry in self._specs.values()
            if (entry.namespace, entry.name) == (namespace, name) and entry.version is not None
        )

    def _warn_if_old(self, entry: EnvSpec) -> None:
        versions = self._versions(entry.namespace, entry.name)
        if entry.version is not None and versions and entry.version < versions[-1]:
            newest = get_env_id(entry.namespace, entry.name, versions[-1])
            warnings.warn(
                f"{entry.id!r} is out of date; consider {newest!r}", category=DeprecationWarning, stacklevel=4
            )

    def _not_found(
        self, env_id: str, namespace: str | None, name: str, version: int | None
    ) -> gym_error.UnregisteredEnv:
        if namespace in self._broken:
            return gym_error.NamespaceNotFound(
                f"no environment {env_id!r}: the plug-in {namespace!r} failed to load "
                f"({self._broken[namespace]}); mend it"
            )
        versions = self._versions(namespace, name)
        if versions:
            known = ", ".join(get_env_id(namespace, name, number) for number in versions)
            return gym_error.VersionNotFound(
                f"no version v{version} of {get_env_id(namespace, name, None)!r}; there is {known}"
            )
        hint = self._suggestion(env_id)
        namespaces = {entry.namespace for entry in self._specs.values()}
        if namespace is not None and namespace not in namespaces:
            return gym_error.NamespaceNotFound(
                f"no environment {env_id!r}: nothing is registered under {namespace!r}; {hint}"
            )
        return gym_error.NameNotFound(f"no environment {env_id!r}; {hint}")

    def _suggestion(self, env_id: str) -> str:
        by_lower: dict[str, str] = {}
        for known in self._specs:
            for alias in (known, known.rpartition("/")[2], known.rpartition("-v")[0]):
                by_lower.setdefault(alias.lower(), known)
        wanted = env_id.lower().replace("_v", "-v")
        near = list(
            dict.fromkeys(by_lower[key] for key in difflib.get_close_matches(wanted, by_lower, n=3, cutoff=0.6))
        )
        if near:
            return f"did you mean {' or '.join(map(repr, near))}?"
        return (
            f"registered are {', '.join(sorted(self._specs)) or 'none'}; install or import the package that brings it"
        )


registry = Registry(PLUGIN_GROUP)
"""The registry that `make`, `register`, `spec` and `pprint_registry` use."""


def make(id: str | EnvSpec, **kwargs: Any) -> AECEnv[Any, Any, Any]:
    """A new environment.

    >>> env = make("MathLoop-v0", max_loops=1)
    >>> env.possible_agents
    ['solver_0', 'verifier_0']

    Args:
        id: `[module:][namespace/]Name-vN`, or a spec.
        **kwargs: Arguments of the environment, over those it was registered with.

    Returns:
        A PettingZoo AEC environment whose `unwrapped.spec` says how it was made.

    Raises:
        gymnasium.error.UnregisteredEnv: If there is no such id; near ids are named.
        EnvArgumentError: If the environment does not take an argument.
    """
    return registry.make(id, **kwargs)


def register(id: str, entry_point: str | EnvCreator, **kwargs: Any) -> None:
    """Add an environment to the registry; see `Registry.register`."""
    registry.register(id, entry_point, **kwargs)


def spec(env_id: str) -> EnvSpec:
    """The spec of an id; see `Registry.find`."""
    return registry.find(env_id)


def pprint_registry() -> str:
    """All ids by namespace, as text; plug-ins are loaded first."""
    return registry.pprint()


def mirror_into_pettingzoo(ids: Mapping[str, EnvSpec]) -> None:
    """Make `pettingzoo.make("aec", "mas/<id>")` build the same environments, where PettingZoo has a registry."""
    import pettingzoo

    if not hasattr(pettingzoo, "register"):
        return
    for env_id in ids:
        if f"mas/{env_id}" not in pettingzoo.aec_registry:
            pettingzoo.register("aec", f"mas/{env_id}", entry_point=functools.partial(_make_mirrored, env_id))


def _make_mirrored(env_id: str, *, max_cycles: int | None = None, **kwargs: Any) -> AECEnv[Any, Any, Any]:
    if max_cycles is not None:
        kwargs["max_turns"] = max_cycles
    return make(env_id, **kwargs)


def mirror_into_gymnasium(ids: Mapping[str, EnvSpec]) -> None:
    """Make `gymnasium.make("mas_envs:<id>")` build one agent's view; nothing is imported before it is made."""
    for env_id in ids:
        if env_id not in gym_registry:
            gym_register(env_id, entry_point="adapters.gymnasium:make_agent_env", kwargs={"env_id": env_id})


def _import_module(module: str, env_id: str) -> None:
    try:
        if module.startswith("."):
            raise ModuleNotFoundError("a full module name was expected, not a relative one")
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{env_id!r}: cannot import {module!r} ({error}); install the package, or drop the part before the colon"
        ) from error


def _origin_of(entry_point: str | EnvCreator) -> str:
    module = (
        entry_point.partition(":")[0]
        if isinstance(entry_point, str)
        else str(getattr(entry_point, "__module__", None) or type(entry_point).__module__)
    )
    return module.split(".")[0]


def _load_creator(entry: EnvSpec) -> EnvCreator:
    try:
        creator: EnvCreator = load_env_creator(str(entry.entry_point))
    except (ModuleNotFoundError, AttributeError) as error:
        raise gym_error.RegistrationError(
            f"the entry point {entry.entry_point!r} of {entry.id!r} cannot be imported ({error}); mend {entry.origin}"
        ) from error
    return creator


def _check_arguments(env_id: str, creator: EnvCreator, arguments: Mapping[str, Any]) -> None:
    """Refuse unknown arguments by name before anything is built."""
    parameters = inspect.signature(creator).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for argument in arguments:
        if argument not in parameters:
            near = difflib.get_close_matches(argument, parameters, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(parameters)}"
            raise EnvArgumentError(f"{env_id!r} does not take the argument {argument!r}; {hint}")
