"""Episodes that advance on their own against lock-step by role: episodes per second and the engine's busy share.

    python -m benchmarks.scheduler [--episodes 64] [--rounds 3] [--threads 2] [--json FILE]

Both ways play the same episodes of `MathLoop-v0` with the same engine: a small transformers model samples completions
of uneven length (lognormal), scripted experts say what the agents mean by them, so that episodes take two to seven
turns, and every environment step waits as a retrieval server or a careful grader would (exponential). Lock-step submits
all turns of a role, waits for the last completion, steps all environments in threads, and waits for the last of them:
the loop of trainers that batch by role. Ours is `collect_rollouts` with as many threads. The ways take turns.
"""

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

import mas_envs
from adapters.llm import Episode
from mas_envs import Skill
from trainers.engines.base import Request, Sampling
from trainers.engines.transformers_engine import TransformersEngine
from trainers.rollout import EnvPool, EpisodeStart, Seats, TurnReply, TurnRequest, collect_rollouts

ROLES = {"solver_0": "solver", "verifier_0": "verifier"}
STEP_THREADS = 16
PROMPT_TOKENS, MOST_TOKENS = 48, 192


@dataclass(frozen=True)
class Figures:
    """What one way reached."""

    name: str
    episodes_per_s: float
    busy_frac: float
    """Share of the time in which the engine generates."""


class UnevenPolicy:
    """Real tokens of uneven number, and what an expert would say."""

    def __init__(self, engine: TransformersEngine) -> None:
        self._engine = engine
        self._asked: dict[str, TurnRequest] = {}
        self.busy_s = 0.0

    @property
    def num_in_flight(self) -> int:
        """Turns asked and not yet answered."""
        return len(self._asked)

    def submit(self, requests: Sequence[TurnRequest]) -> None:
        """Ask the engine for as many tokens as the turn's seed says."""
        for request in requests:
            rng = random.Random(request.seed)
            tokens = min(MOST_TOKENS, max(4, round(rng.lognormvariate(3.3, 0.8))))
            prompt = tuple(rng.randrange(1, 500) for _ in range(PROMPT_TOKENS))
            self._asked[request.request_id] = request
            self._engine.submit([Request(request.request_id, prompt, Sampling(max_tokens=tokens), request.seed)])

    def poll(self) -> list[TurnReply]:
        """What has come back, with the expert's words."""
        began = time.perf_counter()
        completions = self._engine.poll()
        self.busy_s += time.perf_counter() - began
        replies = []
        for completion in completions:
            request = self._asked.pop(completion.request_id)
            rng = random.Random(request.seed)
            text = request.env.unwrapped.scripted_action(request.agent_id, rng, Skill(accuracy=0.5))
            ids, logprobs = completion.token_ids, completion.logprobs
            replies.append(TurnReply(request.request_id, text, (1,), ids, logprobs, "stop", 0, completion.seconds))
        return replies


class WaitingEnv:
    """An environment whose steps take as long as those that ask somebody else."""

    def __init__(self, mean_wait_s: float) -> None:
        self._env: Any = mas_envs.make("MathLoop-v0", max_loops=4)
        self._mean_wait_s = mean_wait_s
        self._rng = random.Random()

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """As the environment; waits are drawn from the seed too."""
        self._rng.seed(seed)
        self._env.reset(seed=seed, options=options)

    def step(self, action: str | None) -> None:
        """Wait, then step."""
        if action is not None:
            time.sleep(self._rng.expovariate(1.0 / self._mean_wait_s))
        self._env.step(action)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)


def our_way(starts: Sequence[EpisodeStart], envs: EnvPool, policy: UnevenPolicy) -> int:
    """Turns played by `collect_rollouts`."""
    seats = Seats({"p": policy}, dict.fromkeys(ROLES, "p"), ROLES)
    return sum(len(rollout.turns) for rollout in collect_rollouts(starts, envs, seats, seed=0))


def lock_step(starts: Sequence[EpisodeStart], envs: EnvPool, policy: UnevenPolicy) -> int:
    """Turns played role by role, everybody waiting for the last."""
    from trainers.seeds import derive_seed

    episodes = {s.rollout_id: Episode(envs.take(), seed=derive_seed(0, s.rollout_id), task=s.task) for s in starts}
    turns = dict.fromkeys(episodes, 0)
    with ThreadPoolExecutor(STEP_THREADS) as threads:
        while any(not episode.is_over for episode in episodes.values()):
            for agent_id in ROLES:
                active = {id: e for id, e in episodes.items() if not e.is_over and e.agent_id == agent_id}
                for id, episode in active.items():
                    seed = derive_seed(0, id, turns[id])
                    turns[id] += 1
                    policy.submit([TurnRequest(id, agent_id, episode.messages, seed, episode.env)])
                replies: list[TurnReply] = []
                while policy.num_in_flight:
                    replies += policy.poll()
                list(threads.map(lambda reply, active=active: active[reply.request_id].act(reply.text), replies))
    for episode in episodes.values():
        envs.give_back(episode.env)
    return sum(turns.values())


def measure(num_episodes: int, rounds: int, mean_wait_s: float) -> list[Figures]:
    """Both ways in turn; medians."""
    shape = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(vocab_size=512, head_dim=32, intermediate_size=384, **shape)).eval()
    starts = [EpisodeStart(f"r{index}", f"g{index}", index) for index in range(num_episodes)]
    ways: dict[str, Callable[..., int]] = {"ours": our_way, "lock-step": lock_step}
    envs = EnvPool(partial(WaitingEnv, mean_wait_s), step_threads=STEP_THREADS)
    rates: dict[str, list[float]] = {name: [] for name in ways}
    busy: dict[str, list[float]] = {name: [] for name in ways}
    turns: set[int] = set()
    for _ in range(rounds):
        for name, way in ways.items():
            policy = UnevenPolicy(TransformersEngine(model, eos_token_ids=()))
            began = time.perf_counter()
            turns.add(way(starts, envs, policy))
            seconds = time.perf_counter() - began
            rates[name].append(num_episodes / seconds)
            busy[name].append(policy.busy_s / seconds)
    if len(turns) != 1:
        raise RuntimeError(f"the two ways played {turns} turns; expected the same episodes")
    return [Figures(name, statistics.median(rates[name]), statistics.median(busy[name])) for name in ways]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    everything: dict[str, list[dict[str, Any]]] = {}
    for wait_ms in (0.1, 20.0, 100.0):
        ours, lock = measure(arguments.episodes, arguments.rounds, wait_ms / 1000.0)
        ratio = ours.episodes_per_s / lock.episodes_per_s
        print(
            f"waits {wait_ms:5.1f} ms: ours {ours.episodes_per_s:6.1f} episodes/s, engine busy {ours.busy_frac:4.0%};"
            f" lock-step {lock.episodes_per_s:6.1f}, {lock.busy_frac:4.0%}; ratio {ratio:.2f}x"
        )
        everything[f"{wait_ms:g} ms"] = [asdict(ours), asdict(lock)]
    if arguments.json:
        arguments.json.write_text(json.dumps(everything, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
