"""The ids of the environments in this package; each folder's environment is imported by `make` alone."""

from mas_envs.registration import Registry

__all__ = ["register_builtin"]


def register_builtin(registry: Registry) -> None:
    """Add the built-in environments."""
    registry.register("MathLoop-v0", "mas_envs.math_loop.env:MathLoopEnv")
    registry.register("MathRefine-v0", "mas_envs.math_loop.env:MathRefineEnv")
    registry.register("MathSolo-v0", "mas_envs.math_loop.env:MathSoloEnv")
    registry.register("HierarchicalSearch-v0", "mas_envs.search.env:HierarchicalSearchEnv")
    registry.register("SearchSolo-v0", "mas_envs.search.env:SearchSoloEnv")
