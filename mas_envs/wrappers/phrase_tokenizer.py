"""`PhraseTokenizer`: one id for each of a few phrases, for classic RL on tiny vocabularies."""

import re
from collections.abc import Sequence

from mas_envs.errors import BadArgumentError

__all__ = ["PhraseTokenizer"]


class PhraseTokenizer:
    r"""Ids for the phrases given, the longest match first; whatever else a text holds is left out.

    An environment whose whole answers are phrases can be played with one action a turn.

    >>> tokenizer = PhraseTokenizer(["\\boxed{7}", "3", "+", "4"])
    >>> tokenizer.encode("Solve 3+4"), tokenizer.decode([2])
    ([3, 4, 5], '\\boxed{7}')

    Args:
        phrases: At least one, all different, none empty.

    Raises:
        BadArgumentError: If a phrase is empty or occurs twice.
    """

    pad_token_id = 0
    eos_token_id = 1
    _first = 2

    def __init__(self, phrases: Sequence[str]) -> None:
        self.phrases = tuple(phrases)
        if not self.phrases or "" in self.phrases or len(set(self.phrases)) < len(self.phrases):
            raise BadArgumentError(
                f"phrases={self.phrases!r:.120}: expected at least one, all different and none empty"
            )
        self._ids = {phrase: index for index, phrase in enumerate(self.phrases, start=self._first)}
        longest_first = sorted(self.phrases, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def __len__(self) -> int:
        return self._first + len(self.phrases)

    def encode(self, text: str) -> list[int]:
        """The ids of the phrases in a text, in order."""
        return [self._ids[phrase] for phrase in self._pattern.findall(text)]

    def decode(self, token_ids: Sequence[int]) -> str:
        """The phrases one after the other; padding and end are left out."""
        return "".join(self.phrases[token - self._first] for token in map(int, token_ids) if token >= self._first)
