"""`path.to.setting=value` on nested plain values, and faults of settings in words."""

import difflib
from collections.abc import Iterator, Sequence
from typing import Any

import yaml
from pydantic import BaseModel

from mas_envs.errors import MasEnvsError

__all__ = ["SettingsError", "apply_override", "explain"]


class SettingsError(MasEnvsError, ValueError):
    """Settings that cannot be used; names each setting by its full path."""


def explain(fault: Any, root: type[BaseModel]) -> str:
    """A fault that pydantic found, as a sentence that names the setting by its full path."""
    location = [str(part) for part in fault["loc"]]
    path = ".".join(location)
    if fault["type"] == "extra_forbidden":
        known = _names_beside(location, root)
        near = difflib.get_close_matches(location[-1], known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known here are {', '.join(known)}"
        return f"unknown setting {path!r}; {hint}"
    if fault["type"] == "missing":
        return f"the setting {path!r} is missing; add it"
    if not location:
        return str(fault["msg"]).removeprefix("Value error, ")
    return f"{path}={fault['input']!r:.80}: {fault['msg'][0].lower()}{fault['msg'][1:]}"


def apply_override(values: dict[str, Any], override: str, root: type[BaseModel]) -> None:
    """Set one `path=value` inside nested plain values; the last name of a path is enough where only one fits.

    Raises:
        SettingsError: If it is no `key=value`, the value is not YAML, or the path fits nothing or several settings.
    """
    key, separator, text = override.partition("=")
    if not separator or not key:
        raise SettingsError(f"override {override!r}: expected key=value, such as algorithm.estimator=grpo")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SettingsError(f"override {override!r}: the value is not YAML ({error})") from error
    if isinstance(value, str):
        value = _number(value)
    *parents, last = _full_path(key, root)
    place = values
    for parent in parents:
        child = place.setdefault(parent, {})
        if child is None:
            child = place[parent] = {}
        if not isinstance(child, dict):
            raise SettingsError(f"override {override!r}: {parent!r} holds a value, not settings; set it as a whole")
        place = child
    place[last] = value


def _number(text: str) -> str | float:
    """YAML 1.1 reads `1e-3` as text; people mean a number."""
    try:
        return float(text) if text[:1] in "+-.0123456789" and "e" in text.lower() else text
    except ValueError:
        return text


def _full_path(key: str, root: type[BaseModel]) -> list[str]:
    parts = key.split(".")
    if parts[0] in root.model_fields:
        return parts
    paths = [[*path, *parts[1:]] for path in _setting_paths(root) if path[-1] == parts[0]]
    if len(paths) == 1:
        return paths[0]
    if paths:
        choices = ", ".join(".".join(path) for path in paths)
        raise SettingsError(f"the setting {key!r} could be any of {choices}; write the whole path")
    known = sorted({".".join(path) for path in _setting_paths(root)} | set(root.model_fields))
    by_last = {path.rpartition(".")[2]: path for path in known}
    near = difflib.get_close_matches(parts[-1], by_last, n=1)
    hint = f"did you mean {by_last[near[0]]!r}?" if near else f"top-level settings are {', '.join(root.model_fields)}"
    raise SettingsError(f"unknown setting {key!r}; {hint}")


def _setting_paths(section: type[BaseModel], prefix: tuple[str, ...] = ()) -> Iterator[list[str]]:
    for name, field in section.model_fields.items():
        child = _section_of(field.annotation)
        if child is None:
            yield [*prefix, name]
        else:
            yield from _setting_paths(child, (*prefix, name))


def _section_of(annotation: Any) -> type[BaseModel] | None:
    """The section a field holds, also when it may be None; None for plain values and for mappings of sections."""
    for candidate in (annotation, *getattr(annotation, "__args__", ())):
        if (
            isinstance(candidate, type)
            and issubclass(candidate, BaseModel)
            and getattr(annotation, "__origin__", None) is not dict
        ):
            return candidate
    return None


def _names_beside(location: Sequence[str], root: type[BaseModel]) -> list[str]:
    """Names of the settings that stand where an unknown one was given."""
    section = root
    steps = iter(location[:-1])
    for step in steps:
        field = section.model_fields.get(step)
        if field is None:
            break
        child = _section_of(field.annotation)
        if child is None:  # a mapping of sections: its next step is a free name
            child = next((arg for arg in getattr(field.annotation, "__args__", ()) if _is_section(arg)), None)
            next(steps, None)
        if child is None:
            break
        section = child
    return list(section.model_fields)


def _is_section(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseModel)
