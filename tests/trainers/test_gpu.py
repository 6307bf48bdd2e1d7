"""On a GPU (`pytest -m gpu`): the engine samples what the model says, and an update is that of the CPU."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainers.tiny_team import tiny_policy
from trainers.batch import TrainingRow
from trainers.config import AlgorithmSettings, LearnerSettings, PolicySettings
from trainers.engines.base import Request, Sampling
from trainers.engines.sync_probe import probe_gap
from trainers.engines.transformers_engine import TransformersEngine
from trainers.learner import Learner

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU on this machine"),
]
ROWS = tuple(TrainingRow("solver_0", "p", (5, 6, 7), (8 + n, 9, 10), (-2.0, -2.0, -2.0)) for n in range(8))


def updated(model: Any, learner: LearnerSettings) -> tuple[float, torch.Tensor]:
    """The gradient norm of one update, and the weights after it on the CPU."""
    trained = Learner(
        model,
        PolicySettings(lr=1e-3, learner=learner),
        AlgorithmSettings(),
        total_updates=1,
        token_budget=64,
        temperature=1.0,
        max_completion_tokens=3,
    )
    report = trained.update(ROWS, np.linspace(-1.0, 1.0, len(ROWS)), seed=0)
    return report.grad_norms[0], torch.cat([parameter.detach().cpu().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("fused", [True, False])
def test_engine_on_a_gpu_gives_the_logprobs_of_the_model(tiny_folder: Path, fused: bool) -> None:
    model = tiny_policy(tiny_folder).model.to("cuda")
    engine = TransformersEngine(model, eos_token_ids=(), fused=fused)
    engine.submit([Request(f"{n}", (5, 6, 7 + n % 2), Sampling(max_tokens=8), seed=n) for n in range(16)])
    done = []
    while ended := engine.poll():
        done += ended
    assert {len(each.token_ids) for each in done} == {8}
    assert probe_gap(engine, model, (5, 6, 7)) < 1e-3


@pytest.mark.parametrize(
    ("learner", "tolerance", "share"),
    [
        (LearnerSettings(), 1e-3, 0.99),
        (LearnerSettings(gradient_checkpointing=True), 1e-3, 0.99),
        (LearnerSettings(autocast="bfloat16"), 0.1, 0.9),
    ],
    ids=["float32", "recomputed", "autocast"],
)
def test_update_on_a_gpu_is_that_of_the_cpu(
    tiny_folder: Path, learner: LearnerSettings, tolerance: float, share: float
) -> None:
    model = tiny_policy(tiny_folder).model.to("cpu")
    norm, on_cpu = updated(copy.deepcopy(model), LearnerSettings())
    norm_there, on_gpu = updated(copy.deepcopy(model).to("cuda"), learner)
    assert norm_there == pytest.approx(norm, rel=tolerance)
    equal = torch.isclose(on_cpu, on_gpu, atol=1e-5).float().mean()  # AdamW's first step is all but a sign
    assert float(equal) > share
