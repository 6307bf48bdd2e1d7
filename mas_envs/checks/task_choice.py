"""The task of an episode can be chosen, as training groups and evaluation need."""

from collections.abc import Iterator

from mas_envs.checks.episodes import start
from mas_envs.checks.findings import Fault, SkipCheckError
from mas_envs.checks.subject import Subject
from mas_envs.tasks import Task

__all__ = ["task_chosen"]


def task_chosen(subject: Subject) -> Iterator[Fault]:
    """`reset(options={"task": ...})` starts the episode from that task, given itself or by its index."""
    env = subject.fresh()
    tasks = getattr(env.unwrapped, "tasks", None)
    if not subject.num_tasks or tasks is None or not isinstance(tasks[0], Task):
        raise SkipCheckError("the environment has no attribute `tasks` with tasks in it")
    for index in dict.fromkeys((0, subject.num_tasks // 2, subject.num_tasks - 1)):
        for choice in (index, tasks[index]):
            start(env, subject.seed, {"task": choice})
            present = getattr(env.unwrapped, "task", None)
            ids = {agent_id: env.infos[agent_id].get("task_id") for agent_id in env.agents}
            if present != tasks[index] or any(task_id != tasks[index].id for task_id in ids.values()):
                yield Fault(
                    field=f"reset(options={{'task': {'an index' if choice is index else 'a Task'}}})",
                    turn=0,
                    found=f"the task {getattr(present, 'id', present)!r}, and in infos {ids!r:.100}",
                    expected=f"the task {tasks[index].id!r}",
                    remedy="hand seed and options on to ConversationEnv.reset, and use self.task",
                )
                return
