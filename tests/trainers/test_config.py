"""Settings say what is wrong by the full path of what the user typed."""

from pathlib import Path
from typing import Any

import pytest

from trainers.config import SettingsError, load_settings, parse_settings, recipe_names


def minimal(**changes: Any) -> dict[str, Any]:
    return {"env": {"id": "MathLoop-v0"}, "policies": {"p": {}}, "agents": {"solver": "p"}, **changes}


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_loads(name: str) -> None:
    assert load_settings(name).name == name


@pytest.mark.parametrize(
    ("override", "path"),
    [
        ("estimator=grpo", "algorithm.estimator"),
        ("algorithm.estimator=grpo", "algorithm.estimator"),
    ],
)
def test_last_name_of_a_setting_is_enough(override: str, path: str) -> None:
    settings = load_settings("math-tiny", [override])
    section, name = path.split(".")
    assert getattr(getattr(settings, section), name) == "grpo"


def test_override_reaches_into_policies_and_env_arguments() -> None:
    settings = load_settings("math-tiny", ["policies.solver.lr=1e-3", "env.kwargs.max_loops=3", "seed=7"])
    assert settings.policies["solver"].lr == pytest.approx(1e-3)
    assert settings.env.kwargs["max_loops"] == 3
    assert settings.seed == 7


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("estimatr=grpo", r"unknown setting 'estimatr'; did you mean 'algorithm.estimator'\?"),
        ("algorithm.estimatr=grpo", r"unknown setting 'algorithm.estimatr'; did you mean 'estimator'\?"),
        ("policies.solver.lrr=1", r"unknown setting 'policies.solver.lrr'; did you mean 'lr'\?"),
        ("iterations=many", r"iterations='many': input should be a valid integer"),
        ("every=3", r"the setting 'every' could be any of evaluation.every, checkpoint.every; write the whole path"),
        ("iterations", r"override 'iterations': expected key=value"),
        ("seed.x=1", r"override 'seed.x=1': 'seed' holds a value, not settings"),
        ("env.kwargs={", r"the value is not YAML"),
        ("policies.solver.lr=-1", r"policies.solver.lr=-1: input should be greater than 0"),
    ],
)
def test_bad_override_is_one_clear_error(override: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load_settings("math-tiny", [override])


def test_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(SettingsError, match=r"no recipe 'math-tinny'.*did you mean math-tiny"):
        load_settings("math-tinny")


def test_missing_recipe_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"gone\.yaml': no such file"):
        load_settings(tmp_path / "gone.yaml")


@pytest.mark.parametrize(("text", "message"), [("a: [", "is not YAML"), ("- 1", "holds list; expected settings")])
def test_recipe_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(SettingsError, match=message):
        load_settings(tmp_path / "bad.yaml")


def test_agent_with_an_unknown_policy_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"agents.solver='q' is not a policy; expected one of p"):
        parse_settings(minimal(agents={"solver": "q"}))


def test_policy_that_no_agent_uses_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"policies.q is used by no agent"):
        parse_settings(minimal(policies={"p": {}, "q": {}}))


def test_missing_section_is_named() -> None:
    values = minimal()
    del values["env"]
    with pytest.raises(SettingsError, match=r"the setting 'env' is missing"):
        parse_settings(values)


def test_settings_survive_their_own_file(tmp_path: Path) -> None:
    import yaml

    settings = load_settings("math-tiny", ["seed=3"])
    path = tmp_path / "settings.yaml"
    path.write_text(yaml.safe_dump(settings.model_dump(mode="json")))
    assert load_settings(path) == settings


def test_argument_of_the_chat_template_that_the_trainer_sets_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"chat_template_kwargs\.tokenize is set by the trainer; remove it"):
        parse_settings(minimal(policies={"p": {"chat_template_kwargs": {"tokenize": True}}}))


def test_policies_of_one_model_that_is_warm_started_have_one_chat_template() -> None:
    values = minimal(
        policies={"p": {"model": "m"}, "q": {"model": "m", "chat_template_kwargs": {"enable_thinking": False}}},
        agents={"solver": "p", "verifier": "q"},
    )
    assert parse_settings(values).policies["q"].chat_template_kwargs == {"enable_thinking": False}
    with pytest.raises(SettingsError, match=r"policies\.q\.chat_template_kwargs=.* differs from what 'p' has: a warm"):
        parse_settings({**values, "warm_start": {}})
