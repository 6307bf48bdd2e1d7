"""Which retriever an environment gets, and where a large encyclopedia is kept."""

from pathlib import Path

import pytest

import mas_envs
from mas_envs.retrieval.faiss_index import FaissRetriever
from mas_envs.retrieval.passages import PassageStore
from mas_envs.search.sources import stored_passages
from mas_envs.search.world import World


def test_environments_of_a_process_share_one_index() -> None:
    first, second = (mas_envs.make(env_id).unwrapped for env_id in ("HierarchicalSearch-v0", "SearchSolo-v0"))
    assert first.retriever is second.retriever
    other = mas_envs.make("HierarchicalSearch-v0", tasks={"name": "world", "seed": 1}).unwrapped
    assert other.retriever is not first.retriever


def test_stored_world_is_written_once_and_named_after_what_it_holds(tmp_path: Path) -> None:
    store = stored_passages(World(300), tmp_path)
    assert list(store) == list(World(300).passages())
    before = (store.folder / "passages.jsonl").stat().st_mtime_ns
    assert stored_passages(World(300), tmp_path).folder == store.folder
    assert (store.folder / "passages.jsonl").stat().st_mtime_ns == before
    assert stored_passages(World(300, seed=1), tmp_path).folder != store.folder
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("world-300-")) == []


def test_large_world_is_searched_from_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    env = mas_envs.make("SearchSolo-v0", tasks={"name": "world", "size": 20_050, "num_tasks": 20}).unwrapped
    assert isinstance(env.retriever, FaissRetriever)
    assert isinstance(env.retriever.passages, PassageStore)
    assert env.retriever.passages.folder.is_relative_to(tmp_path / "mas-envs")
    for task in env.tasks:
        found = env.retriever.search([task.metadata["queries"][0]], 3)[0]
        assert task.metadata["supporting_ids"][0] in {passage.id for passage in found}
