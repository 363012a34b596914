"""Full collections come at a fixed pace, and free what is left in cycles."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from grpo_watch.daemon.service import FULL_SECONDS, PacedCollections


class Cycle:
    """Refers to itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def _thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_a_cycle_that_got_old_is_freed_within_the_pace() -> None:
    now = [0.0]
    collections = PacedCollections(lambda: now[0])
    made = Cycle()
    left = weakref.ref(made)
    gc.collect()  # it is old now: no collection of young objects finds it
    del made
    now[0] = FULL_SECONDS - 1.0
    collections.turn()
    assert left() is not None
    now[0] = FULL_SECONDS
    collections.turn()
    assert left() is None


def test_young_cycles_are_freed_as_objects_are_made() -> None:
    PacedCollections(lambda: 0.0)
    left = weakref.ref(Cycle())
    kept = [[] for _ in range(2 * gc.get_threshold()[0])]
    assert left() is None
    assert kept
