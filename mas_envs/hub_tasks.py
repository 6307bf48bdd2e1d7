"""`hf:NAME` and `reasoning_gym:NAME`: task sets from the Hugging Face hub, local copies of it, and generators."""

import difflib
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from mas_envs.argument_checks import is_whole
from mas_envs.errors import MissingExtraError, TaskError
from mas_envs.task_files import read_rows, task_from_row, tasks_of_rows
from mas_envs.tasks import Task, TaskSet

__all__ = ["HubDataset", "hub_tasks", "preset_names", "reasoning_gym_tasks"]

_PRESET_MODULES = ("mas_envs.search.datasets", "mas_envs.math_loop.datasets")
"""Modules with a mapping `PRESETS`; imported when a preset is asked for."""

RowReader = Callable[..., Task]
"""From a row, with `default_id` and `default_source`, to a task."""


@dataclass(frozen=True)
class HubDataset:
    """Where a data set lies on the hub, and how its rows are read."""

    path: str
    """Such as `RUC-NLPIR/FlashRAG_datasets`."""
    config: str | None = None
    """Part of it; None where there is only one."""
    split: str = "train"
    """What is read unless another split is asked for."""
    source: str | None = None
    """`Task.source` of rows that name none; also keeps the rows of this source only where a file has several."""
    read_row: RowReader = task_from_row
    """What makes a task of a row."""


def preset_names() -> list[str]:
    """Names that `hf:` knows without an owner."""
    return sorted(_presets())


def hub_tasks(
    name: str,
    *,
    split: str | None = None,
    config: str | None = None,
    file: str | Path | None = None,
    limit: int | None = None,
) -> TaskSet:
    """The tasks of a data set on the hub; `tasks="hf:NAME"`.

    Args:
        name: A preset such as `hotpotqa`, or `owner/name` of any data set whose rows have a question and an answer.
        split: Split to read; None is the preset's own, or `train`.
        config: Part of the data set; None is the preset's own.
        file: A local `.parquet` or `.jsonl` copy that is read instead of the hub; of a file with several sources the
            rows of the preset's source are kept.
        limit: Most tasks, from the start; None is all.

    Raises:
        TaskError: If there is no such preset or data set, or its rows cannot be used.
        MissingExtraError: Without `datasets` (for the hub) or `pyarrow` (for parquet files).
    """
    if limit is not None and not (is_whole(limit) and limit >= 1):
        raise TaskError(f"hf:{name}: limit={limit!r}: expected a whole number >= 1, or None for all")
    dataset = _find(name)
    if file is not None:
        where, rows = str(file), _of_source(read_rows(Path(file)), dataset.source)
    else:
        where, rows = f"hf:{name}", _hub_rows(dataset, name, split or dataset.split, config or dataset.config)
    source = dataset.source or name.rpartition("/")[2]
    tasks = tasks_of_rows(where, source, islice(rows, limit), source=source, read_row=dataset.read_row)
    if not tasks:
        raise TaskError(f"{where}: holds no rows of {source!r}; check the file, or the split")
    return TaskSet(tasks, name=source)


def reasoning_gym_tasks(name: str, *, size: int = 1000, seed: int = 0, **options: Any) -> TaskSet:
    """Tasks that `reasoning-gym` makes; `tasks="reasoning_gym:NAME"`.

    Args:
        name: One of its data sets, such as `leg_counting`.
        size: Number of tasks.
        seed: Seed of its generator.
        options: Further settings of that data set.

    Raises:
        TaskError: If it has no such data set, or refuses the options.
        MissingExtraError: Without `reasoning-gym`.
    """
    if not is_whole(size) or size < 1:
        raise TaskError(f"reasoning_gym:{name}: size={size!r}: expected a whole number >= 1")
    gym = _need("reasoning_gym", f"reasoning_gym:{name}")
    try:
        items = gym.create_dataset(name, size=size, seed=seed, **options)
    except (ValueError, TypeError, AssertionError) as error:
        raise TaskError(f"reasoning_gym:{name} cannot be made ({error}); check the name and its options") from error
    tasks = [
        Task(f"{name}/{index}", item["question"], str(item["answer"]), f"reasoning_gym-{name}", dict(item["metadata"]))
        for index, item in enumerate(items)
    ]
    return TaskSet(tasks, name=name)


def _find(name: str) -> HubDataset:
    presets = _presets()
    if name.lower() in presets:
        return presets[name.lower()]
    if "/" in name.strip("/"):
        return HubDataset(name)
    near = difflib.get_close_matches(name.lower(), presets, n=2)
    hint = f"did you mean {' or '.join(near)}?" if near else f"presets are {', '.join(sorted(presets))}"
    raise TaskError(f"hf:{name}: expected owner/name or a preset; {hint}")


def _presets() -> dict[str, HubDataset]:
    found: dict[str, HubDataset] = {}
    for module in _PRESET_MODULES:
        found.update(importlib.import_module(module).PRESETS)
    return found


def _hub_rows(dataset: HubDataset, name: str, split: str, config: str | None) -> Iterator[tuple[int, object]]:
    datasets = _need("datasets", f"hf:{name}")
    try:
        loaded = datasets.load_dataset(dataset.path, config, split=split)
    except (OSError, ValueError) as error:  # its own errors are kinds of these two
        raise TaskError(
            f"hf:{name}: {dataset.path} (config {config!r}, split {split!r}) cannot be loaded ({error}); check name, "
            "config, split and network, or pass a local copy as file="
        ) from error
    return enumerate(loaded, start=1)


def _of_source(rows: Iterable[tuple[int, object]], source: str | None) -> Iterator[tuple[int, object]]:
    """Rows that name no other source."""
    for line, row in rows:
        named = row.get("data_source") if isinstance(row, Mapping) else None
        if source is None or named is None or named == source:
            yield line, row


def _need(module: str, purpose: str) -> Any:  # Any: foreign modules without types
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(f"{purpose} needs {error.name or module}; pip install 'mas-envs[data]'") from error
