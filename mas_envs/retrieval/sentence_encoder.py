"""`SentenceEncoder`: e5, bge and MiniLM class encoders, from a folder or the hub, with their prefixes and pooling."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mas_envs.argument_checks import is_whole
from mas_envs.errors import BadArgumentError
from mas_envs.retrieval.encoders import Floats
from mas_envs.retrieval.optional_packages import need
from mas_envs.retrieval.protocol import Passage, RetrievalError

__all__ = ["FAMILIES", "Family", "SentenceEncoder", "family_of"]

Pooling = Literal["mean", "cls"]


@dataclass(frozen=True)
class Family:
    """How the encoders of one kind want their texts, and how token vectors become one."""

    query_prefix: str = ""
    """Put before queries."""
    passage_prefix: str = ""
    """Put before passages."""
    pooling: Pooling = "mean"
    """The mean over all tokens, or the first token."""


FAMILIES = {
    "e5": Family("query: ", "passage: "),
    "bge": Family("Represent this sentence for searching relevant passages: ", "", "cls"),
    "minilm": Family(),
}
"""Family by what occurs in an encoder's name; where nothing fits, texts go in as they are and the mean is taken."""


def family_of(name: str) -> Family:
    """The family that an encoder's name tells.

    >>> family_of("intfloat/e5-base-v2").query_prefix, family_of("BAAI/bge-small-en-v1.5").pooling
    ('query: ', 'cls')
    """
    lower = name.lower()
    return next((family for part, family in FAMILIES.items() if part in lower), Family())


class SentenceEncoder:
    """A transformer encoder; rows have length 1, so that the inner product is the cosine.

    Args:
        model: A folder or a hub name; weights in safetensors, no code of the model's own is run.
        family: Prefixes and pooling; None goes by the name (or the name in the folder's `config.json`).
        batch_size: Texts encoded at a time, longest first.
        max_tokens: Longer texts are cut.
        device: Where torch runs it.

    Raises:
        BadArgumentError: If an argument is out of range.
        RetrievalError: If the model cannot be loaded.
        MissingExtraError: Without torch or transformers.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        family: Family | None = None,
        batch_size: int = 64,
        max_tokens: int = 256,
        device: str = "cpu",
    ) -> None:
        for name, value in (("batch_size", batch_size), ("max_tokens", max_tokens)):
            if not is_whole(value) or value < 1:
                raise BadArgumentError(f"{name}={value!r}: expected a whole number >= 1")
        self._torch = need("torch", "SentenceEncoder", "train")
        transformers = need("transformers", "SentenceEncoder", "train")
        try:
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(str(model))
            self._model = transformers.AutoModel.from_pretrained(str(model), use_safetensors=True)
        except (OSError, ValueError, KeyError) as error:
            raise RetrievalError(
                f"encoder {str(model)!r} cannot be loaded ({str(error).splitlines()[0]}); expected a folder with an "
                "encoder in safetensors, or a hub name that can be reached"
            ) from error
        self._model.to(device).eval()
        self.model, self.family = str(model), family or family_of(_name_of(model))
        self.batch_size, self.max_tokens, self.device = batch_size, max_tokens, device

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return int(self._model.config.hidden_size)

    def encode_queries(self, queries: Sequence[str]) -> Floats:
        """[N, dim] float32 of length 1."""
        return self._encode([self.family.query_prefix + query for query in queries])

    def encode_passages(self, passages: Sequence[Passage]) -> Floats:
        """[N, dim] float32 of length 1; title and text together."""
        return self._encode([f"{self.family.passage_prefix}{each.title} {each.text}" for each in passages])

    def _encode(self, texts: Sequence[str]) -> Floats:
        vectors = np.zeros((len(texts), self.dim), np.float32)
        order = sorted(range(len(texts)), key=lambda at: -len(texts[at]))  # like lengths together: little padding
        for start in range(0, len(order), self.batch_size):
            chosen = order[start : start + self.batch_size]
            vectors[chosen] = self._encode_batch([texts[at] for at in chosen])
        return vectors

    def _encode_batch(self, texts: list[str]) -> Any:
        torch = self._torch
        batch = self._tokenizer(
            texts, padding=True, truncation=True, max_length=self.max_tokens, return_tensors="pt"
        ).to(self.device)
        with torch.inference_mode():
            states = self._model(**batch).last_hidden_state
            if self.family.pooling == "cls":
                pooled = states[:, 0]
            else:
                mask = batch["attention_mask"].unsqueeze(-1).to(states.dtype)
                pooled = (states * mask).sum(1) / mask.sum(1)
            return torch.nn.functional.normalize(pooled.float(), dim=1).cpu().numpy()

    def __deepcopy__(self, memo: dict[int, Any]) -> "SentenceEncoder":
        return self

    def __repr__(self) -> str:
        return f"SentenceEncoder({self.model!r})"


def _name_of(model: str | Path) -> str:
    """The encoder's own name: of a folder the last part, and what its settings say it was made from."""
    settings = Path(model) / "config.json"
    if not settings.is_file():
        return str(model)
    made_from = json.loads(settings.read_text(encoding="utf-8")).get("_name_or_path", "")
    return f"{Path(model).name} {made_from}"
