"""The bundled trainer's bridge: chat messages to token ids and back, and episodes to be answered turn by turn.

Nothing here imports torch or transformers: a tokenizer is whatever offers the few methods used.
"""

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pettingzoo import AECEnv

from mas_envs.error_texts import describe_error
from mas_envs.errors import MasEnvsError
from mas_envs.spaces import Message
from mas_envs.tasks import Task

__all__ = ["ChatCodec", "EnvironmentFailure", "Episode", "FinishedTurn", "Tokenizer"]

_CUT = "\n[...]\n"


class EnvironmentFailure(MasEnvsError, RuntimeError):
    """An environment raised inside `reset` or `step`: its author has a bug to mend."""


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that is used here."""

    all_special_tokens: list[str]
    eos_token_id: int | None

    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> Any:
        """Text or token ids of a conversation."""

    def encode(self, text: str, **kwargs: Any) -> list[int]:
        """Token ids of a text."""

    def decode(self, token_ids: Sequence[int], **kwargs: Any) -> str:
        """The text of token ids."""


class ChatCodec:
    """Between chat messages and the token ids of one tokenizer.

    Special tokens written inside a message's content are defused, so that no text an agent, a passage or a task
    brings along can open or close a chat turn.

    Args:
        tokenizer: A tokenizer with a chat template.
        template_kwargs: Passed to the chat template, such as `{"enable_thinking": False}`.
    """

    def __init__(self, tokenizer: Tokenizer, *, template_kwargs: Mapping[str, Any] | None = None) -> None:
        self.tokenizer = tokenizer
        self._template_kwargs = dict(template_kwargs or {})
        self._special = sorted((token for token in set(tokenizer.all_special_tokens) if token), key=len, reverse=True)
        self._render_cached = functools.lru_cache(maxsize=16_384)(self._render)

    def encode(self, messages: Sequence[Message], *, max_tokens: int | None = None) -> tuple[int, ...]:
        """Token ids of the prompt, the opening of the assistant's turn included.

        Args:
            messages: The observation's messages.
            max_tokens: When the prompt is longer, the middle of its longest message is cut out; None is no limit.

        Raises:
            MasEnvsError: If the prompt does not fit even with that message emptied.
        """
        key = tuple((message["role"], message["content"]) for message in messages)
        ids = self._render_cached(key)
        if max_tokens is None or len(ids) <= max_tokens:
            return ids
        return self._cut(key, max_tokens)

    def encode_completion(self, text: str) -> tuple[int, ...]:
        """Token ids of a completion that ends by itself: its text, then the end-of-turn token."""
        ids = tuple(self.tokenizer.encode(self._defuse(text), add_special_tokens=False))
        return ids if self.tokenizer.eos_token_id is None else (*ids, self.tokenizer.eos_token_id)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of a completion, without special tokens."""
        return self.tokenizer.decode(list(token_ids), skip_special_tokens=True)

    def _defuse(self, text: str) -> str:
        for token in self._special:
            if token in text:
                text = text.replace(token, f"[{token.strip('<>|[]') or 'special'}]")
        return text

    def _render(self, key: tuple[tuple[str, str], ...]) -> tuple[int, ...]:
        conversation = [{"role": chat_role, "content": self._defuse(content)} for chat_role, content in key]
        text = self.tokenizer.apply_chat_template(
            conversation, add_generation_prompt=True, tokenize=False, **self._template_kwargs
        )
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    def _cut(self, key: tuple[tuple[str, str], ...], max_tokens: int) -> tuple[int, ...]:
        """Keep the ends of the longest message: the instruction stands first, the latest turns last."""
        longest = max(range(len(key)), key=lambda index: len(key[index][1]))
        chat_role, content = key[longest]
        low, high, best = 0, len(content), None
        while low <= high:
            kept = (low + high) // 2
            head, tail = content[: kept - kept // 2], content[len(content) - kept // 2 :]
            ids = self._render((*key[:longest], (chat_role, head + _CUT + tail), *key[longest + 1 :]))
            if len(ids) <= max_tokens:
                best, low = ids, kept + 1
            else:
                high = kept - 1
        if best is None:
            raise MasEnvsError(
                f"a prompt does not fit into {max_tokens} tokens even when its longest message is cut; raise "
                "rollout.max_prompt_tokens, or use a shorter prompt style"
            )
        return best


@dataclass
class FinishedTurn:
    """One turn of an episode with what it earned; `reward_terms` is complete when the episode has ended."""

    agent_id: str
    """Who acted."""
    text: str
    """The action, as given."""
    valid: bool = True
    """Whether the environment took it as well formed."""
    error: str | None = None
    """What the environment says went wrong, or why the action was not well formed; None where it says nothing."""
    reward_terms: dict[str, float] = field(default_factory=dict)
    """Name -> amount earned from this action until the agent's next turn or the end."""


class Episode:
    """An episode to be answered turn by turn: ask `agent_id` and `messages`, then `act`.

    Rewards that reach an agent which is not acting go to its latest turn; those before its first turn, or of an agent
    that never acts, are in `returns` only.

    Args:
        env: The environment; one episode at a time.
        seed: Seed of the episode; None goes on with the environment's stream.
        task: A task or an index; None lets the environment draw one.

    Raises:
        EnvironmentFailure: If the environment raises.
    """

    def __init__(self, env: AECEnv[Any, Any, Any], *, seed: int | None = None, task: Task | int | None = None) -> None:
        self.env = env
        self.turns: list[FinishedTurn] = []
        self.returns: dict[str, float] = dict.fromkeys(env.possible_agents, 0.0)
        self.success: bool | None = None
        self.truncated = False
        self.error: str | None = None
        self.task_id = ""
        self.source = ""
        self.agent_id: str | None = None
        self.messages: tuple[Message, ...] = ()
        self.started = time.monotonic()
        self._latest: dict[str, FinishedTurn] = {}
        try:
            env.reset(seed=seed, options=None if task is None else {"task": task})
        except MasEnvsError:
            raise
        except Exception as error:
            raise EnvironmentFailure(f"{env} failed in reset(): {describe_error(error)}") from error
        self._advance()

    @property
    def is_over(self) -> bool:
        """Whether no agent is left to act."""
        return self.agent_id is None

    def act(self, text: str) -> None:
        """Take the turn of `agent_id`.

        Raises:
            EnvironmentFailure: If the environment raises; names agent, turn and task.
        """
        if self.agent_id is None:
            raise MasEnvsError("act() after the end of the episode; start a new Episode")
        turn = FinishedTurn(self.agent_id, text)
        try:
            self.env.step(text)
        except Exception as error:
            raise EnvironmentFailure(
                f"{self.env} failed in step() at turn {len(self.turns)}, agent {self.agent_id}, task {self.task_id!r}: "
                f"{describe_error(error)}"
            ) from error
        info = self.env.infos.get(self.agent_id, {})
        turn.valid = bool(info.get("valid_action", True))
        turn.error = info.get("error") or (None if turn.valid else self._why_invalid())
        self.turns.append(turn)
        self._latest[turn.agent_id] = turn
        self._advance()

    def cut_off(self, reason: str) -> None:
        """End the episode from outside, as a truncation; what was earned so far is kept."""
        while self.agent_id is not None:
            self._collect(self.agent_id)
            self.agent_id = None
        self.truncated, self.error, self.messages = True, reason, ()

    def _why_invalid(self) -> str | None:
        """What the transcript gives as the reason; None for an environment that keeps none."""
        transcript = getattr(self.env.unwrapped, "transcript", ())
        return getattr(transcript[-1], "reason", None) if transcript else None

    def _advance(self) -> None:
        """Go to the next agent that can act, through the dead steps."""
        while self.env.agents:
            agent_id = self.env.agent_selection
            observation, _, terminated, truncated, info = self.env.last()
            if not (terminated or truncated):
                self._collect(agent_id)
                self.agent_id, self.messages = agent_id, tuple(observation["messages"])
                self.task_id, self.source = str(info.get("task_id", "")), str(info.get("source", ""))
                return
            self._collect(agent_id)
            self.success = info.get("success", self.success)
            self.truncated = self.truncated or truncated
            self.error = info.get("error") or self.error
            self.env.step(None)
        self.agent_id, self.messages = None, ()

    def _collect(self, agent_id: str) -> None:
        """Book what an agent earned since it last acted."""
        _, reward, _, _, info = self.env.last(observe=False)
        self.returns[agent_id] += float(reward)
        if agent_id in self._latest:
            terms = info.get("reward_terms")
            self._latest[agent_id].reward_terms = dict(terms) if terms is not None else {"reward": float(reward)}
