"""The recipe `search-tiny`: every name is two tokens, a short run goes through, a whole one learns."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import mas_envs
from mas_envs.retrieval import Passage, Retriever
from tests.mas_envs.retrieval.loopback import served
from trainers.config import load_settings
from trainers.demonstrations import collect_demonstrations
from trainers.tiny_model import make_tiny_tokenizer
from trainers.trainer import Callback, Trainer


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_name_is_two_tokens_also_if_held_out(seed: int) -> None:
    settings = load_settings("search-tiny")
    env = mas_envs.make(settings.env.id, **settings.env.kwargs)
    shown = collect_demonstrations(env, 500, seed=seed)
    texts = [message["content"] for each in shown for message in each.messages] + [each.text for each in shown]
    tokenizer = make_tiny_tokenizer(texts, vocab_size=settings.tiny_model.vocab_size)
    lengths = {len(tokenizer.encode(person.name)) for person in env.unwrapped.tasks.corpus.people}
    assert lengths == {2}
    turns = [tokenizer.encode(each.text) for each in shown]
    limits = [policy.sampling.max_tokens for policy in settings.policies.values()]
    assert max(map(len, turns)) < max(limits)


@pytest.mark.smoke
def test_short_run_of_the_recipe_goes_through(tmp_path: Path) -> None:
    short = ["iterations=1", "warm_start.num_episodes=60", "warm_start.steps=5", "max_spoil_steps=5", "threads=1"]
    settings = load_settings("search-tiny", [*short, "evaluation.num_tasks=8", "rollout.num_groups=2"])
    result = Trainer(settings, tmp_path / "run").train()
    assert result.after.overall.num_tasks == 8
    assert {"verifier_0", "searcher_0", "answerer_0"} >= set(result.after.agents)


class Flaky(Callback):
    """Searches the encyclopedia, but not for a while after the first iteration."""

    def __init__(self, retriever: Retriever) -> None:
        self._retriever = retriever
        self._failures = 0

    def search(self, queries: list[str], k: int) -> list[list[Passage]]:
        if self._failures:
            self._failures -= 1
            raise RuntimeError("the disk is gone")
        return self._retriever.search(queries, k)

    def on_iteration(self, trainer: Trainer, record: Mapping[str, Any]) -> None:
        self._failures = 12 if record["iteration"] == 1 else 0


def test_a_server_that_is_down_for_a_while_costs_episodes_and_not_the_run(tmp_path: Path) -> None:
    settings = load_settings("search-tiny")
    env = mas_envs.make(settings.env.id, **settings.env.kwargs)
    short = ["iterations=3", "warm_start.num_episodes=60", "warm_start.steps=60", "max_spoil_steps=5", "threads=1"]
    flaky = Flaky(env.unwrapped.retriever)
    with served(flaky) as url:
        short += [
            "evaluation.num_tasks=4",
            "rollout.num_groups=4",
            f"env.kwargs.retriever={{url: '{url}', deadline_s: 0.5, cool_down_s: 0.01}}",
        ]
        Trainer(load_settings("search-tiny", short), tmp_path / "run", callbacks=[flaky]).train()
    metrics = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    iterations = [row for row in map(json.loads, metrics) if row["kind"] == "iteration"]
    truncated = [row["truncated_rollouts"] for row in iterations]
    assert truncated[0] == truncated[2] == 0
    assert 1 <= truncated[1] < iterations[1]["num_rollouts"]
    assert sum(row["agents"]["answerer_0"]["num_turns"] for row in iterations) > 0


@pytest.mark.slow
def test_held_out_success_rises_by_thirty_points_and_retrieval_stays_in_use(tmp_path: Path) -> None:
    result = Trainer(load_settings("search-tiny"), tmp_path / "run").train()
    assert result.before is not None
    assert result.after.overall.avg_at_k >= result.before.overall.avg_at_k + 0.30
    assert result.after.agents["searcher_0"].turns_per_episode >= 1.0
