"""Checkpoints: written aside and renamed, hashed, and read back only when every hash fits."""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mas_envs.errors import MasEnvsError

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "latest_checkpoint",
    "open_checkpoint",
    "replace_folder",
    "write_checkpoint",
]

logger = logging.getLogger(__name__)

_MANIFEST = "manifest.json"
_PREFIX = "iteration-"


class CheckpointError(MasEnvsError, ValueError):
    """A checkpoint that cannot be read or does not match its manifest."""


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint on disk."""

    folder: Path
    """Where it is."""
    iteration: int
    """Iterations that were finished when it was written."""
    state: dict[str, Any]
    """The small part of the state, plain JSON values."""


def write_checkpoint(
    root: Path, iteration: int, state: dict[str, Any], write_files: Callable[[Path], None], *, keep_last: int
) -> Checkpoint:
    """Write a checkpoint so that it is either there as a whole or not at all.

    Files go into a folder aside; a manifest with their hashes is written last, then the folder is renamed. Older
    checkpoints beyond `keep_last` are removed after that.

    Args:
        root: The folder that holds the checkpoints.
        iteration: Iterations finished.
        state: Plain JSON values.
        write_files: Writes the large files into the folder it is given.
        keep_last: Complete checkpoints that stay, >= 1.

    Raises:
        OSError: If the disk is full or not writable; earlier checkpoints are intact then.
    """
    final = root / f"{_PREFIX}{iteration:06d}"
    aside = root / f".writing-{iteration:06d}-{os.getpid()}"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        write_files(aside)
        manifest = {
            "iteration": iteration,
            "state": state,
            "sha256": {str(path.relative_to(aside)): _sha256(path) for path in _files(aside)},
        }
        (aside / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        for path in _files(aside):
            _flush(path)
        if final.exists():
            shutil.rmtree(final)
        aside.rename(final)
        _flush(root)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    for old in _folders(root)[:-keep_last]:
        shutil.rmtree(old, ignore_errors=True)
    return Checkpoint(final, iteration, state)


def latest_checkpoint(root: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole; damaged ones are passed over with a warning in the log."""
    for folder in reversed(_folders(root)):
        try:
            return open_checkpoint(folder)
        except CheckpointError as error:
            logger.warning("%s; trying the one before", error)
    return None


def open_checkpoint(folder: Path) -> Checkpoint:
    """A checkpoint whose files all fit the manifest.

    Raises:
        CheckpointError: If the manifest or a file is missing or damaged.
    """
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        hashes, iteration, state = dict(manifest["sha256"]), int(manifest["iteration"]), dict(manifest["state"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"checkpoint {folder}: the manifest cannot be read ({error}); use another one") from error
    for name, expected in hashes.items():
        path = folder / name
        if not path.is_file() or _sha256(path) != expected:
            raise CheckpointError(f"checkpoint {folder}: {name} is missing or damaged; use another one")
    return Checkpoint(folder, iteration, state)


def replace_folder(final: Path, write_files: Callable[[Path], None]) -> None:
    """Write a folder aside and put it in the place of the one that is there.

    Raises:
        OSError: If the disk is full or not writable; the folder from before is intact then.
    """
    aside = final.with_name(f".{final.name}")
    shutil.rmtree(aside, ignore_errors=True)
    write_files(aside)
    shutil.rmtree(final, ignore_errors=True)
    aside.rename(final)


def _folders(root: Path) -> list[Path]:
    return sorted(path for path in root.glob(f"{_PREFIX}*") if path.is_dir()) if root.is_dir() else []


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """Make sure a file or a folder's entries have reached the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
