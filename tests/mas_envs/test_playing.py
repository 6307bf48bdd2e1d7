"""`play`: what the record of an episode holds, and whose fault a failure is."""

import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

import mas_envs
from mas_envs import PlayedEpisode, PolicyError, Skill, Task, Turn, play
from mas_envs.errors import BadArgumentError
from mas_envs.spaces import Message
from mas_envs.wrappers import SingleAgentView, TokenEncoding
from tests.mas_envs.checker.good_envs import OneByOne, Review, Soliloquy
from tests.mas_envs.wrappers.contract import APPROVE, REJECT, SOLUTION, WRONG, Echo, math_loop
from tests.mas_envs.wrappers.contract import play as by_hand

Messages = tuple[Message, ...]


def says(*texts: str) -> Callable[[Messages], str]:
    """A policy that says one text after the other."""
    left = iter(texts)
    return lambda messages: next(left)


def test_record_holds_every_turn_with_what_it_earned() -> None:
    episode = play(math_loop(), {"solver_0": says("no box", SOLUTION), "verifier_0": says(REJECT)}, seed=0)
    assert [(turn.agent_id, turn.text, turn.valid) for turn in episode.transcript] == [
        ("solver_0", "no box", False),
        ("verifier_0", REJECT, True),
        ("solver_0", SOLUTION, True),
    ]
    assert [turn.reward for turn in episode.transcript] == [pytest.approx(-0.1), 1.0, 1.0]
    assert [turn.reward_terms for turn in episode.transcript] == [{"invalid": -0.1}, {"correct": 1.0}, {"correct": 1.0}]
    assert episode.transcript[0].reason == "no \\boxed{...} after the thoughts"
    assert episode.returns == {"solver_0": pytest.approx(0.9), "verifier_0": 1.0}
    assert episode.reward_terms == {"solver_0": {"invalid": -0.1, "correct": 1.0}, "verifier_0": {"correct": 1.0}}
    assert (episode.success, episode.truncated, episode.error, episode.seed) == (True, False, None, 0)


def test_messages_in_the_record_are_those_the_policy_got() -> None:
    got: list[Messages] = []

    def listens(messages: Messages) -> str:
        got.append(messages)
        return SOLUTION

    episode = play(math_loop(), {"solver_0": listens, "verifier_0": says(APPROVE)}, seed=0)
    assert episode.transcript[0].messages == got[0]
    assert episode.task is not None
    assert episode.task.question in got[0][0]["content"]


def test_policy_that_changes_its_messages_changes_nothing_else() -> None:
    def scribbles(messages: Messages) -> str:
        messages[0]["content"] = "forged"
        return SOLUTION

    episode = play(math_loop(), {"*": scribbles}, seed=0)
    assert all("forged" not in turn.messages[0]["content"] for turn in episode.transcript)


def test_record_keeps_what_was_shown_though_the_environment_uses_its_messages_again() -> None:
    class Blackboard(Soliloquy):
        board: Message = {"role": "user", "content": ""}  # noqa: RUF012  # shared on purpose

        def prompt(self, agent_id: str) -> tuple[Message, ...]:
            self.board["content"] = f"{len(self.transcript)} lines"
            return (self.board,)

    episode = play(Blackboard(), {"*": lambda messages: "line"}, max_turns=3)
    assert [turn.messages[0]["content"] for turn in episode.transcript] == ["0 lines", "1 lines", "2 lines"]


def test_agents_left_out_are_played_by_the_experts() -> None:
    episode = play(mas_envs.make("MathLoop-v0"), seed=3)
    assert episode.success is True
    assert [turn.agent_id for turn in episode.transcript] == ["solver_0", "verifier_0"]


def test_skill_makes_a_mediocre_expert() -> None:
    env = mas_envs.make("MathLoop-v0")
    wrong = play(env, {"solver": Skill(accuracy=0.0), "verifier": says(APPROVE)}, seed=3)
    assert wrong.success is False


def test_same_seed_plays_the_same_episode() -> None:
    env, half = mas_envs.make("MathLoop-v0"), {"*": Skill(accuracy=0.5, malformed=0.5)}
    first, again, other = (play(env, half, seed=seed) for seed in (5, 5, 6))
    assert first == again != other


def test_task_can_be_chosen() -> None:
    env = mas_envs.make("MathLoop-v0")
    assert play(env, task=7).task == env.unwrapped.tasks[7]
    assert play(env, task=Task("t", "1+1", "2")).transcript[0].text == r"I work it out and get 2. \boxed{2}"


def test_episode_is_truncated_after_max_turns() -> None:
    env = math_loop()
    episode = play(env, {"solver": says("no box"), "verifier": says(REJECT)}, max_turns=2)
    assert (len(episode.transcript), episode.truncated, episode.success) == (2, True, None)
    assert episode.returns == {"solver_0": -0.1, "verifier_0": 0.0}
    assert play(env, {"solver": says(SOLUTION), "verifier": says(APPROVE)}, max_turns=2).truncated is False


def test_reward_before_the_first_turn_is_in_the_returns_alone() -> None:
    episode = play(Review(num_rounds=1), seed=0)
    critic = episode.transcript[-1]
    assert critic.agent_id == "critic_0"
    assert episode.returns["critic_0"] == pytest.approx(0.25 + critic.reward)
    assert episode.reward_terms["critic_0"] == {"patience": 0.25, "solved": 1.0, "rounds": 0.1}


def test_environment_of_somebody_else_whose_agents_leave_one_by_one_is_played_to_the_end() -> None:
    episode = play(Echo(), {"speaker_0": says("hello", "bye"), "listener_0": says("hm", "hm", "bye")})
    assert [turn.text for turn in episode.transcript] == ["hello", "hm", "bye", "hm", "bye"]
    assert episode.returns == {"speaker_0": 0.75, "listener_0": 1.25}
    assert [turn.reward for turn in episode.transcript] == [0.5, 0.5, 0.25, 0.25, 0.25]
    assert (episode.task, episode.success, episode.truncated) == (None, None, False)


def test_rewards_after_an_agent_has_left_go_to_those_who_stay() -> None:
    env = OneByOne()
    episode = play(env, {"guest_*": lambda messages: "word"}, seed=0)
    env.reset(seed=0)
    assert episode.returns == by_hand(env, ["word"] * 6) == {"guest_0": 1.0, "guest_1": 0.0, "guest_2": -1.0}
    assert [turn.reward for turn in episode.transcript] == [0.0, -1.0, -2.0, 1.0, 1.0, 1.0]
    assert episode.success is True


def test_view_of_one_agent_is_played_as_an_environment() -> None:
    view = SingleAgentView(math_loop(), "solver_0", {"verifier_0": lambda messages: REJECT})
    episode = play(view, {"solver_0": says(WRONG, SOLUTION)}, seed=0)
    assert [turn.text for turn in episode.transcript] == [WRONG, SOLUTION]
    assert episode.returns == {"solver_0": 1.0}


def test_text_is_noted_as_the_environment_took_it() -> None:
    episode = play(math_loop(max_action_chars=5), {"*": lambda messages: "a" * 9}, max_turns=1)
    assert (episode.transcript[0].text, episode.transcript[0].valid) == ("aaaaa", False)


def test_each_turn_is_shown_when_it_has_been_taken() -> None:
    shown: list[Turn] = []
    play(math_loop(), {"solver": says(SOLUTION), "verifier": says(APPROVE)}, on_turn=shown.append)
    assert [(turn.agent_id, turn.text) for turn in shown] == [("solver_0", SOLUTION), ("verifier_0", APPROVE)]


def test_record_cannot_be_changed() -> None:
    episode = play(mas_envs.make("MathSolo-v0"), seed=0)
    with pytest.raises(FrozenInstanceError):
        episode.success = None  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        episode.transcript[0].text = ""  # type: ignore[misc]


def failure_of(policies: dict[str, Any], env: Any = None) -> tuple[PolicyError, PlayedEpisode]:
    with pytest.raises(PolicyError) as caught:
        play(env or math_loop(), policies, seed=0)
    assert caught.value.episode is not None
    return caught.value, caught.value.episode


def test_policy_that_raises_is_named_with_its_turn_and_the_cause_is_kept() -> None:
    def times_out(messages: Messages) -> str:
        raise TimeoutError("no answer in 30 s")

    error, episode = failure_of({"solver": says("no box"), "verifier": times_out})
    assert str(error) == (
        "the policy of verifier_0 raised TimeoutError in turn 1: no answer in 30 s; expected a completion: mend the "
        "policy and play the episode again"
    )
    assert (error.agent_id, error.turn_index, type(error.__cause__)) == ("verifier_0", 1, TimeoutError)
    assert [turn.text for turn in episode.transcript] == ["no box"]
    assert episode.transcript[0].reward_terms == {"invalid": -0.1}
    assert episode.reward_terms["solver_0"] == {"invalid": -0.1}
    assert (episode.truncated, episode.error, episode.success) == (True, str(error), None)


def test_what_the_failing_agent_had_earned_is_counted_once() -> None:
    error, episode = failure_of({"solver": says("no box"), "verifier": says(REJECT)})
    assert isinstance(error.__cause__, StopIteration)
    assert episode.reward_terms["solver_0"] == {"invalid": -0.1}


def test_policy_that_returns_no_text_is_named() -> None:
    error, _ = failure_of({"solver": lambda messages: None})
    assert str(error) == (
        "the policy of solver_0 returned None of type NoneType in turn 0; expected the completion as a str: return the "
        "text of the reply"
    )


def test_function_that_returns_a_coroutine_is_told_to_run_it() -> None:
    async def answer() -> str:
        return SOLUTION

    error, _ = failure_of({"solver": lambda messages: answer()})
    assert "of type coroutine in turn 0; expected the completion as a str: return asyncio.run(...) of it" in str(error)


def test_failure_travels_between_processes() -> None:
    error, episode = failure_of({"solver": lambda messages: None})
    twin = pickle.loads(pickle.dumps(error))
    assert (str(twin), twin.agent_id, twin.turn_index, twin.episode) == (str(error), "solver_0", 0, episode)


def test_role_without_an_expert_is_found_at_its_turn() -> None:
    class HalfExpert(Review):
        def scripted_action(self, agent_id: str, *details: Any) -> str:
            if agent_id == "critic_0":
                return super(Review, self).scripted_action(agent_id, *details)
            return "a line"

    error, episode = failure_of({}, HalfExpert())
    assert "the policy of critic_0 raised MasEnvsError in turn 2: review_v0 has no scripted expert" in str(error)
    assert len(episode.transcript) == 2


def test_failure_of_the_environment_is_its_own_with_a_note_of_the_turn() -> None:
    def breaks(action: str) -> None:
        raise ZeroDivisionError("rules")

    with pytest.raises(ZeroDivisionError, match="rules") as caught:
        play(Echo(breaks), {"*": lambda messages: "hello"})
    assert caught.value.__notes__ == ["echo_v0 raised this in turn 0, in which speaker_0 said 'hello'"]


def test_interrupt_is_not_taken_for_a_failure() -> None:
    def interrupts(messages: Messages) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(math_loop(), {"solver": interrupts})


@pytest.mark.parametrize("limit", [0, True, 1.5])
def test_impossible_limit_is_refused(limit: Any) -> None:
    with pytest.raises(BadArgumentError, match=r"max_turns=.*: expected a whole number >= 1, or None for no limit"):
        play(math_loop(), max_turns=limit)


def test_id_instead_of_an_environment_is_refused() -> None:
    with pytest.raises(BadArgumentError, match=r"env='MathLoop-v0': expected an AEC environment; make one, such as"):
        play("MathLoop-v0")


def test_environment_that_takes_no_text_is_refused() -> None:
    tokens = TokenEncoding(math_loop(), max_prompt_tokens=8, max_new_tokens=4)
    with pytest.raises(BadArgumentError, match=r"play\(\) of .*: solver_0 is shown Box.*; expected a Dict with"):
        play(tokens)
