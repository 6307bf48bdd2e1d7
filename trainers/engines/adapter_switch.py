"""Which LoRA adapter of a shared model is active while one engine samples, and putting things back afterwards."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["AdapterSwitch", "adapter_names", "sampling_mode"]


def adapter_names(model: Any) -> tuple[str, ...]:
    """Names of the model's adapters; empty for a model that is not wrapped by peft."""
    return tuple(model.peft_config) if hasattr(model, "get_base_model") else ()


class AdapterSwitch:
    """Activates adapters of a peft model; does nothing for a plain one."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._has_adapters = bool(adapter_names(model))

    @contextmanager
    def use(self, adapter: str | None) -> Iterator[None]:
        """Run the body with one adapter, or with all of them disabled for None."""
        if not self._has_adapters:
            yield
        elif adapter is None:
            with self._model.disable_adapter():
                yield
        else:
            self._model.set_adapter(adapter)
            yield

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Give the active adapter and the `requires_grad` flags back as they were; switching changes both."""
        if not self._has_adapters:
            yield
            return
        active = self._model.active_adapter
        flags = [(parameter, parameter.requires_grad) for parameter in self._model.parameters()]
        try:
            yield
        finally:
            self._model.set_adapter(active)
            for parameter, flag in flags:
                parameter.requires_grad_(flag)


@contextmanager
def sampling_mode(modules: Iterable[Any]) -> Iterator[None]:
    """Run the body with all of the modules in eval mode, and put exactly those that were training back."""
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
