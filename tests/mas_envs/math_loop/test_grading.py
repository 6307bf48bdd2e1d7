import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_envs.errors import GradingError
from mas_envs.math_loop import grading
from mas_envs.math_loop.answers import compare
from mas_envs.math_loop.grading import MathGrader
from mas_envs.math_loop.latex_text import normalise
from mas_envs.math_loop.rationals import exact_value, parse_number

HANGS = r"\int_0^{\infty}\sin(x^x)dx"
ALGEBRA = (r"\boxed{(x+1)^2}", "x^2+2x+1")


@pytest.fixture(scope="module")
def grader() -> Iterator[MathGrader]:
    with MathGrader(num_workers=2, limit_s=5.0) as shared:
        yield shared


def boxed(answer: str) -> str:
    return f"\\boxed{{{answer}}}"


@pytest.mark.parametrize(
    ("answer", "prediction", "is_right"),
    [
        ("42", "42.", True),
        (r"\frac{7}{3}", "2 1/3", True),
        (r"1\frac{1}{2}", "11/2", False),
        ("12345678901234567890", "12345678901234567891", False),
        (r"\frac13", "0.3333333333", False),
        (r"\frac16", r"0.1\overline{6}", True),
        ("5 feet", "5 inches", False),
        (r"2\text{ hours}", r"120\text{ minutes}", True),
        (r"60\text{ mph}", r"60\text{ miles per hour}", True),
        ("(1,2)", "(2,1)", False),
        (r"\{1,2\}", r"\{2,1\}", True),
        (r"\{1,2\}", "(1,2)", False),
        ("[0,1]", "(0,1)", False),
        ("x>0", r"(0,\infty)", True),
        (r"x\ge 3", r"x\le 3", False),
        ("3", "3=x", True),
        ("x=3", "n=3", False),
        ("5", r"5\text{ or }7", False),
        ("-4,4", r"x=\pm4", True),
        (r"\text{Case }1", r"\text{Case }2", False),
        ("B", "(C)", False),
        (r"\text{June 5}", "June 5", True),
        (r"\frac12", r"\cos(60^\circ)", True),
        ("(1,2)", "x=2,y=1", False),
        ("['2', '3']", "3, 2", True),
        ("$\\sqrt{2}$", "√2", True),
        ("-1", "i^2", True),
        ("x+1", "X+1", False),
        (r"|x|", r"\sqrt{x^2}", True),
        ("x", r"\sqrt{x^2}", False),
        ("x^2+y^2=4", "2x^2+2y^2=8", True),
        ("x^2+y^2=4", "x^2+y^2=5", False),
    ],
)
def test_answers_are_compared_by_kind(grader: MathGrader, answer: str, prediction: str, is_right: bool) -> None:
    grade = grader.grade(boxed(prediction), answer)
    assert (grade.status, grade.correct) == ("graded", is_right)


@pytest.mark.parametrize("completion", ["", "42", r"\boxed{}", r"<think>\boxed{42}", r"\boxed{42"])
def test_no_box_to_grade_is_no_answer_with_a_reason(completion: str) -> None:
    grade = grading.grade(completion, "42")
    assert (grade.correct, grade.extracted, grade.status) == (False, None, "no_answer")
    assert grade.reason


def test_a_refused_answer_says_why() -> None:
    grade = grading.grade(r"\boxed{9^{9^{9^9}}}", "9")
    assert (grade.correct, grade.status) == (False, "graded")
    assert grade.reason == "a number in the answer is too large to evaluate"


def test_plain_answers_start_no_worker() -> None:
    with MathGrader() as fresh:
        assert fresh.grade(r"\boxed{\frac{2}{4}}", "0.5").correct
        assert not fresh.grade(r"\boxed{7\text{ cm}}", "8").correct
        assert fresh.num_started == 0


def test_a_hanging_answer_times_out_and_the_next_one_is_graded() -> None:
    with MathGrader(num_workers=1) as fresh:
        fresh.grade(*ALGEBRA)
        start = time.monotonic()
        hung = fresh.grade(boxed(HANGS), r"\pi", limit_s=0.5)
        assert time.monotonic() - start < 2.0
        assert (hung.correct, hung.status) == (False, "timeout")
        assert hung.reason == "no verdict within 0.5 s"
        assert fresh.grade(*ALGEBRA).correct


def test_a_worker_without_memory_is_a_failure_not_a_wrong_answer() -> None:
    with MathGrader(num_workers=1, memory_mb=40) as starved:
        grade = starved.grade(*ALGEBRA)
    assert (grade.correct, grade.status) == (False, "failed")
    assert grade.reason is not None
    assert "exit code" in grade.reason


def test_a_worker_is_replaced_after_its_share_of_answers() -> None:
    with MathGrader(num_workers=1, recycle_after=1) as fresh:
        assert [fresh.grade(*ALGEBRA).correct for _ in range(2)] == [True, True]
        assert fresh.num_started == 2


def test_many_threads_grade_at_once(grader: MathGrader) -> None:
    def check(n: int) -> tuple[bool, bool]:
        right = grader.grade(boxed(f"(x+{n})^2"), f"x^2+{2 * n}x+{n * n}")
        wrong = grader.grade(boxed(f"(x+{n})^2"), f"x^2+{2 * n}x+{n * n + 1}")
        return right.correct, wrong.correct

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(check, range(2, 18))) == [(True, False)] * 16


def test_a_forked_child_grades_with_its_own_workers(grader: MathGrader) -> None:
    assert grader.grade(*ALGEBRA).correct
    script = (
        "import os\nfrom mas_envs.math_loop.grading import MathGrader\n"
        f"case = {ALGEBRA!r}\ngrader = MathGrader(num_workers=1)\nassert grader.grade(*case).correct\n"
        "child = os.fork()\n"
        "if child == 0:\n    os._exit(0 if grader.grade(*case).correct and grader.num_started == 1 else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\nassert grader.grade(*case).correct\nassert grader.num_started == 1\n"
    )
    root = str(Path(grading.__file__).parents[2])
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={**os.environ, "PYTHONPATH": root},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_closing_twice_is_harmless_and_a_closed_grader_says_so() -> None:
    closed = MathGrader()
    closed.close()
    closed.close()
    with pytest.raises(GradingError, match="The grader is closed"):
        closed.grade(*ALGEBRA)


@pytest.mark.parametrize("name", ["num_workers", "memory_mb", "recycle_after"])
def test_a_size_below_its_range_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is -1, but at least"):
        MathGrader(**{name: -1})


def test_a_limit_of_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match=r"limit_s is 0, but seconds above 0"):
        MathGrader(limit_s=0)


@given(st.fractions(), st.sampled_from(["{0}/{1}", "\\frac{{{0}}}{{{1}}}", "({0})/({1})"]))
def test_a_fraction_equals_itself_however_written(value: Fraction, form: str) -> None:
    text = form.format(value.numerator, value.denominator)
    assert exact_value(normalise(text)) == value
    grade = grading.grade(boxed(text), f"\\frac{{{value.numerator}}}{{{value.denominator}}}")
    assert (grade.correct, grade.status) == (True, "graded")


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**12), max_value=10**12, places=6))
def test_a_decimal_equals_itself_and_not_its_neighbour(value: object) -> None:
    text = f"{value:f}"
    assert grading.grade(boxed(text), text).correct
    assert not grading.grade(boxed(f"{text}1"), text).correct


@settings(max_examples=25, deadline=None)
@given(st.fractions(max_denominator=50, min_value=-50, max_value=50), st.fractions(max_denominator=50))
def test_exact_arithmetic_agrees_with_algebra(grader: MathGrader, left: Fraction, right: Fraction) -> None:
    first, second = (f"\\frac{{{value.numerator}}}{{{value.denominator}}}" for value in (left, right))
    fast = grader.grade(boxed(first), second)
    slow = grader.grade(boxed(f"x+{first}"), f"{second}+x")
    assert fast.status == slow.status == "graded"
    assert fast.correct == slow.correct == (left == right)


@given(st.integers(0, 10**15))
def test_thousands_separators_do_not_change_a_number(value: int) -> None:
    for text in (f"{value:,}", f"{value:,}".replace(",", "{,}"), f"{value:,}".replace(",", r"\,")):
        assert parse_number(normalise(text)) == value


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=r"\{}()[]^_,;.!%$=<>+-*/|: 0123459exipfracsqrtd√°", max_size=60))
def test_hostile_text_is_normalised_and_compared_without_a_crash(text: str) -> None:
    verdict = compare(normalise("1"), normalise(text), lambda _gold, _prediction: None)
    assert verdict is not True or any(char.isdigit() for char in text)


@pytest.mark.parametrize(
    "piece",
    ["{", "(", r"\frac", r"\frac{", "a", "a(", "9", "9,", "9^", r"\text{", "^(", "=", ",", r"\pm", "word ", "-"],
)
@pytest.mark.parametrize("ending", ["", "1", "("])
def test_very_long_answers_come_back_at_once(piece: str, ending: str) -> None:
    start = time.monotonic()
    for times in (3_000, 60_000):
        grade = grading.grade(f"{boxed('1')} {boxed(piece * times + ending)}", "7")
        assert not grade.correct
    assert time.monotonic() - start < 2.0
