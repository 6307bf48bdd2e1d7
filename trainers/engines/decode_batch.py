"""The rows of one adapter that are decoded together: rows join by a prefill, branch, and leave when they end."""

from collections.abc import Collection

import numpy as np
import torch

from trainers.engines.base import FinishReason
from trainers.engines.decoders import Decoder
from trainers.engines.kv_cache import KvCache
from trainers.engines.row_table import RowTable
from trainers.engines.sampling import Bools, Ints, draw

__all__ = ["DecodeBatch"]

_PREFILL_TOKENS = 8192
_PREFILL_LOGITS = 2**25


class DecodeBatch:
    """Decodes each distinct sequence once, however many requests share it.

    A cache row belongs to a *branch*: one sequence of prompt and sampled tokens. Requests with the same prompt share a
    branch until they draw different tokens; then the branch is copied. A sharp policy whose group repeats itself pays
    for one row instead of eight.

    Args:
        decoder: Runs the model.
        table: The engine's requests.
        device: Where the model lives.
        pad_token_id: Filler behind short prompts.
    """

    def __init__(self, *, decoder: Decoder, table: RowTable, device: torch.device, pad_token_id: int) -> None:
        self.slots: Ints = np.zeros(0, dtype=np.int64)
        """[B] slot of each request that is decoded here."""
        self._branches: Ints = np.zeros(0, dtype=np.int64)  # [B] cache row that each request reads
        self._pending: Ints = np.zeros(0, dtype=np.int64)  # [rows] last token of each branch, not yet in the cache
        self._decoder = decoder
        self._table = table
        self._device = device
        self._pad_token_id = pad_token_id
        self._cache = self._new_cache()

    def _new_cache(self) -> KvCache:
        return KvCache(
            num_layers=self._decoder.num_layers, rows=0, columns=0, transposed_keys=self._decoder.transposed_keys
        )

    def admit(self, slots: Ints) -> dict[int, FinishReason]:
        """Start requests: one prefill for each distinct prompt, and the first token of each request.

        Returns:
            The slots that ended already.
        """
        groups: dict[bytes, list[int]] = {}
        for slot in slots.tolist():
            groups.setdefault(self._table.prompts[slot].tobytes(), []).append(slot)
        members = sorted(groups.values(), key=lambda same: len(self._table.prompts[same[0]]))
        ended: dict[int, FinishReason] = {}
        while members:
            size = self._chunk_size(members)
            ended |= self._prefill(members[:size], room_for=len(self.slots) + len(slots))
            members = members[size:]
        return ended

    def _chunk_size(self, members: list[list[int]]) -> int:
        """How many prompts, shortest first, go into one prefill without an outsized activation."""
        lengths: set[int] = set()
        vocabulary = self._table.vocabulary
        for index, same in enumerate(members):
            length = len(self._table.prompts[same[0]])
            lengths.add(length)
            rows = index + 1
            if index and (rows * length > _PREFILL_TOKENS or rows * len(lengths) * vocabulary > _PREFILL_LOGITS):
                return index
        return len(members)

    def _prefill(self, members: list[list[int]], room_for: int) -> dict[int, FinishReason]:
        prompts = [self._table.prompts[same[0]] for same in members]
        lengths = np.array([len(prompt) for prompt in prompts], dtype=np.int64)
        token_ids = np.full((len(prompts), lengths.max()), self._pad_token_id, dtype=np.int64)
        for row, prompt in enumerate(prompts):
            token_ids[row, : len(prompt)] = prompt
        source = KvCache(num_layers=self._decoder.num_layers, rows=len(prompts), columns=token_ids.shape[1])
        source.num_rows = len(prompts)
        logits = self._decoder.prefill(self._tensor(token_ids), self._tensor(lengths - 1), source)
        slots = np.array([slot for same in members for slot in same], dtype=np.int64)
        parents = np.repeat(np.arange(len(members)), [len(same) for same in members])
        tokens, ended = self._sample(logits, slots, parents)
        alive = _not_in(slots, ended)
        if not alive.any():
            return ended
        source_rows, child_tokens, child = _children(parents[alive], tokens[alive])
        self._cache.reserve(rows=room_for, longest=int(lengths.max()))
        first = self._cache.num_rows
        self._cache.append(source, source_rows, lengths[source_rows])
        self.slots = np.concatenate([self.slots, slots[alive]])
        self._branches = np.concatenate([self._branches, first + child])
        self._pending = np.concatenate([self._pending, child_tokens])
        return ended

    def step(self) -> dict[int, FinishReason]:
        """One more token for every request; the slots that ended by it."""
        cache = self._cache
        cache.reserve(rows=cache.num_rows, longest=0)
        positions = cache.length - cache.starts[: cache.num_rows]
        logits = self._decoder.decode(self._tensor(self._pending), self._tensor(positions), cache)
        tokens, ended = self._sample(logits, self.slots, self._branches)
        self._regroup(tokens, _not_in(self.slots, ended))
        return ended

    def drop(self, slots: set[int]) -> None:
        """Stop decoding requests."""
        alive = _not_in(self.slots, slots)
        if not alive.all():
            self._regroup(self._pending[self._branches], alive)

    def _sample(self, logits: torch.Tensor, slots: Ints, branches: Ints) -> tuple[Ints, dict[int, FinishReason]]:
        table = self._table
        if len(branches) != len(logits) or (branches != np.arange(len(logits))).any():
            logits = logits[self._tensor(branches)]
        drawn = draw(
            logits,
            table.next_uniform(slots),
            temperature=table.temperature[slots],
            top_p=table.top_p[slots],
            top_k=table.top_k[slots],
        )
        return drawn.token_ids, table.record(slots, drawn)

    def _regroup(self, tokens: Ints, alive: Bools) -> None:
        """Keep the requests that go on; branches split where their requests drew different tokens.

        The first child of a branch stays in its cache row. Other children and the rows behind the new end move into the
        rows that became free, so that live rows stay in front.

        Args:
            tokens: [B] the token each request drew.
            alive: [B] bool, whether it goes on.
        """
        if alive.all() and len(alive) == self._cache.num_rows:  # every request has a branch of its own already
            self._pending = np.empty_like(tokens)
            self._pending[self._branches] = tokens
            return
        self.slots = self.slots[alive]
        parents, self._pending, child = _children(self._branches[alive], tokens[alive])
        count = len(parents)
        first = np.ones(count, dtype=np.bool_)
        first[1:] = parents[1:] != parents[:-1]
        stays = first & (parents < count)
        rows = parents.copy()
        taken = np.zeros(count, dtype=np.bool_)
        taken[parents[stays]] = True
        rows[~stays] = (~taken).nonzero()[0]
        if not stays.all():
            self._cache.copy_rows(parents[~stays], rows[~stays])
        self._cache.num_rows = count
        self._branches = rows[child]
        pending = self._pending
        self._pending = np.empty_like(pending)
        self._pending[rows] = pending

    def _tensor(self, values: Ints) -> torch.Tensor:
        return torch.from_numpy(values).to(self._device)


def _not_in(slots: Ints, ended: Collection[int]) -> Bools:
    alive = np.ones(len(slots), dtype=np.bool_)
    if ended:
        alive[:] = [slot not in ended for slot in slots.tolist()]
    return alive


def _children(parents: Ints, tokens: Ints) -> tuple[Ints, Ints, Ints]:
    """Distinct (parent, token) pairs in order, and for each input the index of its pair."""
    pairs, child = np.unique((parents << 32) + tokens, return_inverse=True)
    return pairs >> 32, pairs & 0xFFFFFFFF, child
