"""`mas-envs new`: an installable package with an environment, tasks, an expert, tests and a recipe."""

import keyword
import re
import sys
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from mas_envs.errors import BadArgumentError

__all__ = ["new", "write_package"]

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_FILES = {
    "pyproject.toml.txt": "pyproject.toml",
    "README.md.txt": "README.md",
    "train.yaml.txt": "train.yaml",
    "init.py.txt": "src/{package}/__init__.py",
    "env.py.txt": "src/{package}/env.py",
    "tasks.py.txt": "src/{package}/tasks.py",
    "test_env.py.txt": "tests/test_env.py",
}


def new(
    name: Annotated[str, typer.Argument(help="Name of the package, such as my_team.")],
    folder: Annotated[Path | None, typer.Option(help="Where to write it; the default is ./NAME.")] = None,
) -> None:
    """Write a package with a new environment, ready to install, check and train.

    Example: mas-envs new my_team
    """
    written = write_package(name, folder or Path(name))
    env_id = f"{name}/{_title(name)}-v0"
    console = Console()
    console.print(f"Wrote {written}. Next:", highlight=False)
    for command in (
        f"pip install -e {written}",
        f"mas-envs check {env_id}",
        f"mas-envs train {written / 'train.yaml'}",
    ):
        console.print(f"  {command}", highlight=False, soft_wrap=True)


def write_package(name: str, folder: Path) -> Path:
    """Write the package into a folder that does not exist yet; returns the folder.

    Args:
        name: Name of the package and of its namespace: lower-case words joined by underscores.
        folder: Where to write.

    Raises:
        BadArgumentError: If the name cannot be a package name or is taken, or the folder exists or cannot be written.
    """
    if not _NAME.fullmatch(name):
        raise BadArgumentError(f"name {name!r}: expected lower-case words joined by underscores, such as my_team")
    if keyword.iskeyword(name):
        raise BadArgumentError(f"name {name!r} is a word of Python's own and cannot be a package; choose another name")
    if name in sys.stdlib_module_names or find_spec(name) is not None:
        raise BadArgumentError(f"name {name!r} is taken by a module that is installed here; choose another name")
    if folder.exists():
        raise BadArgumentError(f"{folder} exists already; choose another name, or another --folder")
    marks = {"__PACKAGE__": name, "__TITLE__": _title(name), "__DISTRIBUTION__": name.replace("_", "-")}
    templates = resources.files("mas_envs") / "scaffold_template"
    for template, target in _FILES.items():
        text = (templates / template).read_text(encoding="utf-8")
        for mark, value in marks.items():
            text = text.replace(mark, value)
        path = folder / target.format(package=name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise BadArgumentError(f"{path} cannot be written ({error}); choose another --folder") from error
    return folder


def _title(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))
