"""What `receive` of a conversation may do: change the episode's own state, and leave the books to `ConversationEnv`."""

from collections.abc import Iterator
from typing import Any

from mas_envs.checks.actors import actors_for
from mas_envs.checks.episodes import actor_rng, canonical, start, turns
from mas_envs.checks.findings import Fault, SkipCheckError
from mas_envs.checks.subject import Subject
from mas_envs.conversation import ConversationEnv

__all__ = ["books_left_alone"]

_BOOKS = ("rewards", "terminations", "truncations", "infos", "agents", "agent_selection")
_REMEDIES = {
    "rewards": "return the payment: Outcome(..., rewards={agent: {term: amount}})",
    "terminations": "end the episode by Outcome(None, ...)",
    "truncations": "end the episode by Outcome(None, truncated=True, ...)",
    "infos": "keep it in an attribute of the environment's own; the keys of infos are fixed",
    "agents": "all agents stay to the end of the episode",
    "agent_selection": "name the next agent: Outcome(next_agent)",
}


def books_left_alone(subject: Subject) -> Iterator[Fault]:
    """`receive` changes no rewards, terminations, truncations, infos or selection itself: it returns an Outcome."""
    if not isinstance(subject.fresh().unwrapped, ConversationEnv):
        raise SkipCheckError("the environment is no ConversationEnv, so it has no receive()")
    for name, actor in actors_for(subject).items():
        env = subject.fresh()
        base: Any = env.unwrapped
        receive = base.receive
        faults: list[Fault] = []

        def watched(agent_id: str, text: str, base: Any = base, receive: Any = receive, faults: Any = faults) -> Any:
            before = {book: canonical(getattr(base, book)) for book in _BOOKS}
            outcome = receive(agent_id, text)
            for book, value in before.items():
                now = canonical(getattr(base, book))
                if now != value:
                    faults.append(
                        Fault(
                            field=book,
                            agent_id=agent_id,
                            turn=len(base.transcript),
                            found=f"{now!r:.100} after receive() where it was {value!r:.100}",
                            expected="no change by receive(): the books are kept by ConversationEnv, and this is lost",
                            remedy=_REMEDIES[book],
                        )
                    )
            return outcome

        base.receive = watched
        start(env, subject.seed)
        for _ in turns(env, actor, actor_rng("books", name), limit_s=subject.step_limit_s):
            pass
        yield from faults
