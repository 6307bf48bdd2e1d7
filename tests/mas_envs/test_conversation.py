"""The book-keeping that every text environment inherits, on small environments of its own."""

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import pytest

from mas_envs import ConversationEnv, Outcome, Task, TaskSet
from mas_envs.errors import BadArgumentError, EpisodeOrderError, InvalidActionError, MasEnvsError, TaskError
from mas_envs.spaces import Message

TASKS = TaskSet([Task(f"t{index}", f"question {index}", str(index), "made") for index in range(9)], name="nine")
INFO_KEYS = {"valid_action", "reward_terms", "task_id", "source", "turn", "error", "success"}


class Relay(ConversationEnv):
    """Three writers take turns; the text says what happens: `pay A B`, `bad`, `end`, `fail`, `nan`, `lost`."""

    name: ClassVar[str] = "relay_v0"
    roles: ClassVar[Mapping[str, int]] = {"writer": 3}

    def begin(self, task: Task) -> str:
        self.said: list[str] = []
        return "writer_0"

    def prompt(self, agent_id: str) -> Sequence[Message]:
        shown = f"{self.role_of(agent_id)} {self.task.question} {' '.join(self.said)}"
        return ({"role": "user", "content": shown},)

    def receive(self, agent_id: str, text: str) -> Outcome:
        self.said.append(text)
        following = f"writer_{(int(agent_id[-1]) + 1) % 3}"
        match text.split():
            case ["pay", *payees]:
                return Outcome(following, {f"writer_{payee}": {"wage": 1.0, "tip": 0.25} for payee in payees})
            case ["end"]:
                return Outcome(None, {"writer_0": {"goal": 1.0}, "writer_2": {"goal": 0.5}}, success=True)
            case ["fail"]:
                return Outcome(None, truncated=True, error="the tool is broken")
            case ["bad"]:
                return Outcome(following, {agent_id: {"wage": 1.0}}, valid=False, reason="bad on purpose")
            case ["nan"]:
                return Outcome(following, {agent_id: {"wage": float("nan")}})
            case ["lost"]:
                return Outcome("nobody_7")
        return Outcome(following)


class Tour(Relay):
    """A relay with as many writers as it is told."""

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(TASKS)

    def team_roles(self) -> Mapping[str, int]:
        return {"writer": self.count}


class Shouting(Relay):
    roles: ClassVar[Mapping[str, int]] = {"Writer": 1}


def relay(**kwargs: Any) -> Relay:
    env = Relay(kwargs.pop("tasks", TASKS), **kwargs)
    env.reset(seed=0)
    return env


def play(env: Relay, actions: Sequence[str]) -> list[tuple[str, float, dict[str, float]]]:
    """Agent, reward of `last()` and reward terms at every turn, dead steps included."""
    script, story = iter(actions), []
    for agent_id in env.agent_iter():
        _, reward, terminated, truncated, info = env.last()
        story.append((agent_id, reward, info["reward_terms"]))
        env.step(None if terminated or truncated else next(script))
    return story


def snapshot(env: Relay) -> object:
    tables = (env.rewards, env._cumulative_rewards, env.terminations, env.truncations, env.infos)
    return copy.deepcopy((env.agents, env.agent_selection, env.transcript, env.said, tables))


def test_agents_not_acting_are_paid_when_they_speak_again() -> None:
    story = play(relay(), ["pay 1 2", "pay 1 2", "pay 0", "end"])
    assert story == [
        ("writer_0", 0.0, {}),
        ("writer_1", 1.25, {"wage": 1.0, "tip": 0.25}),
        ("writer_2", 2.5, {"wage": 2.0, "tip": 0.5}),
        ("writer_0", 1.25, {"wage": 1.0, "tip": 0.25}),
        ("writer_0", 1.0, {"goal": 1.0}),
        ("writer_1", 1.25, {"wage": 1.0, "tip": 0.25}),
        ("writer_2", 0.5, {"goal": 0.5}),
    ]


def test_rewards_of_a_step_are_those_of_that_step_alone() -> None:
    env = relay()
    env.step("pay 0 2")
    assert env.rewards == {"writer_0": 1.25, "writer_1": 0.0, "writer_2": 1.25}
    env.step("x")
    assert env.rewards == {"writer_0": 0.0, "writer_1": 0.0, "writer_2": 0.0}


def test_reward_terms_add_up_to_the_reward_in_random_episodes() -> None:
    rng = random.Random(3)
    for _ in range(20):
        actions = [rng.choice(["pay 0", "pay 0 1 2", "pay 1", "bad", "x"]) for _ in range(8)]
        for _, reward, terms in play(relay(invalid_penalty=0.3), [*actions, "end"]):
            assert sum(terms.values()) == pytest.approx(reward)


def test_invalid_action_costs_its_agent_and_nobody_else() -> None:
    env = relay(invalid_penalty=0.25)
    env.step("bad")
    assert env.rewards == {"writer_0": 0.75, "writer_1": 0.0, "writer_2": 0.0}
    assert env.infos["writer_0"]["reward_terms"] == {"wage": 1.0, "invalid": -0.25}
    assert [env.infos[agent_id]["valid_action"] for agent_id in env.agents] == [False, True, True]
    assert (env.transcript[0].valid, env.transcript[0].reason) == (False, "bad on purpose")


def test_infos_have_the_same_keys_from_reset_to_the_end() -> None:
    env = relay()
    seen = [dict(env.infos)]
    for action in ("x", "bad", "end"):
        env.step(action)
        seen.append(dict(env.infos))
    assert all(set(info) == INFO_KEYS for infos in seen for info in infos.values())
    assert [infos["writer_1"]["turn"] for infos in seen] == [0, 1, 2, 3]
    assert [infos["writer_2"]["success"] for infos in seen] == [None, None, None, True]
    assert {info["source"] for infos in seen for info in infos.values()} == {"made"}


def test_episode_is_truncated_at_the_limit_of_turns() -> None:
    env = relay(max_turns=2)
    env.step("x")
    assert not any(env.truncations.values())
    env.step("x")
    assert env.truncations == dict.fromkeys(env.possible_agents, True)
    assert env.terminations == dict.fromkeys(env.possible_agents, False)
    assert env.infos["writer_0"]["success"] is None


def test_end_by_the_rules_in_the_last_permitted_turn_is_no_truncation() -> None:
    env = relay(max_turns=1)
    env.step("end")
    assert env.terminations == dict.fromkeys(env.possible_agents, True)
    assert not any(env.truncations.values())


def test_failure_outside_the_agents_truncates_and_is_told_to_all() -> None:
    env = relay()
    env.step("fail")
    assert all(env.truncations.values())
    assert {info["error"] for info in env.infos.values()} == {"the tool is broken"}


def test_dead_agents_leave_one_by_one() -> None:
    env = relay()
    env.step("end")
    left = []
    while env.agents:
        left.append(env.agent_selection)
        env.step(None)
    assert left == env.possible_agents
    assert env.infos == {}


def test_copy_in_mid_episode_is_equal_and_independent() -> None:
    env = relay(invalid_penalty=0.5)
    env.step("pay 0 1")
    env.step("bad")
    twin = copy.deepcopy(env)
    before = snapshot(env)
    assert snapshot(twin) == before
    assert play(twin, ["pay 2", "end"]) == play(copy.deepcopy(env), ["pay 2", "end"])
    assert snapshot(env) == before
    twin = copy.deepcopy(env)
    env.reset()
    assert snapshot(twin) == before
    twin.reset()
    assert twin.task == env.task  # the copy's generator went on from the same state


def test_observe_is_pure_and_open_to_every_agent_at_any_time() -> None:
    env = relay()
    for action in ("x", "pay 2", "end"):
        before = snapshot(env)
        first = {agent_id: env.observe(agent_id) for agent_id in env.possible_agents}
        assert first == {agent_id: env.observe(agent_id) for agent_id in env.possible_agents}
        assert all(env.observation_space(agent_id).contains(shown) for agent_id, shown in first.items())
        assert snapshot(env) == before
        env.step(action)
    while env.agents:
        env.step(None)
    assert "question" in env.observe("writer_1")["messages"][0]["content"]


def test_changing_what_was_handed_out_changes_nothing() -> None:
    env = relay()
    env.step("x")
    env.transcript.clear()
    env.infos["writer_0"]["reward_terms"]["forged"] = 9.0
    env.step("x")
    assert len(env.transcript) == 2
    assert env.infos["writer_0"]["reward_terms"] == {}


@pytest.mark.parametrize(
    "call", [lambda env: env.step("x"), lambda env: env.last(), lambda env: env.observe("writer_0")]
)
def test_call_before_reset_says_so(call: Callable[[Relay], object]) -> None:
    with pytest.raises(
        EpisodeOrderError, match=r"(step|last|observe)\(\) of relay_v0 before reset\(\); call reset\(\) first"
    ):
        call(Relay(TASKS))


def test_task_before_reset_says_so() -> None:
    with pytest.raises(EpisodeOrderError, match=r"no task before its first episode; call reset\(\) first"):
        _ = Relay(TASKS).task


@pytest.mark.parametrize("call", [lambda env: env.step("x"), lambda env: env.step(None), lambda env: env.last()])
def test_call_after_the_end_says_so(call: Callable[[Relay], object]) -> None:
    env = relay()
    play(env, ["end"])
    with pytest.raises(EpisodeOrderError, match=r"after the end of the episode; call reset\(\) to start anew"):
        call(env)
    env.reset()
    assert env.agents == env.possible_agents


@pytest.mark.parametrize("action", [None, 3, b"bytes", ["x"], {"text": "x"}])
def test_action_of_the_wrong_type_leaves_the_episode_unchanged(action: Any) -> None:
    env = relay()
    env.step("pay 1")
    before = snapshot(env)
    with pytest.raises(
        InvalidActionError, match=rf"of type {type(action).__name__} for writer_1; expected the completion"
    ):
        env.step(action)
    assert snapshot(env) == before
    env.step("x")
    assert len(env.transcript) == 2


def test_text_for_a_dead_agent_is_refused() -> None:
    env = relay()
    env.step("end")
    before = snapshot(env)
    with pytest.raises(InvalidActionError, match="for writer_0, which has ended; the only action it can take is None"):
        env.step("more")
    assert snapshot(env) == before


@pytest.mark.parametrize(
    ("action", "kept", "fault"),
    [
        ("pay 0 too long", "pay 0", "the action of 14 characters was cut to 5"),
        ("a\ud800b", "a\ufffdb", "the action held undecodable characters, which were replaced"),
    ],
)
def test_text_that_had_to_be_mended_is_flagged(action: str, kept: str, fault: str) -> None:
    env = relay(max_action_chars=5, invalid_penalty=0.5)
    env.step(action)
    turn = env.transcript[0]
    assert (turn.text, turn.valid, turn.reason) == (kept, False, fault)
    assert env.infos["writer_0"]["error"] == fault
    assert env.infos["writer_1"]["error"] is None
    assert env.infos["writer_0"]["reward_terms"]["invalid"] == -0.5


def test_task_is_chosen_by_index_or_given() -> None:
    env, own = relay(), Task("own", "mine", "1")
    env.reset(options={"task": 3})
    assert env.task == TASKS[3]
    env.reset(options={"task": -1})
    assert env.infos["writer_0"]["task_id"] == "t8"
    env.reset(options={"task": own})
    assert env.task is own


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (9, "task index 9 is outside 'nine', which holds 9 tasks"),
        (-10, "task index -10 is outside"),
        ("t3", "task 't3' is neither a Task nor an index"),
        (True, "task True is neither a Task nor an index"),
        (1.0, r"task 1\.0 is neither a Task nor an index"),
    ],
)
def test_unusable_task_choice_is_refused(choice: Any, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        relay().reset(options={"task": choice})


@pytest.mark.parametrize("seed", [-1, "a", 1.5])
def test_unusable_seed_is_refused(seed: Any) -> None:
    with pytest.raises(BadArgumentError, match=f"seed={seed!r}: expected a whole number >= 0"):
        relay().reset(seed=seed)


def test_options_that_are_no_dict_are_refused() -> None:
    with pytest.raises(BadArgumentError, match="options=3: expected a dict such as"):
        relay().reset(options=3)  # type: ignore[arg-type]


def test_seed_decides_the_tasks_of_all_episodes_that_follow() -> None:
    def drawn(env: Relay) -> list[str]:
        ids = []
        for index in range(12):
            env.reset(seed=5 if index == 0 else None)
            ids.append(env.task.id)
        return ids

    ids = drawn(Relay(TASKS))
    assert ids == drawn(relay())
    assert len(set(ids)) > 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_turns": 0}, "max_turns=0: expected a whole number >= 1, or None"),
        ({"max_turns": "3"}, "max_turns='3': expected a whole number"),
        ({"max_turns": True}, "max_turns=True: expected a whole number"),
        ({"invalid_penalty": -0.1}, r"invalid_penalty=-0\.1: expected a finite number >= 0"),
        ({"invalid_penalty": float("nan")}, "invalid_penalty=nan: expected a finite number"),
        ({"invalid_penalty": "x"}, "invalid_penalty='x': expected a finite number"),
        ({"max_action_chars": 0}, "max_action_chars=0: expected a whole number >= 1"),
        ({"max_action_chars": None}, "max_action_chars=None: expected a whole number >= 1"),
        ({"render_mode": "rgb_array"}, "render_mode='rgb_array': expected 'human', 'ansi' or None"),
    ],
)
def test_argument_out_of_range_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(BadArgumentError, match=message):
        relay(**arguments)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nan", r"paid writer_0 {'wage': nan} at turn 1; expected finite rewards"),
        ("lost", "receive of relay_v0 named the agent 'nobody_7'; its agents are writer_0, writer_1, writer_2: mend"),
    ],
)
def test_fault_of_the_environment_is_named_as_such(text: str, message: str) -> None:
    with pytest.raises(MasEnvsError, match=message):
        relay().step(text)


def test_environment_without_an_expert_says_what_to_do() -> None:
    with pytest.raises(MasEnvsError, match="relay_v0 has no scripted expert for 'writer_0'; write `scripted_action`"):
        relay().scripted_action("writer_0", random.Random(0))


def test_number_of_agents_may_depend_on_arguments() -> None:
    assert Tour(2).possible_agents == ["writer_0", "writer_1"]
    assert Tour(2).role_of("writer_1") == "writer"


def test_malformed_role_is_refused() -> None:
    with pytest.raises(BadArgumentError, match=r"agent ids \['Writer_0'\] are malformed"):
        Shouting(TASKS)


def test_unknown_agent_is_refused() -> None:
    with pytest.raises(BadArgumentError, match="no agent 'bob' in relay_v0; agents are writer_0, writer_1, writer_2"):
        relay().observe("bob")


def test_rendering_shows_the_last_turn(capsys: pytest.CaptureFixture[str]) -> None:
    env = relay(render_mode="ansi")
    assert env.render() == ""
    env.step("bad")
    assert env.render() == "[1] writer_0 (invalid): bad\n"
    assert capsys.readouterr().out == ""
    relay(render_mode="human").step("x")
    assert capsys.readouterr().out == "[1] writer_0: x\n"
    assert relay().render() is None


def test_spaces_are_the_same_objects_each_time() -> None:
    env = relay()
    assert env.action_space("writer_0") is env.action_space("writer_0")
    assert env.observation_space("writer_0") is env.observation_space("writer_0")
    assert str(env) == "relay_v0"
