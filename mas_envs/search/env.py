"""`HierarchicalSearch-v0`, a router, a searcher and an answerer over a corpus, and `SearchSolo-v0`, its baseline."""

import random
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from mas_envs.actions import Parsed, parse_block, parse_verdict, strip_thoughts
from mas_envs.conversation import Outcome, Skill, Turn
from mas_envs.errors import BadArgumentError
from mas_envs.search.experts import scripted_answer, scripted_query, scripted_route
from mas_envs.search.game import RewardFunction, SearchEnv
from mas_envs.search.prompts import PromptStyle, answerer_prompt, router_prompt, searcher_prompt, solo_prompt
from mas_envs.search.sources import RetrieverSource
from mas_envs.spaces import Message
from mas_envs.tasks import Task, TaskSource

__all__ = ["HierarchicalSearchEnv", "SearchSoloEnv"]

ROUTER, SEARCHER, ANSWERER = "verifier_0", "searcher_0", "answerer_0"


class HierarchicalSearchEnv(SearchEnv):
    """A router decides in each round whether to search on or to answer; a searcher queries, an answerer answers.

    The router ends with `<verify>yes</verify>` (enough information) or `<verify>no</verify>`, the searcher with
    `<search>query</search>`, the answerer with `<answer>answer</answer>`. An answer ends the episode; exact match of
    the answerer's own block is `success`. A query or an answer that cannot be used costs the round. A retrieval that
    fails truncates the episode and leaves `success` None.

    Source: arXiv 2602.08847 and its published code; differs in: actions are parsed by the rules of
    `mas_envs.actions`, an unreadable route means search, the answerer speaks in the last round whatever the route
    (`final_round="route"` ends unanswered as published), and nothing but the answerer's turn is graded.

    Args:
        tasks: Questions; the default is the embedded encyclopedia.
        retriever: Where queries go; None is a faiss index over the encyclopedia that the tasks ask about. Also a name
            (`faiss`, `bm25`, `hybrid`), or anything with `search(queries, k)`.
        topk: Passages per query.
        max_rounds: Most rounds; each is a route and then a query or an answer.
        final_round: In the last round the answerer speaks (`answer`), or only if the router says so (`route`).
        reward: `team` pays 1 for a right answer to every agent; `role` pays it to the answerer, the searcher its share
            of the needed evidence that is new in a search, and the router 1 for each decision that is right at that
            moment; or a function.
        invalid_penalty: Charged for each action with a broken format.
        prompt_style: `full` explains everything and wants thoughts before queries and answers; `short` is for tiny
            models: few tokens, thoughts optional.
        alias_match: Whether `answer_aliases` in a task's metadata count as right answers too.
        max_prompt_chars: Older rounds are left out of longer prompts; the question and the newest round stay.
        max_turns: The episode is truncated after this many turns; None leaves it to the rules.
        max_action_chars: Longer actions are cut.
        render_mode: `ansi`, `human` or None.
    """

    name: ClassVar[str] = "hierarchical_search_v0"
    roles: ClassVar[Mapping[str, int]] = {"verifier": 1, "searcher": 1, "answerer": 1}

    def __init__(  # noqa: PLR0913  # the settings of an experiment, all keyword-only
        self,
        *,
        tasks: TaskSource = "world",
        retriever: RetrieverSource = None,
        topk: int = 3,
        max_rounds: int = 4,
        final_round: Literal["answer", "route"] = "answer",
        reward: Literal["team", "role"] | RewardFunction = "team",
        invalid_penalty: float = 0.01,
        prompt_style: PromptStyle = "full",
        alias_match: bool = False,
        max_prompt_chars: int = 20_000,
        max_turns: int | None = None,
        max_action_chars: int = 65_536,
        render_mode: str | None = None,
    ) -> None:
        if final_round not in ("answer", "route"):
            raise BadArgumentError(f"final_round={final_round!r}: expected 'answer' or 'route'")
        super().__init__(
            tasks=tasks,
            retriever=retriever,
            topk=topk,
            max_rounds=max_rounds,
            reward=reward,
            prompt_style=prompt_style,
            alias_match=alias_match,
            max_prompt_chars=max_prompt_chars,
            invalid_penalty=invalid_penalty,
            max_turns=max_turns,
            max_action_chars=max_action_chars,
            render_mode=render_mode,
        )
        self.final_round = final_round
        self._note = ""

    def begin(self, task: Task) -> str:
        """The router speaks first."""
        self._start()
        self._note = ""
        return ROUTER

    def prompt(self, agent_id: str) -> Sequence[Message]:
        """The question and what was found, in the words of the agent's role."""
        question, style, most = self.task.question, self.prompt_style, self.max_prompt_chars
        match self.role_of(agent_id):
            case "verifier":
                return router_prompt(question, self._rounds, style=style, max_rounds=self.max_rounds, max_chars=most)
            case "searcher":
                return searcher_prompt(
                    question, self._rounds, self._note, style=style, max_rounds=self.max_rounds, max_chars=most
                )
            case _:
                return answerer_prompt(question, self._rounds, style=style, max_chars=most)

    def receive(self, agent_id: str, text: str) -> Outcome:
        """A route goes to the searcher or the answerer, a query to the retriever, an answer ends the episode."""
        if agent_id == ROUTER:
            return self._route(text)
        if agent_id == SEARCHER:
            self._note = ""
            return self._search(parse_block(text, "search", self._thoughts), SEARCHER, ROUTER)
        parsed = parse_block(text, "answer", self._thoughts)
        if parsed.content is None and not self._is_last_round:
            return self._lost_round("a round without a usable answer", parsed, ROUTER)
        return self._end(Turn(ANSWERER, text, parsed.valid, parsed.reason), parsed.content, ANSWERER)

    def scripted_action(self, agent_id: str, rng: random.Random, skill: Skill | None = None) -> str:
        """The experts know which passages are needed, and the answer."""
        speak = {"verifier": scripted_route, "searcher": scripted_query, "answerer": scripted_answer}
        return speak[self.role_of(agent_id)](self._knowledge(rng), rng, skill or Skill(), self.prompt_style)

    def _route(self, text: str) -> Outcome:
        parsed = parse_verdict(text, "verify", ("yes", "no"))
        self._note = strip_thoughts(text) or ""
        pay: dict[str, dict[str, float]] = {}
        if self.reward == "role":
            pay = {ROUTER: {"route": float(parsed.content == ("yes" if self.has_all_evidence else "no"))}}
        if parsed.content == "yes" or (self._is_last_round and self.final_round == "answer"):
            return Outcome(ANSWERER, pay, parsed.valid, parsed.reason)
        if self._is_last_round:
            return self._end(Turn(ROUTER, text, parsed.valid, parsed.reason), None, ANSWERER, pay)
        return Outcome(SEARCHER, pay, parsed.valid, parsed.reason)


class SearchSoloEnv(SearchEnv):
    """One agent that in each round either searches or answers: the single-agent baseline of `HierarchicalSearch-v0`.

    It ends a turn with `<search>query</search>` or `<answer>answer</answer>`; the later of the two counts, and both
    in one turn are a broken format. In the last round a query is not sent. All else is as in `HierarchicalSearch-v0`.

    Args:
        tasks: Questions; the default is the embedded encyclopedia.
        retriever: Where queries go; see `HierarchicalSearchEnv`.
        topk: Passages per query.
        max_rounds: Most turns.
        reward: `team` pays 1 for a right answer, `role` also the share of the needed evidence that is new in a search;
            or a function.
        invalid_penalty: Charged for each action with a broken format.
        prompt_style: `full` or `short`.
        alias_match: Whether `answer_aliases` in a task's metadata count as right answers too.
        max_prompt_chars: Older rounds are left out of longer prompts; the question and the newest round stay.
        max_turns: The episode is truncated after this many turns; None leaves it to the rules.
        max_action_chars: Longer actions are cut.
        render_mode: `ansi`, `human` or None.
    """

    name: ClassVar[str] = "search_solo_v0"
    roles: ClassVar[Mapping[str, int]] = {"searcher": 1}

    def __init__(  # noqa: PLR0913  # the settings of an experiment, all keyword-only
        self,
        *,
        tasks: TaskSource = "world",
        retriever: RetrieverSource = None,
        topk: int = 3,
        max_rounds: int = 4,
        reward: Literal["team", "role"] | RewardFunction = "team",
        invalid_penalty: float = 0.01,
        prompt_style: PromptStyle = "full",
        alias_match: bool = False,
        max_prompt_chars: int = 20_000,
        max_turns: int | None = None,
        max_action_chars: int = 65_536,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(
            tasks=tasks,
            retriever=retriever,
            topk=topk,
            max_rounds=max_rounds,
            reward=reward,
            prompt_style=prompt_style,
            alias_match=alias_match,
            max_prompt_chars=max_prompt_chars,
            invalid_penalty=invalid_penalty,
            max_turns=max_turns,
            max_action_chars=max_action_chars,
            render_mode=render_mode,
        )

    def begin(self, task: Task) -> str:
        """The only agent speaks."""
        self._start()
        return SEARCHER

    def prompt(self, agent_id: str) -> Sequence[Message]:
        """The question and what was found."""
        return solo_prompt(
            self.task.question,
            self._rounds,
            style=self.prompt_style,
            max_rounds=self.max_rounds,
            max_chars=self.max_prompt_chars,
        )

    def receive(self, agent_id: str, text: str) -> Outcome:
        """A query goes to the retriever, an answer ends the episode."""
        tag, parsed = self._parse(text)
        if tag == "answer" and parsed.content is not None:
            return self._end(Turn(SEARCHER, text, parsed.valid, parsed.reason), parsed.content, SEARCHER)
        if self._is_last_round:
            return self._end(Turn(SEARCHER, text, parsed.valid, parsed.reason), None, SEARCHER)
        if tag == "search":
            return self._search(parsed, SEARCHER, SEARCHER)
        return self._lost_round("a round without a usable query or answer", parsed, SEARCHER)

    def scripted_action(self, agent_id: str, rng: random.Random, skill: Skill | None = None) -> str:
        """The expert searches until it has everything, then answers."""
        known = self._knowledge(rng)
        is_done = not known.missing or self._is_last_round
        return (scripted_answer if is_done else scripted_query)(known, rng, skill or Skill(), self.prompt_style)

    def _parse(self, text: str) -> tuple[Literal["search", "answer"], Parsed]:
        """Which kind of block ends the turn, and what it says."""
        visible = (strip_thoughts(text) or "").lower()
        ends = {tag: visible.rfind(f"</{tag}>") for tag in ("search", "answer")}
        tag: Literal["search", "answer"] = "search" if ends["search"] > ends["answer"] else "answer"
        parsed = parse_block(text, tag, self._thoughts)
        if parsed.valid and min(ends.values()) >= 0:
            parsed = Parsed(parsed.content, False, "both a query and an answer")
        return tag, parsed
