"""Runs thousands of random histories of alerts, kills and answers against the delivery (``make soak``)."""

from __future__ import annotations

import argparse
import sys
import time

from hypothesis import Phase, settings

from tests.model.delivery_machine import DeliveryMachine
from tests.model.in_batches import holds

BATCH = 250
"""Histories that share a seed."""


def main() -> int:
    """The exit code: 0 where every history kept the promises."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=2_000)
    parser.add_argument("--steps", type=int, default=50, help="longest history")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first batch")
    given, began, failures = parser.parse_args(), time.monotonic(), 0
    chosen = settings(
        max_examples=BATCH, stateful_step_count=given.steps, deadline=None, database=None, phases=[Phase.generate]
    )
    batches = -(-given.histories // BATCH)
    for number in range(given.seed, given.seed + batches):
        failures += not holds(DeliveryMachine, number, chosen)
    print(  # noqa: T201  its output
        f"{batches * BATCH} histories, {DeliveryMachine.alerts} changes of alerts, {DeliveryMachine.kills} kills, "
        f"{DeliveryMachine.messages} messages, {failures} batches failed, {time.monotonic() - began:.0f} s"
    )
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
