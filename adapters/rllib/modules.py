"""`TokenModule`: an RLlib module that embeds token ids; a small policy and value network for text environments."""

from typing import Any

import numpy as np
from gymnasium import spaces
from torch import Tensor, nn

from adapters.rllib.ray_parts import Columns, TorchRLModule, ValueFunctionAPI
from mas_envs.errors import BadArgumentError

__all__ = ["TokenModule", "check_token_spaces"]


def check_token_spaces(shown: spaces.Space[Any], said: spaces.Space[Any]) -> None:
    """Refuse spaces that are not token ids.

    Args:
        shown: The observation space.
        said: The action space.

    Raises:
        BadArgumentError: Names both spaces.
    """
    is_ids = isinstance(shown, spaces.Box) and len(shown.shape) == 1 and np.issubdtype(shown.dtype, np.integer)
    if not is_ids or not isinstance(said, spaces.Discrete):
        raise BadArgumentError(
            f"TokenModule got the spaces {shown!r:.80} and {said!r:.80}; expected a one-dimensional Box of integers "
            "and Discrete, as TokenEncoding makes them: put max_prompt_tokens and max_new_tokens into env_config, or "
            "give RLlib a module for these spaces"
        )


class TokenModule(TorchRLModule, ValueFunctionAPI):
    """Embeddings of the ids, place by place, two layers, a head for the next token and one for the value.

    Observations are the `Box` of int64 ids that `TokenEncoding` gives, actions its `Discrete`. Settings in
    `model_config`: `dim` (64), the width of an embedding, and `hidden` (256), that of the layers. The first choice of
    a new module is uniform over all ids.

    Raises:
        BadArgumentError: If the spaces are not token ids.
    """

    def setup(self) -> None:
        """Build the network from spaces and settings; called by RLlib."""
        check_token_spaces(self.observation_space, self.action_space)
        (length,) = self.observation_space.shape
        num_ids = int(self.observation_space.high.max()) + 1
        dim, hidden = int(self.model_config.get("dim", 64)), int(self.model_config.get("hidden", 256))
        self.embedding = nn.Embedding(num_ids, dim)
        self.trunk = nn.Sequential(nn.Linear(length * dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.policy, self.value = nn.Linear(hidden, int(self.action_space.n)), nn.Linear(hidden, 1)
        nn.init.zeros_(self.policy.weight)
        nn.init.zeros_(self.policy.bias)

    def _encode(self, batch: dict[str, Any]) -> Tensor:
        encoded: Tensor = self.trunk(self.embedding(batch[Columns.OBS].long()).flatten(-2))
        return encoded

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        return {Columns.ACTION_DIST_INPUTS: self.policy(self._encode(batch))}

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        encoded = self._encode(batch)
        return {Columns.ACTION_DIST_INPUTS: self.policy(encoded), Columns.EMBEDDINGS: encoded}

    def compute_values(self, batch: dict[str, Any], embeddings: Tensor | None = None) -> Tensor:
        """[B] values of the observations."""
        values: Tensor = self.value(self._encode(batch) if embeddings is None else embeddings)
        return values.squeeze(-1)
