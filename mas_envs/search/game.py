"""`SearchEnv`: what the search environments share - retrieval, evidence, the end of an episode and who is paid."""

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mas_envs.actions import Parsed
from mas_envs.argument_checks import is_whole
from mas_envs.conversation import ConversationEnv, Outcome, Turn
from mas_envs.errors import BadArgumentError, MasEnvsError
from mas_envs.retrieval.protocol import RetrievalError, Retriever, search_checked
from mas_envs.search.evidence import Round, evidence_in, gold_answers, needed_evidence
from mas_envs.search.experts import Knowledge
from mas_envs.search.prompts import STYLES, PromptStyle
from mas_envs.search.scoring import exact_match
from mas_envs.search.sources import RetrieverSource, find_retriever
from mas_envs.tasks import Task, TaskSource

__all__ = ["Ending", "RewardFunction", "SearchEnv"]


@dataclass(frozen=True)
class Ending:
    """How an episode ended, for reward functions."""

    answer: str | None
    """The answer that counts; None when there was none."""
    correct: bool
    """Whether it matches a gold answer exactly."""
    rounds: tuple[Round, ...]
    """Queries and passages, in order."""


RewardFunction = Callable[[Task, Sequence[Turn], Ending], Mapping[str, float]]
"""From the task, the transcript and the ending to a reward for each agent."""


class SearchEnv(ConversationEnv):
    """Base of the search environments; holds no rule about who speaks when.

    Args:
        tasks: Questions.
        retriever: Where queries go; see `mas_envs.search.sources`.
        topk: Passages per query.
        max_rounds: Rounds of an episode: each ends with a search, or with the answer.
        reward: `team`, `role` or a function.
        prompt_style: `full` or `short`.
        alias_match: Whether `answer_aliases` in a task's metadata count as right answers too.
        max_prompt_chars: Older rounds are left out of prompts longer than this; question and newest round stay.
        limits: Arguments of `ConversationEnv`.

    Raises:
        BadArgumentError: If an argument is out of range.
    """

    def __init__(  # noqa: PLR0913  # the settings of an experiment, all keyword-only
        self,
        *,
        tasks: TaskSource,
        retriever: RetrieverSource,
        topk: int,
        max_rounds: int,
        reward: Literal["team", "role"] | RewardFunction,
        prompt_style: PromptStyle,
        alias_match: bool,
        max_prompt_chars: int,
        **limits: Any,
    ) -> None:
        for name, value in (("topk", topk), ("max_rounds", max_rounds), ("max_prompt_chars", max_prompt_chars)):
            if not is_whole(value) or value < 1:
                raise BadArgumentError(f"{name}={value!r}: expected a whole number >= 1")
        if reward not in ("team", "role") and not callable(reward):
            raise BadArgumentError(f"reward={reward!r}: expected 'team', 'role' or a function")
        if prompt_style not in STYLES:
            raise BadArgumentError(f"prompt_style={prompt_style!r}: expected one of {', '.join(STYLES)}")
        super().__init__(tasks, **limits)
        self.topk, self.max_rounds, self.max_prompt_chars = topk, max_rounds, max_prompt_chars
        self.reward, self.alias_match = reward, alias_match
        self.prompt_style: PromptStyle = prompt_style
        self.retriever: Retriever = find_retriever(retriever, self.tasks)
        self._rounds: list[Round] = []
        self._found: set[str] = set()

    def __deepcopy__(self, memo: dict[int, Any]) -> "SearchEnv":
        memo[id(self.retriever)] = self.retriever  # shared by copies, also where `spec` names it: it may be an index
        twin = memo[id(self)] = object.__new__(type(self))
        twin.__dict__.update({name: copy.deepcopy(value, memo) for name, value in self.__dict__.items()})
        return twin

    @property
    def rounds(self) -> tuple[Round, ...]:
        """What this episode has found so far, oldest first."""
        return tuple(self._rounds)

    @property
    def has_all_evidence(self) -> bool:
        """Whether everything needed to know the answer was found."""
        return self._found.issuperset(needed_evidence(self.task))

    @property
    def _is_last_round(self) -> bool:
        return len(self._rounds) + 1 >= self.max_rounds

    @property
    def _thoughts(self) -> Literal["optional", "required"]:
        return "required" if self.prompt_style == "full" else "optional"

    def _start(self) -> None:
        self._rounds, self._found = [], set()

    def _knowledge(self, rng: random.Random) -> Knowledge:
        return Knowledge(self.task, self._rounds, self.tasks[rng.randrange(len(self.tasks))])

    def _search(self, parsed: Parsed, agent_id: str, next_agent: str) -> Outcome:
        """Send a query, note what comes back and pass the turn on; a query that cannot be used costs the round."""
        if parsed.content is None:
            return self._lost_round("a round without a usable query", parsed, next_agent)
        try:
            passages = search_checked(self.retriever, parsed.content, self.topk)
        except RetrievalError as error:
            return Outcome(
                next_agent=None,
                valid=parsed.valid,
                reason=parsed.reason,
                truncated=True,
                error=f"retrieval: {error}",
            )
        self._rounds.append(Round(parsed.content, passages))
        found = evidence_in(self.task, passages)
        pay = {agent_id: {"evidence": self._evidence_pay(found)}} if self.reward == "role" else {}
        self._found |= found
        return Outcome(next_agent, pay, parsed.valid, parsed.reason)

    def _lost_round(self, fault: str, parsed: Parsed, next_agent: str) -> Outcome:
        self._rounds.append(Round(None, fault=fault))
        return Outcome(next_agent, valid=parsed.valid, reason=parsed.reason)

    def _evidence_pay(self, found: set[str]) -> float:
        """The share of the needed evidence that is new; 1 in all over an episode that finds everything."""
        return len(found - self._found) / len(needed_evidence(self.task))

    def _end(
        self, turn: Turn, answer: str | None, payee: str, earned: Mapping[str, Mapping[str, float]] | None = None
    ) -> Outcome:
        """End the episode with an answer, or without one.

        Args:
            turn: What was just said.
            answer: The answer that counts.
            payee: Who is paid for it under `reward="role"`.
            earned: What the turn earned besides.
        """
        aliases = self.task.metadata.get("answer_aliases", ()) if self.alias_match else ()
        correct = answer is not None and exact_match(answer, gold_answers(self.task), aliases=aliases)
        pay = {agent_id: dict(terms) for agent_id, terms in (earned or {}).items()}
        for agent_id, amount in self._final_pay(turn, Ending(answer, correct, self.rounds), payee):
            pay.setdefault(agent_id, {})["custom" if callable(self.reward) else "correct"] = amount
        return Outcome(None, pay, turn.valid, turn.reason, success=correct)

    def _final_pay(self, turn: Turn, ending: Ending, payee: str) -> list[tuple[str, float]]:
        if callable(self.reward):
            paid = self.reward(self.task, [*self.transcript, turn], ending)
            if not isinstance(paid, Mapping):
                raise MasEnvsError(
                    f"the reward function of {self.name} returned {paid!r:.80}; expected a mapping from agent ids"
                )
            return list(paid.items())
        payees = self.possible_agents if self.reward == "team" else [payee]
        return [(agent_id, float(ending.correct)) for agent_id in payees]
