"""`VllmEngine`: its process, and with MAS_ENVS_VLLM_PYTHON set its adapters; the contract test has the rest."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainers.engines.engine_cases import CONTEXT, EOS, VLLM_PYTHON, drain, forced_logits, request, tiny_qwen3
from trainers.engines.base import Completion
from trainers.engines.vllm_engine import EngineStartError, VllmEngine

needs_vllm = pytest.mark.skipif(
    VLLM_PYTHON is None, reason="set MAS_ENVS_VLLM_PYTHON to an interpreter that has vllm, see docs/engines.md"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    tiny_qwen3(head_dim=32).save_pretrained(path)
    return path


def fake_vllm(path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Another `vllm` for the child process to import."""
    (path / "vllm").mkdir()
    (path / "vllm" / "__init__.py").write_text(code, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(path))


def test_a_version_that_was_not_tested_is_refused_in_one_sentence(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_vllm(tmp_path, monkeypatch, "__version__ = '0.99.1'")
    with pytest.raises(EngineStartError, match=r"vllm 0\.99\.1 is not supported; expected >= 0\.30 and < 0\.33"):
        VllmEngine(folder, eos_token_ids=EOS, max_context=CONTEXT)


def test_a_missing_vllm_names_the_extra(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_vllm(tmp_path, monkeypatch, "raise ModuleNotFoundError(\"No module named 'vllm'\")")
    with pytest.raises(EngineStartError, match=r"No module named 'vllm'.*pip install 'mas-envs\[vllm\]'"):
        VllmEngine(folder, eos_token_ids=EOS, max_context=CONTEXT)


def test_a_process_that_dies_at_the_start_is_told_with_its_last_words(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_vllm(
        tmp_path, monkeypatch, "import os, sys\nprint('no memory left', file=sys.stderr, flush=True)\nos._exit(3)"
    )
    with pytest.raises(EngineStartError, match=r"vLLM failed \(its process ended\).*no memory left"):
        VllmEngine(folder, eos_token_ids=EOS, max_context=CONTEXT)


def test_a_process_that_hangs_at_the_start_is_given_up(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_vllm(tmp_path, monkeypatch, "import time\ntime.sleep(600)")
    with pytest.raises(EngineStartError, match=r"vLLM did not answer within 0\.5 s"):
        VllmEngine(folder, eos_token_ids=EOS, max_context=CONTEXT, start_s=0.5)


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, VllmEngine]]:
    """A model with two adapters, and an engine over it."""
    from peft import LoraConfig, get_peft_model

    base = tmp_path_factory.mktemp("base")
    tiny_qwen3(head_dim=32).save_pretrained(base)
    model: Any = get_peft_model(tiny_qwen3(head_dim=32), LoraConfig(r=8, target_modules="all-linear"), "one")
    model.add_adapter("two", LoraConfig(r=8, target_modules="all-linear"))
    folders = tmp_path_factory.mktemp("adapters")
    change(model, "one", 1)
    change(model, "two", 2)
    model.save_pretrained(folders, selected_adapters=["one", "two"])
    adapters = {name: folders / name for name in ("one", "two")}
    engine = VllmEngine(
        base, eos_token_ids=EOS, max_context=CONTEXT, python=VLLM_PYTHON, adapters=adapters, max_lora_rank=8
    )
    yield model, engine
    engine.close()


def change(model: Any, adapter: str, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if f".{adapter}." in name:
                weight.copy_(0.3 * torch.randn(weight.shape, generator=generator))


def expected(model: Any, adapter: str | None, completion: Any) -> list[float]:
    if adapter is None:
        with model.disable_adapter():
            logits = forced_logits(model.eval(), (5, 6, 7), completion)
    else:
        model.set_adapter(adapter)
        logits = forced_logits(model.eval(), (5, 6, 7), completion)
    chosen = torch.log_softmax(logits, dim=-1)[torch.arange(len(logits)), list(completion.token_ids)]
    values: list[float] = chosen.tolist()
    return values


@needs_vllm
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_each_request_is_answered_by_its_own_adapter(adapted: tuple[Any, VllmEngine]) -> None:
    from peft import get_peft_model_state_dict

    model, engine = adapted
    for version in (1, 2):
        wanted = {f"{adapter}{seed}": adapter for adapter in ("one", "two", None) for seed in range(4)}
        completions = drain(engine, *[request(id, seed=int(id[-1]), adapter=by) for id, by in wanted.items()])
        for id, completion in completions.items():
            assert completion.logprobs == pytest.approx(expected(model, wanted[id], completion), abs=1e-4)
        change(model, "two", 10 + version)
        engine.sync(get_peft_model_state_dict(model, adapter_name="two"), version, adapter="two")


@needs_vllm
def test_a_killed_process_fails_what_is_in_flight_and_refuses_the_rest(folder: Path) -> None:
    engine = VllmEngine(folder, eos_token_ids=EOS, max_context=CONTEXT, python=VLLM_PYTHON)
    engine.submit([request(f"r{seed}", seed=seed, max_tokens=50) for seed in range(200)])
    children = subprocess.run(["pgrep", "-P", str(os.getpid())], capture_output=True, text=True, check=True).stdout
    for child in children.split():
        if "vllm_worker" in Path(f"/proc/{child}/cmdline").read_text(encoding="utf-8"):
            os.kill(int(child), signal.SIGKILL)
    completions: list[Completion] = []
    while ended := engine.poll():
        completions += ended
    assert len(completions) == 200
    failed = [completion for completion in completions if completion.finish_reason == "failed"]
    assert failed
    assert all("its process ended" in (completion.error or "") for completion in failed)
    with pytest.raises(EngineStartError, match="its process ended"):
        engine.submit([request("c")])
    engine.close()
