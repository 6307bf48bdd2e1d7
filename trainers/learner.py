"""One policy's learner: gradients that do not depend on how rows are cut, and the norm each agent contributes."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from trainers.batch import TrainingRow
from trainers.config import AlgorithmSettings, LearnerSettings, PolicySettings
from trainers.losses import row_weights
from trainers.minibatch import Share, WeightedRow, backward, row_logprobs

__all__ = ["SPIKE_NORM", "AgentUpdate", "Learner", "PolicyUpdate"]

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

SPIKE_NORM = 5.0
"""Updates with a larger gradient norm are counted. A fixed threshold: a running median hides lasting inflation."""


@dataclass
class AgentUpdate:
    """What one agent contributed to the updates of an iteration."""

    grad_norms: list[float] = field(default_factory=list)
    """Norm of the agent's own gradient, before clipping, one per update."""
    entropy: float = 0.0
    """Mean negative behaviour logprob of its tokens, nats: the entropy of the policy as sampled."""
    num_tokens: int = 0
    """Completion tokens of the agent, over all updates."""
    shares: list[Share] = field(default_factory=list)
    """Sums over its tokens, one per update."""

    def per_token(self, name: str) -> float:
        """Mean over the agent's tokens of a sum that `Share` keeps; NaN without tokens."""
        return sum(getattr(share, name) for share in self.shares) / self.num_tokens if self.num_tokens else float("nan")

    @property
    def engine_gap(self) -> float:
        """Mean absolute difference between the engine's and the learner's logprob, nats; over tokens computed."""
        computed = sum(share.num_tokens for share in self.shares)
        return sum(share.engine_gap for share in self.shares) / computed if computed else float("nan")


@dataclass
class PolicyUpdate:
    """What happened to one policy in an iteration."""

    grad_norms: list[float] = field(default_factory=list)
    """Norm before clipping, one per update."""
    losses: list[float] = field(default_factory=list)
    """Loss of each update."""
    lr: float = 0.0
    """Learning rate of the last update."""
    skipped: int = 0
    """Updates left out because loss or gradient was not finite."""
    agents: dict[str, AgentUpdate] = field(default_factory=dict)
    """Agent id -> its part."""

    @property
    def over_threshold(self) -> int:
        """Updates with a gradient norm over `SPIKE_NORM`."""
        return sum(norm > SPIKE_NORM for norm in self.grad_norms)


class Learner:
    """Trains one policy on its rows.

    Args:
        model: A transformers causal language model; trained in place.
        policy: Optimizer settings.
        algorithm: Loss settings.
        total_updates: Updates of the whole run, for the schedule.
        token_budget: Tokens of one forward pass, padding included; halved for good when memory runs out.
        temperature: Temperature the completions were sampled at.
        max_completion_tokens: The divisor of `seq-mean-token-sum-norm`.
        parameters: What is trained, by name; None is every parameter of the model.
        activate: Called before the model computes, to switch a shared model to this policy's adapter.
        reference: Gives the reference model of the KL penalty; None without one.
    """

    def __init__(  # noqa: PLR0913  # the values it uses, each by name
        self,
        model: Any,
        policy: PolicySettings,
        algorithm: AlgorithmSettings,
        *,
        total_updates: int,
        token_budget: int,
        temperature: float,
        max_completion_tokens: int,
        parameters: Mapping[str, torch.nn.Parameter] | None = None,
        activate: Callable[[], None] = lambda: None,
        reference: Callable[[], AbstractContextManager[Any]] | None = None,
    ) -> None:
        self.model = model
        self.num_updates = 0
        self.token_budget = token_budget
        self._policy = policy
        self._algorithm = algorithm
        self._total_updates = max(1, total_updates)
        self._temperature = temperature if temperature > 0.0 else 1.0
        self._norm_tokens = max_completion_tokens
        self._parameters = dict(model.named_parameters()) if parameters is None else dict(parameters)
        self._activate = activate
        _prepare(model, policy.learner)
        self._reference = reference
        self.optimizer = torch.optim.AdamW(
            self._parameters.values(), lr=policy.lr, betas=policy.betas, weight_decay=policy.weight_decay, fused=True
        )

    def update(self, rows: Sequence[TrainingRow], advantages: NDArray[np.float64], *, seed: int) -> PolicyUpdate:
        """One iteration's updates on these rows.

        Args:
            rows: The policy's rows.
            advantages: [R], one per row.
            seed: Seed of the order in which rows go to minibatches.
        """
        report = PolicyUpdate()
        if not rows:
            return report
        items = self._weightless(rows, advantages)
        num_parts = min(self._algorithm.num_updates, len(rows))
        order = np.random.default_rng(seed).permutation(len(rows)) if num_parts > 1 else np.arange(len(rows))
        for part in np.array_split(order, num_parts):
            self._one_update([items[index] for index in part.tolist()], report)
        for agent_id, update in report.agents.items():
            logprobs = [value for row in rows if row.agent_id == agent_id for value in row.behaviour_logprobs]
            update.num_tokens = len(logprobs)
            update.entropy = -sum(logprobs) / len(logprobs)
        return report

    def save(self, path: Path) -> None:
        """Write the optimizer's state as safetensors."""
        state = {
            f"{name}/{key}": value.detach().cpu().contiguous()
            for name, parameter in self._parameters.items()
            for key, value in self.optimizer.state.get(parameter, {}).items()
        }
        save_file(state, path)

    def load(self, path: Path, num_updates: int) -> None:
        """Take back what `save` wrote."""
        self.num_updates = num_updates
        for key, value in load_file(path).items():
            name, _, part = key.rpartition("/")
            parameter = self._parameters[name]
            self.optimizer.state[parameter][part] = value if part == "step" else value.to(parameter.device)

    def _weightless(self, rows: Sequence[TrainingRow], advantages: NDArray[np.float64]) -> list[WeightedRow]:
        """The rows with their logprobs before the first update and under the reference, where these are needed."""
        self._activate()
        several = self._algorithm.num_updates > 1
        olds: Sequence[Tensor | None] = [None] * len(rows)
        references: Sequence[Tensor | None] = [None] * len(rows)
        if several:
            olds = self._logprobs(self.model, rows)
        if self._reference is not None:
            with self._reference() as reference:
                references = self._logprobs(reference, rows)
        return [
            WeightedRow(row, float(advantage), 0.0, old, reference)
            for row, advantage, old, reference in zip(rows, advantages, olds, references, strict=True)
        ]

    def _one_update(self, items: Sequence[WeightedRow], report: PolicyUpdate) -> None:
        """Gradient of one minibatch, agent by agent, then a clipped step; nothing moves if a number is not finite."""
        self._activate()
        self.model.train()
        lengths = torch.tensor([len(item.row.completion_ids) for item in items])
        weights = row_weights(lengths, self._algorithm.aggregation, norm_tokens=self._norm_tokens).tolist()
        by_agent: dict[str, list[WeightedRow]] = {}
        for item, weight in zip(items, weights, strict=True):
            weighted = WeightedRow(item.row, item.advantage, weight, item.old_logprobs, item.reference_logprobs)
            by_agent.setdefault(item.row.agent_id, []).append(weighted)
        loss, total = 0.0, None
        for agent_id in sorted(by_agent):
            share = self._gradient(by_agent[agent_id])
            gradients = self._gradients()
            agent = report.agents.setdefault(agent_id, AgentUpdate())
            agent.grad_norms.append(_norm(gradients))
            agent.shares.append(share)
            loss += share.loss
            total = gradients if total is None else [a + b for a, b in zip(total, gradients, strict=True)]
        assert total is not None
        self._step(total, loss, report)

    def _gradient(self, items: Sequence[WeightedRow]) -> Share:
        """The gradient of one agent's rows."""

        def attempt() -> Share:
            self.optimizer.zero_grad(set_to_none=True)
            with self._precision():
                return backward(
                    self.model, items, self._algorithm, token_budget=self.token_budget, temperature=self._temperature
                )

        return self._within_memory(attempt, [item.row for item in items])

    def _within_memory(self, attempt: Callable[[], Result], rows: Sequence[TrainingRow]) -> Result:
        """The result of `attempt`; when memory runs out, again from the start in smaller pieces."""
        while True:
            try:
                return attempt()
            except (torch.OutOfMemoryError, MemoryError):
                if self.token_budget <= max(len(row.prompt_ids) + len(row.completion_ids) for row in rows):
                    raise
            self.token_budget //= 2
            logger.warning(
                "out of memory: going on with token_budget=%s; set it to that to avoid this", self.token_budget
            )

    def _step(self, gradients: list[Tensor], loss: float, report: PolicyUpdate) -> None:
        norm = _norm(gradients)
        report.grad_norms.append(norm)
        report.losses.append(loss)
        report.lr = self._set_lr()
        self.num_updates += 1
        if not math.isfinite(norm) or not math.isfinite(loss):
            report.skipped += 1
            self.optimizer.zero_grad(set_to_none=True)
            return
        limit = self._policy.max_grad_norm
        scale = 1.0 if limit is None or norm <= limit else limit / (norm + 1e-6)
        for parameter, gradient in zip(self._parameters.values(), gradients, strict=True):
            parameter.grad = gradient if scale == 1.0 else gradient * scale
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def _logprobs(self, model: Any, rows: Sequence[TrainingRow]) -> list[Tensor]:
        def attempt() -> list[Tensor]:
            with self._precision():
                return row_logprobs(model, rows, token_budget=self.token_budget, temperature=self._temperature)

        return self._within_memory(attempt, rows)

    def _precision(self) -> AbstractContextManager[Any]:
        """The number format that the model computes in."""
        device = next(iter(self._parameters.values())).device.type
        return torch.autocast(device, dtype=torch.bfloat16, enabled=self._policy.learner.autocast == "bfloat16")

    def _gradients(self) -> list[Tensor]:
        return [
            torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            for parameter in self._parameters.values()
        ]

    def _set_lr(self) -> float:
        """Learning rate of the next update: warm-up, then the schedule."""
        policy, done = self._policy, self.num_updates
        scale = min(1.0, (done + 1) / policy.warmup_updates) if policy.warmup_updates else 1.0
        progress = min(1.0, done / self._total_updates)
        if policy.schedule == "linear":
            scale *= 1.0 - progress
        elif policy.schedule == "cosine":
            scale *= 0.5 * (1.0 + math.cos(math.pi * progress))
        for group in self.optimizer.param_groups:
            group["lr"] = policy.lr * scale
        return policy.lr * scale


def _prepare(model: Any, settings: LearnerSettings) -> None:
    """Switch on what saves memory or time; engines that share the model are not touched by it."""
    if settings.gradient_checkpointing:
        if hasattr(model, "activation_checkpointing_enable"):
            model.activation_checkpointing_enable()
        else:  # transformers before it had that name
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if settings.compile:
        for layer in model.get_decoder().layers:
            layer.compile(dynamic=True)


def _norm(gradients: Sequence[Tensor]) -> float:
    return float(torch.nn.utils.get_total_norm(gradients))
