"""What tokens cost: a price table, and the entry that holds for an agent."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Price", "cost", "price_of"]


@dataclass(frozen=True)
class Price:
    """Prices of a million tokens, in any currency."""

    prompt: float
    """Tokens read."""
    completion: float
    """Tokens written."""


def price_of(prices: Mapping[str, Price], agent_id: str, role: str, policy_id: str) -> Price | None:
    """The entry of the agent, of its role or of its policy, in this order; None where there is none.

    >>> table = {"solver": Price(1.0, 4.0), "small": Price(0.1, 0.4)}
    >>> price_of(table, "solver_0", "solver", "small").completion
    4.0
    """
    return next((prices[key] for key in (agent_id, role, policy_id) if key in prices), None)


def cost(price: Price, prompt_tokens: int, completion_tokens: int) -> float:
    """What the tokens cost, in the table's currency."""
    return (price.prompt * prompt_tokens + price.completion * completion_tokens) / 1e6
