"""A missing extra is one sentence that names it."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mas_envs
from mas_envs.errors import MissingExtraError
from mas_envs.retrieval.bm25 import Bm25Retriever
from mas_envs.retrieval.encoders import TfidfSvdEncoder
from mas_envs.retrieval.faiss_index import FaissRetriever
from mas_envs.retrieval.sentence_encoder import SentenceEncoder
from tests.mas_envs.retrieval.corpus import passages


@pytest.mark.parametrize(
    ("module", "use", "message"),
    [
        (
            "faiss",
            lambda: FaissRetriever.build(passages(), TfidfSvdEncoder()),
            r"FaissRetriever needs faiss; pip install",
        ),
        ("bm25s", lambda: Bm25Retriever.build(passages()), r"Bm25Retriever needs bm25s; .*'mas-envs\[search\]'"),
        ("scipy.sparse", TfidfSvdEncoder, r"the TF-IDF encoder needs scipy\.sparse; .*'mas-envs\[search\]'"),
        (
            "transformers",
            lambda: SentenceEncoder(Path("x")),
            r"SentenceEncoder needs transformers; .*'mas-envs\[train\]'",
        ),
    ],
)
def test_missing_package_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, module: str, use: Callable[[], Any], message: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=message):
        use()


def test_environment_without_faiss_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    tasks = {"name": "world", "size": 250, "seed": 99}  # another world, so that no index of it is there yet
    with pytest.raises(MissingExtraError, match=r"FaissRetriever needs faiss; pip install 'mas-envs\[search\]'"):
        mas_envs.make("HierarchicalSearch-v0", tasks=tasks)
