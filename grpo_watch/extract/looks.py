"""Looks through the sampled texts of a batch: how many of a group are degenerate, nearly equal, or new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grpo_watch.extract.collected import Collected
from grpo_watch.extract.quality import Quality, quality


@dataclass(frozen=True, slots=True)
class Looks:
    """What the texts of one group look like; all None or 0 where the group was not looked through.

    ``judged`` texts were long enough to tell, of which ``looping`` and ``scattered`` are degenerate; ``near_unique``
    counts different texts when near copies are one; ``distinct`` is distinct-3.
    """

    judged: int | None = None
    looping: int = 0
    scattered: int = 0
    near_unique: int | None = None
    distinct: float | None = None


def look_through(rows: Collected, groups: Mapping[int, Sequence[int]]) -> dict[int, Looks]:
    """The looks of each group, whose rows are given by their places; equal texts are looked at once."""
    from grpo_watch.extract.alike import likeness, triples  # noqa: PLC0415  numpy: 16 MB that not every run needs

    texts = {number: Counter(rows.texts[at] for at in places) for number, places in groups.items()}
    window = {rows.texts[at]: rows.windows.get(at, "") for places in groups.values() for at in reversed(places)}
    shingles = dict(zip(window, triples(list(window.values())), strict=True)) if window else {}
    found = {}
    for number, counts in texts.items():
        kinds: Counter[Quality] = Counter()
        for text, count in counts.items():
            kinds[quality(window[text])] += count
        sets = [shingles[text] for text in counts]
        near, distinct = likeness(sets)
        found[number] = Looks(
            judged=sum(counts.values()) - kinds[Quality.SHORT],
            looping=kinds[Quality.LOOPING],
            scattered=kinds[Quality.SCATTERED],
            near_unique=near,
            distinct=distinct,
        )
    return found
