"""Policies that sample from vLLM: the same run, checked after each sync. Needs MAS_ENVS_VLLM_PYTHON."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainers.engines.engine_cases import CONTEXT, EOS, VLLM_PYTHON, drain, request, tiny_qwen3
from tests.trainers.tiny_team import make_tiny_folder, tiny_settings
from trainers.config import SettingsError, TinyModelSettings, parse_settings
from trainers.engines.base import Engine
from trainers.engines.scripted import ScriptedEngine
from trainers.engines.shared_engine import SharedEngine
from trainers.engines.sync_probe import EngineOutOfSyncError, check_in_sync, probe_gap
from trainers.engines.transformers_engine import TransformersEngine
from trainers.engines.vllm_engine import VllmEngine
from trainers.trainer import Trainer

needs_vllm = pytest.mark.skipif(
    VLLM_PYTHON is None, reason="set MAS_ENVS_VLLM_PYTHON to an interpreter that has vllm, see docs/engines.md"
)


def test_options_of_vllm_without_vllm_are_refused() -> None:
    values = tiny_settings("model").model_dump()
    values["policies"]["solver"]["engine"] = {"options": {"gpu_memory_utilization": 0.4}}
    with pytest.raises(SettingsError, match=r"policies\.solver\.engine.*'python' and 'options' are for kind=vllm"):
        parse_settings(values)


def test_another_number_format_without_vllm_is_refused() -> None:
    values = tiny_settings("model").model_dump()
    values["policies"]["solver"]["engine"] = {"dtype": "bfloat16"}
    with pytest.raises(SettingsError, match=r"policies\.solver\.engine.*dtype='bfloat16' is for kind=vllm, kind=tran"):
        parse_settings(values)


def test_engine_samples_in_the_policys_number_format_unless_it_has_its_own() -> None:
    values = tiny_settings("model").model_dump()
    values["policies"]["solver"]["engine"] = {"kind": "vllm"}
    values["policies"]["verifier"]["engine"] = {"kind": "vllm", "dtype": "bfloat16"}
    policies = parse_settings(values).policies
    assert (policies["solver"].engine_dtype, policies["verifier"].engine_dtype) == ("float32", "bfloat16")
    assert policies["verifier"].dtype == "float32"


def test_an_engine_with_the_models_weights_passes_the_probe() -> None:
    model = tiny_qwen3()
    engine = TransformersEngine(model, eos_token_ids=(1,))
    assert probe_gap(engine, model, (5, 6, 7)) < 1e-5
    check_in_sync(engine, model, (5, 6, 7), adapter=None, tolerance=1e-4, owner="solver")


def test_an_engine_with_other_weights_is_caught_by_the_probe() -> None:
    stale = TransformersEngine(tiny_qwen3(seed=1), eos_token_ids=(1,))
    with pytest.raises(EngineOutOfSyncError, match=r"policies\.solver: after the weight sync .* off by .* nats"):
        check_in_sync(stale, tiny_qwen3(), (5, 6, 7), adapter=None, tolerance=1e-2, owner="solver")


def test_an_engine_that_fails_at_the_probe_is_told_so() -> None:
    silent = ScriptedEngine(lambda prompt, seed: [])
    with pytest.raises(EngineOutOfSyncError, match="the engine failed at the probe after a sync"):
        probe_gap(silent, tiny_qwen3(), (5, 6, 7))


def test_ports_of_one_engine_get_their_own_completions() -> None:
    engine = ScriptedEngine(lambda prompt, seed: [3, 4], batch_size=1, adapters=("one",))
    shared = SharedEngine(engine)
    first: Engine = shared.port()
    second: Engine = shared.port()
    first.submit([request("a"), request("b")])
    second.submit([request("c", adapter="one")])
    second.sync({}, 3, "one")
    assert engine.synced == [("one", 3)]
    assert [completion.request_id for completion in second.poll()] == ["c"]
    first.cancel(["c", "b"])
    assert {completion.request_id for _ in range(2) for completion in first.poll()} == {"a", "b"}
    assert first.poll() == second.poll() == []
    first.close()
    first.close()
    assert drain(second, request("d")).keys() == {"d"}
    second.close()
    with pytest.raises(RuntimeError, match="closed"):
        second.submit([request("e")])


def vllm_settings(tmp_path: Path, *, engine_dtype: str | None = None, **policy: Any) -> Any:
    size = TinyModelSettings(hidden_size=64, intermediate_size=64, num_layers=1, num_heads=2)
    folder = make_tiny_folder(tmp_path / "model", size)
    engine = {"kind": "vllm", "python": VLLM_PYTHON, "dtype": engine_dtype}
    settings = {"model": str(folder), "lr": 1e-3, "sampling": {"max_tokens": 8}, "engine": engine, **policy}
    return tiny_settings(folder, policies={"solver": settings, "verifier": settings}, iterations=2)


@needs_vllm
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
@pytest.mark.parametrize(
    "policy",
    [{}, {"lora": {"rank": 8}}, {"engine_dtype": "bfloat16"}, {"engine_dtype": "bfloat16", "lora": {"rank": 8}}],
    ids=["weights", "adapters", "weights-in-bfloat16", "adapters-in-bfloat16"],
)
def test_a_run_samples_from_vllm_and_stays_in_sync(tmp_path: Path, policy: dict[str, Any]) -> None:
    trainer = Trainer(vllm_settings(tmp_path, **policy), tmp_path / "run")
    trainer.train()
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [record for record in map(json.loads, lines) if record["kind"] == "iteration"]
    assert len(records) == 2
    for record in records:
        assert record["lost_rollouts"] == 0
        assert record["agents"]["solver_0"]["num_turns"] > 0
        assert record["policies"]["solver"]["num_updates"] == 1
    assert torch.isfinite(next(iter(trainer.team.policies["solver"].trained_parameters().values()))).all()  # type: ignore[union-attr]


@needs_vllm
def test_float32_weights_reach_an_engine_in_bfloat16_rounded_once(tmp_path: Path) -> None:
    def rounded(seed: int) -> Any:
        return tiny_qwen3(seed, head_dim=32).to(torch.bfloat16).float()

    tiny_qwen3(head_dim=32).save_pretrained(tmp_path)
    engine = VllmEngine(tmp_path, eos_token_ids=EOS, max_context=CONTEXT, python=VLLM_PYTHON, dtype="bfloat16")
    try:
        assert probe_gap(engine, rounded(0), (5, 6, 7)) < 0.1
        assert probe_gap(engine, rounded(1), (5, 6, 7)) > 0.5
        engine.sync(tiny_qwen3(1, head_dim=32).state_dict(), 1)
        assert probe_gap(engine, rounded(1), (5, 6, 7)) < 0.1
    finally:
        engine.close()
