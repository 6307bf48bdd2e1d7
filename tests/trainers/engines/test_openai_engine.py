"""The engine over an OpenAI-compatible endpoint: good answers, bad ones, and none at all."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.trainers.engines.chat_server import Answer, ChatServer, Seen, chat_server, completion, free_url
from trainers.engines.base import Sampling
from trainers.engines.chat_answer import EndpointError
from trainers.engines.openai_engine import ChatCompletion, ChatRequest, OpenAIEngine

KEY = "sk-0123456789abcdef"
BUSY = Answer(b'{"error": {"message": "slow down"}}', 429, {"Retry-After": "0"})
GOOD = Answer(completion("42"))


@contextmanager
def opened(url: str, **changes: Any) -> Iterator[OpenAIEngine]:
    engine = OpenAIEngine(url, "judge", **{"timeout_s": 10.0, "retries": 2, **changes})
    try:
        yield engine
    finally:
        engine.close()


def request(request_id: str = "a", content: str = "6 * 7 = ?", **sampling: Any) -> ChatRequest:
    return ChatRequest(request_id, ({"role": "user", "content": content},), Sampling(**sampling), seed=2**31 + 5)


def drain(engine: OpenAIEngine) -> dict[str, ChatCompletion]:
    ended: dict[str, ChatCompletion] = {}
    while engine.num_in_flight:
        ended |= {each.request_id: each for each in engine.poll()}
    return ended


def ask(server: ChatServer, **changes: Any) -> ChatCompletion:
    with opened(server.url, **changes) as engine:
        engine.submit([request()])
        return drain(engine)["a"]


def always(answer: Answer) -> Any:
    return chat_server(lambda seen, number: answer)


def test_a_request_is_sent_as_the_protocol_wants_it_and_the_answer_read() -> None:
    with always(Answer(completion("42", finish="length"))) as server, opened(server.url, api_key=KEY) as engine:
        engine.submit([request(max_tokens=9, temperature=0.5, top_p=0.9)])
        (done,) = engine.poll()
        assert engine.poll() == []
    assert (done.text, done.finish_reason, done.error) == ("42", "length", None)
    assert (done.num_prompt_tokens, done.num_completion_tokens) == (11, 4)
    assert done.seconds > 0.0
    (seen,) = server.seen
    assert (seen.path, seen.key) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert seen.body == {
        "model": "judge",
        "messages": [{"role": "user", "content": "6 * 7 = ?"}],
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 5,
    }


def test_extra_fields_are_added_and_null_takes_a_field_out() -> None:
    with always(GOOD) as server, opened(server.url, extra_body={"seed": None, "reasoning_effort": "low"}) as engine:
        engine.submit([request(top_k=7)])
        drain(engine)
    (seen,) = server.seen
    assert "seed" not in seen.body
    assert (seen.body["reasoning_effort"], seen.body["top_k"]) == ("low", 7)


def test_requests_run_side_by_side_up_to_the_limit() -> None:
    together, lock = threading.Barrier(3), threading.Lock()
    now, most = 0, 0

    def answer(seen: Seen, number: int) -> Answer:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        together.wait(10.0)
        with lock:
            now -= 1
        return GOOD

    with chat_server(answer) as server, opened(server.url, max_concurrency=3) as engine:
        engine.submit([request(str(index)) for index in range(9)])
        assert {done.text for done in drain(engine).values()} == {"42"}
    assert most == 3


@pytest.mark.parametrize(
    "trouble",
    [
        BUSY,
        Answer(b"", 500, {"retry-after-ms": "1"}),
        Answer(b"loading", 503, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}),
        Answer(completion("cut"), drops=True),
    ],
    ids=["rate limit", "server error", "date that has passed", "broken connection"],
)
def test_trouble_that_passes_is_waited_out(trouble: Answer) -> None:
    with chat_server(lambda seen, number: GOOD if number else trouble) as server:
        assert ask(server).text == "42"
    assert len(server.seen) == 2


def test_a_server_in_trouble_for_ever_is_asked_as_often_as_the_settings_say() -> None:
    with always(Answer(b"<h1>Bad\n gateway</h1>", 502, {"Retry-After": "0"})) as server:
        done = ask(server)
    assert len(server.seen) == 3
    assert (done.finish_reason, done.text) == ("failed", "")
    assert done.error == f"{server.url}: answered 502 ('<h1>Bad gateway</h1>') and wants a pause of 0 s"


def test_a_pause_beyond_the_deadline_is_not_waited_for() -> None:
    with always(Answer(b"", 429, {"Retry-After": "3600"})) as server:
        done = ask(server)
    assert len(server.seen) == 1
    assert "wants a pause of 3.6e+03 s" in (done.error or "")


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "needs a lower sampling.max_tokens or a model with more context"),
        (401, "put a valid key into the environment variable that endpoint.api_key_env names"),
        (403, "put a valid key"),
        (404, "expected a model that it serves"),
        (418, "answered 418 ('no')"),
        (422, "left out by endpoint.extra_body"),
    ],
)
def test_a_refusal_is_not_asked_again_and_says_what_to_do(status: int, message: str) -> None:
    with always(Answer(b'{"error": {"message": "no"}}', status)) as server:
        done = ask(server)
    assert len(server.seen) == 1
    assert f"answered {status} ('no')" in (done.error or "")
    assert message in (done.error or "")


def test_an_account_that_is_used_up_is_not_asked_again() -> None:
    with always(Answer(b'{"error": {"message": "pay", "code": "insufficient_quota"}}', 429)) as server:
        assert "answered 429 ('pay')" in (ask(server).error or "")
    assert len(server.seen) == 1


def test_a_redirect_says_where_to() -> None:
    with always(Answer(b"", 308, {"Location": "https://new.example/v1"})) as server:
        assert "it redirects to 'https://new.example/v1': use that address" in (ask(server).error or "")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<html>error</html>", "sent '<html>error</html>', which is no chat completion"),
        (b"", "which is no chat completion"),
        (b"\xff\xfe\xff", "which is no chat completion"),
        (b"[" * 100_000, "which is no chat completion"),
        (b"1" * 10_000, "which is no chat completion"),
        (b"null", "which is no chat completion"),
        (b"{}", "which is no chat completion"),
        (b'{"choices": []}', "which is no chat completion"),
        (b'{"choices": {"0": 1}}', "which is no chat completion"),
        (b'{"choices": [{"message": null}]}', "which is no chat completion"),
        (b'{"choices": [{"message": "hi"}]}', "which is no chat completion"),
        (b'{"choices": null, "error": {"message": "upstream died"}}', "sent an error instead of a completion: 'upst"),
        (completion(None), "sent the content 'None'; expected text"),
        (completion([{"type": "text", "text": "hi"}]), "expected text"),
        (completion(None, tool_calls=[{"id": "x"}]), "called a tool; expected text: serve the model without tools"),
        (completion(None, refusal="I cannot"), "declined ('I cannot'); expected text"),
        (completion(None, finish="length"), "wrote no text within sampling.max_tokens"),
        (completion("par", finish="content_filter"), "stopped at its content filter"),
        (b" " * (50 << 20), "the answer is longer than 8388608 bytes"),
    ],
    ids=lambda value: repr(value[:30]),
)
def test_whatever_is_sent_fails_that_one_completion_only(content: bytes, message: str) -> None:
    bad = Answer(content)
    with chat_server(lambda seen, number: bad if "bad" in str(seen.body) else GOOD) as server:
        with opened(server.url) as engine:
            engine.submit([request("good"), request("bad", "bad")])
            ended = drain(engine)
    assert ended["good"].text == "42"
    assert (ended["bad"].finish_reason, ended["bad"].text) == ("failed", "")
    assert message in (ended["bad"].error or "")
    assert len(server.seen) == 2


def test_text_that_no_file_can_hold_is_mended() -> None:
    with always(Answer(b'{"choices": [{"message": {"content": "a\\ud800b"}}]}')) as server:
        assert ask(server).text == "a?b"


@pytest.mark.parametrize(
    "usage", [[], {}, {"prompt_tokens": "many", "completion_tokens": 1}, {"prompt_tokens": True}, {"prompt_tokens": -1}]
)
def test_usage_that_cannot_be_read_is_said_once(usage: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), always(Answer(completion("42", usage=usage))) as server:
        with opened(server.url) as engine:
            engine.submit([request("a"), request("b")])
            assert {done.num_prompt_tokens for done in drain(engine).values()} == {0}
    (record,) = caplog.records
    assert record.getMessage() == f"{server.url} sends no usage: its tokens, and their cost, count as 0"


def test_usage_without_measure_counts_nothing() -> None:
    with always(Answer(completion("42", usage={"prompt_tokens": 10**400, "completion_tokens": 1}))) as server:
        assert ask(server).num_prompt_tokens == 0


@pytest.mark.parametrize("late", ["before the headers", "after the headers"])
def test_an_answer_that_is_late_ends_as_deadline(late: str) -> None:
    release = threading.Event()

    def answer(seen: Seen, number: int) -> Answer:
        if late == "after the headers":
            return Answer(completion("42"), hang=release)
        release.wait(10.0)
        return GOOD

    with chat_server(answer) as server:
        done = ask(server, timeout_s=0.2)
        release.set()
    assert (done.finish_reason, done.error) == ("deadline", f"{server.url}: no answer within 0.2 s")


def test_a_deadline_names_the_trouble_before_it() -> None:
    release = threading.Event()
    with chat_server(lambda seen, number: Answer(GOOD.content, hang=release) if number else BUSY) as server:
        done = ask(server, timeout_s=1.0)
        release.set()
    assert "no answer within 1 s; the attempt before: answered 429 ('slow down')" in (done.error or "")


def test_a_cancelled_request_comes_back_once_and_its_id_is_free_again() -> None:
    release = threading.Event()
    with chat_server(lambda seen, number: GOOD if number else Answer(completion("late"), hang=release)) as server:
        with opened(server.url) as engine:
            engine.submit([request()])
            engine.cancel(["a", "a", "unknown"])
            (done,) = engine.poll()
            assert (done.request_id, done.finish_reason, engine.num_in_flight) == ("a", "cancelled", 0)
            release.set()
            engine.submit([request()])
            assert drain(engine)["a"].finish_reason == "stop"


def test_closing_ends_what_hangs_and_its_thread() -> None:
    release = threading.Event()
    with always(Answer(GOOD.content, hang=release)) as server:
        engine = OpenAIEngine(server.url, "judge", timeout_s=60.0)
        engine.submit([request()])
        engine.close()
        engine.close()
        assert "openai-engine" not in {thread.name for thread in threading.enumerate()}
        assert engine.num_in_flight == 0
        with pytest.raises(RuntimeError, match="submit on a closed engine; expected an open one"):
            engine.submit([request("b")])
        release.set()


def test_an_id_that_is_in_flight_is_refused() -> None:
    with always(GOOD) as server, opened(server.url) as engine:
        engine.submit([request()])
        with pytest.raises(ValueError, match="request_id='a' is in flight already; expected a new id"):
            engine.submit([request()])
        drain(engine)


def test_the_key_is_in_no_message_even_if_the_endpoint_repeats_it() -> None:
    content = f'{{"error": {{"message": "bad key {KEY}"}}}}'.encode()
    with always(Answer(content, 401)) as server:
        error = ask(server, api_key=KEY).error or ""
    assert "bad key [key]" in error
    assert KEY not in error
    with always(Answer(completion(f"my key is {KEY}"))) as server:
        assert ask(server, api_key=KEY).text == "my key is [key]"


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "schlüssel"])
def test_a_key_that_no_header_can_hold_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(ValueError, match=r"api_key \(not shown\) holds a space or a character beyond ASCII") as caught:
        OpenAIEngine("http://127.0.0.1:9/v1", "judge", api_key=key)
    assert key not in str(caught.value)


def test_a_check_asks_once_for_a_completion() -> None:
    with always(GOOD) as server, opened(server.url) as engine:
        engine.check(Sampling(max_tokens=5))
    assert [seen.body["max_tokens"] for seen in server.seen] == [5]


def test_a_check_of_a_server_that_is_down_fails_at_the_first_attempt() -> None:
    with opened(free_url(), retries=100, timeout_s=60.0) as engine, pytest.raises(EndpointError) as caught:
        engine.check(Sampling())
    assert "cannot be reached (ConnectError" in str(caught.value)
    assert str(caught.value).startswith(engine.url)


def test_a_check_waits_for_a_server_that_is_loading() -> None:
    with chat_server(lambda seen, number: GOOD if number else BUSY) as server, opened(server.url) as engine:
        engine.check(Sampling())
    assert len(server.seen) == 2
