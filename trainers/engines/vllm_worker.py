"""The process in which vLLM runs: reads commands, one JSON object a line, and writes what happened in the same form.

It imports nothing of this project, so that vLLM may live in a virtual environment of its own with other versions.
Standard output carries the events; whatever vLLM prints goes to standard error.
"""

import json
import os
import queue
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["main"]

SUPPORTED = ((0, 30), (0, 33))


@dataclass
class _Running:
    """A request that vLLM has."""

    internal_id: str
    """What vLLM calls it."""
    until: float | None
    """When it is given back unfinished; monotonic seconds."""
    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()


class WeightSync:
    """Extends vLLM's worker: takes new weights in place."""

    model_runner: Any

    def take_weights(self, path: str) -> None:
        """Load a safetensors file; names are those of the transformers model."""
        from safetensors.torch import load_file

        self.model_runner.reload_weights(weights_iterator=iter(load_file(path).items()))
        head = getattr(self.model_runner.model, "lm_head", None)
        if head is not None and hasattr(head, "cpu_linear"):
            # with tied embeddings the packed head keeps the old weights otherwise: logprobs off by nats, no warning
            from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

            dispatch_cpu_unquantized_gemm(head, remove_weight=False)


class Worker:
    """vLLM's engine, driven by commands.

    Args:
        settings: What the parent wants, see `VllmEngine`.
        emit: Takes an event.
    """

    def __init__(self, settings: dict[str, Any], emit: Any) -> None:
        from vllm import EngineArgs, LLMEngine

        self._emit = emit
        self._eos = list(settings["eos_token_ids"])
        self._adapters: dict[str, tuple[int, str]] = {}
        self._version = int(settings["version"])
        self._running: dict[str, _Running] = {}
        adapters = settings["adapters"]
        lora = {"enable_lora": True, "max_loras": len(adapters) + 1, "max_lora_rank": settings["max_lora_rank"]}
        self._engine = LLMEngine.from_engine_args(
            EngineArgs(
                model=settings["model"],
                dtype=settings["dtype"],
                max_model_len=settings["max_context"],
                max_num_seqs=settings["max_rows"],
                logprobs_mode="processed_logprobs",
                worker_extension_cls=f"{Path(__file__).stem}.WeightSync",
                skip_tokenizer_init=True,
                disable_log_stats=True,
                **settings["extra"],
                **(lora if adapters else {}),
            )
        )
        for number, (name, path) in enumerate(adapters.items(), start=1):
            self._adapters[name] = (number, path)

    def obey(self, command: dict[str, Any]) -> None:
        """Carry out one command."""
        getattr(self, f"_{command['op']}")(**{name: value for name, value in command.items() if name != "op"})

    @property
    def is_busy(self) -> bool:
        """Whether there is anything to generate."""
        return bool(self._running)

    def step(self) -> None:
        """One token for every request; emits those that ended."""
        now = time.monotonic()
        for request_id, run in list(self._running.items()):
            if run.until is not None and now >= run.until:
                self._give_up(request_id, "deadline")
        for output in self._engine.step():
            request_id = output.request_id
            if request_id not in self._running:
                continue
            best = output.outputs[0]
            run = self._running[request_id]
            run.tokens = tuple(best.token_ids)
            run.logprobs = tuple(at[token].logprob for token, at in zip(best.token_ids, best.logprobs, strict=True))
            if output.finished:
                self._end(request_id, "stop" if best.finish_reason == "stop" else "length")

    def _submit(self, requests: list[dict[str, Any]]) -> None:
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest

        for request in requests:
            params = SamplingParams(
                max_tokens=request["max_tokens"],
                temperature=request["temperature"],
                top_p=request["top_p"],
                top_k=request["top_k"],
                seed=request["seed"],
                logprobs=0,
                stop_token_ids=self._eos,
                detokenize=False,
            )
            adapter = request["adapter"]
            lora = LoRARequest(adapter, *self._adapters[adapter]) if adapter is not None else None
            prompt = {"prompt_token_ids": request["prompt_ids"]}
            internal = self._engine.add_request(request["id"], prompt, params, lora_request=lora)
            limit = request["deadline_s"]
            until = None if limit is None else time.monotonic() + limit
            self._running[request["id"]] = _Running(internal or request["id"], until)

    def _cancel(self, ids: list[str]) -> None:
        for request_id in ids:
            if request_id in self._running:
                self._give_up(request_id, "cancelled")

    def _sync(self, path: str, version: int, adapter: str | None) -> None:
        from vllm.lora.request import LoRARequest

        if adapter is None:
            self._engine.collective_rpc("take_weights", kwargs={"path": path})
        else:
            number = self._adapters[adapter][0]
            self._adapters[adapter] = (number, path)
            self._engine.add_lora(LoRARequest(adapter, number, path, load_inplace=True))
        self._engine.reset_prefix_cache()
        self._version = version
        self._emit({"event": "synced"})

    def _give_up(self, request_id: str, reason: str) -> None:
        self._engine.abort_request([self._running[request_id].internal_id])
        self._end(request_id, reason)

    def _end(self, request_id: str, reason: str) -> None:
        run = self._running.pop(request_id)
        self._emit(
            {
                "event": "completion",
                "id": request_id,
                "token_ids": run.tokens,
                "logprobs": run.logprobs,
                "reason": reason,
                "version": self._version,
            }
        )


def main() -> None:
    """Serve until the input ends; the first line holds the settings."""
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever is printed from here on goes to standard error

    def emit(event: dict[str, Any]) -> None:
        events.write(json.dumps(event) + "\n")
        events.flush()

    commands: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            commands.put(line)
        os._exit(0)  # the parent has gone or wants an end

    settings = json.loads(sys.stdin.readline())
    try:
        import vllm

        version = tuple(int(part) for part in vllm.__version__.split("+")[0].split(".")[:2])
        if not SUPPORTED[0] <= version < SUPPORTED[1]:
            (low, high) = (".".join(map(str, each)) for each in SUPPORTED)
            raise RuntimeError(
                f"vllm {vllm.__version__} is not supported; expected >= {low} and < {high}: install one of those"
            )
        sys.path.insert(0, str(Path(__file__).parent))
        worker = Worker(settings, emit)
        emit({"event": "ready", "version": vllm.__version__})
        threading.Thread(target=read, daemon=True).start()
        while True:
            while not (worker.is_busy and commands.empty()):
                worker.obey(json.loads(commands.get()))
            worker.step()
    except BaseException as error:  # whatever it is, the parent has to hear of it before this process ends
        emit({"event": "failed", "error": f"{type(error).__name__}: {error}"[:2000]})
        raise


if __name__ == "__main__":
    main()
