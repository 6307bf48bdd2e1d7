"""Which policy speaks for which agent, and how it is asked."""

from pathlib import Path
from typing import Any

import pytest

from tests.trainers.tiny_families import make_tiny_family
from tests.trainers.tiny_team import make_env
from trainers.config import PolicySettings, SettingsError
from trainers.rollout import TurnReply, TurnRequest
from trainers.team import LanguagePolicy, assign_agents, load_policy

ROLES = {"solver_0": "solver", "solver_1": "solver", "verifier_0": "verifier"}


def test_agent_goes_before_role_and_role_before_pattern() -> None:
    assert assign_agents({"*": "rest", "solver": "big", "solver_1": "small"}, ROLES) == {
        "solver_0": "big",
        "solver_1": "small",
        "verifier_0": "rest",
    }


def test_key_that_fits_nobody_is_refused() -> None:
    with pytest.raises(
        SettingsError, match=r"agents\.judge is neither a role nor an agent of the environment; it has the"
    ):
        assign_agents({"*": "rest", "judge": "big"}, ROLES)


def test_agent_without_a_policy_is_named() -> None:
    with pytest.raises(SettingsError, match=r"the agent 'verifier_0' has no policy; add 'agents\.verifier: <policy>'"):
        assign_agents({"solver": "big"}, ROLES)


def qwen3(folder: Path, **settings: Any) -> LanguagePolicy:
    made = make_tiny_family("qwen3", folder, context=256)
    return load_policy("solver", PolicySettings(sampling={"max_tokens": 4}, **settings), made)  # type: ignore[arg-type]


def reply_to(policy: LanguagePolicy, text: str) -> TurnReply:
    policy.submit([TurnRequest("r", "solver_0", ({"role": "user", "content": text},), 0, make_env())])
    (reply,) = policy.poll()
    return reply


def asked(policy: LanguagePolicy, text: str = "1 + 1 = ?") -> str:
    """The prompt of a turn as the engine had it."""
    return policy.codec.tokenizer.decode(reply_to(policy, text).prompt_ids)


def completed(policy: LanguagePolicy) -> tuple[int, ...]:
    return reply_to(policy, "1 + 1 = ?").completion_ids


def test_prompts_are_written_with_the_policys_arguments_of_the_chat_template(tmp_path: Path) -> None:
    direct = qwen3(tmp_path, chat_template_kwargs={"enable_thinking": False})
    assert asked(direct).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert asked(direct, "1 + " * 200).endswith("</think>\n\n")  # also when it was cut
    assert asked(qwen3(tmp_path)).endswith("<|im_start|>assistant\n")


def test_argument_that_the_chat_template_does_not_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"solver\.chat_template_kwargs\.thinking does nothing: the chat template of"
    ):
        qwen3(tmp_path, chat_template_kwargs={"thinking": False})


def test_policy_that_is_measured_otherwise_samples_otherwise_from_the_same_weights(tmp_path: Path) -> None:
    policy = qwen3(tmp_path)
    measured = policy.resampled(top_p=1e-6)  # the most likely token only
    assert policy.resampled() is policy
    assert (policy.sampling.top_p, measured.sampling.top_p, measured.sampling.temperature) == (1.0, 1e-6, 1.0)
    assert measured.engine is policy.engine
    greedy = policy.resampled(temperature=0.0)
    assert completed(measured) == completed(greedy) != completed(policy)
