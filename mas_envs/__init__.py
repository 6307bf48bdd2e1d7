"""Multi-agent environments for LLM agents, with the PettingZoo AEC contract; see `make`."""

from mas_envs.builtin import register_builtin
from mas_envs.conversation import ConversationEnv, Outcome, Skill, Turn
from mas_envs.registration import EnvSpec, make, mirror_into_pettingzoo, pprint_registry, register, registry, spec
from mas_envs.tasks import Task, TaskSet, load_tasks, register_tasks

__all__ = [
    "ConversationEnv",
    "EnvSpec",
    "Outcome",
    "Skill",
    "Task",
    "TaskSet",
    "Turn",
    "load_tasks",
    "make",
    "pprint_registry",
    "register",
    "register_tasks",
    "registry",
    "spec",
]

register_builtin(registry)
mirror_into_pettingzoo(registry)
