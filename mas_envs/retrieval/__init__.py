"""Finding passages: the protocol, indexes, encoders and the passages themselves on disk."""

from mas_envs.retrieval.protocol import Passage, Passages, RetrievalError, Retriever, search_checked

__all__ = ["Passage", "Passages", "RetrievalError", "Retriever", "search_checked"]
