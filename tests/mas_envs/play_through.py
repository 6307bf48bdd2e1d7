"""Episodes played to their end, for the tests of several environments."""

import pytest

from mas_envs.conversation import ConversationEnv


def finish(env: ConversationEnv, *actions: str) -> dict[str, float]:
    """What each agent earned in all, after these actions and the end of the episode."""
    script, earned = iter(actions), dict.fromkeys(env.possible_agents, 0.0)
    for agent_id in env.agent_iter():
        _, reward, terminated, truncated, info = env.last()
        assert sum(info["reward_terms"].values()) == pytest.approx(reward)
        earned[agent_id] += reward
        env.step(None if terminated or truncated else next(script))
    assert list(script) == []
    return {agent_id: round(reward, 9) for agent_id, reward in earned.items()}
