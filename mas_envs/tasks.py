"""Tasks, the sets they come in, and `load_tasks`, which turns what a user writes into a set."""

import difflib
import functools
import importlib
import inspect
import operator
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, SupportsIndex, overload

from mas_envs.errors import TaskError

__all__ = ["Task", "TaskSet", "TaskSource", "load_tasks", "register_tasks", "task_names"]

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Task:
    """One problem instance an episode starts from."""

    id: str
    """Unique inside its set."""
    question: str
    """What the agents are asked."""
    answer: str | tuple[str, ...]
    """The ground truth; a tuple where any of several answers is right."""
    source: str = ""
    """Name of the data set; results are reported by it."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else the environment needs, such as the titles of supporting passages."""

    def __post_init__(self) -> None:
        """Refuse what would only fail in mid-episode."""
        for name in ("id", "question", "source"):
            if not isinstance(getattr(self, name), str):
                raise TaskError(f"Task.{name}={getattr(self, name)!r}: expected a str; convert it first")
        if not self.question.strip():
            raise TaskError(f"Task {self.id!r} has a blank question; expected text")
        answers = (self.answer,) if isinstance(self.answer, str) else self.answer
        if not isinstance(answers, tuple) or not answers or not all(isinstance(answer, str) for answer in answers):
            raise TaskError(f"Task {self.id!r} has the answer {self.answer!r}; expected a str or a tuple of str")
        for name, text in (("question", self.question), *(("answer", answer) for answer in answers)):
            if not text.isascii() and _SURROGATE.search(text):
                raise TaskError(
                    f"Task {self.id!r} has half a surrogate pair in its {name}, {text!r:.60}; repair the text"
                )


class TaskSet(Sequence[Task]):
    """An immutable, sized, indexable set of tasks.

    >>> tasks = TaskSet([Task("a", "1+1", "2"), Task("b", "2+2", "4")], name="sums")
    >>> len(tasks), tasks[1].answer
    (2, '4')

    Args:
        tasks: Anything with a length and an index; kept as it is, so a lazy sequence stays lazy.
        name: What reports call the set.
    """

    def __init__(self, tasks: Sequence[Task], *, name: str = "tasks") -> None:
        if not len(tasks):
            raise TaskError(f"the task set {name!r} is empty; expected at least one task; check the file or the filter")
        self._tasks = tasks
        self.name = name

    def __len__(self) -> int:
        return len(self._tasks)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> "TaskSet": ...
    def __getitem__(self, index: int | slice) -> "Task | TaskSet":
        if isinstance(index, slice):
            return TaskSet([self._tasks[i] for i in range(*index.indices(len(self)))], name=self.name)
        return self._tasks[index]

    def __iter__(self) -> Iterator[Task]:
        return (self._tasks[i] for i in range(len(self)))

    def at(self, index: object) -> Task:
        """The task at `index`, with an error that says what the index may be.

        Raises:
            TaskError: If `index` is not an integer inside the set.
        """
        if not isinstance(index, SupportsIndex) or isinstance(index, bool):
            raise TaskError(f"task {index!r:.80} is neither a Task nor an index; pass one of those as options['task']")
        position = operator.index(index)
        if not -len(self) <= position < len(self):
            raise TaskError(f"task index {position} is outside {self.name!r}, which holds {len(self)} tasks")
        return self._tasks[position]

    def __deepcopy__(self, memo: dict[int, Any]) -> "TaskSet":
        return self  # immutable: copies of an environment share it

    def __repr__(self) -> str:
        return f"TaskSet({self.name!r}, {len(self)} tasks)"


TaskSource = TaskSet | list[Task] | tuple[Task, ...] | str | Path | Mapping[str, Any]
"""A task set, a list of tasks, a registered name, a file, or `{"name": ..., option: value}`."""

_loaders: dict[str, str | Callable[..., TaskSet]] = {
    "arithmetic": "mas_envs.math_loop.arithmetic:arithmetic_tasks",
    "world": "mas_envs.search.questions:world_tasks",
}
_prefixes = {
    "hf": "mas_envs.hub_tasks:hub_tasks",
    "reasoning_gym": "mas_envs.hub_tasks:reasoning_gym_tasks",
}
"""What stands before the colon in `tasks="hf:NAME"` -> loader that takes the name first."""


def register_tasks(name: str, loader: str | Callable[..., TaskSet]) -> None:
    """Make `tasks="name"` mean `loader(**options)`.

    Args:
        name: Lower-case name without a dot or a colon.
        loader: A function, or `module:function`, which is imported only when the name is used.

    Raises:
        TaskError: If the name is malformed or taken by another loader.
    """
    if not name.isidentifier() or name != name.lower():
        raise TaskError(f"task set name {name!r}: expected lower-case letters, digits and underscores")
    if _loaders.get(name, loader) != loader:
        raise TaskError(f"task set {name!r} is taken by {_loaders[name]}; choose another name")
    _loaders[name] = loader


def task_names() -> list[str]:
    """Names that `load_tasks` knows."""
    return sorted(_loaders)


def load_tasks(source: TaskSource) -> TaskSet:
    """The task set that `source` names.

    >>> load_tasks({"name": "arithmetic", "level": 1, "split": "test"})[0].source
    'arithmetic-1'

    Args:
        source: A task set or a list of tasks; a registered name such as `arithmetic`; a path to a `.jsonl` or
            `.parquet` file; `hf:NAME` or `reasoning_gym:NAME` (see `mas_envs.hub_tasks`); or a mapping with the key
            `name` (any of these strings) and the loader's options.

    Raises:
        TaskError: If there is no such set, or the file or one of its rows cannot be used.
    """
    if isinstance(source, TaskSet):
        return source
    if isinstance(source, Path):
        return _load_file(source, {})
    if isinstance(source, str):
        return _load_named(source, {})
    if isinstance(source, Mapping):
        options = dict(source)
        name = options.pop("name", None)
        if not isinstance(name, str):
            raise TaskError(f"tasks={dict(source)!r}: the key 'name' is missing; expected a task set name or a file")
        return _load_named(name, options)
    if isinstance(source, list | tuple) and all(isinstance(task, Task) for task in source):
        return TaskSet(tuple(source))  # a copy: the caller's list may change
    raise TaskError(
        f"tasks={source!r:.80} of type {type(source).__name__}; expected a TaskSet, a list of Task, a name "
        f"({', '.join(task_names())}), a .jsonl or .parquet file, or a mapping with 'name'"
    )


def _load_named(name: str, options: dict[str, Any]) -> TaskSet:
    if name in _loaders:
        loader = _imported(_loaders[name])
        _check_options(name, loader, options)
        return loader(**options)
    prefix, colon, rest = name.partition(":")
    if colon and prefix in _prefixes:
        loader = functools.partial(_imported(_prefixes[prefix]), rest)
        _check_options(name, loader, options)
        return loader(**options)
    if Path(name).suffix in (".jsonl", ".parquet"):
        return _load_file(Path(name), options)
    if _plugins_bring(name):
        return _load_named(name, options)
    near = difflib.get_close_matches(name, _loaders, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known sets are {', '.join(task_names())}"
    raise TaskError(f"there is no task set {name!r:.80}, and it is no .jsonl or .parquet file; {hint}")


def _plugins_bring(name: str) -> bool:
    """Whether the name is known once the installed plug-ins are loaded, as after unpickling a spec elsewhere."""
    from mas_envs.registration import registry  # here, as that module's environments take task sets

    registry.load_plugins()
    return name in _loaders


def _imported(loader: str | Callable[..., TaskSet]) -> Callable[..., TaskSet]:
    if not isinstance(loader, str):
        return loader
    module, _, function = loader.partition(":")
    found: Callable[..., TaskSet] = getattr(importlib.import_module(module), function)
    return found


def _load_file(path: Path, options: dict[str, Any]) -> TaskSet:
    from mas_envs.task_files import read_tasks  # here, so that a task file's formats cost nothing when unused

    _check_options(str(path), functools.partial(read_tasks, path), options)
    return read_tasks(path, **options)


def _check_options(name: str, loader: Callable[..., TaskSet], options: Mapping[str, Any]) -> None:
    """Refuse unknown options by name; what a loader raises on its own is left as it is."""
    parameters = inspect.signature(loader).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for option in options:
        if option not in parameters:
            near = difflib.get_close_matches(str(option), parameters, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(parameters)}"
            raise TaskError(f"task set {name!r} does not take the option {option!r}; {hint}")
    for option, permitted in _permitted_values(loader).items():
        if option in options and options[option] not in permitted:
            raise TaskError(
                f"task set {name!r} does not take {option}={options[option]!r}; expected one of "
                f"{', '.join(map(repr, permitted))}"
            )


def _permitted_values(loader: Callable[..., TaskSet]) -> dict[str, tuple[Any, ...]]:
    """Option -> its values, for those that a loader annotates with `Literal`."""
    try:
        hints = typing.get_type_hints(loader.func if isinstance(loader, functools.partial) else loader)
    except (NameError, TypeError):  # annotations that only a type checker can read, or none
        return {}
    return {option: typing.get_args(hint) for option, hint in hints.items() if typing.get_origin(hint) is Literal}
