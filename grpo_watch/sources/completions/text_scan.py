"""Looks through the sampled texts of a batch: how many of a group are degenerate, nearly equal, or new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grpo_watch.sources.completions.reduced_rows import CollectedRows
from grpo_watch.sources.completions.text_reduction import TextQuality, quality

if TYPE_CHECKING:
    from grpo_watch.sources.completions.near_copies import NearCopies


@dataclass(frozen=True, slots=True)
class TextScan:
    """What the texts of one group look like; all None or 0 where the group was not looked through.

    ``judged`` texts were long enough to judge, of which ``looping`` and ``scattered`` are degenerate; ``near_unique``
    counts different texts when near copies are one; ``distinct`` is distinct-3.
    """

    judged: int | None = None
    looping: int = 0
    scattered: int = 0
    near_unique: int | None = None
    distinct: float | None = None


def look_through(rows: CollectedRows, groups: Mapping[int, Sequence[int]]) -> dict[int, TextScan]:
    """The looks of each group, whose rows are given by their places; equal texts are looked at once."""
    from grpo_watch.sources.completions.near_copies import likenesses  # noqa: PLC0415  numpy: 16 MB that not every run needs
    from grpo_watch.sources.completions.word_hashes import triples  # noqa: PLC0415

    texts = {number: _counted([rows.texts[at] for at in places]) for number, places in groups.items()}
    window = {rows.texts[at]: rows.windows.get(at, "") for places in groups.values() for at in reversed(places)}
    shingles = dict(zip(window, triples(list(window.values())), strict=True)) if window else {}
    alike = likenesses([[shingles[text] for text in counts] for counts in texts.values()])
    kinds = {text: quality(shown) for text, shown in window.items()}
    scanned = zip(texts.items(), alike, strict=True)
    return {number: _looks(counts, kinds, likeness) for (number, counts), likeness in scanned}


def _counted(texts: Sequence[bytes]) -> Mapping[bytes, int]:
    """How often each text occurs; nearly always once, and then five times faster."""
    once = dict.fromkeys(texts, 1)
    return once if len(once) == len(texts) else Counter(texts)


def _looks(counts: Mapping[bytes, int], kinds: Mapping[bytes, TextQuality], alike: NearCopies) -> TextScan:
    short = looping = scattered = 0
    for text, count in counts.items():
        kind = kinds[text]
        if kind is TextQuality.SHORT:
            short += count
        elif kind is TextQuality.LOOPING:
            looping += count
        elif kind is TextQuality.SCATTERED:
            scattered += count
    return TextScan(sum(counts.values()) - short, looping, scattered, alike.near_unique, alike.distinct)
