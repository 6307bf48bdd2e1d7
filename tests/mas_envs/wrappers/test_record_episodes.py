import copy
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mas_envs.math_loop.grading import Grade
from mas_envs.wrappers import RecordedEpisode, RecordEpisodes, SingleAgentView, TokenEncoding, read_episodes
from tests.mas_envs.wrappers.contract import (
    APPROVE,
    REJECT,
    SOLUTION,
    WRONG,
    Echo,
    assert_passes_pettingzoo,
    math_loop,
    play,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "episodes.jsonl"


def only_episode(path: Path) -> RecordedEpisode:
    [episode] = read_episodes(path)
    return episode


def test_passes_the_tests_of_pettingzoo(path: Path) -> None:
    assert_passes_pettingzoo(RecordEpisodes(math_loop(), path))
    assert_passes_pettingzoo(RecordEpisodes(Echo(), path))


def test_finished_episode_is_recorded_with_everything(path: Path) -> None:
    env = RecordEpisodes(math_loop(), path)
    env.reset(seed=5)
    play(env, ["hm", REJECT, SOLUTION])
    episode = only_episode(path)
    task = env.unwrapped.task
    assert (episode.env_id, episode.seed, episode.status) == ("MathLoop-v0", 5, "finished")
    assert episode.task is not None
    assert (episode.task.id, episode.task.question, episode.task.answer, episode.task.source) == (
        task.id,
        task.question,
        task.answer,
        task.source,
    )
    assert (episode.success, episode.truncated, episode.error) == (True, False, None)
    assert episode.returns == {"solver_0": pytest.approx(0.9), "verifier_0": 1.0}
    assert [(turn.agent_id, turn.text, turn.valid) for turn in episode.turns] == [
        ("solver_0", "hm", False),
        ("verifier_0", REJECT, True),
        ("solver_0", SOLUTION, True),
    ]
    assert episode.turns[0].reason == r"no \boxed{...} after the thoughts"
    assert [turn.reward_terms for turn in episode.turns] == [{"invalid": -0.1}, {"correct": 1.0}, {"correct": 1.0}]


def test_rewards_of_the_turns_add_up_to_the_returns(path: Path) -> None:
    env = RecordEpisodes(math_loop(reward="role"), path)
    env.reset(seed=0)
    returns = play(env, [WRONG, REJECT, SOLUTION])
    episode = only_episode(path)
    for agent_id, total in returns.items():
        assert sum(turn.reward for turn in episode.turns if turn.agent_id == agent_id) == pytest.approx(total)
        assert episode.returns[agent_id] == pytest.approx(total)


def test_recorded_episode_replays_to_the_same_transcript_by_seed(path: Path) -> None:
    env = RecordEpisodes(math_loop(), path)
    env.reset(seed=11)
    play(env, [WRONG, "x\ud800" * 3, SOLUTION])
    episode, again = only_episode(path), math_loop()
    again.reset(seed=episode.seed)
    play(again, [turn.text for turn in episode.turns])
    assert again.transcript[0] == env.unwrapped.transcript[0]
    assert [turn.text for turn in again.transcript] == [turn.text for turn in episode.turns]
    assert again.task.id == episode.task.id  # type: ignore[union-attr]


def test_recorded_episode_replays_by_its_task_where_it_had_no_seed(path: Path) -> None:
    env = RecordEpisodes(math_loop(), path)
    env.reset()
    play(env, [SOLUTION, APPROVE])
    episode, again = only_episode(path), math_loop()
    assert episode.seed is None
    again.reset(options={"task": episode.task})
    assert play(again, [turn.text for turn in episode.turns]) == episode.returns


@pytest.mark.parametrize("leave", ["reset", "close"])
def test_episode_left_in_the_middle_is_recorded_as_abandoned(path: Path, leave: str) -> None:
    env = RecordEpisodes(math_loop(), path)
    env.reset(seed=0)
    env.step("hm")
    getattr(env, leave)()
    episode = only_episode(path)
    assert (episode.status, episode.success) == ("abandoned", None)
    assert episode.turns[0].reward_terms == {"invalid": -0.1}


def test_abandoned_episodes_are_left_out_on_request(path: Path) -> None:
    env = RecordEpisodes(math_loop(), path, record_abandoned=False)
    env.reset(seed=0)
    env.step("hm")
    env.close()
    assert not path.exists()


def test_episode_without_a_turn_and_second_close_leave_no_line(path: Path) -> None:
    env = RecordEpisodes(math_loop(), path)
    env.reset(seed=0)
    env.reset(seed=1)
    env.step("hm")
    env.close()
    env.close()
    assert only_episode(path).seed == 1


def test_episode_is_written_at_its_end_without_any_dead_step(path: Path) -> None:
    env = RecordEpisodes(math_loop(), path)
    env.reset(seed=0)
    env.step(SOLUTION)
    assert not path.exists()
    env.step(APPROVE)
    assert only_episode(path).status == "finished"


def test_truncation_and_its_cause_are_recorded(path: Path) -> None:
    import mas_envs

    failing = mas_envs.make("MathSolo-v0", grader=lambda text, answer: Grade(False, None, "failed"))
    env = RecordEpisodes(failing, path)
    env.reset(seed=0)
    env.step(SOLUTION)
    episode = only_episode(path)
    assert (episode.truncated, episode.success, episode.error) == (True, None, "grading: failed")


def test_environment_without_transcript_or_tasks_is_recorded_by_its_actions(path: Path) -> None:
    env = RecordEpisodes(Echo(), path)
    env.reset()
    play(env, ["a", "b", "bye", "bye"])
    episode = only_episode(path)
    assert (episode.env_id, episode.task) == ("echo_v0", None)
    assert [turn.text for turn in episode.turns] == ["a", "b", "bye", "bye"]
    assert episode.returns == {"speaker_0": 0.75, "listener_0": 1.0}


def test_turns_of_mates_and_whole_texts_of_tokens_are_recorded(path: Path) -> None:
    view = SingleAgentView(math_loop(), "solver_0", {"verifier_0": lambda messages: APPROVE})
    env = RecordEpisodes(TokenEncoding(view, max_prompt_tokens=8, max_new_tokens=4), path)
    env.reset(seed=0)
    play(env, [67, 68, 69, 70])
    assert [(turn.agent_id, turn.text) for turn in only_episode(path).turns] == [
        ("solver_0", "ABCD"),
        ("verifier_0", APPROVE),
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(texts=st.lists(st.text(st.characters()), min_size=1, max_size=4))
def test_any_text_comes_back_from_the_file(path: Path, texts: list[str]) -> None:
    path.unlink(missing_ok=True)
    env = RecordEpisodes(Echo(), path)
    env.reset()
    spoken = [text for text in texts if text != "bye"]
    for text in [*spoken, "x"]:
        env.step(text)
    env.close()
    assert [turn.text for turn in only_episode(path).turns] == [*spoken, "x"]
    assert path.read_bytes().isascii()


def test_half_written_last_line_is_passed_over(path: Path) -> None:
    env = RecordEpisodes(math_loop(), path)
    for _ in range(2):
        env.reset()
        play(env, [SOLUTION, APPROVE])
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert len(list(read_episodes(path))) == 1


def test_line_broken_by_a_crash_does_not_swallow_the_next_episode(path: Path) -> None:
    env = RecordEpisodes(math_loop(), path)
    env.reset()
    play(env, [SOLUTION, APPROVE])
    path.write_bytes(path.read_bytes()[:-20])
    env.reset(seed=8)
    play(env, [SOLUTION, APPROVE])
    with pytest.warns(UserWarning, match=r"episodes.jsonl, line 1 is no episode and is left out"):
        episodes = list(read_episodes(path))
    assert [episode.seed for episode in episodes] == [8]


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none.jsonl"):
        list(read_episodes(tmp_path / "none.jsonl"))


def test_environments_in_threads_share_a_file(path: Path) -> None:
    def work(number: int) -> None:
        env = RecordEpisodes(math_loop(tasks={"name": "arithmetic", "level": 1}), path)
        for episode in range(10):
            env.reset(seed=100 * number + episode)
            play(env, [SOLUTION + "x" * 20_000, REJECT, SOLUTION])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    seeds = sorted(episode.seed for episode in read_episodes(path) if episode.seed is not None)
    assert seeds == [100 * number + episode for number in range(4) for episode in range(10)]


def test_copy_in_mid_episode_records_its_own_course(path: Path) -> None:
    env = RecordEpisodes(math_loop(), path)
    env.reset(seed=0)
    env.step(SOLUTION)
    twin = copy.deepcopy(env)
    play(env, [APPROVE])
    play(twin, [REJECT, WRONG])
    assert [[turn.text for turn in episode.turns] for episode in read_episodes(path)] == [
        [SOLUTION, APPROVE],
        [SOLUTION, REJECT, WRONG],
    ]


def test_write_that_takes_only_a_part_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = RecordEpisodes(math_loop(), path)
    env.reset(seed=0)
    env.step(SOLUTION)
    monkeypatch.setattr("os.write", lambda descriptor, data: len(data) - 1)
    with pytest.raises(OSError, match="took only a part of an episode; is the disk full"):
        env.step(APPROVE)


def test_each_line_is_one_json_object(path: Path) -> None:
    env = RecordEpisodes(math_loop(), path)
    env.reset(seed=0)
    play(env, [SOLUTION, APPROVE])
    [line] = path.read_text().splitlines()
    assert set(json.loads(line)) == set(RecordedEpisode.__dataclass_fields__)
