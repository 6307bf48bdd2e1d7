"""What `mas-envs plan` says, by hand for small numbers and for every recipe."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from transformers import Qwen2Config
from typer.testing import CliRunner

from trainers import logprobs
from trainers.config import SettingsError, load_settings, parse_settings, recipe_names
from trainers.model_shapes import KNOWN_SHAPES
from trainers.plan import RunPlan, make_plan
from trainers.plan_command import plan
from trainers.turn_limits import turn_limits

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "full-size-runs.md"
GIB = 2**30
RUNNER = CliRunner()


def planned(*, gpu_gib: float = 80.0, policy: dict[str, Any] | None = None, **changes: Any) -> RunPlan:
    """The plan of a shared Qwen3-4B, in float32 unless the policy says otherwise."""
    values = {
        "env": {"id": "MathLoop-v0"},
        "policies": {"team": {"model": "Qwen/Qwen3-4B", "sampling": {"max_tokens": 1000}, **(policy or {})}},
        "agents": {"solver": "team", "verifier": "team"},
        "rollout": {"max_prompt_tokens": 3000},
        "token_budget": 8000,
    }
    return make_plan(parse_settings({**values, **changes}), gpu_gib=gpu_gib)


def test_memory_of_a_shared_policy_is_what_its_learner_holds() -> None:
    found = planned()
    (team,), size = found.policies, 4 * KNOWN_SHAPES["Qwen/Qwen3-4B"].parameters
    assert (team.agents, team.kind) == (("solver", "verifier"), "all weights")
    assert (team.weights, team.gradients, team.moments, team.reference) == (size, size, 2 * size, 0)
    assert team.activations == 8000 * KNOWN_SHAPES["Qwen/Qwen3-4B"].activation_bytes(4)
    assert team.update == 2 * size + team.activations + team.logits  # two agents: their sum, and the one computed
    assert team.cache == 128 * 4000 * 2 * 36 * 1024 * 4
    assert found.resident == 3 * size
    assert found.device == found.resident + max(team.update, team.cache)
    assert found.num_gpus == -(-found.device // (80 * GIB))


def test_checkpointing_and_autocast_change_what_an_update_keeps() -> None:
    shape = KNOWN_SHAPES["Qwen/Qwen3-4B"]
    plain, cast, thrifty = (
        planned(policy={"learner": learner}).policies[0]
        for learner in (
            {},
            {"autocast": "bfloat16"},
            {"autocast": "bfloat16", "gradient_checkpointing": True},
        )
    )
    assert cast.activations == plain.microbatch_tokens * shape.activation_bytes(4, autocast=True)
    assert thrifty.activations == plain.microbatch_tokens * shape.activation_bytes(4, autocast=True, checkpointing=True)
    assert plain.copies == 0
    assert cast.copies == thrifty.copies == pytest.approx(2 * shape.parameters, rel=1e-3)
    assert cast.logits == plain.logits - 2 * 2 * logprobs._CHUNK_ELEMENTS
    assert cast.update == 2 * cast.gradients + cast.activations + cast.copies + cast.logits
    assert thrifty.update == 3 * thrifty.gradients  # the step is the peak
    frozen = planned(policy={"frozen": True, "learner": {"autocast": "bfloat16"}}).policies[0]
    assert frozen.copies == 0


def test_step_of_clipped_gradients_can_be_the_peak() -> None:
    (team,), size = planned(token_budget=1, rollout={"max_prompt_tokens": 1}).policies, 4 * 4_022_468_096
    assert team.update == 3 * size
    alone = {"solver": "team", "verifier": "other"}
    policies = {"team": {"model": "Qwen/Qwen3-4B", "sampling": {"max_tokens": 1}}, "other": {"max_grad_norm": None}}
    small: dict[str, Any] = {"token_budget": 1, "rollout": {"max_prompt_tokens": 1}}
    team, other = planned(agents=alone, policies=policies, **small).policies
    assert team.update == 2 * size
    assert other.update >= other.gradients


def test_policies_are_resident_together_and_updated_one_after_another() -> None:
    shared = planned()
    policy = {"model": "Qwen/Qwen3-4B", "sampling": {"max_tokens": 1000}}
    separate = planned(policies={"a": policy, "b": policy}, agents={"solver": "a", "verifier": "b"})
    assert separate.resident == 2 * shared.resident
    assert separate.update_peak == shared.update_peak - shared.policies[0].gradients
    assert separate.download == shared.download == 2 * 4_022_468_096


def test_adapters_share_a_base_and_train_little() -> None:
    policy = {"model": "Qwen/Qwen3-4B", "lora": {"rank": 8}, "dtype": "bfloat16"}
    found = planned(policies={"one": policy, "two": policy}, agents={"solver": "one", "verifier": "two"})
    adapter = 4 * KNOWN_SHAPES["Qwen/Qwen3-4B"].adapter_parameters(8)
    assert found.resident == 2 * 4_022_468_096 + 2 * 3 * adapter
    assert found.checkpoint == 2 * 3 * adapter


def test_frozen_policy_has_weights_and_nothing_to_train() -> None:
    (team,) = planned(policy={"frozen": True}).policies
    assert (team.kind, team.trained_parameters, team.moments, team.update) == ("frozen", 0, 0, 0)
    assert team.weights == team.checkpoint == 4 * 4_022_468_096


def test_kl_penalty_needs_a_second_copy_unless_there_is_a_base_to_go_back_to() -> None:
    kl = {"kl": {"coef": 0.01}}
    assert planned(algorithm=kl).policies[0].reference == 4 * 4_022_468_096
    assert planned(algorithm=kl, policy={"lora": {}}).policies[0].reference == 0


def test_vllm_takes_its_share_of_the_device() -> None:
    options = {"gpu_memory_utilization": 0.5}
    found = planned(policy={"engine": {"kind": "vllm", "options": options}, "dtype": "bfloat16", "lr": 1e-4})
    (team,), row = found.policies, 4000 * 2 * 36 * 1024 * 2
    assert (team.engine_reserved, team.cache) == (40 * GIB, 0)
    assert team.engine_rows == pytest.approx((40 * GIB - team.weights) / row, abs=0.1)
    assert found.resident == team.weights + team.moments + 40 * GIB


def test_vllm_in_bfloat16_has_room_for_more_beside_float32_weights() -> None:
    engine = {"kind": "vllm", "options": {"gpu_memory_utilization": 0.5}}
    (coarse,), (fine,) = (
        planned(policy={"engine": {**engine, "dtype": dtype}}).policies for dtype in ("bfloat16", None)
    )
    row = 4000 * 2 * 36 * 1024 * 2
    assert (coarse.dtype, coarse.engine_dtype, fine.engine_dtype) == ("float32", "bfloat16", "float32")
    assert 2 * coarse.cache_per_token == fine.cache_per_token
    assert coarse.engine_rows == pytest.approx((40 * GIB - coarse.weights / 2) / row, abs=0.1)
    assert coarse.engine_rows > 2 * fine.engine_rows


def test_endpoint_needs_nothing_here() -> None:
    endpoint = {"url": "http://127.0.0.1:1/v1", "model": "judge"}
    found = planned(
        policies={"team": {"model": "Qwen/Qwen3-4B"}, "judge": {"endpoint": endpoint}},
        agents={"solver": "team", "verifier": "judge"},
    )
    judge = found.policies[1]
    assert (judge.kind, judge.model, judge.weights, judge.checkpoint) == ("endpoint", "judge", 0, 0)
    assert not any("judge" in warning for warning in found.warnings)


def test_iteration_is_bounded_by_the_rules_of_the_environment() -> None:
    found = planned(rollout={"num_groups": 4, "group_size": 5, "max_prompt_tokens": 3000})
    assert (found.num_rollouts, found.max_calls, found.max_tokens) == (20, 60, 60 * 4000)
    again = {"dynamic_sampling": {"enabled": True, "max_refills": 2}}
    assert planned(algorithm=again).max_calls == 3 * (planned().max_calls or 0)


@pytest.mark.parametrize(
    ("env_id", "kwargs", "by_role", "total"),
    [
        ("MathLoop-v0", {}, {"solver": 2, "verifier": 1}, 3),
        ("MathRefine-v0", {"max_loops": 3}, {"solver": 1, "verifier": 2, "refiner": 2}, 5),
        ("MathSolo-v0", {}, {"solver": 1}, 1),
        ("HierarchicalSearch-v0", {}, {"verifier": 4, "searcher": 3, "answerer": 4}, 8),
        ("SearchSolo-v0", {"max_rounds": 2}, {"searcher": 2}, 2),
        ("HierarchicalSearch-v0", {"max_turns": 5}, {"verifier": 4, "searcher": 3, "answerer": 4}, 5),
    ],
)
def test_turns_are_limited_by_the_rules(env_id: str, kwargs: Any, by_role: dict[str, int], total: int) -> None:
    limits = turn_limits(env_id, kwargs)
    assert limits is not None
    assert (limits.by_role, limits.total) == (by_role, total)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpu_gib": 24.0}, "are needed and one device has 24: this version keeps all learners and engines on one"),
        ({"policy": {"dtype": "bfloat16"}}, "bfloat16 weights do not move by steps of lr=1e-06, most round to nothing"),
        ({"policy": {"model": "who/knows"}}, "policies.team.model='who/knows': its shape is not known here"),
        ({"token_budget": 100}, "a row may have 3256 tokens, more than token_budget=100"),
        ({"env": {"id": "debate/Debate-v0"}}, "env.id='debate/Debate-v0': how often its agents speak is not known"),
        (
            {"policy": {"engine": {"kind": "vllm", "options": {"gpu_memory_utilization": 0.1}}}},
            "policies.team.engine: vLLM's share of a device of 80 GiB does not hold the weights",
        ),
    ],
)
def test_what_will_not_work_is_a_warning(changes: dict[str, Any], message: str) -> None:
    usual = {"sampling": {"max_tokens": 256}}
    found = planned(**{**changes, "policy": {**usual, **changes.get("policy", {})}})
    assert [warning for warning in found.warnings if message in warning]


def test_small_steps_are_lost_in_bfloat16_and_not_in_float32() -> None:
    moved = {}
    for dtype in (torch.bfloat16, torch.float32):
        generator = torch.Generator().manual_seed(0)
        weights = (0.02 * torch.randn(20_000, generator=generator)).to(dtype)
        parameter = torch.nn.Parameter(weights.clone())
        optimizer = torch.optim.AdamW([parameter], lr=1e-6, weight_decay=0.01, fused=True)
        direction = torch.randn(20_000, generator=generator).sign().to(dtype)
        for _ in range(100):
            parameter.grad = 1e-3 * direction
            optimizer.step()
        moved[dtype] = float((parameter != weights).float().mean())
    assert moved[torch.bfloat16] == pytest.approx(0.02, abs=0.005)
    assert moved[torch.float32] == 1.0


def test_nothing_is_said_about_a_run_that_fits() -> None:
    assert make_plan(load_settings("math-tiny")).warnings == ()


def test_pieces_of_logits_are_those_of_the_learner() -> None:
    (team,) = planned().policies
    assert team.logits == logprobs._CHUNK_ELEMENTS * (4 + 4 + 3 * 4)


def test_folder_is_planned_from_its_config(tmp_path: Path) -> None:
    Qwen2Config(hidden_size=64, num_attention_heads=4, num_key_value_heads=2, vocab_size=128).save_pretrained(tmp_path)
    (team,) = planned(policy={"model": str(tmp_path)}).policies
    assert team.parameters is not None
    assert team.download == 0


def shown(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(plan)
    result = RUNNER.invoke(app, list(arguments), env={"COLUMNS": "200"})
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_is_planned(name: str) -> None:
    found = json.loads(shown(name, "--json"))
    assert all(policy["parameters"] for policy in found["policies"])
    assert found["device"] >= found["resident"] > 0
    assert found["max_calls"] >= found["num_rollouts"]


def test_planning_needs_no_torch() -> None:
    script = (
        "import sys; from trainers.config import load_settings; from trainers.plan import make_plan\n"
        "import trainers.plan_command; make_plan(load_settings('search-hetero'))\n"
        "print(sorted({'torch', 'transformers', 'peft', 'datasets', 'httpx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_table_names_who_plays_what_and_whether_it_fits() -> None:
    text = shown("search-hetero", "--gpu-gb", "141")
    for part in (
        "Qwen/Qwen2.5-7B",
        "searcher, answerer",
        "3,212,749,824 (all weights)",
        "does not fit one device of 141",
    ):
        assert part in text
    assert "Warning:" in text
    assert "fits one device of 80 GiB" in shown("math-tiny")


def test_overrides_change_the_plan_and_mistakes_are_named() -> None:
    assert "Qwen/Qwen3-8B" in shown("math-qwen3-4b", "policies.team.model=Qwen/Qwen3-8B")
    with pytest.raises(SettingsError, match="did you mean math-qwen3-4b"):
        shown("math-qwen3-4")


def row_of(name: str) -> str:
    """The recipe's row in the documentation."""
    found = make_plan(load_settings(name))
    assert found.max_calls is not None
    assert found.max_tokens is not None
    cells = (
        f"`{name}`",
        " + ".join(f"{policy.trained_parameters / 1e9:.2f}" for policy in found.policies),
        f"{found.resident / GIB:.0f} + {found.update_peak / GIB:.0f} = {found.device / GIB:.0f}",
        str(found.num_gpus),
        f"{found.num_rollouts}, {found.max_calls:,}, {found.max_tokens / 1e6:.1f} M",
        f"{found.download / GIB:.1f}",
        f"{found.checkpoint / GIB:.0f}, {found.disk / GIB:.0f}",
    )
    return f"| {' | '.join(cells)} |"


@pytest.mark.parametrize("name", [name for name in recipe_names() if "qwen" in name or "hetero" in name])
def test_documentation_has_the_figures_of_the_command(name: str) -> None:
    assert row_of(name) in PAGE.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("gpu_gib", "figure", "command"),
    re.findall(
        r"^# one GPU of (\d+) GiB, planned at (\d+)\nmas-envs train (.*)$", PAGE.read_text("utf-8"), re.MULTILINE
    ),
)
def test_commands_of_the_documentation_fit_one_device_as_it_says(gpu_gib: str, figure: str, command: str) -> None:
    name, *overrides = shlex.split(command)
    found = make_plan(load_settings(name, overrides), gpu_gib=float(gpu_gib))
    assert found.fits_one_device
    assert not found.warnings
    assert round(found.device / GIB) == int(figure)


def test_documentation_says_which_recipes_fit_as_they_stand() -> None:
    names = [name for name in recipe_names() if "qwen" in name or "hetero" in name]
    fitting = [name for name in names if make_plan(load_settings(name), gpu_gib=141).fits_one_device]
    assert fitting == ["search-qwen2.5-3b"]
    assert f"one of them fits a GPU\nof 141 GiB (`{fitting[0]}`) and none a GPU of 80" in PAGE.read_text(
        encoding="utf-8"
    )
    assert not any(make_plan(load_settings(name)).fits_one_device for name in names)
