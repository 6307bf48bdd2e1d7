"""What every retriever does, and what is special about each: real indexes over the embedded world."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_envs.errors import BadArgumentError
from mas_envs.retrieval import Passage, RetrievalError, Retriever, search_checked
from mas_envs.retrieval.bm25 import Bm25Retriever
from mas_envs.retrieval.encoders import TfidfSvdEncoder
from mas_envs.retrieval.faiss_index import FaissRetriever, exact_nearest
from mas_envs.retrieval.hybrid import HybridRetriever
from tests.mas_envs.retrieval.corpus import passages, recall
from tests.mas_envs.search.table import TableRetriever, passage


def encoder() -> TfidfSvdEncoder:
    return TfidfSvdEncoder().fit(passages())


def flat() -> FaissRetriever:
    return FaissRetriever.build(passages(), encoder())


def hybrid() -> HybridRetriever:
    return HybridRetriever([flat(), Bm25Retriever.build(passages())])


MAKERS: dict[str, Callable[[], Any]] = {
    "flat": flat,
    "hnsw": lambda: FaissRetriever.build(passages(), encoder(), factory="HNSW32"),
    "ivf": lambda: FaissRetriever.build(passages(), encoder(), factory="IVF16,Flat", num_probes=16),
    "bm25": lambda: Bm25Retriever.build(passages()),
    "hybrid": hybrid,
}


@pytest.mark.parametrize("name", MAKERS)
def test_retriever_finds_what_good_queries_ask_for(name: str) -> None:
    retriever = MAKERS[name]()
    assert isinstance(retriever, Retriever)
    assert recall(retriever.search, 3) > 0.97
    assert recall(retriever.search, 1) > 0.9


@pytest.mark.parametrize("name", MAKERS)
def test_answers_are_sorted_the_same_each_time_and_in_the_order_of_queries(name: str) -> None:
    retriever = MAKERS[name]()
    queries = [passages()[at].title for at in (10, 400, 611)]
    found = retriever.search(queries, 5)
    assert [row[0].title for row in found] == queries
    assert found == retriever.search(queries, 5) == [retriever.search([query], 5)[0] for query in queries]
    for row in found:
        assert len(row) == len({each.id for each in row}) == 5
        assert [each.score for each in row] == sorted((each.score for each in row), reverse=True)
        assert {each.contents for each in row} <= {each.contents for each in passages()}


@pytest.mark.parametrize("name", MAKERS)
def test_more_passages_than_there_are_and_empty_requests_are_no_error(name: str) -> None:
    retriever = MAKERS[name]()
    assert len(retriever.search([passages()[0].title], 5000)[0]) <= len(passages())
    assert retriever.search([], 3) == []
    assert len(retriever.search([""], 3)) == 1


@pytest.mark.parametrize("name", MAKERS)
def test_copies_share_the_index(name: str) -> None:
    retriever = MAKERS[name]()
    assert copy.deepcopy(retriever) is retriever
    assert type(retriever).__name__ in repr(retriever)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(
    ("queries", "k", "message"),
    [
        ("one", 3, "queries='one': expected a list of str"),
        ([1], 3, r"queries=\[1\]: expected a list of str"),
        (["x"], 0, "k=0: expected a whole number >= 1"),
        (["x"], 1.5, r"k=1\.5: expected a whole number >= 1"),
    ],
)
def test_unusable_request_is_refused(name: str, queries: Any, k: Any, message: str) -> None:
    with pytest.raises(BadArgumentError, match=message):
        MAKERS[name]().search(queries, k)


def test_flat_index_gives_the_exact_nearest_passages() -> None:
    retriever, enc = flat(), encoder()
    queries = [passages()[at].text[:60] for at in range(0, 1000, 50)]
    scores = enc.encode_queries(queries) @ enc.encode_passages(passages()).T
    for row, found in zip(scores, retriever.search(queries, 4), strict=True):
        assert [each.score for each in found] == pytest.approx(np.sort(row)[::-1][:4], abs=1e-5)


def test_product_quantised_index_is_small_and_still_finds_most() -> None:
    retriever = FaissRetriever.build(passages(), encoder(), factory="IVF4,PQ16x4", num_probes=4)
    assert recall(retriever.search, 10) > 0.85


def test_index_of_another_corpus_or_encoder_is_refused() -> None:
    retriever = flat()
    with pytest.raises(
        RetrievalError, match="the index holds 1000 vectors, the corpus 999 passages: they do not belong"
    ):
        FaissRetriever(retriever.index, passages()[1:], retriever.encoder)
    other = TfidfSvdEncoder(svd_dim=16).fit(passages())
    with pytest.raises(RetrievalError, match="vectors of 384 dimensions, the encoder makes 272: they do not belong"):
        FaissRetriever(retriever.index, passages(), other)
    with pytest.raises(RetrievalError, match="the index holds 1000 passages, the corpus 999: they do not belong"):
        Bm25Retriever(Bm25Retriever.build(passages()).index, passages()[1:])


@pytest.mark.parametrize("build", [lambda p: FaissRetriever.build(p, encoder()), Bm25Retriever.build])
def test_empty_corpus_is_refused(build: Callable[[Any], Any]) -> None:
    with pytest.raises(RetrievalError, match="the corpus is empty; expected at least one passage"):
        build(())


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"factory": "Wrong99"}, "factory='Wrong99': faiss cannot make it over 1000 passages of 384 dimensions"),
        ({"factory": "IVF5000,Flat"}, "factory='IVF5000,Flat': faiss cannot make it"),
        ({"factory": "IVF4,Flat", "num_probes": 0}, "num_probes=0: expected a whole number >= 1, or None"),
    ],
)
def test_index_that_cannot_be_made_is_refused(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(BadArgumentError, match=message):
        FaissRetriever.build(passages(), encoder(), **kwargs)


def test_bm25_leaves_out_passages_without_a_word_of_the_query() -> None:
    retriever = Bm25Retriever.build((passage("a", "red fox"), passage("b", "blue fox"), passage("c", "green")))
    assert [each.title for each in retriever.search(["blue fox"], 3)[0]] == ["b", "a"]
    assert retriever.search(["zebra"], 3) == [[]]


def test_fused_ranks_follow_the_formula() -> None:
    a, b, c = (passage(name) for name in "abc")
    fused = HybridRetriever([TableRetriever({"q": [a, b]}), TableRetriever({"q": [b, c]})], offset=1.0)
    found = fused.search(["q"], 2)[0]
    assert [each.id for each in found] == ["b", "a"]
    assert [each.score for each in found] == pytest.approx([1 / 3 + 1 / 2, 1 / 2])


def test_hybrid_asks_deep_enough_and_passes_failures_on() -> None:
    first, second = TableRetriever(), TableRetriever({"q": RetrievalError("down")})
    HybridRetriever([first, first], depth=7).search(["q"], 3)
    assert first.asked[0] == ("q", 7)
    with pytest.raises(RetrievalError, match="down"):
        HybridRetriever([first, second]).search(["q"], 3)


@pytest.mark.parametrize(
    ("count", "kwargs", "message"),
    [
        (1, {}, "retrievers: expected at least two, got 1"),
        (2, {"offset": 0.0}, r"offset=0\.0: expected a number > 0"),
        (2, {"depth": 0}, "depth=0: expected a whole number >= 1"),
    ],
)
def test_hybrid_argument_out_of_range_is_refused(count: int, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(BadArgumentError, match=message):
        HybridRetriever([TableRetriever()] * count, **kwargs)


def test_contents_come_back_from_the_wiki_layout() -> None:
    each = Passage("1", 'A "quoted" title', "Text\nin lines.")
    assert Passage.from_contents("1", each.contents) == each
    assert Passage.from_contents("2", "no quotes\nbody").title == "no quotes"


def test_failure_of_any_kind_comes_out_as_one_error() -> None:
    with pytest.raises(RetrievalError, match=r"the retriever failed \(KeyError: 'x'\)"):
        search_checked(TableRetriever({"q": KeyError("x")}), "q", 3)


@given(
    st.integers(1, 200),
    st.integers(4, 9),
    st.integers(1, 12),
    st.integers(0, 2**32 - 1),
)
@settings(deadline=None)
def test_exact_search_of_many_queries_is_the_sorted_inner_product(rows: int, queries: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.integers(-3, 4, (rows, 5)).astype(np.float32)  # small integers: exact sums, and many ties
    asked = rng.integers(-3, 4, (queries, 5)).astype(np.float32)
    k = min(k, rows)
    scores, positions = exact_nearest(vectors, asked, k)
    everything = asked @ vectors.T
    assert (scores == -np.sort(-everything, axis=1)[:, :k]).all()
    assert (np.take_along_axis(everything, positions, 1) == scores).all()
    assert all(len(set(row)) == k for row in positions.tolist())


def test_one_query_and_many_find_the_same_in_an_exact_index() -> None:
    retriever = FaissRetriever.build(passages(), encoder())
    queries = [f"birth of {passage.title}" for passage in passages()[:40]]
    together = retriever.search(queries, 3)
    alone = [retriever.search([query], 3)[0] for query in queries]
    assert [[p.id for p in row] for row in together] == [[p.id for p in row] for row in alone]
    scores = [[[p.score for p in row] for row in rows] for rows in (together, alone)]
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-5)
