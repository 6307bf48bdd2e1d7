"""Keys and values of the rows in flight, in one preallocated block that rows join, leave and branch in."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from trainers.engines.sampling import Ints

__all__ = ["KvCache", "OpenColumn"]

_BLOCK = 16  # softmax over a row that is no multiple of the vector width is up to eight times slower on a CPU


@dataclass(frozen=True)
class OpenColumn:
    """Views for one decode step, by layer; S' is `length + 1` rounded up to whole blocks."""

    key_slots: tuple[Tensor, ...]
    """[R, H, D] where the new keys go."""
    value_slots: tuple[Tensor, ...]
    """[R, H, D] where the new values go."""
    keys: tuple[Tensor, ...]
    """[R * H, D, S'], the new column included once it is written."""
    values: tuple[Tensor, ...]
    """[R * H, S', D]."""
    bias: Tensor
    """[R * H, 1, S']: 0 or the lowest number; the same for all layers."""


class KvCache:
    """Preallocated keys and values; every row ends at the same column, so rows are padded on the left.

    Rows [0, num_rows) are live. A row's tokens lie in columns [starts[row], length). Legend: L layers, R rows, H heads
    of keys and values, S columns, D head size.

    Args:
        num_layers: L.
        rows: R to make room for.
        columns: S to make room for; rounded up to whole blocks.
        transposed_keys: Whether keys lie in memory as [D, S], which suits a plain matrix product for one query.
    """

    def __init__(self, *, num_layers: int, rows: int, columns: int, transposed_keys: bool = False) -> None:
        self.num_rows = 0
        """Live rows."""
        self.length = 0
        """Columns in use."""
        self.starts: Ints = np.zeros(rows, dtype=np.int64)
        """[R] first column of each row."""
        self.transposed_keys = transposed_keys
        """Memory order of the keys."""
        self.rows = rows
        """Rows there is room for."""
        self.columns = _whole_blocks(columns)
        """Columns there is room for."""
        self._num_layers = num_layers
        self._keys: Tensor | None = None
        self._values: Tensor | None = None
        self._bias: Tensor | None = None
        self._transformers_cache: Cache | None = None

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store new columns behind `length` and give back all keys and values of the live rows.

        Args:
            layer: Index of the layer.
            keys: [num_rows, H, Q, D].
            values: [num_rows, H, Q, D].

        Returns:
            Views [num_rows, H, length + Q, D].
        """
        if self._keys is None or self._values is None:
            self._keys, self._values = self._allocate(keys, self.rows, self.columns)
            self._bias = self._new_bias(keys)
        end = self.length + keys.shape[2]
        held_keys, held_values = self._keys[layer, : self.num_rows], self._values[layer, : self.num_rows]
        held_keys[:, :, self.length : end] = keys
        held_values[:, :, self.length : end] = values
        return held_keys[:, :, :end], held_values[:, :, :end]

    def open_column(self) -> "OpenColumn":
        """Where the next column goes and what its queries see; for transposed keys and at least one appended row."""
        assert self._keys is not None, "open_column before the first rows were appended"
        assert self._values is not None, "open_column before the first rows were appended"
        assert self.transposed_keys, "open_column needs transposed keys"
        rows, end = self.num_rows, _whole_blocks(self.length + 1)
        keys = self._keys[:, :rows, :, :end].transpose(3, 4)
        values = self._values[:, :rows, :, :end]
        bias = self.bias(columns=end).expand(-1, keys.shape[2], -1, -1)
        return OpenColumn(
            key_slots=keys[..., self.length].unbind(0),
            value_slots=values[..., self.length, :].unbind(0),
            keys=keys.flatten(1, 2).unbind(0),
            values=values.flatten(1, 2).unbind(0),
            bias=bias.flatten(0, 1),
        )

    def advance(self, num_columns: int) -> None:
        """Count columns that `write` filled in every layer."""
        self.length += num_columns

    def bias(self, *, columns: int | None = None) -> Tensor:
        """What to add to the attention scores of one new token: 0 for its row's columns, else the lowest number.

        Args:
            columns: How many columns to cover; None is those in use and the new one.

        Returns:
            [num_rows, 1, 1, columns].
        """
        assert self._bias is not None, "bias() before the first rows were appended"
        self._bias[: self.num_rows, :, :, self.length] = 0
        return self._bias[: self.num_rows, :, :, : columns or self.length + 1]

    def as_transformers_cache(self) -> Cache:
        """This cache behind the interface that the models of transformers write to."""
        if self._transformers_cache is None:
            self._transformers_cache = Cache(layers=[_Layer(self, layer) for layer in range(self._num_layers)])
        return self._transformers_cache

    def reserve(self, *, rows: int, longest: int) -> None:
        """Make room for rows and for one more column, moving what is there only if it must.

        Args:
            rows: Rows that will be live at most.
            longest: Tokens of the longest row that will be appended; 0 if none.
        """
        live = int(self.length - self.starts[: self.num_rows].min()) if self.num_rows else 0
        width = max(live, longest)
        fits = rows <= self.rows and longest <= self.length < self.columns
        if fits and self.num_rows:
            return
        if rows <= self.rows and not self.num_rows and width < self.columns:
            self.length = width
            return
        rows, columns = max(rows, self.rows), _whole_blocks(width + 32 + width // 4)
        if self._keys is not None and self._values is not None:
            old = slice(self.length - live, self.length)
            new = slice(width - live, width)
            for name, held in (("_keys", self._keys), ("_values", self._values)):
                fresh = self._allocate_like(held, rows, columns, transposed=name == "_keys" and self.transposed_keys)
                fresh[:, : self.num_rows, :, new] = held[:, : self.num_rows, :, old]
                setattr(self, name, fresh)
        starts = np.zeros(rows, dtype=np.int64)
        starts[: self.num_rows] = self.starts[: self.num_rows] + (width - self.length)
        self.starts, self.rows, self.columns, self.length = starts, rows, columns, width
        if self._keys is not None:
            self._bias = self._new_bias(self._keys)
            self._mark_visible(np.arange(self.num_rows))

    def append(self, source: "KvCache", source_rows: Ints, lengths: Ints) -> None:
        """Append copies of rows of another cache, whose rows start at column 0 and may differ in length.

        Args:
            source: Filled by one prefill; right padded.
            source_rows: [N] row of `source` for each new row.
            lengths: [N] tokens of each new row, at most `length`.
        """
        assert source._keys is not None, "append from an empty cache"
        assert source._values is not None, "append from an empty cache"
        first = self.num_rows
        rows = np.arange(first, first + len(source_rows))
        if self._keys is None or self._values is None:
            transposed = self.transposed_keys
            self._keys = self._allocate_like(source._keys, self.rows, self.columns, transposed=transposed)
            self._values = self._allocate_like(source._values, self.rows, self.columns, transposed=False)
            self._bias = self._new_bias(self._values)
        for length in np.unique(lengths):
            same = lengths == length
            columns = slice(self.length - int(length), self.length)
            to = slice(first, first + len(rows)) if same.all() else self._index(rows[same])
            taken = self._index(source_rows[same])
            self._keys[:, to, :, columns] = source._keys[:, :, :, :length].index_select(1, taken)
            self._values[:, to, :, columns] = source._values[:, :, :, :length].index_select(1, taken)
        self.starts[rows] = self.length - lengths
        self.num_rows = first + len(rows)
        self._mark_visible(rows)

    def copy_rows(self, sources: Ints, targets: Ints) -> None:
        """Copy whole rows inside the cache; no row is both a source and a target."""
        assert self._keys is not None, "copy_rows in an empty cache"
        assert self._values is not None, "copy_rows in an empty cache"
        live = slice(int(self.starts[sources].min()), self.length)
        source_index, target_index = self._index(sources), self._index(targets)
        self._keys[:, target_index, :, live] = self._keys[:, source_index, :, live]
        self._values[:, target_index, :, live] = self._values[:, source_index, :, live]
        self.starts[targets] = self.starts[sources]
        self._mark_visible(targets)

    def _new_bias(self, like: Tensor) -> Tensor:
        """[rows, 1, 1, columns], all hidden."""
        return like.new_full((self.rows, 1, 1, self.columns), torch.finfo(like.dtype).min)

    def _mark_visible(self, rows: Ints) -> None:
        """Bring the bias of some rows in line with `starts` and `length`."""
        assert self._bias is not None, "a cache without keys has no bias"
        columns = np.arange(self.columns)
        hidden = (columns < self.starts[rows][:, None]) | (columns >= self.length)
        bias = torch.zeros(len(rows), self.columns, dtype=self._bias.dtype, device=self._bias.device)
        bias.masked_fill_(torch.from_numpy(hidden).to(bias.device), torch.finfo(bias.dtype).min)
        self._bias[self._index(rows), 0, 0] = bias

    def _index(self, rows: Ints) -> Tensor:
        index = torch.from_numpy(rows)
        return index if self._values is None else index.to(self._values.device)

    def _allocate(self, example: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor]:
        shape = (self._num_layers, rows, example.shape[1], columns, example.shape[3])
        like = example.new_zeros(1).expand(shape)
        keys = self._allocate_like(like, rows, columns, transposed=self.transposed_keys)
        return keys, self._allocate_like(like, rows, columns, transposed=False)

    @staticmethod
    def _allocate_like(held: Tensor, rows: int, columns: int, *, transposed: bool) -> Tensor:
        """Zeros [L, rows, H, columns, D]; zeros, because a weight of 0 times stale infinities would be NaN."""
        layers, _, heads, _, size = held.shape
        if transposed:
            return held.new_zeros(layers, rows, heads, size, columns).transpose(3, 4)
        return held.new_zeros(layers, rows, heads, columns, size)


class _Layer(CacheLayerMixin):
    """One layer of a `KvCache` as transformers sees it."""

    is_sliding = False

    def __init__(self, cache: KvCache, layer: int) -> None:
        super().__init__()
        self._cache = cache
        self._layer = layer
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing: `KvCache.write` allocates."""

    def update(self, key_states: Tensor, value_states: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Store the new columns; see `KvCache.write`."""
        return self._cache.write(self._layer, key_states, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Number of columns after the update, and the offset of the first."""
        return self._cache.length + query_length, 0

    def get_seq_length(self) -> int:
        """Columns in use."""
        return self._cache.length

    def get_max_length(self) -> int:
        """No limit: `KvCache.reserve` makes room."""
        return -1

    def get_max_cache_shape(self) -> int:
        """The name of `get_max_length` in transformers before 5.24."""
        return -1


def _whole_blocks(columns: int) -> int:
    return -(-columns // _BLOCK) * _BLOCK
