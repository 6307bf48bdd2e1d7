"""`HttpRetriever` against our server and against ones that are down, slow, wrong or hostile."""

import copy
import json
import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import mas_envs
from mas_envs.errors import BadArgumentError
from mas_envs.retrieval import RetrievalError
from mas_envs.retrieval.bm25 import Bm25Retriever
from mas_envs.retrieval.circuit_breaker import CircuitBreaker
from mas_envs.retrieval.http_client import Dialect, HttpRetriever
from mas_envs.retrieval.index_builder import IndexBuilder
from mas_envs.retrieval.server import Limits, listen
from tests.mas_envs.retrieval.corpus import passages
from tests.mas_envs.retrieval.loopback import Answer, fake, served

QUERIES = [passages()[3].title, passages()[8].title]
GOOD = json.dumps({"result": [[{"document": {"id": 1, "contents": '"A"\nb'}, "score": 0.5}]]}).encode()


@pytest.fixture(scope="module")
def local() -> Bm25Retriever:
    return Bm25Retriever.build(passages())


@pytest.fixture(scope="module")
def url(local: Bm25Retriever) -> Iterator[str]:
    with served(local, Limits(max_query_chars=1000)) as address:
        yield address


@pytest.mark.parametrize("dialect", ["auto", "queries", "query"])
def test_finds_what_the_retriever_behind_the_server_finds(url: str, local: Bm25Retriever, dialect: Dialect) -> None:
    client = HttpRetriever(url, dialect=dialect)
    found = client.search(QUERIES, 4)
    assert [[p.id for p in row] for row in found] == [[p.id for p in row] for row in local.search(QUERIES, 4)]
    assert found[0][0].contents == passages()[3].contents
    assert client.search([], 3) == []
    client.close()
    client.close()


def test_copies_share_the_connections_and_pickles_open_their_own(url: str) -> None:
    client = HttpRetriever(url, dialect="query")
    assert copy.deepcopy(client) is client
    again = pickle.loads(pickle.dumps(client))
    assert again.search(QUERIES, 2) == client.search(QUERIES, 2)
    assert repr(again) == f"HttpRetriever('{url}/retrieve')"


def test_a_server_of_the_other_dialect_is_recognised_once() -> None:
    bodies: list[dict[str, object]] = []

    def singular(body: bytes, number: int) -> Answer:
        bodies.append(json.loads(body))
        return (200, GOOD) if "query" in bodies[-1] else (422, b'{"detail": "query missing"}')

    with fake(singular) as address:
        client = HttpRetriever(address)
        for _ in range(2):
            assert [row[0].title for row in client.search(["x", "y"], 3)] == ["A", "A"]
    assert [sorted(body) for body in bodies] == [["queries", "return_scores", "topk"]] + [
        ["query", "return_scores", "topk"]
    ] * 4


@pytest.mark.parametrize("trouble", [(503, b"later"), (500, b""), (429, b"slow down")])
def test_passing_trouble_is_waited_out(trouble: Answer) -> None:
    with fake(lambda body, number: trouble if number < 2 else (200, GOOD)) as address:
        assert HttpRetriever(address).search(["x"], 3)[0][0].score == 0.5


def test_lasting_trouble_is_an_error_at_the_deadline() -> None:
    with (
        fake(lambda body, number: (503, b"<html>down</html>")) as address,
        pytest.raises(RetrievalError, match=r"/retrieve: answered 503 \(<html>down</html>\); gave up"),
    ):
        HttpRetriever(address, deadline_s=0.5).search(["x"], 3)


def test_a_slow_server_is_an_error_at_the_deadline() -> None:
    release = threading.Event()

    def slow(body: bytes, number: int) -> Answer:
        release.wait(10.0)
        return 200, GOOD

    with fake(slow) as address:
        started = time.monotonic()
        with pytest.raises(RetrievalError, match=r"no answer in time \(ReadTimeout\)"):
            HttpRetriever(address, deadline_s=0.6, attempt_s=0.2).search(["x"], 3)
        assert time.monotonic() - started < 5.0
        release.set()


def test_a_server_that_is_down_is_an_error_with_its_address() -> None:
    listener = listen("127.0.0.1", 0)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.close()
    with pytest.raises(RetrievalError, match=rf"{address}/retrieve: cannot be reached \(ConnectError"):
        HttpRetriever(address, deadline_s=0.3).search(["x"], 3)


def document(**fields: object) -> bytes:
    return json.dumps({"result": [[{"document": fields, "score": 1.0}]]}).encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<html>hello</html>", "sent no JSON"),
        (b"[" * 100_000, "sent no JSON"),
        (b"[]", "expected {'result'"),
        (b'{"result": null}', "expected {'result'"),
        (b'{"result": []}', "one list for each of the 1 queries"),
        (b'{"result": [[], []]}', "one list for each of the 1 queries"),
        (b'{"result": [7]}', "one list for each of the 1 queries"),
        (b'{"result": [["text"]]}', "as a document; expected 'id' and 'contents'"),
        (document(id="1"), "a document without text"),
        (document(id="1", contents=5), "a document without text"),
        (b'{"result": [[{"document": {"id": "1", "contents": "a"}, "score": "high"}]]}', "with score 'high'"),
        (b'{"result": [[{"document": {"id": "1", "contents": "a"}, "score": NaN}]]}', "with score nan"),
        (b" " * (17 << 20), "the answer is longer than 16777216 bytes"),
    ],
)
def test_garbage_is_an_error_and_never_evidence(content: bytes, message: str) -> None:
    with (
        fake(lambda body, number: (200, content)) as address,
        pytest.raises(RetrievalError, match=message),
    ):
        HttpRetriever(address, dialect="queries").search(["x"], 3)


def test_more_passages_than_asked_for_are_cut_and_fewer_are_taken() -> None:
    entries = [{"document": {"id": at, "contents": f"t{at}"}, "score": 9 - at} for at in range(5)]
    content = json.dumps({"result": [entries]}).encode()
    with fake(lambda body, number: (200, content)) as address:
        client = HttpRetriever(address)
        assert [p.id for p in client.search(["x"], 2)[0]] == ["0", "1"]
        assert len(client.search(["x"], 9)[0]) == 5


def test_documents_without_scores_keep_their_order() -> None:
    content = json.dumps({"result": [[{"id": "b", "contents": "B"}, {"id": "a", "contents": "A"}]]}).encode()
    with fake(lambda body, number: (200, content)) as address:
        found = HttpRetriever(address).search(["x"], 2)[0]
    assert [(p.id, p.score) for p in found] == [("b", 0.0), ("a", -1.0)]


@pytest.mark.parametrize("status", [401, 404])
def test_a_wrong_address_is_told_at_once(status: int) -> None:
    with (
        fake(lambda body, number: (status, b"no")) as address,
        pytest.raises(RetrievalError, match=rf"answered {status} \(no\); check the address"),
    ):
        HttpRetriever(address).search(["x"], 3)


def test_a_query_of_a_megabyte_is_refused_and_the_next_one_is_served(url: str) -> None:
    client = HttpRetriever(url, trip_after=1)
    with pytest.raises(RetrievalError, match=r"refused the request with 422 .*1000000 characters; the limit is 1000"):
        client.search(["x" * 1_000_000], 3)
    assert len(client.search(QUERIES, 3)) == 2


def test_after_failures_in_a_row_searches_fail_at_once_and_then_recover() -> None:
    down = threading.Event()
    down.set()
    requests: list[int] = []

    def answer(body: bytes, number: int) -> Answer:
        requests.append(number)
        return (500, b"") if down.is_set() else (200, GOOD)

    with fake(answer) as address:
        client = HttpRetriever(address, deadline_s=0.05, trip_after=2, cool_down_s=0.5)
        for _ in range(2):
            with pytest.raises(RetrievalError, match="answered 500"):
                client.search(["x"], 3)
        asked = len(requests)
        with pytest.raises(RetrievalError, match="failed several times in a row"):
            client.search(["x"], 3)
        assert len(requests) == asked
        down.clear()
        time.sleep(0.6)
        assert client.search(["x"], 3)[0][0].title == "A"
        assert client.search(["x"], 3)[0][0].title == "A"


def test_after_the_cool_down_one_caller_tries_and_the_others_wait() -> None:
    breaker = CircuitBreaker(trip_after=1, cool_down_s=0.05)
    breaker.failed()
    assert not breaker.allows()
    time.sleep(0.06)
    assert breaker.allows()
    assert not breaker.allows()
    breaker.succeeded()
    assert breaker.allows()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"url": "localhost:8000"}, "url='localhost:8000': expected http://HOST:PORT"),
        ({"url": "ftp://x"}, "url='ftp://x'"),
        ({"dialect": "both"}, "dialect='both': expected 'auto', 'queries' or 'query'"),
        ({"deadline_s": 0.0}, "deadline_s=0.0: expected seconds > 0"),
        ({"attempt_s": -1.0}, "attempt_s=-1.0"),
        ({"cool_down_s": float("nan")}, "cool_down_s=nan"),
        ({"max_connections": 0}, "max_connections=0: expected a whole number >= 1"),
        ({"trip_after": 1.5}, "trip_after=1.5"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(BadArgumentError, match=message):
        HttpRetriever(**{"url": "http://127.0.0.1:9", **arguments})  # type: ignore[arg-type]


def test_an_environment_searches_at_a_server(url: str) -> None:
    env = mas_envs.make("HierarchicalSearch-v0", retriever=url)
    env.reset(seed=0)
    env.step("<verify>no</verify>")
    env.step(f"<search>{QUERIES[0]}</search>")
    shown = env.observe("answerer_0")["messages"][-1]["content"]
    assert passages()[3].text in shown


def test_a_server_that_is_down_is_found_when_the_environment_is_made() -> None:
    listener = listen("127.0.0.1", 0)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.close()
    with pytest.raises(RetrievalError, match="start one with `mas-envs serve DIR`, or mend the address"):
        mas_envs.make("HierarchicalSearch-v0", retriever=address)


def test_a_server_that_goes_away_truncates_the_episode_and_shows_nothing(local: Bm25Retriever) -> None:
    with served(local) as address:
        env = mas_envs.make("HierarchicalSearch-v0", retriever=HttpRetriever(address, deadline_s=0.2))
        env.reset(seed=0)
        env.step("<verify>no</verify>")
    env.step(f"<search>{QUERIES[0]}</search>")
    assert all(env.truncations.values())
    assert not any(env.terminations.values())
    assert "cannot be reached" in env.infos["searcher_0"]["error"]
    assert env.infos["answerer_0"]["success"] is None


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({}, "expected either 'url' or 'index' in it"),
        ({"url": "http://127.0.0.1:9", "index": "x"}, "expected either 'url' or 'index' in it"),
        (
            {"url": "http://127.0.0.1:9", "deadline": 3},
            r"cannot be used .* beside 'url' it may have dialect, deadline_s",
        ),
        ("nonsense", "the http:// address of a server, or an index folder that exists"),
    ],
)
def test_a_source_that_means_no_retriever_is_refused(source: object, message: str) -> None:
    with pytest.raises(BadArgumentError, match=message):
        mas_envs.make("HierarchicalSearch-v0", retriever=source)


def test_an_index_folder_is_a_source(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    rows = [json.dumps({"id": p.id, "contents": p.contents}) for p in passages()]
    corpus.write_text("\n".join(rows), encoding="utf-8")
    IndexBuilder(corpus, tmp_path / "index", factory="IVF8,Flat").build()
    for source in (tmp_path / "index", str(tmp_path / "index"), {"index": str(tmp_path / "index"), "num_probes": 8}):
        env = mas_envs.make("HierarchicalSearch-v0", retriever=source)
        env.reset(seed=0)
        env.step("<verify>no</verify>")
        env.step(f"<search>{QUERIES[0]}</search>")
        assert passages()[3].text in env.observe("answerer_0")["messages"][-1]["content"]
