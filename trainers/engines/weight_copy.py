"""Takes new weights into a module in place, and says clearly when the names do not fit."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from trainers.engines.adapter_switch import adapter_names

__all__ = ["base_weights", "copy_adapter", "copy_base"]

_SHOWN_NAMES = 5


def copy_base(model: Any, weights: Mapping[str, Tensor]) -> int:
    """Copy the weights of the base model in place.

    Args:
        model: A transformers model, or one wrapped by peft.
        weights: Every parameter under the name of the transformers model; of tied parameters at least one name.

    Returns:
        How many tensors were copied; those that share the module's storage are not.

    Raises:
        ValueError: If names are unknown or missing, or a shape differs.
    """
    return _copy(base_weights(model), weights, owner="the base model")


def copy_adapter(model: Any, weights: Mapping[str, Tensor], adapter: str) -> int:
    """Copy the weights of one adapter in place; names as in `peft.get_peft_model_state_dict`.

    Returns:
        How many tensors were copied.

    Raises:
        ValueError: If the adapter or a name is unknown, a name is missing, or a shape differs.
    """
    if adapter not in adapter_names(model):
        msg = f"unknown adapter {adapter!r}; expected one of {adapter_names(model)!r}: add it to the model first"
        raise ValueError(msg)
    from peft import get_peft_model_state_dict  # optional: a plain model needs no peft

    return _copy(get_peft_model_state_dict(model, adapter_name=adapter), weights, owner=f"adapter {adapter!r}")


def base_weights(model: Any) -> dict[str, Tensor]:
    """The base model's own tensors under the names of the transformers model, adapters left out."""
    if not adapter_names(model):
        return dict(model.state_dict())
    prefixes = tuple(config.peft_type.value.lower() + "_" for config in model.peft_config.values())
    named = model.get_base_model().state_dict().items()
    return {
        name.replace(".base_layer.", "."): tensor
        for name, tensor in named
        if not any(part.startswith(prefixes) for part in name.split("."))
    }


def _copy(own: Mapping[str, Tensor], weights: Mapping[str, Tensor], owner: str) -> int:
    aliases: dict[tuple[int, tuple[int, ...]], set[str]] = {}
    for name, tensor in own.items():
        aliases.setdefault((tensor.data_ptr(), tuple(tensor.shape)), set()).add(name)
    unknown = weights.keys() - own.keys()
    missing = [min(names) for names in aliases.values() if names.isdisjoint(weights)]
    if unknown or missing:
        msg = (
            f"weights do not fit {owner}: unknown names {_shown(unknown)}, missing names {_shown(missing)}; "
            f"expected all {len(aliases)} tensors under the names of its state dict"
        )
        raise ValueError(msg)
    for name, tensor in weights.items():
        if tensor.shape != own[name].shape:
            msg = (
                f"weights do not fit {owner}: {name!r} has shape {tuple(tensor.shape)}, "
                f"expected {tuple(own[name].shape)}: sync from a model of the same configuration"
            )
            raise ValueError(msg)
    foreign = [name for name, tensor in weights.items() if tensor.data_ptr() != own[name].data_ptr()]
    with torch.no_grad():
        for name in foreign:
            own[name].copy_(weights[name])
    return len(foreign)


def _shown(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - _SHOWN_NAMES} more" if len(ordered) > _SHOWN_NAMES else ""
    return f"{ordered[:_SHOWN_NAMES]}{more}"
