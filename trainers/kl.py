"""KL to a reference policy and entropy, token by token."""

from typing import Literal, get_args

import torch
from torch import Tensor

from trainers.input_errors import TrainingInputError

__all__ = ["KlEstimate", "kl_tokens", "token_entropy"]

KlEstimate = Literal["k1", "k2", "k3"]

MAX_LOG_RATIO = 20.0


def kl_tokens(logprobs: Tensor, reference_logprobs: Tensor, mask: Tensor, kind: KlEstimate = "k3") -> Tensor:
    """An estimate of KL(policy, reference) at each token, from the one token that was sampled.

    With d = log policy - log reference: k1 is d, unbiased, of either sign; k2 is d^2 / 2, biased, never negative; k3 is
    exp(-d) - 1 + d, unbiased, never negative.

    >>> new, old = torch.tensor([[-1.0]]), torch.tensor([[-1.5]])
    >>> [round(float(kl_tokens(new, old, torch.ones(1, 1), kind)), 4) for kind in ("k1", "k2", "k3")]
    [0.5, 0.125, 0.1065]

    Source: J. Schulman, Approximating KL divergence, http://joschu.net/blog/kl-approx.html; k3 is the penalty of GRPO,
    arXiv 2402.03300, equation 4. As losses they differ: on fresh samples the gradient of k2 is that of the KL, the
    gradient of k1 is zero on average, that of k3 belongs to the reverse KL. Use k1 inside the reward, k2 or k3 inside a
    loss. Differs in: k3 counts d below -20 as -20, so that it stays finite.

    Args:
        logprobs: [B, T], with gradient.
        reference_logprobs: [B, T], taken as constant.
        mask: [B, T] bool or numbers.
        kind: The estimate.

    Returns:
        [B, T] nats, 0 outside the mask, with gradient; weigh it as the policy loss.

    Raises:
        TrainingInputError: If shapes differ or the kind is unknown.
    """
    shapes = {tuple(tensor.shape) for tensor in (logprobs, reference_logprobs, mask)}
    if len(shapes) > 1:
        raise TrainingInputError(f"the shapes are {sorted(shapes)}", "one [B, T] for all", "pad from the same rows")
    outside = ~mask.bool()
    dtype = torch.promote_types(logprobs.dtype, torch.float32)
    gap = logprobs.to(dtype).masked_fill(outside, 0.0)
    gap = gap - reference_logprobs.detach().to(dtype).masked_fill(outside, 0.0)
    match kind:
        case "k1":
            return gap
        case "k2":
            return 0.5 * gap**2
        case "k3":
            return torch.expm1((-gap).clamp(max=MAX_LOG_RATIO)) + gap
        case _:
            raise TrainingInputError(
                f"unknown KL estimate {kind!r}", f"one of: {', '.join(get_args(KlEstimate))}", "pick one of these"
            )


def token_entropy(logits: Tensor, *, temperature: float = 1.0) -> Tensor:
    """The entropy of the next-token distribution at each position; an entropy bonus subtracts it from the loss.

    >>> token_entropy(torch.tensor([[[0.0, 0.0], [0.0, -float("inf")]]]))
    tensor([[0.6931, 0.0000]])

    Args:
        logits: [B, T, V], with gradient; -inf forbids a token. Half precision is raised to float32.
        temperature: What sampling divides the logits by, > 0.

    Returns:
        [B, T] nats in [0, log V], not masked, with gradient.

    Raises:
        TrainingInputError: If the temperature is not positive.
    """
    if not temperature > 0.0:
        raise TrainingInputError(f"temperature is {temperature!r}", "a number > 0", "pass what the sampler used")
    dtype = torch.promote_types(logits.dtype, torch.float32)
    logprobs = torch.log_softmax(logits.to(dtype) / temperature, dim=-1)
    return (logprobs.exp() * -logprobs.masked_fill(torch.isneginf(logprobs), 0.0)).sum(dim=-1)
