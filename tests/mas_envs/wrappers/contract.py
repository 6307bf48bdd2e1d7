"""What every wrapper is put through, and two small environments that are not `ConversationEnv`."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from gymnasium import spaces
from pettingzoo import AECEnv
from pettingzoo.test import api_test

import mas_envs
from mas_envs.conversation import ConversationEnv, Outcome
from mas_envs.math_loop.grading import Grade
from mas_envs.spaces import Message, UnicodeText, messages_space
from mas_envs.tasks import Task

BENIGN = (
    "Observation is not a NumPy array",
    "Observation space for each agent probably should be gymnasium.spaces.box or gymnasium.spaces.discrete",
    "Action space for each agent probably should be gymnasium.spaces.box or gymnasium.spaces.discrete",
)

SOLUTION, WRONG = r"It is \boxed{right}", r"It is \boxed{wrong}"
APPROVE, REJECT = "<verify>approve</verify>", "<verify>reject</verify>"


def right_is_right(completion: str, answer: str) -> Grade:
    correct = "right" in completion
    return Grade(correct=correct, extracted=None, status="graded")


def math_loop(**kwargs: Any) -> AECEnv[str, Any, Any]:
    return mas_envs.make("MathLoop-v0", grader=right_is_right, **kwargs)


def play(env: AECEnv[str, Any, Any], script: Sequence[Any]) -> dict[str, float]:
    """The sum over `last()` of each agent's rewards; the actions come from the script, in order."""
    actions, returns = iter(script), dict.fromkeys(env.possible_agents, 0.0)
    for agent_id in env.agent_iter():
        _, reward, terminated, truncated, _ = env.last()
        returns[agent_id] += reward
        env.step(None if terminated or truncated else next(actions))
    return returns


def assert_passes_pettingzoo(env: AECEnv[str, Any, Any], *, benign: Sequence[str] = BENIGN) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        api_test(env, num_cycles=40)
    assert {str(warning.message) for warning in caught} <= set(benign)


class Proposers(ConversationEnv):
    """Three solvers propose unseen by each other, then an aggregator answers."""

    name: ClassVar[str] = "proposers_v0"
    roles: ClassVar[dict[str, int]] = {"solver": 3, "aggregator": 1}
    leaks: ClassVar[bool] = False

    def begin(self, task: Task) -> str:
        self._proposals: dict[str, str] = {}
        return "solver_0"

    @property
    def simultaneous(self) -> tuple[str, ...]:
        return tuple(a for a in self.possible_agents if a.startswith("solver") and a not in self._proposals)

    def prompt(self, agent_id: str) -> Sequence[Message]:
        shown = [self.task.question]
        if agent_id == "aggregator_0" or self.leaks:
            shown += self._proposals.values()
        return [{"role": "user", "content": "\n".join(shown)}]

    def receive(self, agent_id: str, text: str) -> Outcome:
        if agent_id == "aggregator_0":
            return Outcome(None, {a: {"team": 1.0} for a in self.possible_agents}, success=True)
        self._proposals[agent_id] = text
        waiting = self.simultaneous
        return Outcome(waiting[0] if waiting else "aggregator_0", {agent_id: {"length": float(len(text))}})


class LeakyProposers(Proposers):
    """Declares its solvers simultaneous, and yet shows them each other's proposals."""

    leaks: ClassVar[bool] = True


def proposers(kind: type[Proposers] = Proposers) -> Proposers:
    return kind([Task("t0", "Name a fruit.", "apple")])


class Echo(AECEnv[str, Any, Any]):
    """A text environment of somebody else: two agents, no limit, no cleaning, the first leaves before the second."""

    def __init__(self, on_step: Callable[[str], None] | None = None) -> None:
        super().__init__()
        self.metadata = {"name": "echo_v0", "render_modes": ["ansi"]}
        self.render_mode = None
        self.possible_agents = ["speaker_0", "listener_0"]
        self._observation_space, self._action_space = messages_space(10_000_000), UnicodeText(100)
        self._on_step = on_step
        self.heard: list[str] = []

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self._observation_space

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self._action_space

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.heard = []
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent_id: {} for agent_id in self.agents}
        self.agent_selection = self.agents[0]
        self._skip_agent_selection = None

    def observe(self, agent: str) -> dict[str, Any]:
        return {"messages": tuple({"role": "user", "content": text} for text in self.heard)}

    def step(self, action: str | None) -> None:
        agent_id = self.agent_selection
        if self.terminations[agent_id] or self.truncations[agent_id]:
            self._was_dead_step(action)
            return
        assert action is not None
        if self._on_step:
            self._on_step(action)
        self.heard.append(action)
        self._cumulative_rewards[agent_id] = 0.0
        self.rewards = dict.fromkeys(self.agents, 0.25)
        self._accumulate_rewards()
        others = [other for other in self.agents if other != agent_id]
        self.terminations[agent_id] = action == "bye"
        self.agent_selection = others[0] if others else agent_id
        self._deads_step_first()

    def render(self) -> str | None:
        return None

    def close(self) -> None:
        pass
