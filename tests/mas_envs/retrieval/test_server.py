"""The retrieval server: both dialects, limits, batching, and a clean end."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from mas_envs.errors import BadArgumentError
from mas_envs.retrieval import RetrievalError
from mas_envs.retrieval.bm25 import Bm25Retriever
from mas_envs.retrieval.index_builder import IndexBuilder
from mas_envs.retrieval.protocol import Passage
from mas_envs.retrieval.server import Limits, listen
from tests.mas_envs.retrieval.corpus import passages
from tests.mas_envs.retrieval.loopback import post, served

TITLE = passages()[3].title


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    small = Limits(max_topk=10, max_queries=4, max_query_chars=100, max_body_bytes=5000)
    with served(Bm25Retriever.build(passages()), small) as address:
        yield address


def documents(response: httpx.Response) -> list[list[dict[str, Any]]]:
    assert response.status_code == 200
    result: list[list[dict[str, Any]]] = response.json()["result"]
    return result


def test_a_list_of_queries_is_answered_in_the_published_layout(url: str) -> None:
    first, second = documents(post(url, {"queries": [TITLE, "river"], "topk": 2, "return_scores": True}))
    assert [set(entry) for entry in first] == [{"document", "score"}] * 2
    assert first[0]["document"] == {"id": passages()[3].id, "contents": passages()[3].contents}
    assert first[0]["score"] >= first[1]["score"] > 0.0
    assert len(second) == 2


def test_one_query_is_answered_the_same_way(url: str) -> None:
    body = {"topk": 2, "return_scores": True}
    assert documents(post(url, {"query": TITLE, **body})) == documents(post(url, {"queries": [TITLE], **body}))


def test_without_scores_documents_come_bare(url: str) -> None:
    (found,) = documents(post(url, {"query": TITLE, "topk": 1}))
    assert found == [{"id": passages()[3].id, "contents": passages()[3].contents}]


@pytest.mark.parametrize("topk", [{}, {"topk": 0}, {"topk": None}])
def test_the_default_is_three_passages(url: str, topk: dict[str, int | None]) -> None:
    assert len(documents(post(url, {"query": "city river person", **topk}))[0]) == 3


def test_a_blank_query_finds_nothing_and_spoils_no_other(url: str) -> None:
    blank, found = documents(post(url, {"queries": [" \n", TITLE], "topk": 1}))
    assert blank == []
    assert len(found) == 1
    assert documents(post(url, {"queries": []})) == []


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ([], 400, "expected an object with 'queries' or 'query', got list"),
        ({}, 422, "expected either 'query' (text) or 'queries' (a list of texts)"),
        ({"query": "a", "queries": ["a"]}, 422, "expected either"),
        ({"query": 1}, 422, "'query' one text"),
        ({"queries": "a"}, 422, "'queries' must be a list of texts"),
        ({"queries": ["a"] * 5}, 422, "5 queries in one request; the limit is 4"),
        ({"query": "a" * 101}, 422, "101 characters; the limit is 100"),
        ({"query": "a", "topk": -1}, 422, "topk=-1: expected a whole number from 1 to 10"),
        ({"query": "a", "topk": 11}, 422, "topk=11"),
        ({"query": "a", "topk": "3"}, 422, "topk='3'"),
        ({"query": "a", "topk": True}, 422, "topk=True"),
        ({"query": "a", "return_scores": "yes"}, 422, "return_scores='yes': expected true or false"),
        ({"query": "a" * 6000}, 413, "longer than 5000 bytes"),
    ],
)
def test_a_request_that_cannot_be_served_is_told_why(url: str, body: object, status: int, detail: str) -> None:
    response = post(url, body)
    assert response.status_code == status
    assert detail in response.json()["detail"]


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 4000, b"\xff\xfe"])
def test_a_body_that_is_no_json_is_told_so(url: str, content: bytes) -> None:
    with httpx.Client(trust_env=False) as client:
        response = client.post(f"{url}/retrieve", content=content)
    assert response.status_code == 400
    assert "the request is not JSON" in response.json()["detail"]


def test_lone_surrogates_come_through(url: str) -> None:
    with httpx.Client(trust_env=False) as client:
        response = client.post(f"{url}/retrieve", content=b'{"query": "\\ud800 river", "topk": 1}')
    assert len(documents(response)[0]) == 1


def test_health_and_metrics_tell_how_it_goes(url: str) -> None:
    with httpx.Client(trust_env=False, base_url=url) as client:
        assert client.get("/health").json() == {
            "status": "ok",
            "retriever": "Bm25Retriever(1000 passages)",
            "passages": 1000,
        }
        before = client.get("/metrics").text
        client.post("/retrieve", json={"query": "x"})
        client.post("/retrieve", json={})
        after = client.get("/metrics").text
    for status in ("200", "422"):
        count = re.compile(rf'mas_envs_requests_total{{status="{status}"}} (\d+)')
        first = count.search(before)
        second = count.search(after)
        assert second is not None
        assert int(second[1]) == (int(first[1]) if first else 0) + 1
    assert "mas_envs_request_seconds_bucket" in after


class Gate:
    """A retriever that waits for leave, and remembers what it was asked together."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.open = threading.Event()

    def search(self, queries: list[str], k: int) -> list[list[Passage]]:
        self.calls.append(list(queries))
        self.open.wait(10.0)
        if "bad" in queries:
            raise ValueError("cannot search for bad")
        return [[Passage(query, query, f"{rank}") for rank in range(k)] for query in queries]


def wait_for(condition: Any) -> None:
    until = time.monotonic() + 10.0
    while not condition() and time.monotonic() < until:
        time.sleep(0.005)
    assert condition()


def metric(url: str, name: str) -> int:
    with httpx.Client(trust_env=False) as client:
        found = re.search(rf"^{re.escape(name)} (\d+)", client.get(f"{url}/metrics").text, re.MULTILINE)
    return int(found[1]) if found else 0


def answer_together(gate: Gate, url: str, bodies: list[dict[str, Any]]) -> list[httpx.Response]:
    """Responses to requests that all arrive while the retriever is busy with another."""

    def all_arrived() -> bool:
        refused = metric(url, 'mas_envs_requests_total{status="503"}')
        return metric(url, "mas_envs_waiting_queries") + refused == len(bodies)

    with ThreadPoolExecutor(len(bodies) + 1) as threads:
        first = threads.submit(post, url, {"query": "first"})
        wait_for(lambda: gate.calls)
        rest = [threads.submit(post, url, body) for body in bodies]
        wait_for(all_arrived)
        gate.open.set()
        first.result()
        return [future.result() for future in rest]


def test_requests_that_arrive_together_are_searched_together_and_answered_apart() -> None:
    gate = Gate()
    with served(gate) as url:
        bodies = [{"query": f"q{at}", "topk": at + 1} for at in range(8)]
        responses = answer_together(gate, url, bodies)
    assert len(gate.calls) == 2
    assert sorted(gate.calls[1]) == [f"q{at}" for at in range(8)]
    for at, response in enumerate(responses):
        (found,) = documents(response)
        assert {entry["id"] for entry in found} == {f"q{at}"}
        assert len(found) == at + 1


def test_a_query_that_fails_fails_alone() -> None:
    gate = Gate()
    with served(gate) as url:
        good, bad = answer_together(gate, url, [{"query": "good"}, {"query": "bad"}])
    assert documents(good)[0][0]["id"] == "good"
    assert bad.status_code == 500
    assert bad.json()["detail"] == "the search failed (ValueError: cannot search for bad)"


def test_a_full_queue_is_told_to_come_again() -> None:
    gate = Gate()
    with served(gate, Limits(max_waiting=2)) as url:
        responses = answer_together(gate, url, [{"query": f"q{at}"} for at in range(6)])
    statuses = [response.status_code for response in responses]
    assert statuses.count(200) == 2
    assert statuses.count(503) == 4
    refused = responses[statuses.index(503)]
    assert refused.headers["Retry-After"] == "1"
    assert "2 queries are waiting, the limit is 2; try again in a second" in refused.json()["detail"]


def test_a_batch_is_no_larger_than_the_limit() -> None:
    gate = Gate()
    with served(gate, Limits(max_batch=3)) as url:
        answer_together(gate, url, [{"query": f"q{at}"} for at in range(6)])
    assert max(map(len, gate.calls)) == 3
    assert sum(map(len, gate.calls)) == 7


def test_limits_out_of_range_are_refused() -> None:
    with pytest.raises(BadArgumentError, match="max_topk=0: expected a whole number >= 1"):
        Limits(max_topk=0)


def test_a_port_in_use_is_named() -> None:
    taken = listen("127.0.0.1", 0)
    taken.listen()
    try:
        with pytest.raises(RetrievalError, match=r"cannot listen on 127\.0\.0\.1:\d+ .*--port 0 takes any"):
            listen("127.0.0.1", taken.getsockname()[1])
    finally:
        taken.close()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_the_command_prints_its_port_and_ends_cleanly(tmp_path: Path, stop: signal.Signals) -> None:
    corpus = tmp_path / "corpus.jsonl"
    rows = [json.dumps({"id": p.id, "contents": p.contents}) for p in passages()[:50]]
    corpus.write_text("\n".join(rows), encoding="utf-8")
    IndexBuilder(corpus, tmp_path / "index").build()
    command = [
        sys.executable,
        "-c",
        "from mas_envs.cli import main; main()",
        "serve",
        str(tmp_path / "index"),
        "--port=0",
    ]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    assert server.stdout is not None
    printed = ""
    while not (address := re.search(r"http://127\.0\.0\.1:\d+", printed)):
        printed += server.stdout.readline()
        assert server.poll() is None
    wait_for(lambda: answers(address[0]))
    assert len(documents(post(address[0], {"query": passages()[3].title, "topk": 2}))[0]) == 2
    server.send_signal(stop)
    rest = server.communicate(timeout=20.0)[0]
    assert server.returncode == 0
    assert rest.strip().endswith("Stopped.")


def answers(url: str) -> bool:
    try:
        with httpx.Client(trust_env=False) as client:
            return client.get(f"{url}/health").status_code == 200
    except httpx.ConnectError:
        return False
