"""Wrappers: from one environment to another, one a file."""

from mas_envs.wrappers.action_guard import ActionGuard
from mas_envs.wrappers.parallel_view import ParallelView
from mas_envs.wrappers.phrase_tokenizer import PhraseTokenizer
from mas_envs.wrappers.record_episodes import RecordedEpisode, RecordedTurn, RecordEpisodes, read_episodes
from mas_envs.wrappers.single_agent import Mate, SingleAgentView
from mas_envs.wrappers.token_encoding import ByteTokenizer, TokenEncoding, Tokenizer, plain_prompt
from mas_envs.wrappers.turn_limit import TurnLimit

__all__ = [
    "ActionGuard",
    "ByteTokenizer",
    "Mate",
    "ParallelView",
    "PhraseTokenizer",
    "RecordEpisodes",
    "RecordedEpisode",
    "RecordedTurn",
    "SingleAgentView",
    "TokenEncoding",
    "Tokenizer",
    "TurnLimit",
    "plain_prompt",
    "read_episodes",
]
