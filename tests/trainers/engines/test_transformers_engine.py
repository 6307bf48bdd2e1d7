"""What only an engine over a shared module must do: adapters, weights, flags, and work that is not repeated."""

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict

from tests.trainers.engines.engine_cases import (
    EOS,
    drain,
    forced_logits,
    request,
    tiny_llama,
    tiny_qwen2,
    tiny_qwen3,
    varied_requests,
)
from trainers.engines.fused_decoder import can_fuse
from trainers.engines.transformers_engine import TransformersEngine
from trainers.engines.weight_copy import copy_adapter, copy_base

# peft 0.21 reads an attribute that transformers 5.24 renamed.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")


def prefilled_rows(model: Any) -> list[tuple[int, ...]]:
    """Shapes of the token batches that the model's forward is called with from now on."""
    shapes: list[tuple[int, ...]] = []
    model.register_forward_pre_hook(
        lambda _, __, named: shapes.append(tuple(named["input_ids"].shape)), with_kwargs=True
    )
    return shapes


def lora_qwen3(*names: str, dropout: float = 0.0) -> Any:
    """A peft model whose adapters differ from the base and from one another."""
    config = LoraConfig(r=2, target_modules=["q_proj", "down_proj"], lora_dropout=dropout, task_type="CAUSAL_LM")
    model = get_peft_model(tiny_qwen3(), config, adapter_name=names[0])
    for name in names[1:]:
        model.add_adapter(name, config)
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
    return model


def test_a_group_with_one_prompt_is_prefilled_once() -> None:
    model = tiny_qwen3()
    shapes = prefilled_rows(model)
    engine = TransformersEngine(model, eos_token_ids=EOS)
    drain(engine, *[request(f"r{seed}", (4, 5, 6), seed=seed) for seed in range(8)], request("other", (7, 8)))
    assert shapes[0] == (2, 3)
    assert max(rows for rows, _ in shapes) <= 9


def test_completions_that_stay_equal_are_decoded_once() -> None:
    model = tiny_qwen3()
    shapes = prefilled_rows(model)
    engine = TransformersEngine(model, eos_token_ids=())
    greedy = [request(f"r{seed}", seed=seed, temperature=0.0, max_tokens=6) for seed in range(8)]
    completions = drain(engine, *greedy)
    assert {rows for rows, _ in shapes} == {1}
    assert len(shapes) == 6
    assert len({completion.token_ids for completion in completions.values()}) == 1


def test_a_lone_latecomer_joins_a_running_batch_within_a_few_steps() -> None:
    model = tiny_qwen3()
    shapes = prefilled_rows(model)
    engine = TransformersEngine(model, eos_token_ids=())
    long = [request(f"long{seed}", seed=seed, max_tokens=40) for seed in range(16)]
    engine.submit([*long, request("first", max_tokens=1)])
    assert [completion.request_id for completion in engine.poll()] == ["first"]
    engine.submit([request("late", (9, 9, 9, 9, 9), max_tokens=1)])
    assert [completion.request_id for completion in engine.poll()] == ["late"]
    assert shapes.index((1, 5)) <= 6


def test_requests_of_several_adapters_and_of_the_base_run_side_by_side() -> None:
    model = lora_qwen3("red", "blue").eval()
    engine = TransformersEngine(model, eos_token_ids=EOS)
    wanted = {adapter: request(str(adapter), adapter=adapter, seed=1) for adapter in ("red", "blue", None)}
    completions = drain(engine, *wanted.values())
    for adapter in ("red", "blue"):
        model.set_adapter(adapter)
        logprobs = torch.log_softmax(forced_logits(model, (5, 6, 7), completions[adapter]), dim=-1)
        tokens = list(completions[adapter].token_ids)
        assert completions[adapter].logprobs == pytest.approx(logprobs[range(len(tokens)), tokens].tolist(), abs=1e-5)
    with model.disable_adapter():
        logprobs = torch.log_softmax(forced_logits(model, (5, 6, 7), completions["None"]), dim=-1)
    tokens = list(completions["None"].token_ids)
    assert completions["None"].logprobs == pytest.approx(logprobs[range(len(tokens)), tokens].tolist(), abs=1e-5)
    assert completions["None"].logprobs[0] != pytest.approx(completions["red"].logprobs[0], abs=1e-3)


def test_adapter_base_rows_equal_the_model_without_adapters() -> None:
    plain = drain(TransformersEngine(tiny_qwen3(), eos_token_ids=EOS), request("a"))["a"]
    wrapped = drain(TransformersEngine(lora_qwen3("red"), eos_token_ids=EOS), request("a"))["a"]
    assert wrapped.token_ids == plain.token_ids
    assert wrapped.logprobs == pytest.approx(plain.logprobs, abs=1e-5)


def test_an_unknown_adapter_is_refused_and_the_known_ones_are_named() -> None:
    engine = TransformersEngine(lora_qwen3("red", "blue"), eos_token_ids=EOS)
    with pytest.raises(ValueError, match=r"wants adapter 'green'; expected None or one of \('red', 'blue'\)"):
        engine.submit([request("a", adapter="green")])


def test_sampling_leaves_the_module_as_the_learner_had_it() -> None:
    model = lora_qwen3("red", "blue", dropout=0.5)
    model.train()
    model.set_adapter("blue")
    frozen = next(module for name, module in model.named_modules() if name.endswith("layers.0.mlp"))
    frozen.eval()
    training = [module.training for module in model.modules()]
    trainable = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    engine = TransformersEngine(model, eos_token_ids=EOS)
    first = drain(engine, request("a", adapter="red"), request("b"))
    assert [module.training for module in model.modules()] == training
    assert {name for name, parameter in model.named_parameters() if parameter.requires_grad} == trainable
    assert model.active_adapter == "blue"
    assert drain(engine, request("a", adapter="red"))["a"].token_ids == first["a"].token_ids
    loss = model(input_ids=torch.tensor([[3, 4, 5]]), labels=torch.tensor([[3, 4, 5]])).loss
    loss.backward()
    assert all("blue" in name for name, parameter in model.named_parameters() if parameter.grad is not None)


def test_an_adapter_takes_weights_of_its_own() -> None:
    model = lora_qwen3("red", "blue").eval()
    engine = TransformersEngine(model, eos_token_ids=EOS)
    blue_before = drain(engine, request("a", adapter="blue"))["a"]
    engine.sync(get_peft_model_state_dict(model, adapter_name="blue"), 4, adapter="red")
    completions = drain(engine, request("red", adapter="red"), request("blue", adapter="blue"))
    assert completions["red"].token_ids == completions["blue"].token_ids == blue_before.token_ids
    assert completions["red"].policy_version == 4


def test_the_base_of_a_peft_model_takes_plain_names() -> None:
    model = lora_qwen3("red")
    other = tiny_qwen3(seed=5)
    TransformersEngine(model, eos_token_ids=EOS).sync(other.state_dict(), 1)
    with model.disable_adapter(), torch.no_grad():
        logits = model.eval()(input_ids=torch.tensor([[3, 4, 5]])).logits
    assert torch.equal(logits, other.eval()(input_ids=torch.tensor([[3, 4, 5]])).logits)


def test_weights_that_are_the_module_own_storage_are_not_copied() -> None:
    model = tiny_qwen3()
    assert copy_base(model, model.state_dict()) == 0
    assert copy_base(model, {name: value.clone() for name, value in model.state_dict().items()}) > 0
    peft_model = lora_qwen3("red")
    own = get_peft_model_state_dict(peft_model, adapter_name="red")
    assert copy_adapter(peft_model, own, "red") == 0


def test_one_name_of_tied_weights_is_enough() -> None:
    model, other = tiny_qwen3(), tiny_qwen3(seed=5)
    weights = {name: value for name, value in other.state_dict().items() if name != "lm_head.weight"}
    TransformersEngine(model, eos_token_ids=EOS).sync(weights, 1)
    assert torch.equal(model.lm_head.weight, other.model.embed_tokens.weight)


def test_weights_that_do_not_fit_are_refused_before_anything_is_copied() -> None:
    model = tiny_qwen3()
    engine = TransformersEngine(model, eos_token_ids=EOS)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    weights = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
    norm = weights.pop("model.norm.weight")
    with pytest.raises(ValueError, match=r"unknown names \['nrm'\], missing names \['model.norm.weight'\]"):
        engine.sync({**weights, "nrm": norm}, 1)
    with pytest.raises(ValueError, match=r"'model.norm.weight' has shape \(3,\), expected \(32,\)"):
        engine.sync({**weights, "model.norm.weight": torch.zeros(3)}, 1)
    assert engine.version == 0
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_an_update_of_the_shared_module_is_seen_without_a_copy() -> None:
    model = tiny_qwen3()
    engine = TransformersEngine(model, eos_token_ids=EOS)
    drain(engine, request("a"))
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight.add_(0.3)
    engine.sync(model.state_dict(), 1)
    after = drain(engine, request("a", temperature=0.0))["a"]
    expected = torch.log_softmax(forced_logits(model.eval(), (5, 6, 7), after), dim=-1).max(-1).values
    assert after.logprobs == pytest.approx(expected.tolist(), abs=1e-5)


def test_broken_weights_fail_the_request_and_say_so() -> None:
    model = tiny_qwen3()
    with torch.no_grad():
        model.model.norm.weight[0] = float("nan")
    completion = drain(TransformersEngine(model, eos_token_ids=EOS), request("a"))["a"]
    assert completion.finish_reason == "failed"
    assert completion.token_ids == ()
    assert completion.error == "the logits after 0 tokens are not finite numbers: look for NaN in the weights"


def test_a_deadline_in_mid_decode_gives_back_the_tokens_so_far() -> None:
    model = tiny_qwen3(max_position_embeddings=100_000)
    engine = TransformersEngine(model, eos_token_ids=())
    completion = drain(engine, request("a", max_tokens=90_000, deadline_s=0.05))["a"]
    assert completion.finish_reason == "deadline"
    assert 0 < len(completion.token_ids) == len(completion.logprobs) < 90_000


def test_cancel_in_mid_decode_keeps_the_tokens_and_leaves_the_others_alone() -> None:
    model = tiny_qwen3()
    engine = TransformersEngine(model, eos_token_ids=())
    alone = drain(engine, request("b", seed=2, max_tokens=30))["b"]
    engine.submit(
        [request("a", seed=1, max_tokens=30), request("b", seed=2, max_tokens=30), request("c", max_tokens=5)]
    )
    assert [completion.request_id for completion in engine.poll()] == ["c"]
    engine.cancel(["a"])
    (cancelled,) = engine.poll()
    assert (cancelled.request_id, cancelled.finish_reason, len(cancelled.token_ids)) == ("a", "cancelled", 5)
    (rest,) = engine.poll()
    assert rest.token_ids == alone.token_ids


def test_long_completions_outgrow_the_first_cache() -> None:
    model = tiny_qwen3(max_position_embeddings=400)
    engine = TransformersEngine(model, eos_token_ids=())
    requests = varied_requests(6, max_tokens=300)
    completions = drain(engine, *requests)
    for wanted in requests:
        completion = completions[wanted.request_id]
        logprobs = torch.log_softmax(forced_logits(model.eval(), wanted.prompt_ids, completion), dim=-1)
        assert len(completion.token_ids) == 300
        expected = logprobs[range(300), list(completion.token_ids)]
        assert completion.logprobs == pytest.approx(expected.tolist(), abs=1e-4)


@pytest.mark.parametrize("build", [tiny_qwen3, tiny_qwen2, tiny_llama])
def test_known_families_in_float32_are_fused(build: Any) -> None:
    assert can_fuse(build())
    assert not can_fuse(build().to(torch.bfloat16))
    assert not can_fuse(build(hidden_act="gelu"))


def test_half_precision_models_run_through_their_own_forward() -> None:
    model = tiny_qwen3().to(torch.bfloat16).eval()
    completion = drain(TransformersEngine(model, eos_token_ids=EOS), request("a"))["a"]
    logprobs = torch.log_softmax(forced_logits(model, (5, 6, 7), completion), dim=-1)
    expected = logprobs[range(len(completion.token_ids)), list(completion.token_ids)]
    assert completion.logprobs == pytest.approx(expected.tolist(), abs=0.2)


def test_a_sliding_window_bounds_the_context() -> None:
    model = tiny_qwen2(use_sliding_window=True, sliding_window=16, max_window_layers=1)
    engine = TransformersEngine(model, eos_token_ids=())
    assert engine.max_context == 16
    assert len(drain(engine, request("a", max_tokens=50))["a"].token_ids) == 13


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_context": 65}, r"max_context=65 does not fit the model; expected 2 to 64"),
        ({"eos_token_ids": (1, 40)}, r"token ids \[40\] are outside the vocabulary; expected 0 to 39"),
        ({"max_rows": 0}, r"max_rows=0 leaves no room for a request; expected 1 or more"),
    ],
)
def test_arguments_that_do_not_fit_the_model_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TransformersEngine(tiny_qwen3(), **{"eos_token_ids": EOS, **options})


def test_models_that_cannot_be_run_are_refused() -> None:
    with pytest.raises(ValueError, match="fused=True does not fit Qwen3ForCausalLM; expected a plain float32"):
        TransformersEngine(tiny_qwen3(hidden_act="gelu"), eos_token_ids=EOS, fused=True)
    flex = tiny_qwen3()
    flex.config._attn_implementation = "flex_attention"
    with pytest.raises(ValueError, match="attention implementation 'flex_attention' takes no explicit mask"):
        TransformersEngine(flex, eos_token_ids=EOS)
    linear = tiny_qwen3()
    linear.config.layer_types = ["full_attention", "linear_attention"]
    with pytest.raises(ValueError, match=r"layers of type \['linear_attention'\] keep a state"):
        TransformersEngine(linear, eos_token_ids=EOS)
