"""Exact match and token F1 between a short answer and its gold answers, as open-domain QA has them."""

import re
import string
from collections import Counter
from collections.abc import Iterable

__all__ = ["exact_match", "f1", "normalise"]

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalise(text: str) -> str:
    """Lower case, no ASCII punctuation, none of the words a, an, the, single spaces; in this order.

    >>> normalise("The  U.S. (a country)")
    'us country'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, golds: Iterable[str], *, aliases: Iterable[str] = ()) -> bool:
    """Whether the prediction equals any gold answer after normalisation; without golds nothing matches.

    >>> exact_match("the Beatles", ["Beatles"]), exact_match("NYC", ["New York"], aliases=["NYC"])
    (True, True)

    Args:
        prediction: The answer.
        golds: Gold answers, of which any is right; a single str is one gold answer.
        aliases: Other names of the gold answer that also count; published results use none.
    """
    guess = normalise(prediction)
    return any(normalise(gold) == guess for gold in (*_listed(golds), *_listed(aliases)))


def f1(prediction: str, golds: Iterable[str]) -> float:
    """Token F1 with the best gold answer, in [0, 1]; two empty texts count 1, no golds 0.

    >>> round(f1("Hancock County", ["Hancock"]), 3)
    0.667
    """
    guess = normalise(prediction).split()
    return max((_token_f1(guess, normalise(gold).split()) for gold in _listed(golds)), default=0.0)


def _listed(golds: Iterable[str]) -> Iterable[str]:
    return (golds,) if isinstance(golds, str) else golds


def _token_f1(guess: list[str], gold: list[str]) -> float:
    if not guess and not gold:
        return 1.0
    common = sum((Counter(guess) & Counter(gold)).values())
    return 2.0 * common / (len(guess) + len(gold)) if common else 0.0
