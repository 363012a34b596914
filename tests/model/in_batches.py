"""Runs many random histories of a state machine; those of one batch share a seed, so that a failure is found again."""

from __future__ import annotations

import traceback

from hypothesis import seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test


def holds(machine: type[RuleBasedStateMachine], number: int, chosen: settings) -> bool:
    """Whether every history of the batch with this seed passes; prints what does not."""
    try:
        seed(number)(run_state_machine_as_test)(machine, settings=chosen)
    except Exception:  # noqa: BLE001  whatever it is, the other batches run
        print(f"seed {number}:")  # noqa: T201  its output
        traceback.print_exc()
        return False
    return True
