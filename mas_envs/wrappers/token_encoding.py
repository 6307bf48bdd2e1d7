"""`TokenEncoding`: token ids as observations and one token per action, for classic reinforcement learning."""

import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol, SupportsIndex

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from pettingzoo import AECEnv

from mas_envs.argument_checks import check_speaks_text
from mas_envs.errors import BadArgumentError, InvalidActionError
from mas_envs.spaces import Message
from mas_envs.wrappers.own_books import OwnBooks

__all__ = ["ByteTokenizer", "TokenEncoding", "Tokenizer", "plain_prompt"]

TokenIds = npt.NDArray[np.int64]


class Tokenizer(Protocol):
    """What `TokenEncoding` needs of a tokenizer; those of Hugging Face have it."""

    @property
    def eos_token_id(self) -> Any:
        """The id that ends a turn."""

    def __len__(self) -> int:
        """Number of ids, the special ones included."""

    def encode(self, text: str) -> Sequence[int]:
        """The ids of a text."""

    def decode(self, token_ids: Any) -> Any:
        """The text of some ids."""


class ByteTokenizer:
    """One id for each byte of UTF-8, after one for padding (0) and one for the end of a text (1).

    >>> tokenizer = ByteTokenizer()
    >>> tokenizer.encode("é!"), tokenizer.decode([197, 171, 35, 1])
    ([197, 171, 35], 'é!')
    """

    pad_token_id = 0
    eos_token_id = 1
    _first_byte = 2

    def __len__(self) -> int:
        return self._first_byte + 256

    def encode(self, text: str) -> list[int]:
        """Two more than each byte of the text; a lone surrogate, which has no bytes, counts as `?`."""
        return [byte + self._first_byte for byte in text.encode("utf-8", "replace")]

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of the ids; padding and end are left out, bytes that are no UTF-8 become U+FFFD."""
        return bytes(token - self._first_byte for token in map(int, token_ids) if token >= self._first_byte).decode(
            "utf-8", "replace"
        )


def plain_prompt(messages: Sequence[Message]) -> str:
    r"""Chat messages as plain text that ends where the agent is to go on.

    >>> plain_prompt(({"role": "user", "content": "1+1?"},))
    'user: 1+1?\nassistant: '
    """
    return "".join(f"{message['role']}: {message['content']}\n" for message in messages) + "assistant: "


class TokenEncoding(OwnBooks):
    """Observations are the last ids of prompt and turn so far; an action is one id of the turn.

    The agent keeps its turn until it plays the tokenizer's end id or has played `max_new_tokens`; then the decoded
    text, without the end id, goes to the environment inside. Until then no rewards flow. Observations are filled up on
    the left, so the newest token is always at the last place.

    >>> import mas_envs
    >>> env = TokenEncoding(mas_envs.make("MathLoop-v0"), max_prompt_tokens=64, max_new_tokens=8)
    >>> env.reset(seed=0)
    >>> for token in [*env.tokenizer.encode("hm"), env.tokenizer.eos_token_id]:
    ...     env.step(token)
    >>> env.agent_selection, env.unwrapped.transcript[0].text
    ('verifier_0', 'hm')

    Args:
        env: An AEC environment whose observations hold `messages` and whose actions are text.
        tokenizer: Turns text into ids and back; None is `ByteTokenizer()`.
        max_prompt_tokens: Length of an observation; older ids fall out.
        max_new_tokens: Most ids in a turn, the end id included.
        render: From messages to the prompt's text, such as a chat template; None is `plain_prompt`.

    Raises:
        BadArgumentError: If a length is below 1, or the environment's spaces are not messages and text.
    """

    simultaneous: tuple[str, ...] = ()
    """An agent plays its tokens one by one, so no two agents act in one step."""

    def __init__(
        self,
        env: AECEnv[str, Any, Any],
        tokenizer: Tokenizer | None = None,
        *,
        max_prompt_tokens: int,
        max_new_tokens: int,
        render: Callable[[tuple[Message, ...]], str] | None = None,
    ) -> None:
        for name, length in (("max_prompt_tokens", max_prompt_tokens), ("max_new_tokens", max_new_tokens)):
            if not isinstance(length, int) or length < 1:
                raise BadArgumentError(f"{name}={length!r}: expected an integer of at least 1")
        super().__init__(env)
        check_speaks_text(env, "TokenEncoding")
        self.tokenizer: Tokenizer = tokenizer or ByteTokenizer()
        self.max_prompt_tokens = max_prompt_tokens
        self.max_new_tokens = max_new_tokens
        num_ids = len(self.tokenizer)
        self._render = render or plain_prompt
        self._end = int(self.tokenizer.eos_token_id)
        pad = getattr(self.tokenizer, "pad_token_id", None)
        self._pad = self._end if pad is None else int(pad)
        self._turn: list[int] = []
        self._prompts: dict[str, TokenIds] = {}
        self.observation_spaces = {
            agent_id: spaces.Box(0, num_ids - 1, (max_prompt_tokens,), np.int64) for agent_id in env.possible_agents
        }
        self.action_spaces: dict[str, spaces.Space[Any]] = {
            agent_id: spaces.Discrete(num_ids) for agent_id in env.possible_agents
        }

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """`Box` of int64 ids, [max_prompt_tokens]; the same object each time."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """`Discrete` over the ids; the same object each time."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start an episode; the first agent has said nothing yet."""
        super().reset(seed=seed, options=options)
        self._turn = []
        self._prompts = {}

    def observe(self, agent: str) -> TokenIds:
        """The last ids of what the agent is shown and, in its own turn, of what it has said; padded on the left."""
        if agent not in self._prompts:
            prompt = self.tokenizer.encode(self._render(self.env.observe(agent)["messages"]))
            self._prompts[agent] = np.asarray(prompt[-self.max_prompt_tokens :], dtype=np.int64)
        ids = self._prompts[agent]
        if self._turn and agent == self.agent_selection:
            ids = np.concatenate([ids, np.asarray(self._turn, dtype=np.int64)])[-self.max_prompt_tokens :]
        observation = np.full(self.max_prompt_tokens, self._pad, dtype=np.int64)
        observation[self.max_prompt_tokens - len(ids) :] = ids
        return observation

    def step(self, action: SupportsIndex | None) -> None:
        """Add one id to the selected agent's turn, and end the turn when it is complete; `None` once it has ended.

        Raises:
            EpisodeOrderError: Before `reset` or after the end of the episode.
            InvalidActionError: If the action is not one of the ids; nothing has changed then.
        """
        self._check_running("step")
        agent_id = self.agent_selection
        if self._is_over(agent_id):
            self._step_inside(action)
            return
        token = self._checked(action, agent_id)
        self._turn.append(token)
        if token != self._end and len(self._turn) < self.max_new_tokens:
            self._book(agent_id, dict.fromkeys(self.agents, 0.0))
            if "reward_terms" in self.infos[agent_id]:
                self.infos[agent_id] = {**self.infos[agent_id], "reward_terms": {}}  # parts of what last() reports
            return
        ids = self._turn[:-1] if token == self._end else self._turn
        self._turn, self._prompts = [], {}
        self._step_inside(str(self.tokenizer.decode(ids)))

    def _checked(self, action: Any, agent_id: str) -> int:
        num_ids = len(self.tokenizer)
        if not isinstance(action, SupportsIndex) or isinstance(action, bool | np.bool_):
            raise InvalidActionError(
                f"action {action!r:.80} of type {type(action).__name__} for {agent_id}; expected one token id below "
                f"{num_ids}; encode text before you call step()"
            )
        token = operator.index(action)
        if not 0 <= token < num_ids:
            raise InvalidActionError(f"token id {token} for {agent_id}; expected 0 to {num_ids - 1}")
        return token
