"""`hf:NAME` and `reasoning_gym:NAME`: presets on small local files, and the real libraries where they are installed."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pytest
from pyarrow import parquet

import mas_envs
from mas_envs.errors import MissingExtraError, TaskError
from mas_envs.hub_tasks import hub_tasks, preset_names
from mas_envs.math_loop.datasets import PRESETS as MATH_PRESETS
from mas_envs.math_loop.datasets import problem_from_row
from mas_envs.search.datasets import PRESETS
from mas_envs.tasks import load_tasks

SETS = ("nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle")
has_datasets = importlib.util.find_spec("datasets") is not None
has_gym = importlib.util.find_spec("reasoning_gym") is not None


def published_rows() -> list[dict[str, Any]]:
    """Two rows of every set, as the published training files mix them; ids start anew in each set."""
    return [
        {
            "id": f"test_{number}",
            "question": f" Question {number} of {name}? ",
            "golden_answers": [f"{name} {number}", "either"],
            "data_source": name,
            "metadata": {"supporting_facts": {"title": ["First", "Second", "First"], "sent_id": [0, 1, 2]}},
        }
        for name in SETS
        for number in range(2)
    ]


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    path = tmp_path / "test.parquet"
    parquet.write_table(arrow.Table.from_pylist(published_rows()), path)
    return path


@pytest.mark.parametrize("name", SETS)
def test_preset_reads_its_rows_of_a_mixed_parquet_file(mixed: Path, name: str) -> None:
    tasks = load_tasks({"name": f"hf:{name}", "file": str(mixed)})
    assert [task.question for task in tasks] == [f"Question {number} of {name}?" for number in range(2)]
    assert tasks[1].answer == (f"{name} 1", "either")
    assert {task.source for task in tasks} == {tasks.name} == {name}
    assert tasks[0].metadata["supporting_titles"] == ("First", "Second")
    assert tasks[0].id == f"{name}/test_0"


def test_training_mix_keeps_every_source(mixed: Path) -> None:
    tasks = hub_tasks("nq_hotpotqa", file=mixed)
    assert {task.source for task in tasks} == set(SETS)
    assert len({task.id for task in tasks}) == 14


def test_file_of_one_set_that_names_no_source_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "dev.jsonl"
    path.write_text("\n".join(json.dumps({"question": f"q{number}", "golden_answers": ["a"]}) for number in range(5)))
    tasks = hub_tasks("2Wiki", file=path, limit=3)
    assert [task.id for task in tasks] == [
        "2wikimultihopqa/2wikimultihopqa-1",
        *(f"2wikimultihopqa/2wikimultihopqa-{n}" for n in (2, 3)),
    ]
    assert {task.source for task in tasks} == {"2wikimultihopqa"}
    assert "supporting_titles" not in tasks[0].metadata


@pytest.mark.parametrize(
    ("metadata", "titles"),
    [
        ({"supporting_facts": [["A", 0], ["B", 3], ["A", 1]]}, ("A", "B")),
        ({"supporting_titles": ["A", "B"]}, ("A", "B")),
        ({"supporting_facts": "A"}, None),
        ({"supporting_facts": None}, None),
        ({"other": 1}, None),
    ],
)
def test_supporting_titles_are_found_where_rows_have_them(
    tmp_path: Path, metadata: dict[str, Any], titles: tuple[str, ...] | None
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"question": "q", "golden_answers": ["a"], "metadata": metadata}))
    assert hub_tasks("musique", file=path)[0].metadata.get("supporting_titles") == titles


def test_environment_plays_a_preset_with_a_retriever_of_ones_own(mixed: Path) -> None:
    from tests.mas_envs.search.table import TableRetriever, passage

    retriever = TableRetriever({"x": [passage("First"), passage("Second")]})
    tasks = {"name": "hf:hotpotqa", "file": str(mixed)}
    env = mas_envs.make("HierarchicalSearch-v0", tasks=tasks, retriever=retriever, prompt_style="short").unwrapped
    env.reset(options={"task": 1})
    for action in ("<verify>no</verify>", "<search>x</search>", "<verify>yes</verify>", "<answer>HotpotQA 1.</answer>"):
        env.step(action)
    assert env.infos["answerer_0"]["success"] is True
    assert env.infos["answerer_0"]["source"] == "hotpotqa"
    assert env.has_all_evidence


INSTRUCTION = "Let's think step by step and output the final answer within \\boxed{}."


def math_row(content: Any = f"What is 1+1? {INSTRUCTION}", **changes: Any) -> dict[str, Any]:
    row = {"data_source": "math_dapo", "prompt": [{"role": "user", "content": content}]}
    return {**row, "reward_model": {"style": "rule", "ground_truth": "2"}, **changes}


def test_published_math_problems_are_read_without_their_instruction(tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"
    rows = [math_row(), math_row(f"Let x = 2.\n\n{INSTRUCTION}\n"), math_row("Box it: \\boxed{} is empty. Why?")]
    parquet.write_table(arrow.Table.from_pylist(rows), path)
    tasks = load_tasks({"name": "hf:dapo_filter", "file": str(path)})
    assert [task.question for task in tasks] == ["What is 1+1?", "Let x = 2.", "Box it: \\boxed{} is empty. Why?"]
    assert [task.answer for task in tasks] == ["2"] * 3
    assert {task.source for task in tasks} == {"dapo_filter"}


@pytest.mark.parametrize("name", [name for name in MATH_PRESETS if name != "dapo_filter"])
def test_math_test_sets_are_read_from_problem_and_answer(name: str, tmp_path: Path) -> None:
    path = tmp_path / "test.jsonl"
    path.write_text(json.dumps({"id": 60, "problem": "1+1", "solution": "It is 2.", "answer": 2}), encoding="utf-8")
    (task,) = load_tasks({"name": f"hf:{name}", "file": str(path)})
    assert (task.question, task.answer, task.source) == ("1+1", "2", name)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (3, "expected an object with 'prompt' and 'reward_model', got 3"),
        (math_row(prompt="1+1"), "field 'prompt': expected a list of one message, got '1\\+1'"),
        (math_row(reward_model={}), "field 'reward_model': expected an object with 'ground_truth', got {}"),
        (math_row(content=None), "field 'question': expected text, got None"),
    ],
)
def test_bad_row_of_published_math_problems_is_named(row: Any, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        problem_from_row(row, default_id="a", default_source="b")


def test_bad_rows_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"question": "q", "golden_answers": []}\n{"golden_answers": ["a"]}')
    with pytest.raises(
        TaskError, match=r"x\.jsonl: 2 bad rows\n  line 1: field 'golden_answers': .*\n  line 2: field 'quest"
    ):
        hub_tasks("nq", file=path)


def test_file_without_rows_of_the_preset_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"question": "q", "golden_answers": ["a"], "data_source": "nq"}))
    with pytest.raises(TaskError, match=r"x\.jsonl: holds no rows of 'popqa'; check the file, or the split"):
        hub_tasks("popqa", file=path)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("hf:hotpot", "hf:hotpot: expected owner/name or a preset; did you mean hotpotqa"),
        ("hf:zzzz", "hf:zzzz: expected owner/name or a preset; presets are 2wiki, 2wikimultihopqa, aime24"),
        ({"name": "hf:nq", "limit": 0}, "hf:nq: limit=0: expected a whole number >= 1, or None for all"),
        ({"name": "hf:nq", "splits": "x"}, "task set 'hf:nq' does not take the option 'splits'; did you mean 'split'"),
        ({"name": "hf:nq", "file": "none.parquet"}, r"none\.parquet: no such file; check the path"),
        (
            {"name": "reasoning_gym:leg_counting", "size": 0},
            "reasoning_gym:leg_counting: size=0: expected a whole number",
        ),
    ],
)
def test_unusable_request_is_refused(source: Any, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        load_tasks(source)


@pytest.mark.parametrize(
    ("module", "source", "message"),
    [
        ("datasets", "hf:nq", r"hf:nq needs datasets; pip install 'mas-envs\[data\]'"),
        ("reasoning_gym", "reasoning_gym:leg_counting", r"reasoning_gym:leg_counting needs reasoning_gym; pip install"),
    ],
)
def test_missing_library_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, module: str, source: str, message: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=message):
        load_tasks(source)


def test_every_set_of_the_paper_has_a_preset() -> None:
    assert set(SETS) <= set(preset_names()) == {*PRESETS, *MATH_PRESETS}
    assert not PRESETS.keys() & MATH_PRESETS.keys()
    assert {PRESETS[name].source for name in SETS} == set(SETS)


@pytest.mark.skipif(not has_datasets, reason="needs mas-envs[data]")
def test_hub_library_reads_a_folder_that_looks_like_a_data_set(tmp_path: Path) -> None:
    rows = [{"problem": f"{number}+1", "answer": str(number + 1)} for number in range(4)]
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "train.parquet")
    tasks = hub_tasks(str(tmp_path), limit=3)
    assert [(task.question, task.answer) for task in tasks] == [("0+1", "1"), ("1+1", "2"), ("2+1", "3")]
    with pytest.raises(TaskError, match=r"hf:.*cannot be loaded .*; check name, config, split and network"):
        hub_tasks(str(tmp_path), split="nowhere")


@pytest.mark.skipif(not has_gym, reason="needs mas-envs[data]")
def test_generated_tasks_are_the_same_for_a_seed() -> None:
    tasks = load_tasks({"name": "reasoning_gym:leg_counting", "size": 5, "seed": 3})
    again = load_tasks({"name": "reasoning_gym:leg_counting", "size": 5, "seed": 3})
    assert [task.question for task in tasks] == [task.question for task in again]
    assert len({task.id for task in tasks}) == 5
    assert tasks[0].source == "reasoning_gym-leg_counting"
    with pytest.raises(TaskError, match="reasoning_gym:no_such_set cannot be made"):
        load_tasks("reasoning_gym:no_such_set")
