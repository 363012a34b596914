"""Packed rows read like the rows themselves."""

from __future__ import annotations

from collections import deque
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from grpo_watch.engine.recent_rows import RECENT, WHOLE, RecentRows
from grpo_watch.engine.records import MetricRow, Stream

VALUES = st.dictionaries(st.sampled_from(("kl", "reward_mean", "loss")), st.floats() | st.none())


def row(step: int, values: dict[str, float | None]) -> MetricRow:
    return MetricRow(
        "r", Stream.TRAIN, 1 + step // 40, step, values, {"train/kl": 1.0}, step / 2, None, 0.01, step % 7 == 0
    )


def plain(one: MetricRow) -> str:
    """A row without ``raw``, as text: NaN equals itself there."""
    return repr(one._replace(raw={}))


@given(st.lists(VALUES, max_size=3 * WHOLE))
def test_rows_come_back_as_they_were(drawn: list[dict[str, float | None]]) -> None:
    rows, recent = [row(step, values) for step, values in enumerate(drawn)], RecentRows()
    for one in rows:
        recent.append(one)
    assert list(map(plain, recent)) == list(map(plain, rows))
    assert list(map(plain, reversed(recent))) == list(map(plain, reversed(rows)))
    assert recent.newest(2) == rows[-2:]


def test_the_newest_512_rows_are_kept_and_the_last_ones_with_their_own_keys() -> None:
    kept, recent = deque[MetricRow](maxlen=512), RecentRows()
    for step in range(600):
        kept.append(row(step, {"kl": float(step)}))
        recent.append(kept[-1])
    assert len(recent) == RECENT == len(kept)
    assert [one.step for one in recent] == [one.step for one in kept]
    assert all(one.raw == {"train/kl": 1.0} for one in islice(reversed(recent), WHOLE))
    assert next(iter(recent)).raw == {}
