"""What `receive` returned, which may be anything: a fault is named as the environment's."""

from typing import Any, ClassVar

import pytest

from mas_envs.conversation import Outcome
from mas_envs.errors import MasEnvsError
from tests.mas_envs.test_conversation import TASKS, Relay

FAULTS: dict[str, Any] = {
    "none": None,
    "bare": Outcome("writer_1", {"writer_0": 1.0}),  # type: ignore[dict-item]  # the fault itself, as below
    "words": Outcome("writer_1", {"writer_0": {"wage": "much"}}),  # type: ignore[dict-item]
    "yes": Outcome(None, success="yes"),  # type: ignore[arg-type]
}


class Faulty(Relay):
    faults: ClassVar[dict[str, Any]] = FAULTS

    def receive(self, agent_id: str, text: str) -> Outcome:
        outcome: Outcome = self.faults[text]
        return outcome


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("none", r"receive of relay_v0 returned None; expected an Outcome, such as Outcome\('writer_2'\): mend"),
        ("bare", r"paid {'writer_0': 1.0}; expected agent -> term -> amount, such as {'solver_0': {'correct': 1.0}}"),
        ("words", r"paid writer_0 {'wage': 'much'} at turn 1; expected finite rewards"),
        ("yes", r"said success='yes'; expected True, False or None"),
    ],
)
def test_outcome_that_is_none_is_named_as_a_fault_of_the_environment(text: str, message: str) -> None:
    env = Faulty(TASKS)
    env.reset(seed=0)
    with pytest.raises(MasEnvsError, match=message):
        env.step(text)
