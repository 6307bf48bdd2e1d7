"""Multi-agent environments for LLM agents, with the PettingZoo AEC contract; see `make`."""

from mas_envs.builtin import register_builtin
from mas_envs.checker import check_env
from mas_envs.conversation import ConversationEnv, Outcome, Skill, Turn
from mas_envs.playing import PlayedEpisode, PlayedTurn, play
from mas_envs.policies import AgentPolicy, PolicyError
from mas_envs.registration import (
    EnvSpec,
    make,
    mirror_into_gymnasium,
    mirror_into_pettingzoo,
    pprint_registry,
    register,
    registry,
    spec,
)
from mas_envs.tasks import Task, TaskSet, load_tasks, register_tasks
from mas_envs.vector import make_vec

__all__ = [
    "AgentPolicy",
    "ConversationEnv",
    "EnvSpec",
    "Outcome",
    "PlayedEpisode",
    "PlayedTurn",
    "PolicyError",
    "Skill",
    "Task",
    "TaskSet",
    "Turn",
    "check_env",
    "load_tasks",
    "make",
    "make_vec",
    "play",
    "pprint_registry",
    "register",
    "register_tasks",
    "registry",
    "spec",
]

register_builtin(registry)
mirror_into_pettingzoo(registry)
mirror_into_gymnasium(registry)
