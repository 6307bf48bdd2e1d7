"""Checkpoints are whole or not there."""

import json
from pathlib import Path

import pytest

from trainers.checkpoint import CheckpointError, latest_checkpoint, open_checkpoint, write_checkpoint


def write(root: Path, iteration: int, text: str = "weights", keep_last: int = 3) -> Path:
    def files(folder: Path) -> None:
        (folder / "policy").mkdir()
        (folder / "policy" / "model.bin").write_text(text)

    return write_checkpoint(root, iteration, {"cursor": iteration}, files, keep_last=keep_last).folder


def test_newest_whole_checkpoint_is_found_with_its_state(tmp_path: Path) -> None:
    write(tmp_path, 2)
    write(tmp_path, 10)
    found = latest_checkpoint(tmp_path)
    assert found is not None
    assert (found.iteration, found.state) == (10, {"cursor": 10})
    assert (found.folder / "policy" / "model.bin").read_text() == "weights"


def test_no_checkpoint_gives_none(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path / "missing") is None


def test_only_the_last_ones_are_kept(tmp_path: Path) -> None:
    for iteration in range(5):
        write(tmp_path, iteration, keep_last=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["iteration-000003", "iteration-000004"]


def test_half_written_checkpoint_is_never_picked_up(tmp_path: Path) -> None:
    write(tmp_path, 1)
    aside = tmp_path / ".writing-000009-1"
    aside.mkdir()
    (aside / "model.bin").write_text("half")
    without_manifest = tmp_path / "iteration-000008"
    without_manifest.mkdir()
    (without_manifest / "model.bin").write_text("half")
    found = latest_checkpoint(tmp_path)
    assert found is not None
    assert found.iteration == 1


def test_damaged_file_sends_resume_to_the_checkpoint_before(tmp_path: Path) -> None:
    write(tmp_path, 1)
    damaged = write(tmp_path, 2)
    (damaged / "policy" / "model.bin").write_text("bits flipped")
    with pytest.raises(CheckpointError, match=r"model\.bin is missing or damaged; use another one"):
        open_checkpoint(damaged)
    found = latest_checkpoint(tmp_path)
    assert found is not None
    assert found.iteration == 1


def test_unreadable_manifest_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path, 1)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(CheckpointError, match="the manifest cannot be read"):
        open_checkpoint(folder)


def test_disk_that_fills_up_leaves_the_old_checkpoint_and_no_debris(tmp_path: Path) -> None:
    write(tmp_path, 1)

    def full_disk(folder: Path) -> None:
        (folder / "model.bin").write_text("some of it")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_checkpoint(tmp_path, 2, {}, full_disk, keep_last=3)
    assert [path.name for path in tmp_path.iterdir()] == ["iteration-000001"]


def test_manifest_holds_a_hash_of_every_file(tmp_path: Path) -> None:
    folder = write(tmp_path, 1)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert list(manifest["sha256"]) == ["policy/model.bin"]
    assert len(manifest["sha256"]["policy/model.bin"]) == 64
