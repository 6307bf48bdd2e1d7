"""`TokenModule`: an RLlib module that embeds token ids; a small policy and value network for text environments."""

from typing import Any

from torch import Tensor, nn

from adapters.rllib.ray_parts import Columns, TorchRLModule, ValueFunctionAPI

__all__ = ["TokenModule"]


class TokenModule(TorchRLModule, ValueFunctionAPI):
    """Embeddings of token and place, two layers, a head for the next token and one for the value.

    Observations are the `Box` of int64 ids that `TokenEncoding` gives, actions its `Discrete`. Settings in
    `model_config`: `dim` (64), the width of an embedding, and `hidden` (256).
    """

    def setup(self) -> None:
        """Build the network from spaces and settings; called by RLlib."""
        (length,) = self.observation_space.shape
        num_ids = int(self.observation_space.high.max()) + 1
        dim, hidden = int(self.model_config.get("dim", 64)), int(self.model_config.get("hidden", 256))
        self.embedding = nn.Embedding(num_ids, dim, padding_idx=0)
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
