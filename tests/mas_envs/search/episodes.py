"""Episodes of the search environments over a retriever that is a table."""

from collections.abc import Sequence
from typing import Any

import mas_envs
from mas_envs import Task
from mas_envs.retrieval.protocol import Passage
from mas_envs.search.env import HierarchicalSearchEnv
from mas_envs.search.game import SearchEnv
from tests.mas_envs.search.table import TableRetriever, passage

TASK = Task(
    "t",
    "Who taught the mayor of Velonford?",
    "Toto Guda",
    "world-2hop",
    {
        "supporting_titles": ("Velonford", "Ana Belu"),
        "queries": ("mayor of Velonford", "teacher of Ana Belu"),
        "answer_aliases": ("Guda the Owl",),
    },
)
TABLE: dict[str, Sequence[Passage] | Exception] = {
    "mayor of Velonford": [passage("Velonford", "The mayor of Velonford is Ana Belu."), passage("Odd", "Nothing.")],
    "teacher of Ana Belu": [passage("Ana Belu", "Ana Belu was taught by Toto Guda.")],
    "both": [passage("Velonford"), passage("Ana Belu")],
    "down": ConnectionError("no route to host"),
}
YES, NO = "Enough. <verify>yes</verify>", "More. <verify>no</verify>"
FIRST, SECOND = (
    "<think>a</think><search>mayor of Velonford</search>",
    "<think>b</think><search>teacher of Ana Belu</search>",
)
RIGHT, WRONG = "<think>c</think><answer>toto guda</answer>", "<think>c</think><answer>Ana Belu</answer>"
NOTHING = "I do not know"
ALL = ("verifier_0", "searcher_0", "answerer_0")


def start(task: Task = TASK, *, retriever: Any = None, **kwargs: Any) -> HierarchicalSearchEnv:
    env = mas_envs.make("HierarchicalSearch-v0", retriever=retriever or TableRetriever(TABLE), **kwargs).unwrapped
    assert isinstance(env, HierarchicalSearchEnv)
    env.reset(seed=0, options={"task": task})
    return env


def step(env: SearchEnv, *actions: str) -> dict[str, Any]:
    """The info of whoever is selected after these actions."""
    for action in actions:
        env.step(action)
    info: dict[str, Any] = env.infos[env.agent_selection]
    return info


def shown(env: SearchEnv, agent_id: str) -> str:
    return env.observe(agent_id)["messages"][-1]["content"]
