"""Generation in this process, over an ordinary transformers model: continuous batching with a KV cache of our own."""

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from trainers.engines.adapter_switch import AdapterSwitch, adapter_names, sampling_mode
from trainers.engines.base import Completion, FinishReason, Request
from trainers.engines.decode_batch import DecodeBatch
from trainers.engines.decoders import Decoder, ModuleDecoder, check_supported, largest_context
from trainers.engines.fused_decoder import FusedDecoder, can_fuse
from trainers.engines.request_checks import check_requests
from trainers.engines.row_table import RowTable
from trainers.engines.weight_copy import copy_adapter, copy_base

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["TransformersEngine"]

_JOIN_FRAC = 0.25
_JOIN_STEPS = 4


class TransformersEngine:
    """Samples completions from a transformers causal LM; see `base.Engine` for the contract.

    Rows that end leave the batch and waiting rows join between decode steps: at once when nothing is running, else as
    soon as they are a quarter of the running rows or have waited four steps, so that single stragglers do not cost a
    prefill each. Prompts that are equal are computed once, and so are completions as long as they are equal. Rows in
    flight during `sync` go on with the keys and values they have.

    A learner may share the module: training flags, the active adapter and `requires_grad` are as before after `poll`.

    Args:
        model: A causal LM, or a peft model around one.
        eos_token_ids: Ids that end a completion.
        pad_token_id: Filler behind short prompts; any id of the vocabulary.
        max_rows: Most requests decoded at a time; the others wait.
        max_context: Most tokens of prompt and completion; None takes the model's own limit.
        device: Where to move the model; None leaves it.
        version: Policy version of the weights as given.
        fused: Whether small Llama, Qwen2 and Qwen3 models run through `FusedDecoder`; None decides by `can_fuse`.

    Raises:
        ValueError: If the model cannot be run or an argument is out of range.
    """

    def __init__(  # noqa: PLR0913  # the contract of the constructor is public
        self,
        model: Any,  # Any: transformers and peft ship no types
        *,
        eos_token_ids: Sequence[int],
        pad_token_id: int = 0,
        max_rows: int = 256,
        max_context: int | None = None,
        device: "str | torch.device | None" = None,
        version: int = 0,
        fused: bool | None = None,
    ) -> None:
        config = model.config.get_text_config()
        check_supported(config)
        longest = largest_context(config)
        if max_context is not None and not 1 < max_context <= longest:
            msg = f"max_context={max_context!r} does not fit the model; expected 2 to {longest}: lower it or pass None"
            raise ValueError(msg)
        vocabulary = int(config.vocab_size)
        if wrong := [token for token in (*eos_token_ids, pad_token_id) if not 0 <= token < vocabulary]:
            msg = f"eos or pad token ids {wrong!r} are outside the vocabulary; expected 0 to {vocabulary - 1}"
            raise ValueError(msg)
        if max_rows < 1:
            msg = f"max_rows={max_rows!r} leaves no room for a request; expected 1 or more"
            raise ValueError(msg)
        if fused and not can_fuse(model):
            msg = (
                f"fused=True does not fit {type(model).__name__}; expected a plain float32 Llama, Qwen2 or Qwen3 model"
            )
            raise ValueError(msg)
        self.model = model if device is None else model.to(device)
        """The module that is sampled from."""
        self.version = version
        """Policy version of its weights."""
        self.max_context = max_context or longest
        """Most tokens of prompt and completion together."""
        self._vocabulary = vocabulary
        self._max_rows = max_rows
        self._pad_token_id = pad_token_id
        self._decoder: Decoder = (
            FusedDecoder(model) if fused or (fused is None and can_fuse(model)) else ModuleDecoder(model)
        )
        self._device = next(model.parameters()).device
        self._modules = () if adapter_names(model) else tuple(model.modules())  # adapters may be added later
        self._switch = AdapterSwitch(model)
        self._table = RowTable(num_slots=max_rows, vocabulary=vocabulary, eos_token_ids=tuple(eos_token_ids))
        self._batches: dict[str | None, DecodeBatch] = {}
        self._waiting: deque[tuple[Request, float]] = deque()
        self._in_flight: set[str] = set()
        self._ended: list[Completion] = []
        self._steps_waited = 0
        self._is_closed = False

    def submit(self, requests: Iterable[Request]) -> None:
        """Queue requests; all or, on an error, none of them.

        Raises:
            ValueError: If a request cannot be served; the message names it.
            RuntimeError: If the engine is closed.
        """
        if self._is_closed:
            msg = "submit on a closed engine; expected an open one: build a new TransformersEngine"
            raise RuntimeError(msg)
        now = time.monotonic()
        accepted = check_requests(
            requests,
            in_flight=self._in_flight,
            max_context=self.max_context,
            vocabulary=self._vocabulary,
            adapters=adapter_names(self.model),
        )
        self._in_flight.update(request.request_id for request in accepted)
        self._waiting.extend((request, now) for request in accepted)

    def poll(self) -> list[Completion]:
        """Completions that ended since the last poll; works until there is one, [] when nothing is in flight."""
        if self._in_flight and not self._ended:
            with torch.inference_mode(), sampling_mode(self._modules or self.model.modules()), self._switch.restored():
                self._decoder.refresh()
                while not self._ended:
                    self._advance()
        ended, self._ended = self._ended, []
        return ended

    def cancel(self, request_ids: Sequence[str]) -> None:
        """Drop requests; each comes back once as `cancelled`, with the tokens it had. Unknown ids are ignored."""
        wanted = set(request_ids) & self._in_flight
        with torch.inference_mode():  # the cache was made in it
            for batch in self._batches.values():
                slots = [slot for slot in batch.slots.tolist() if self._table.request_id(slot) in wanted]
                self._drop(batch, slots, "cancelled")
        self._drop_waiting({entry[0].request_id for entry in self._waiting} & wanted, "cancelled")

    def sync(self, weights: "Mapping[str, Tensor]", version: int, adapter: str | None = None) -> None:
        """Take new weights in place; tensors that share the module's storage are not copied.

        Args:
            weights: Named as in the transformers model's `state_dict`, or for an adapter as in
                `peft.get_peft_model_state_dict`; of tied parameters one name is enough.
            version: Policy version of the new weights.
            adapter: Whose weights; None is the base model.

        Raises:
            ValueError: If names or shapes do not fit; nothing has been copied then.
        """
        if adapter is None:
            copy_base(self.model, weights)
        else:
            copy_adapter(self.model, weights, adapter)
        with torch.inference_mode():
            self._decoder.refresh(force=True)
        self.version = version

    def close(self) -> None:
        """Forget all requests and free the caches; safe to call twice."""
        self._is_closed = True
        self._batches.clear()
        self._waiting.clear()
        self._in_flight.clear()
        self._ended.clear()

    def _advance(self) -> None:
        """One round: deadlines, joins, and one token for every running request."""
        self._expire()
        if self._should_admit():
            self._admit()
        self._steps_waited += 1
        for adapter, batch in self._batches.items():
            if len(batch.slots):
                with self._switch.use(adapter):
                    ended = batch.step()
                self._finish(ended)

    def _should_admit(self) -> bool:
        running = self._max_rows - self._table.num_free
        joining = min(len(self._waiting), self._table.num_free)
        if not joining:
            return False
        return not running or joining >= _JOIN_FRAC * running or self._steps_waited >= _JOIN_STEPS

    def _admit(self) -> None:
        """Start waiting requests, oldest first, as long as there are free slots."""
        self._steps_waited = 0
        slots: dict[str | None, list[int]] = {}
        while self._waiting and self._table.num_free:
            request, submitted = self._waiting.popleft()
            limit = min(request.sampling.max_tokens, self.max_context - len(request.prompt_ids))
            slot = self._table.add(request, submitted=submitted, limit=limit)
            slots.setdefault(request.adapter, []).append(slot)
        for adapter, joining in slots.items():
            if adapter not in self._batches:
                self._batches[adapter] = DecodeBatch(
                    decoder=self._decoder, table=self._table, device=self._device, pad_token_id=self._pad_token_id
                )
            with self._switch.use(adapter):
                ended = self._batches[adapter].admit(np.array(joining, dtype=np.int64))
            self._finish(ended)

    def _expire(self) -> None:
        """Give back what is past its deadline."""
        now = time.monotonic()
        for batch in self._batches.values():
            late = batch.slots[self._table.deadline[batch.slots] <= now]
            if len(late):
                self._drop(batch, late.tolist(), "deadline")
        late_ids = {
            request.request_id
            for request, submitted in self._waiting
            if request.deadline_s is not None and submitted + request.deadline_s <= now
        }
        self._drop_waiting(late_ids, "deadline")

    def _drop(self, batch: DecodeBatch, slots: list[int], reason: FinishReason) -> None:
        batch.drop(set(slots))
        self._finish(dict.fromkeys(slots, reason))

    def _drop_waiting(self, request_ids: set[str], reason: FinishReason) -> None:
        if not request_ids:
            return
        for request, submitted in self._waiting:
            if request.request_id in request_ids:
                self._in_flight.remove(request.request_id)
                seconds = time.monotonic() - submitted
                self._ended.append(Completion(request.request_id, (), (), reason, self.version, seconds))
        self._waiting = deque(entry for entry in self._waiting if entry[0].request_id not in request_ids)

    def _finish(self, ended: dict[int, FinishReason]) -> None:
        for slot, reason in ended.items():
            completion = self._table.finish(slot, reason, self.version)
            self._in_flight.remove(completion.request_id)
            self._ended.append(completion)
