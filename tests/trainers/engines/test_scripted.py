"""The scripted engine gives what its script says."""

from tests.trainers.engines.engine_cases import drain, request
from trainers.engines.scripted import ScriptedEngine


def test_completions_follow_the_script_and_the_limits() -> None:
    engine = ScriptedEngine(lambda prompt, seed: [*prompt, seed, 9, 9], eos_token_ids=(8,), version=3)
    completions = drain(
        engine, request("a", (4,), seed=8), request("b", (5, 6), seed=7), request("c", (5, 6), seed=7, max_tokens=2)
    )
    assert (completions["a"].token_ids, completions["a"].finish_reason) == ((4, 8), "stop")
    assert (completions["b"].token_ids, completions["b"].finish_reason) == ((5, 6, 7, 9, 9), "stop")
    assert (completions["c"].token_ids, completions["c"].finish_reason) == ((5, 6), "length")
    assert completions["b"].logprobs == (0.0,) * 5
    assert completions["a"].policy_version == 3


def test_syncs_are_counted() -> None:
    engine = ScriptedEngine(lambda prompt, seed: [3], adapters=("red",))
    engine.sync({}, 1)
    engine.sync({}, 2, adapter="red")
    assert engine.synced == [(None, 1), ("red", 2)]
    assert drain(engine, request("a", adapter="red"))["a"].policy_version == 2
