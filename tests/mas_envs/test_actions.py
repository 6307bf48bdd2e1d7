"""Parsing of completions: the golden cases, edges, and properties that hold for any text."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mas_envs.actions import (
    PROTOCOL_TAGS,
    Parsed,
    defuse,
    mend_text,
    parse_block,
    parse_boxed,
    parse_verdict,
    strip_thoughts,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "actions.jsonl"
CASES: list[dict[str, Any]] = [json.loads(line) for line in GOLDEN.read_text("utf-8").splitlines()[1:]]
VERDICTS = ("approve", "reject")


def math_verdict(text: str) -> Parsed:
    return parse_verdict(text, "verify", VERDICTS)


def searched(text: str) -> Parsed:
    return parse_block(text, "search", thoughts="required")


PARSERS: dict[str, Callable[[str], Parsed]] = {
    "math_solver": parse_boxed,
    "math_verifier": math_verdict,
    "search_router": lambda text: parse_verdict(text, "verify", ("yes", "no")),
    "searcher": searched,
    "answerer": lambda text: parse_block(text, "answer", thoughts="required"),
}
DECISIONS = {
    "math_verifier": {"approve": "approve", "reject": "reject", None: "reject"},
    "search_router": {"yes": "answer", "no": "search", None: "search"},
}

FRAGMENTS = st.sampled_from(
    [
        *("<", ">", "</", "/", "|", "[", "]", " ", "\n", "\\", "{", "}", "<|", "|>", "<\uff5c", "\uff5c>"),
        *("think", "verify", "search", "SEARCH", "answer", "information", "im_end", "INST", "x", "4", "\ud800"),
        *("<think>", "</think>", "<search>", "</search>", "<verify>", "</verify>", "<s>", "<<SYS>>"),
        *(r"\boxed{", r"\boxed", "approve", "reject."),
    ]
)
HOSTILE = st.lists(FRAGMENTS | st.text(max_size=3), max_size=40).map("".join)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_completion_is_read_by_the_recommended_rules(case: dict[str, Any]) -> None:
    parsed = PARSERS[case["role"]](case["completion"])
    content = DECISIONS[case["role"]][parsed.content] if case["role"] in DECISIONS else parsed.content
    assert (content, parsed.valid) == (case["content"], case["valid"])
    assert (parsed.reason is None) == parsed.valid


def test_golden_file_holds_every_role() -> None:
    assert {case["role"] for case in CASES} == set(PARSERS)
    assert len(CASES) == 100


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{a\}b}", r"a\}b"),
        (r"\boxed{\text{\{}}", r"\text{\{}"),
        (r"\boxed{1\\}", r"1\\"),
        (r"\boxed{\boxed{5}}", "5"),
        ("\\boxed\n{8}", "8"),
        (r"} } \boxed{3}", "3"),
        (r"{ \boxed{3}", "3"),
        (r"\boxed{7} then \boxed{8", None),
        (r"\boxed{} \boxed{ }", None),
        (r"\fbox{5}", None),
        ("", None),
    ],
)
def test_box_is_the_last_filled_one_with_balanced_braces(text: str, content: str | None) -> None:
    assert parse_boxed(text).content == content


def test_nothing_is_read_from_open_thoughts() -> None:
    text = r"<THINK>so \boxed{4} <verify>approve</verify> <search>x</search>"
    assert strip_thoughts(text) is None
    for parse in PARSERS.values():
        assert parse(text) == Parsed(None, False, "the completion ends inside its thoughts")


def test_block_without_required_thoughts_is_used_but_invalid() -> None:
    assert parse_block("<search>a</search>", "search").valid
    assert searched("<search>a</search>") == Parsed("a", False, "not exactly one <think>...</think> before the block")


def test_foreign_tag_is_no_protocol_tag_inside_a_block() -> None:
    assert parse_block("<note>1 < 2 <b>x</b></note>", "note") == Parsed("1 < 2 <b>x</b>", True)


def test_tag_name_is_taken_literally() -> None:
    assert parse_block("<a.b>x</a.b><aXb>y</aXb>", "a.b").content == "x"


@given(HOSTILE)
def test_no_text_makes_a_parser_raise(text: str) -> None:
    for parse in PARSERS.values():
        parsed = parse(text)
        assert parsed.content is None or parsed.content.strip()
        assert (parsed.reason is None) == parsed.valid
        assert parsed.content is not None or not parsed.valid


@given(st.text(alphabet="abc{} 0123456789+^_", min_size=1), HOSTILE)
def test_balanced_content_survives_its_box(content: str, before: str) -> None:
    depth = 0
    for char in content:
        depth += {"{": 1, "}": -1}.get(char, 0)
        if depth < 0:
            break
    if depth or not content.strip():
        return
    assert parse_boxed(f"{before}</think> \\boxed{{{content}}} done").content == content


@given(
    st.sampled_from(VERDICTS),
    st.sampled_from([str.lower, str.upper, str.title]),
    st.text(alphabet=" \n\t."),
    st.text(alphabet=" \n\t."),
)
def test_verdict_survives_case_spaces_and_full_stops(
    word: str, spell: Callable[[str], str], before: str, after: str
) -> None:
    assert math_verdict(f"ok <verify>{before}{spell(word)}{after}</verify> ok") == Parsed(word, True)


@given(st.text(alphabet=st.characters(exclude_characters="<", exclude_categories=["Cs"])))
def test_plain_text_survives_its_block(content: str) -> None:
    assert parse_block(f"<search>{content}</search>", "search").content == (content.strip() or None)


@given(HOSTILE)
def test_defusing_twice_is_defusing_once(text: str) -> None:
    assert defuse(defuse(text)) == defuse(text)


@given(HOSTILE, st.sampled_from(PROTOCOL_TAGS))
def test_no_tag_and_no_chat_marker_survives_defusing(text: str, tag: str) -> None:
    safe = defuse(text)
    assert len(safe) == len(text)
    assert not re.search(rf"<\s?/?\s?(?:{'|'.join(PROTOCOL_TAGS)})\s?>", safe, re.IGNORECASE)
    assert not re.search(r"<[|\uff5c][^<>\n]{1,64}>|<\w{1,32}[|\uff5c]>", safe)
    assert not re.search(r"<<?/?(?:s|sys)>|\[/?inst\]", safe, re.IGNORECASE)
    assert parse_block(f"<{tag}>{safe or 'x'}", tag).content is None


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("<|im_start|>system", "[|im_start|]system"),
        ("<|<|im_end|>|>", "[|[|im_end|]|]"),
        ("<\uff5cUser\uff5c>", "[\uff5cUser\uff5c]"),
        ("<start_of_turn>model", "[start_of_turn]model"),
        ("<|turn>model<turn|>", "[|turn]model[turn|]"),
        ("[INST]<<SYS>></s>", "(INST)[[SYS]][/s]"),
        ("< / Answer >x", "[ / Answer ]x"),
        ("<think/>", "[think/]"),
        ("<s<think>earch>", "<s[think]earch>"),
    ],
)
def test_markers_of_common_chat_templates_are_defused(text: str, safe: str) -> None:
    assert defuse(text) == safe


@pytest.mark.parametrize(
    "text", ["1 < 2 and 3 > 2", "f <|> g", "a[0] <b> |x| <x|y>", "", "<searching>", r"\langle x \rangle"]
)
def test_harmless_text_is_left_alone(text: str) -> None:
    assert defuse(text) == text


def test_only_the_named_tags_are_defused() -> None:
    assert defuse("<solver_0><think>", tags=("solver_0",)) == "[solver_0]<think>"


@pytest.mark.parametrize(
    "unit",
    [
        *("<think>", "</think>", r"\boxed{", "{", "}", r"\boxed{ }", r"\boxed ", "<search>", "<search>a</search>"),
        *("<", "<|", "< ", "[", "|", "\\", "<<think>", "<verify>approve</verify>", "\ud800"),
    ],
)
def test_time_grows_linearly_with_adversarial_text(unit: str) -> None:
    def seconds(count: int) -> float:
        text, start = unit * count, time.perf_counter()
        for parse in PARSERS.values():
            parse(text)
        defuse(text)
        return time.perf_counter() - start

    assert min(seconds(100_000) for _ in range(2)) < 20 * max(seconds(10_000), 0.1)


def test_nested_markers_are_defused_in_linear_time() -> None:
    start = time.perf_counter()
    safe = defuse("<|" * 50_000 + "x" + "|>" * 50_000)
    assert time.perf_counter() - start < 3.0
    assert not re.search(r"<\|[^<>\n]{1,64}>", safe)


def test_text_is_cut_and_its_surrogates_replaced() -> None:
    assert mend_text("abc", 3) == ("abc", None)
    assert mend_text("abcd", 3) == ("abc", "the action of 4 characters was cut to 3")
    assert mend_text("a\ud800b", 9) == ("a\ufffdb", "the action held undecodable characters, which were replaced")
    assert mend_text("\ud83d\ude00", 9)[0] == "\U0001f600"


@given(
    st.text(st.characters(), max_size=30) | st.text(st.characters(categories=["Cs"]), max_size=5), st.integers(1, 20)
)
def test_mended_text_can_be_encoded_and_is_never_longer(text: str, limit: int) -> None:
    mended, fault = mend_text(text, limit)
    assert len(mended) <= limit
    assert mended.encode("utf-8").decode("utf-8") == mended
    assert (fault is None) == (mended == text)
