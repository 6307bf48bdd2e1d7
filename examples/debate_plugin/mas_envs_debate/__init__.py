"""`debate/Debate-v0` and `debate/Proposers-v0`; `register` is what the entry point names."""

from mas_envs import register_tasks
from mas_envs.registration import BoundRegister

__all__ = ["register"]


def register(register_env: BoundRegister) -> None:
    """Add the environments and their task set; nothing else is imported before they are used."""
    register_tasks("debate_claims", "mas_envs_debate.claims:claims")
    register_env("debate/Debate-v0", "mas_envs_debate.debate:DebateEnv")
    register_env("debate/Proposers-v0", "mas_envs_debate.proposers:ProposersEnv")
