"""docs/settings.md and docs/building-blocks.md, written from the docstrings: python -m tests.docs.reference_pages."""

import ast
import inspect
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from mas_envs.actions import Parsed
from mas_envs.conversation import Outcome, Skill, Turn
from mas_envs.tasks import Task
from trainers.config import Settings

DOCS = Path(__file__).parents[2] / "docs"

SETTINGS_HEAD = """# Settings of a recipe

Every key of a recipe, its default and what it means. `mas-envs train RECIPE key=value` changes one: `seed=3`,
`policies.solver.lr=1e-5`, or just `estimator=grpo` where the last name is found only once. An unknown key is an error
that names the nearest one. Written by `python -m tests.docs.reference_pages` from `trainers/config.py`.
"""

BLOCKS_HEAD = """# What an environment is built of

The classes that [an environment](write-an-environment.md) takes and returns, field by field. Written by
`python -m tests.docs.reference_pages` from their docstrings.

Inside an environment there are also `self.task` (this episode's `Task`), `self.transcript` (the `Turn`s so far),
`self.np_random` (the only generator to draw from; `reset(seed=...)` seeds it), `self.role_of(agent_id)` and
`self.possible_agents`. All agents end together; `Outcome(None)` ends the episode.
"""


def settings_page() -> str:
    """The page of all settings, section by section."""
    parts = [SETTINGS_HEAD]
    done: set[type] = set()
    queue: list[tuple[str, type[BaseModel]]] = [("", Settings)]
    while queue:
        path, section = queue.pop(0)
        if section in done:
            continue
        done.add(section)
        docs = field_docs(section)
        title = f"`{path}`" if path else "Top level"
        summary = " ".join((inspect.getdoc(section) or "").split("\n\n", maxsplit=1)[0].split())
        rows = []
        for name, field in section.model_fields.items():
            inner = sections_in(field.annotation)
            place = f"{path}.{name}" if path else name
            place += ".NAME" if str(field.annotation).startswith("dict[") else ""
            queue += [(place, found) for found in inner]
            default = "required" if field.is_required() else shown_default(field.get_default(call_default_factory=True))
            rows.append((f"`{name}`", default, docs.get(name) or (f"see `{place}`" if inner else "")))
        parts.append(f"## {title}\n\n{summary}\n\n{table(('key', 'default', 'meaning'), rows)}")
    return "\n".join(parts)


def blocks_page() -> str:
    """The page of the classes that authors of environments use."""
    parts = [BLOCKS_HEAD]
    for kind in (Task, Outcome, Parsed, Skill, Turn):
        docs = field_docs(kind)
        fields: dict[str, Any] = kind.__dataclass_fields__
        annotations = inspect.get_annotations(kind)
        rows = [(f"`{name}`", f"`{type_name(annotations[name])}`", docs[name]) for name in fields]
        parts.append(f"## {kind.__name__}\n\n{inspect.getdoc(kind)}\n\n{table(('field', 'type', 'meaning'), rows)}")
    return "\n".join(parts)


def field_docs(kind: type) -> dict[str, str]:
    """Field -> the docstring below it."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef)
    docs = {}
    for field, after in zip(body.body, body.body[1:], strict=False):
        is_doc = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if is_doc and isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            docs[field.target.id] = " ".join(str(after.value.value).split())  # type: ignore[attr-defined]
    return docs


def sections_in(annotation: Any) -> list[type[BaseModel]]:
    """The sections that a setting holds, itself or as values."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for part in get_args(annotation) for found in sections_in(part)]


def shown_default(value: Any) -> str:
    """A default as it would stand in YAML; a section is a link to its own table."""
    if isinstance(value, BaseModel):
        return ""
    if value is None or isinstance(value, bool):
        return {None: "`null`", True: "`true`", False: "`false`"}[value]
    return f"`{list(value) if isinstance(value, tuple) else value}`"


def type_name(annotation: Any) -> str:
    """A type as it is written, in a form that a table can hold."""
    name = annotation.__name__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)
    return name.replace("collections.abc.", "").replace("typing.", "").replace("|", "or")


def table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


PAGES = {"settings.md": settings_page, "building-blocks.md": blocks_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
