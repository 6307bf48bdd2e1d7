"""The offline encoder: unit vectors, the same everywhere, rare names kept apart."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mas_envs.errors import BadArgumentError
from mas_envs.retrieval import RetrievalError
from mas_envs.retrieval.encoders import TfidfSvdEncoder, words
from tests.mas_envs.retrieval.corpus import passages
from tests.mas_envs.search.table import passage

DIGEST = """
import hashlib
from mas_envs.retrieval.encoders import TfidfSvdEncoder
from tests.mas_envs.retrieval.corpus import passages
vectors = TfidfSvdEncoder().fit(passages()).encode_passages(passages()[:50])
print(hashlib.sha256(vectors.round(4).tobytes()).hexdigest())
"""
FITTED = TfidfSvdEncoder().fit(passages())


def test_vectors_are_the_same_in_every_process() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", DIGEST],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.getcwd(), "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "77")
    }
    assert len(digests) == 1


@given(st.lists(st.text(), min_size=1, max_size=5))
def test_vectors_have_length_one_or_are_zero_for_a_text_without_words(queries: list[str]) -> None:
    vectors = FITTED.encode_queries(queries)
    assert vectors.shape == (len(queries), FITTED.dim)
    assert vectors.dtype == np.float32
    for query, vector in zip(queries, vectors, strict=True):
        assert np.linalg.norm(vector) == pytest.approx(1.0 if words(query) else 0.0, abs=1e-5)


@given(st.lists(st.text(), min_size=2, max_size=5))
def test_a_text_has_the_same_vector_alone_and_in_a_batch(queries: list[str]) -> None:
    together = FITTED.encode_queries(queries)
    alone = np.concatenate([FITTED.encode_queries([query]) for query in queries])
    assert together == pytest.approx(alone, abs=1e-5)


def test_words_never_seen_in_the_fit_still_tell_texts_apart() -> None:
    vectors = FITTED.encode_queries(["Xqzwv", "Xqzwv river", "Wvxyq"])
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.2


def test_sketch_is_left_out_where_the_axes_hold_every_word() -> None:
    few = TfidfSvdEncoder().fit([passage("a", "red fox"), passage("b", "blue fox"), passage("c", "green owl")])
    assert few.dim == 3
    assert FITTED.dim == 128 + 256


def test_axes_are_the_leading_singular_vectors() -> None:
    few = [passage(str(at), text) for at, text in enumerate(["red fox", "blue fox", "green owl", "red owl", "fox owl"])]
    full = TfidfSvdEncoder(svd_dim=64).fit(few)
    vectors = full.encode_passages(few)
    exact = np.linalg.matrix_rank(vectors.astype(np.float64), tol=1e-4)
    assert exact == 5
    narrow = TfidfSvdEncoder(svd_dim=2, sketch_dim=8).fit(few)
    assert narrow.dim == 10


def test_title_words_weigh_more() -> None:
    both = [passage("Ana Belu", "mentor Tavo Kir"), passage("Tavo Kir", "mentor Ana Belu")]
    fitted = TfidfSvdEncoder().fit(both)
    scores = fitted.encode_queries(["mentor of Ana Belu"]) @ fitted.encode_passages(both).T
    assert scores[0, 0] > scores[0, 1] + 0.1


def test_saved_encoder_comes_back_equal(tmp_path: Path) -> None:
    FITTED.save(tmp_path)
    loaded = TfidfSvdEncoder.load(tmp_path)
    texts = [passages()[3].title, "never seen"]
    assert np.array_equal(loaded.encode_queries(texts), FITTED.encode_queries(texts))
    assert loaded.dim == FITTED.dim


def test_folder_without_an_encoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RetrievalError, match=r"holds no TF-IDF encoder .*; build the index again"):
        TfidfSvdEncoder.load(tmp_path)


def test_corpus_without_words_is_refused() -> None:
    with pytest.raises(RetrievalError, match="was given no words to fit on; check the corpus"):
        TfidfSvdEncoder().fit([passage("?", "!")])


@pytest.mark.parametrize("kwargs", [{"svd_dim": 0}, {"sketch_dim": 4}, {"title_weight": 0}, {"max_words": 0}])
def test_argument_out_of_range_is_refused(kwargs: dict[str, Any]) -> None:
    (name, value), *_ = kwargs.items()
    with pytest.raises(BadArgumentError, match=f"{name}={value}: expected a whole number >= "):
        TfidfSvdEncoder(**kwargs)
