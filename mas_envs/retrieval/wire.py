"""What a retrieval server sends back, read without trust in it."""

import json
import math
from typing import Any

from mas_envs.retrieval.protocol import Passage, RetrievalError

__all__ = ["parse_results"]


def parse_results(answer: bytes, num_queries: int, k: int, source: str) -> list[list[Passage]]:
    r"""The passages in an answer of the Search-R1 protocol; documents without scores get their rank, negated.

    >>> parse_results(b'{"result": [[{"id": 7, "contents": "Rome\\nA city."}]]}', 1, 3, "server")
    [[Passage(id='7', title='Rome', text='A city.', score=0.0)]]

    Args:
        answer: The body.
        num_queries: Lists expected.
        k: Passages kept of each list; a server may send more than it was asked for.
        source: Who sent it, for the error.

    Raises:
        RetrievalError: If it is anything else.
    """
    try:
        raw = json.loads(answer)
    except (ValueError, RecursionError) as error:
        raise RetrievalError(f"{source}: sent no JSON ({answer[:80]!r}); expected {{'result': [[...]]}}") from error
    lists = raw.get("result") if isinstance(raw, dict) else None
    if not isinstance(lists, list) or len(lists) != num_queries or not all(isinstance(each, list) for each in lists):
        raise RetrievalError(
            f"{source}: sent {str(raw)[:80]!r}; expected {{'result': [[...]]}} with one list for each of the "
            f"{num_queries} queries"
        )
    return [[_passage(entry, rank, source) for rank, entry in enumerate(each[:k])] for each in lists]


def _passage(entry: Any, rank: int, source: str) -> Passage:
    document, score = entry, float(-rank)
    if isinstance(entry, dict) and "document" in entry:
        document, score = entry["document"], entry.get("score", score)
    if not isinstance(document, dict):
        raise RetrievalError(f"{source}: sent {str(entry)[:80]!r} as a document; expected 'id' and 'contents'")
    contents, id = document.get("contents"), document.get("id", "")
    is_number = isinstance(score, int | float) and not isinstance(score, bool) and math.isfinite(score)
    if not isinstance(contents, str) or not is_number:
        raise RetrievalError(f"{source}: sent a document without text or with score {score!r:.40}; expected 'contents'")
    return Passage.from_contents(str(id), contents, float(score))
