"""The peak of an update as planned, beside the bytes that tensors of the learner take at the same time."""

import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from transformers import AutoModelForCausalLM

from tests.trainers.test_model_shapes import config_of, small_shape
from trainers.batch import TrainingRow
from trainers.config import AlgorithmSettings, Settings, parse_settings
from trainers.learner import Learner
from trainers.model_shapes import ModelShape
from trainers.plan import make_plan

TOKENS = 1024


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of tensors that operations make, while they are there; views of those before take nothing."""

    def __init__(self, before: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._sizes = {tensor.untyped_storage()._cdata: 0 for tensor in before}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_iter(made):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor.untyped_storage())
        self.peak = max(self.peak, self.now)
        return made

    def _count(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self._sizes:
            self._sizes[key] = storage.nbytes()
            self.now += storage.nbytes()
            weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self.now -= self._sizes.pop(key)


def settings_of(model: Path, **policy: Any) -> Settings:
    half = TOKENS // 2
    chosen = {"model": str(model), "max_grad_norm": None, "sampling": {"max_tokens": half}, **policy}
    return parse_settings(
        {
            "env": {"id": "MathLoop-v0"},
            "policies": {"team": chosen},
            "agents": {"solver": "team"},
            "rollout": {"max_prompt_tokens": half},
            "token_budget": TOKENS,
        }
    )


def measured_peak(settings: Settings, shape: ModelShape) -> int:
    """Bytes of an update on top of weights and moments."""
    policy = settings.policies["team"]
    model: Any = AutoModelForCausalLM.from_config(config_of(shape)).to(getattr(torch, policy.dtype))
    if policy.lora is not None:
        model = get_peft_model(model, LoraConfig(r=policy.lora.rank, target_modules="all-linear"))
    learner = Learner(
        model,
        policy,
        AlgorithmSettings(),
        total_updates=2,
        token_budget=TOKENS,
        temperature=1.0,
        max_completion_tokens=TOKENS // 2,
        parameters={name: weight for name, weight in model.named_parameters() if weight.requires_grad},
    )
    ids = tuple(np.random.default_rng(0).integers(0, shape.vocabulary, TOKENS // 2).tolist())
    rows = [TrainingRow("solver_0", "team", ids, ids, (-5.0,) * len(ids))]
    learner.update(rows, np.array([1.0]), seed=0)  # makes the moments
    live = LiveBytes(model.state_dict().values())
    with live:
        learner.update(rows, np.array([1.0]), seed=1)
    return live.peak


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
@pytest.mark.parametrize("gradient_checkpointing", [False, True], ids=["kept", "again"])
@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"learner": {"autocast": "bfloat16"}},
        {"lora": {"rank": 8}, "dtype": "bfloat16"},
        {"lora": {"rank": 8}, "dtype": "bfloat16", "learner": {"autocast": "bfloat16"}},
    ],
    ids=["float32", "autocast", "adapter-bfloat16", "adapter-autocast"],
)
def test_an_update_takes_about_as_much_as_planned(
    policy: dict[str, Any], gradient_checkpointing: bool, tmp_path: Path
) -> None:
    sizes = {"hidden": 256, "intermediate": 768, "layers": 8, "heads": 4, "kv_heads": 2, "head_dim": 64}
    shape = small_shape("qwen3", context=2 * TOKENS, **sizes)
    config_of(shape).save_pretrained(tmp_path)
    learner = {**policy.get("learner", {}), "gradient_checkpointing": gradient_checkpointing}
    settings = settings_of(tmp_path, **{**policy, "learner": learner})
    (planned,) = make_plan(settings).policies
    assert 0.8 * planned.update < measured_peak(settings, shape) < 1.1 * planned.update
