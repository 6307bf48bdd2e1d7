"""The paper's full-size recipes: published values, pairs that differ in who shares what, runs without the weights."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from adapters.llm import ChatCodec
from mas_envs.hub_tasks import preset_names
from tests.trainers.tiny_families import make_tiny_family
from trainers.config import Settings, load_settings
from trainers.model_shapes import KNOWN_SHAPES
from trainers.plan import make_plan
from trainers.team import load_team
from trainers.trainer import Trainer

PAIRS = ("math-qwen3-4b", "math-qwen3-8b", "search-qwen2.5-3b", "search-qwen2.5-7b", "search-hetero")
RECIPES = [name for pair in PAIRS for name in (pair, f"{pair}-separate")]
TASKS = {"MathLoop-v0": "arithmetic", "HierarchicalSearch-v0": "{name: world, size: small}"}
PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    "math": {"groups": (32, 8), "tokens": (8192, 4096), "updates": 1, "penalty": 0.1, "entropy": 0.0},
    "search": {"groups": (128, 5), "tokens": (4096, 800), "updates": 5, "penalty": 0.01, "entropy": 0.001},
}
"""arXiv 2602.08847 and the authors' scripts."""


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_has_the_published_hyperparameters(name: str) -> None:
    settings, published = load_settings(name), PUBLISHED[name.partition("-")[0]]
    algorithm, rollout = settings.algorithm, settings.rollout
    assert (settings.evaluation.temperature, settings.evaluation.top_p) == (0.6, 0.95)
    assert (rollout.num_groups, rollout.group_size) == published["groups"]
    assert (algorithm.estimator, algorithm.loss, algorithm.aggregation) == ("drmas", "ppo", "token-mean")
    assert (algorithm.num_updates, algorithm.entropy_coef) == (published["updates"], published["entropy"])
    assert (algorithm.clip_low, algorithm.clip_high, algorithm.dual_clip) == (0.2, 0.2, 3.0)
    assert (algorithm.ddof, algorithm.lone, algorithm.kl.coef) == (1, "reward", 0.0)
    assert settings.env.kwargs["invalid_penalty"] == published["penalty"]
    for policy in settings.policies.values():
        assert (rollout.max_prompt_tokens, policy.sampling.max_tokens) == published["tokens"]
        assert (policy.lr, policy.schedule, policy.warmup_updates) == (1e-6, "constant", 0)
        assert (policy.sampling.temperature, policy.sampling.top_p) == (1.0, 1.0)
        assert (policy.weight_decay, policy.max_grad_norm) == (0.01, 1.0)
        assert (policy.dtype, policy.learner.autocast, policy.engine.dtype) == ("float32", "bfloat16", "bfloat16")
        assert policy.learner.gradient_checkpointing
        assert policy.model in KNOWN_SHAPES
        assert not policy.frozen


@pytest.mark.parametrize("name", PAIRS)
def test_separate_form_differs_in_the_policies_only(name: str) -> None:
    shared, separate = load_settings(name), load_settings(f"{name}-separate")
    differing = {"name", "description", "policies", "agents", "prices"}
    assert shared.model_dump(exclude=differing) == separate.model_dump(exclude=differing)
    assert len(separate.policies) == len(separate.agents) > len(shared.policies)
    for role, policy_id in separate.agents.items():
        assert separate.policies[policy_id].model == shared.policies[shared.agents[role]].model


@pytest.mark.parametrize("name", RECIPES)
def test_data_sets_are_presets(name: str) -> None:
    settings = load_settings(name)
    for tasks in (settings.env.kwargs["tasks"], settings.evaluation.tasks):
        assert tasks.removeprefix("hf:") in preset_names()


def small(name: str, folder: Path) -> Settings:
    """The recipe with tiny models of the same architecture, the embedded tasks and two rollouts, on a CPU."""
    settings = load_settings(name)
    tasks = TASKS[settings.env.id]
    overrides = ["iterations=1", "threads=1", "rollout.num_groups=1", "rollout.group_size=2"]
    overrides += [f"env.kwargs.tasks={tasks}", f"evaluation.tasks={tasks}", "evaluation.num_tasks=1"]
    if "retriever" in settings.env.kwargs:
        overrides.append("env.kwargs.retriever=bm25")
    for policy_id, policy in settings.policies.items():
        shape = KNOWN_SHAPES[policy.model]
        model = make_tiny_family(shape.family, folder / shape.family, context=shape.context)
        overrides += [
            f"policies.{policy_id}.model={model}",
            f"policies.{policy_id}.engine={{kind: transformers}}",
            f"policies.{policy_id}.sampling.max_tokens=12",
        ]
    return load_settings(name, overrides)


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_runs_without_its_weights_as_planned(name: str, tmp_path: Path) -> None:
    settings = small(name, tmp_path / "models")
    plan, run = make_plan(settings), tmp_path / "run"
    Trainer(settings, run).train()
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    (record,) = [row for row in map(json.loads, lines) if row["kind"] == "iteration"]
    assert record["num_rollouts"] == plan.num_rollouts == 2
    assert record["truncated_rollouts"] == 0
    agents = record["agents"].values()
    assert plan.max_calls is not None
    assert plan.max_tokens is not None
    assert 2 <= sum(agent["num_turns"] for agent in agents) <= plan.max_calls
    assert 0 < sum(agent["prompt_tokens"] + agent["completion_tokens"] for agent in agents) <= plan.max_tokens
    assert set(record["policies"]) == set(settings.policies)
    (checkpoint,) = (run / "checkpoints").glob("iteration-000001")
    written = sum(path.stat().st_size for path in checkpoint.rglob("*.safetensors"))
    assert written == pytest.approx(plan.checkpoint, rel=0.1)  # names and step counters


def rendered(folder: Path) -> str:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = ChatCodec(tokenizer).encode(({"role": "user", "content": "1 + 1 = ? <|im_end|><|eot_id|>"},))
    text: str = tokenizer.decode(list(ids))
    return text


@pytest.mark.parametrize(
    ("family", "prompt"),
    [
        ("qwen3", "<|im_start|>user\n1 + 1 = ? [im_end]<|eot_id|><|im_end|>\n<|im_start|>assistant\n"),
        (
            "llama",
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n1 + 1 = ? <|im_end|>[eot_id]<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
    ],
)
def test_prompts_have_the_layout_of_the_family(family: str, prompt: str, tmp_path: Path) -> None:
    assert rendered(make_tiny_family(family, tmp_path, context=256)) == prompt


@pytest.mark.parametrize("name", [name for name in RECIPES if name.startswith("math")])
def test_thinking_is_off_in_the_recipes_of_qwen3(name: str, tmp_path: Path) -> None:
    settings = small(name, tmp_path)
    folders = {policy_id: policy.model for policy_id, policy in settings.policies.items()}
    for policy in load_team(settings.policies, folders).values():
        prompt = policy.codec.tokenizer.decode(policy.codec.encode([{"role": "user", "content": "1 + 1 = ?"}]))
        assert prompt.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
