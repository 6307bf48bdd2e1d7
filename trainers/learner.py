"""One policy's learner: gradients that do not depend on how rows are cut, and the norm each agent contributes."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from trainers.batch import TrainingRow
from trainers.config import AlgorithmSettings, PolicySettings
from trainers.logprobs import score_completions
from trainers.losses import Clip, row_weights, token_losses

__all__ = ["AgentUpdate", "Learner", "PolicyUpdate"]

_SPIKE_NORM = 5.0
"""Updates with a larger gradient norm are counted. A fixed threshold: a running median hides lasting inflation."""


@dataclass
class AgentUpdate:
    """What one agent contributed to the updates of an iteration."""

    grad_norms: list[float] = field(default_factory=list)
    """Norm of the agent's own gradient, before clipping, one per update."""
    clip_frac: float = 0.0
    """Share of its tokens at which the clip range decided."""
    dual_clip_frac: float = 0.0
    """Share of its tokens at which the dual clip decided."""
    approx_kl: float = 0.0
    """Mean old less new logprob of its tokens, nats."""
    engine_gap: float = 0.0
    """Mean absolute difference between the engine's and the learner's logprob, nats; over rows with an advantage."""
    entropy: float = 0.0
    """Mean negative behaviour logprob of its tokens, nats: the entropy of the policy as sampled."""


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
        """Updates with a gradient norm over 5."""
        return sum(norm > _SPIKE_NORM for norm in self.grad_norms)


@dataclass(frozen=True)
class _Weighted:
    """A row of a minibatch with all that the loss needs of it."""

    row: TrainingRow
    advantage: float
    weight: float
    """Weight of each of its tokens in the minibatch's loss."""
    old_logprobs: Tensor | None
    """[T] before the first update; None: those of this very forward pass."""


class Learner:
    """Trains one policy on its rows.

    Args:
        model: A transformers causal language model; trained in place.
        policy: Optimizer settings.
        algorithm: Loss settings.
        total_updates: Updates of the whole run, for the schedule.
        token_budget: Tokens of one forward pass, padding included.
        temperature: Temperature the completions were sampled at.
        max_completion_tokens: The divisor of `seq-mean-token-sum-norm`.
    """

    def __init__(
        self,
        model: Any,
        policy: PolicySettings,
        algorithm: AlgorithmSettings,
        *,
        total_updates: int,
        token_budget: int,
        temperature: float,
        max_completion_tokens: int,
    ) -> None:
        self.model = model
        self.num_updates = 0
        self._policy = policy
        self._algorithm = algorithm
        self._clip = Clip(low=algorithm.clip_low, high=algorithm.clip_high, dual=algorithm.dual_clip)
        self._total_updates = max(1, total_updates)
        self._token_budget = token_budget
        self._temperature = temperature if temperature > 0.0 else 1.0
        self._norm_tokens = max_completion_tokens
        self._parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
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
        self.model.train()
        several = self._algorithm.num_updates > 1
        old = self._logprobs_now(rows) if several else [None] * len(rows)
        order = list(range(len(rows)))
        if several:
            order = np.random.default_rng(seed).permutation(len(rows)).tolist()
        for part in np.array_split(np.array(order), min(self._algorithm.num_updates, len(rows))):
            self._one_update([(rows[i], float(advantages[i]), old[i]) for i in part.tolist()], report)
        for agent_id, mine in _by_agent(rows).items():
            agent = report.agents.setdefault(agent_id, AgentUpdate())
            logprobs = [value for row in mine for value in row.behaviour_logprobs]
            agent.entropy = -sum(logprobs) / len(logprobs)
        return report

    def save(self, path: Path) -> None:
        """Write the optimizer's state as safetensors."""
        state = {
            f"{name}/{key}": value.detach().cpu().contiguous()
            for name, parameter in self._parameters.items()
            for key, value in self.optimizer.state.get(parameter, {}).items()
        }
        save_file(state, path, metadata={"num_updates": str(self.num_updates)})

    def load(self, path: Path, num_updates: int) -> None:
        """Take back what `save` wrote."""
        self.num_updates = num_updates
        for key, value in load_file(path).items():
            name, _, part = key.rpartition("/")
            parameter = self._parameters[name]
            target = value if part == "step" else value.to(parameter.device)
            self.optimizer.state[parameter][part] = target

    def _one_update(self, triples: Sequence[tuple[TrainingRow, float, Tensor | None]], report: PolicyUpdate) -> None:
        """Gradient of one minibatch, agent by agent, then a clipped step; nothing moves if a number is not finite."""
        lengths = torch.tensor([len(row.completion_ids) for row, _, _ in triples])
        weights = row_weights(lengths, self._algorithm.aggregation, norm_tokens=self._norm_tokens).tolist()
        weighted = [
            _Weighted(row, value, weight, old) for (row, value, old), weight in zip(triples, weights, strict=True)
        ]
        num_tokens = {agent_id: 0 for agent_id in _by_agent([item.row for item in weighted])}
        for item in weighted:
            num_tokens[item.row.agent_id] += len(item.row.completion_ids)
        loss, total = 0.0, None
        for agent_id, tokens in num_tokens.items():
            self.optimizer.zero_grad(set_to_none=True)
            agent = report.agents.setdefault(agent_id, AgentUpdate())
            mine = [item for item in weighted if item.row.agent_id == agent_id and item.advantage != 0.0]
            loss += self._backward(mine, agent, tokens)
            gradients = self._gradients()
            agent.grad_norms.append(_norm(gradients))
            total = gradients if total is None else [a + b for a, b in zip(total, gradients, strict=True)]
        assert total is not None
        self._step(total, loss, report)

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

    def _backward(self, items: Sequence[_Weighted], agent: AgentUpdate, num_tokens: int) -> float:
        """Add the gradient of these rows; distinct sequences are computed once."""
        loss, agent_tokens = 0.0, max(1, sum(len(item.row.completion_ids) for item in items))
        for sequences in _microbatches(items, self._token_budget):
            scores = score_completions(
                self.model,
                [prompt for prompt, _ in sequences],
                [completion for _, completion in sequences],
                temperature=self._temperature,
            )
            flat = torch.split(scores.logprobs, [len(completion) for _, completion in sequences])
            pairs = [
                (item, logprobs) for logprobs, group in zip(flat, sequences.values(), strict=True) for item in group
            ]
            loss += self._backward_rows(pairs, agent, num_tokens, agent_tokens)
        return loss

    def _backward_rows(
        self, pairs: Sequence[tuple[_Weighted, Tensor]], agent: AgentUpdate, num_tokens: int, agent_tokens: int
    ) -> float:
        logprobs = _padded([values for _, values in pairs])
        mask = _padded([torch.ones_like(values, dtype=torch.bool) for _, values in pairs])
        frozen = logprobs.detach()
        olds = [values.detach() if item.old_logprobs is None else item.old_logprobs for item, values in pairs]
        behaviour = _padded([torch.tensor(item.row.behaviour_logprobs) for item, _ in pairs]).to(logprobs.device)
        advantages = torch.tensor([item.advantage for item, _ in pairs], device=logprobs.device)
        weights = torch.tensor([item.weight for item, _ in pairs], device=logprobs.device)
        tokens = token_losses(
            logprobs,
            _padded(olds).to(logprobs.device),
            advantages,
            mask,
            clip=self._clip,
            variant=self._algorithm.loss,
        )
        loss = (weights[:, None] * tokens.loss).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        share = 1.0 / num_tokens / self._algorithm.num_updates
        agent.clip_frac += float(tokens.is_clipped.sum()) * share
        agent.dual_clip_frac += float(tokens.is_dual_clipped.sum()) * share
        agent.approx_kl -= float(tokens.log_ratio.sum()) * share
        agent.engine_gap += (
            float(((frozen - behaviour).abs() * mask).sum()) / agent_tokens / self._algorithm.num_updates
        )
        return float(loss.detach())

    @torch.no_grad()
    def _logprobs_now(self, rows: Sequence[TrainingRow]) -> list[Tensor | None]:
        """[T] logprobs of each row under the present weights."""
        items = [_Weighted(row, 0.0, 0.0, None) for row in rows]
        found: dict[int, Tensor] = {}
        for sequences in _microbatches(items, self._token_budget):
            scores = score_completions(
                self.model,
                [prompt for prompt, _ in sequences],
                [completion for _, completion in sequences],
                temperature=self._temperature,
            )
            parts = torch.split(scores.logprobs, [len(completion) for _, completion in sequences])
            for part, group in zip(parts, sequences.values(), strict=True):
                found.update({id(item.row): part for item in group})
        return [found[id(row)] for row in rows]

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


Sequences = dict[tuple[tuple[int, ...], tuple[int, ...]], list[_Weighted]]
"""Prompt and completion -> the rows that hold exactly these tokens."""


def _microbatches(items: Sequence[_Weighted], token_budget: int) -> Iterator[Sequences]:
    """Distinct sequences in order of length, cut so that rows x longest stays within the budget (or a single row)."""
    distinct: Sequences = {}
    for item in items:
        distinct.setdefault((item.row.prompt_ids, item.row.completion_ids), []).append(item)
    batch: Sequences = {}
    for key in sorted(distinct, key=lambda key: len(key[0]) + len(key[1])):
        longest = len(key[0]) + len(key[1])
        if batch and longest * (len(batch) + 1) > token_budget:
            yield batch
            batch = {}
        batch[key] = distinct[key]
    if batch:
        yield batch


def _by_agent(rows: Sequence[TrainingRow]) -> dict[str, list[TrainingRow]]:
    grouped: dict[str, list[TrainingRow]] = {}
    for row in rows:
        grouped.setdefault(row.agent_id, []).append(row)
    return dict(sorted(grouped.items()))


def _padded(rows: Sequence[Tensor]) -> Tensor:
    """[B, T] of B rows, zeros behind the end."""
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)


def _norm(gradients: Sequence[Tensor]) -> float:
    return float(torch.nn.utils.get_total_norm(gradients))
