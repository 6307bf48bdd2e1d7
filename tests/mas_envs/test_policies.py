"""Who answers for which agent, and what is refused as a policy."""

import copy
import random
from typing import Any

import pytest

import mas_envs
from mas_envs import AgentPolicy, Skill
from mas_envs.agent_keys import roles_of
from mas_envs.errors import BadArgumentError
from mas_envs.policies import ScriptedExpert, assign_policies
from mas_envs.spaces import Message
from tests.mas_envs.wrappers.contract import Echo, math_loop, proposers

Messages = tuple[Message, ...]


def alice(messages: Messages) -> str:
    return "alice"


def bob(messages: Messages) -> str:
    return "bob"


class Model:
    def __call__(self, messages: Messages) -> str:
        return "model"

    async def answer(self, messages: Messages) -> str:
        return "late"


class Late:
    async def __call__(self, messages: Messages) -> str:
        return "late"


def assign(env: Any, policies: Any, **options: Any) -> dict[str, AgentPolicy]:
    return assign_policies(env, policies, random.Random(0), **options)


def test_agent_id_goes_before_role_and_role_before_pattern() -> None:
    team = assign(proposers(), {"*": alice, "solver": bob, "solver_2": Model()})
    assert team["solver_0"] is team["solver_1"] is bob
    assert isinstance(team["solver_2"], Model)
    assert team["aggregator_0"] is alice


def test_first_pattern_that_fits_counts() -> None:
    assert assign(proposers(), {"*_0": alice, "*": bob}) == {
        "solver_0": alice,
        "solver_1": bob,
        "solver_2": bob,
        "aggregator_0": alice,
    }


def test_any_callable_is_a_policy() -> None:
    model = Model()
    assert assign(math_loop(), {"*": model})["solver_0"] is model
    assert isinstance(model, AgentPolicy)


def test_agent_that_is_left_needs_no_policy() -> None:
    assert assign(Echo(), {"listener_0": alice}, leave="speaker_0") == {"listener_0": alice}


def test_role_is_the_id_without_its_number_where_the_environment_names_none() -> None:
    assert roles_of(Echo()) == {"speaker_0": "speaker", "listener_0": "listener"}


def test_copied_expert_follows_the_copied_environment() -> None:
    env = mas_envs.make("MathLoop-v0", prompt_style="short")
    env.reset(options={"task": mas_envs.Task("t", "1+1", "2")})
    expert = assign(env, {})["solver_0"]
    other, moved = copy.deepcopy((env, expert))
    other.reset(options={"task": mas_envs.Task("t", "4+4", "8")})
    assert isinstance(moved, ScriptedExpert)
    assert (expert(()), moved(())) == (r"\boxed{2}", r"\boxed{8}")


def test_expert_is_refused_where_there_is_none() -> None:
    text = "no policy for aggregator_0, and proposers_v0 has no scripted experts to play it; add 'aggregator_0' to the"
    with pytest.raises(BadArgumentError, match=text):
        assign(proposers(), {"solver": alice})
    with pytest.raises(BadArgumentError, match="no policy for listener_0, and echo_v0 has no scripted experts"):
        assign(Echo(), {"speaker": alice, "listener": Skill()})


def test_key_that_fits_nobody_is_refused() -> None:
    text = r"policies has 'judge_0', 'j\*': neither an agent nor a role; agents are solver_0, verifier_0, roles are"
    with pytest.raises(BadArgumentError, match=text):
        assign(math_loop(), {"judge_0": alice, "solver": alice, "j*": alice})


@pytest.mark.parametrize("policies", [alice, [alice], {0: alice}])
def test_policies_without_agents_are_refused(policies: Any) -> None:
    with pytest.raises(BadArgumentError, match=r"policies=.*: expected a mapping from agent ids, roles or patterns to"):
        assign(math_loop(), policies)


def test_value_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(
        BadArgumentError, match=r"policies\['solver'\]='gpt': expected a callable from messages to text"
    ):
        assign(math_loop(), {"solver": "gpt"})


@pytest.mark.parametrize("policy", [Model().answer, Late()])
def test_coroutine_function_is_told_to_be_wrapped(policy: Any) -> None:
    text = r"is a coroutine function; expected one that returns text: wrap it, such as lambda messages: asyncio.run\("
    with pytest.raises(BadArgumentError, match=text):
        assign(math_loop(), {"solver": policy})
