"""Scripted solver and verifier, for warm starts and baselines; good or mediocre as `Skill` asks."""

import random
from collections.abc import Sequence

from mas_envs.actions import defuse
from mas_envs.conversation import Skill
from mas_envs.math_loop.prompts import PromptStyle, Said

__all__ = ["scripted_solution", "scripted_verdict"]


def scripted_solution(answer: str, rng: random.Random, skill: Skill, style: PromptStyle) -> str:
    r"""A solution in the environment's format, right in `skill.accuracy` of all calls.

    >>> scripted_solution("42", random.Random(0), Skill(), "short")
    '\\boxed{42}'
    """
    stated = answer if rng.random() < skill.accuracy else _wrong_answer(answer, rng)
    text = f"\\boxed{{{stated}}}" if style == "short" else f"I work it out and get {stated}. \\boxed{{{stated}}}"
    return text.replace("\\boxed{", "", 1) if rng.random() < skill.malformed else text


def scripted_verdict(
    answer: str, said: Sequence[Said], is_right: bool, rng: random.Random, skill: Skill, style: PromptStyle
) -> str:
    """A verdict on the latest solution: own result, comparison, judgement; right in `skill.accuracy` of all calls.

    A verifier can only be learnt by a small model if it works the answer out before it judges, so the short style
    writes its own answer first and then one `=` or `-` for each character.
    """
    proposed = next((turn.content for turn in reversed(said) if not turn.agent_id.startswith("verifier")), None) or "?"
    verdict = "approve" if is_right == (rng.random() < skill.accuracy) else "reject"
    if style == "short":
        text = f"{answer}{_marks(answer, proposed)}<verify>{verdict}</verify>"
    else:
        text = f"I get {answer}; the solver says {defuse(proposed):.80}. <verify>{verdict}</verify>"
    if rng.random() >= skill.malformed:
        return text
    return text.replace(rng.choice(("<verify>", "</verify>")), "", 1)


def _marks(answer: str, proposed: str) -> str:
    marks = "".join("=" if proposed[index : index + 1] == char else "-" for index, char in enumerate(answer))
    return marks if len(proposed) == len(answer) else marks + "-"


def _wrong_answer(answer: str, rng: random.Random) -> str:
    """A different answer, drawn uniformly among the numbers of the same size: near misses teach no verifier."""
    digits = max(2, sum(char.isdigit() for char in answer))
    while True:
        guess = str(rng.randrange(10 ** min(digits, 9)))
        if guess != answer:
            return guess
