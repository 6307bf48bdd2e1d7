"""PettingZoo's own tests; of their warnings only the three that text cannot avoid are passed over, by message."""

import contextlib
import io
import re
import warnings
from collections.abc import Callable, Iterator

from mas_envs.checks.findings import Fault, SkipCheckError
from mas_envs.checks.subject import AnyEnv, Subject
from mas_envs.error_texts import describe_error, short

__all__ = ["BENIGN_WARNINGS", "passes_api_test", "passes_render_test", "passes_seed_test"]

BENIGN_WARNINGS = tuple(
    re.compile(message)
    for message in (
        r"Observation is not a NumPy array",
        r"Observation space for each agent probably should be gymnasium\.spaces\.box or gymnasium\.spaces\.discrete",
        r"Action space for each agent probably should be gymnasium\.spaces\.box or gymnasium\.spaces\.discrete",
    )
)
"""What PettingZoo says about every text environment: text is no array and no box."""

_NUM_CYCLES = 30


def passes_api_test(subject: Subject) -> Iterator[Fault]:
    """`pettingzoo.test.api_test`."""
    from pettingzoo.test import api_test  # here, because it imports pytest and half of PettingZoo

    env = _with_seeded_actions(subject)
    yield from _run("api_test", lambda: api_test(env, num_cycles=_NUM_CYCLES))


def passes_seed_test(subject: Subject) -> Iterator[Fault]:
    """`pettingzoo.test.seed_test`."""
    from pettingzoo.test import seed_test  # as above

    yield from _run("seed_test", lambda: seed_test(subject.fresh, num_cycles=_NUM_CYCLES))


def passes_render_test(subject: Subject) -> Iterator[Fault]:
    """`pettingzoo.test.render_test`."""
    from pettingzoo.test import render_test  # as above

    modes = subject.fresh().metadata.get("render_modes") or []
    if not modes:
        raise SkipCheckError("the environment declares no render modes")

    def with_render_mode(render_mode: str) -> AnyEnv:
        return subject.with_render_mode(render_mode)

    yield from _run("render_test", lambda: render_test(with_render_mode))


def _with_seeded_actions(subject: Subject) -> AnyEnv:
    env = subject.fresh()
    for index, agent_id in enumerate(env.possible_agents):
        env.action_space(agent_id).seed(subject.seed + index)
    return env


def _run(name: str, test: Callable[[], None]) -> Iterator[Fault]:
    """Runs a test that speaks by raising, warning and printing."""
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("always")
        try:
            test()
        except Exception as error:  # noqa: BLE001  # the test asserts, and third-party code may raise anything
            yield Fault(
                field=f"pettingzoo.test.{name}",
                found=describe_error(error),
                expected="a pass",
                remedy="mend what it says; https://pettingzoo.farama.org/content/environment_tests has more",
            )
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        if not any(message.match(text) for message in BENIGN_WARNINGS):
            yield Fault(
                field=f"pettingzoo.test.{name}",
                found=f"the warning {short(text)!r}",
                expected="no warning but those about text not being an array",
                remedy="mend what the warning says",
            )
