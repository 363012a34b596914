"""Turns one dumped generation batch (prompts, texts, rewards) into group summaries that hold no text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import groupby
from typing import TypeVar

import xxhash
from msgspec import Struct

from grpo_watch.engine.metric_names import MAX_FUNCTIONS
from grpo_watch.engine.records import CompletionSummary, GroupSummary, Stream
from grpo_watch.sources.base import KeptTexts
from grpo_watch.sources.completions.text_reduction import (
    HEAD,
    SHOWN,
    CollectedRows,
    TextQuality,
    Triple,
    excerpt,
    near_copies,
    quality,
    triples,
)

SAMPLED = 64
"""Completions of a batch, in whole groups, that are checked for loops, scraps and near copies. A share of 30 % is then
known to ± 6 % if groups differ little, and batches of up to 64 are checked completely."""
T = TypeVar("T", bound=Hashable)
V = TypeVar("V")
SHOWN_GROUPS, SHOWN_EACH = 8, 16
"""Groups of a batch, and completions per group, whose beginnings the page's table shows."""
ADVANTAGE = "advantage"
"""The column of advantages beside the reward functions."""
MARKS = 16
"""Distinct texts of a group whose hashes are kept, to recognise them at other steps."""


class Grouping(Struct, frozen=True):
    """The groups of one dump; ``reason`` says why there are none (then ``groups`` is empty).

    ``digest`` is a hash of all prompts and texts in order, ``prompts`` of the prompts alone: equal digests mean the
    same table. ``odd`` names columns of rewards that have another length than the rows. ``by_prompt``: rows shown on a
    console, grouped by equal prompts. ``step`` is that of the dump's own column. ``row``: the values of a dump without
    texts, under the framework's keys.
    """

    groups: tuple[GroupSummary, ...]
    reason: str = ""
    digest: str = ""
    prompts: str = ""
    odd: tuple[str, ...] = ()
    by_prompt: bool = False
    step: int | None = None
    row: Mapping[str, float | None] | None = None

    def summary(self, channel: str, step: int, stream: Stream, segment: int, seen: float | None) -> CompletionSummary:
        """Return the summary of this channel's dump for this step."""
        return CompletionSummary(
            channel=channel,
            step=step,
            groups=self.groups,
            stream=stream,
            segment=segment,
            seen=seen,
            complete=not self.reason,
            reason=self.reason,
            odd=self.odd,
            by_prompt=self.by_prompt,
        )


def summarise_groups(
    prompts: Sequence[object],
    completions: Sequence[object],
    rewards: Mapping[str, Sequence[object]],
    group_size: int | None,
    *,
    examples: KeptTexts = KeptTexts.EXCERPT,
) -> Grouping:
    """Summarise a batch whose groups are consecutive slices of G rows.

    TRL (0.15 to 1.16) and ms-swift (3.1 to 4.6) write no group id; both keep the G completions of a prompt together.

    Args:
        prompts: one per row.
        completions: one per row.
        rewards: per reward function one value per row; NaN, null and text become None. The key ``advantage`` holds
            advantages. A column of another length than the rows is left out.
        group_size: G as configured; None derives it from runs of equal prompts, else from advantages.
        examples: how much of the texts is kept.
    """
    if len(prompts) != len(completions):
        return Grouping((), f"{len(prompts)} prompts but {len(completions)} completions")
    rows = CollectedRows()
    rows.extend(prompts, completions)
    return group(rows, rewards, group_size, examples=examples)


def group(
    rows: CollectedRows,
    rewards: Mapping[str, Sequence[object]],
    group_size: int | None,
    *,
    examples: KeptTexts = KeptTexts.EXCERPT,
) -> Grouping:
    """Summarise a batch like ``summarise_groups``, from reduced rows."""
    derived = derived_group_size(rows.prompts)
    size = group_size or centred_size(rewards.get(ADVANTAGE, ()), len(rows), derived or 1) or derived
    reason = _why_not(len(rows), size)
    prompts, digest = digests(rows)
    if reason or size is None:
        return Grouping((), reason, digest, prompts)
    members = [range(at, at + size) for at in range(0, len(rows), size)]
    odd = tuple(name for name, column in rewards.items() if len(column) != len(rows))
    return Grouping(summaries(rows, members, rewards, examples=examples), "", digest, prompts, odd)


def digests(rows: CollectedRows) -> tuple[str, str]:
    """Return hashes of all prompts, and of all prompts and texts."""
    prompts = b"".join(rows.prompts)
    whole = xxhash.xxh3_128_hexdigest(b"".join((prompts, *rows.texts)))
    return str(xxhash.xxh3_128_hexdigest(prompts)), str(whole)


def derived_group_size(prompts: Sequence[bytes]) -> int | None:
    """Return the greatest common divisor of the runs of equal consecutive prompts; None if it is below 2."""
    size = math.gcd(*(sum(1 for _ in run) for _, run in groupby(prompts)))
    return size if size > 1 else None


CENTRED, LEAST_GROUPS, LEAST_SIZES = 1e-3, 8, 3
"""Most of the advantages' sizes that rounding leaves in a group's sum; fewest groups with a spread that must show it;
and fewest different sizes of advantages, as a batch baseline's few sizes sum to 0 in some groups by chance."""


def centred_size(advantages: Sequence[object], rows: int, unit: int) -> int | None:
    """Return the smallest G, a multiple of ``unit``, for which all consecutive groups have advantages summing to 0.

    The trainer cut the batch like that, whatever prompts it put into a group. None if no size is certain.
    """
    values = [_number(value) for value in advantages]
    known = [value for value in values if value is not None and math.isfinite(value)]
    apart = len({f"{abs(value):.3g}" for value in known if value})
    sizes = range(max(unit, 2), rows // LEAST_GROUPS + 1, unit) if len(known) == rows and apart >= LEAST_SIZES else ()
    for size in sizes:
        if rows % size == 0 and _centred([known[at : at + size] for at in range(0, rows, size)]):
            return size
    return None


def _centred(groups: Sequence[Sequence[float]]) -> bool:
    sizes = [math.fsum(map(abs, group)) for group in groups]
    centred = all(abs(math.fsum(group)) <= CENTRED * size for group, size in zip(groups, sizes, strict=True))
    return centred and sum(size > CENTRED * max(sizes) for size in sizes) >= LEAST_GROUPS


def summaries(
    rows: CollectedRows,
    members: Sequence[Sequence[int]],
    rewards: Mapping[str, Sequence[object]],
    *,
    examples: KeptTexts = KeptTexts.EXCERPT,
) -> tuple[GroupSummary, ...]:
    """Summarise groups, each given by its row numbers, with the first ``MAX_FUNCTIONS`` reward functions."""
    beyond = frozenset([name for name in rewards if name != ADVANTAGE][MAX_FUNCTIONS:])
    columns = {
        name: _cut([_number(value) for value in column], members)
        for name, column in rewards.items()
        if len(column) == len(rows) and name not in beyond
    }
    parts = (rows.prompts, rows.texts, rows.lengths, rows.empty, rows.openings)
    cut = zip(*(_cut(column, members) for column in parts), strict=True)
    seen, unseen = look_through(rows, _sample(rows, members)), TextScan()
    groups: list[GroupSummary] = []
    for number, (prompts, texts, lengths, empty, openings) in enumerate(cut):
        looks = seen.get(number, unseen)
        pattern, distinct = numbered(texts), list(dict.fromkeys(texts))
        copies = len(distinct) < len(texts) or (looks.near_unique or len(distinct)) < len(distinct)
        odd = copies or looks.looping + looks.scattered > 0
        one = GroupSummary(
            prompt_id=prompts[0].hex()[:12],
            size=len(texts),
            pattern=pattern,
            unique=len(distinct),
            lengths=lengths,
            empty=empty.count(True),
            prompts=len(set(prompts)),
            near_unique=looks.near_unique,
            judged=looks.judged,
            looping=looks.looping,
            scattered=looks.scattered,
            rewards={name: column[number] for name, column in columns.items()},
            digest=str(xxhash.xxh3_128_hexdigest(b"".join((prompts[0], *texts)))),
            example=_example(rows, members[number], pattern) if examples and odd else "",
            openings=numbered(openings),
            distinct=looks.distinct,
            marks=tuple([int.from_bytes(text[:4], "big") for text in distinct[:MARKS]]),
            shown=_shown(rows, members[number]) if examples > KeptTexts.EXCERPT and number < SHOWN_GROUPS else (),
        )
        groups.append(one)
    return tuple(groups)


def _sample(rows: CollectedRows, members: Sequence[Sequence[int]]) -> dict[int, Sequence[int]]:
    """Return the groups of the lowest prompt hashes with kept texts, at least two, of about 64 completions in all."""
    whole = [number for number, at in enumerate(members) if not rows.windows.keys().isdisjoint(at)]
    chosen: dict[int, Sequence[int]] = {}
    left = SAMPLED
    for number in sorted(whole, key=lambda number: rows.prompts[members[number][0]]):
        if left <= 0 and len(chosen) > 1:
            break
        chosen[number] = members[number]
        left -= len(members[number])
    return chosen


def _why_not(rows: int, size: int | None) -> str:
    if not rows:
        return "an empty table"
    if size is None:
        return "the group size is not configured and the prompts do not show it"
    if size < 1 or rows % size:
        return f"{rows} rows are no multiple of the group size {size}"
    return ""


def _number(value: object) -> float | None:
    try:
        number = float(value) if isinstance(value, (int, float)) else math.nan
    except OverflowError:  # an integer too large for a float
        return None
    return None if math.isnan(number) else number


def _cut(column: Sequence[V], members: Sequence[Sequence[int]]) -> list[tuple[V, ...]]:
    return [tuple([column[place] for place in at]) for at in members]


def numbered(values: Sequence[T]) -> tuple[int, ...]:
    """Number equal values by first appearance."""
    numbers: dict[T, int] = {}
    return tuple([numbers.setdefault(value, len(numbers)) for value in values])


def _shown(rows: CollectedRows, at: Sequence[int]) -> tuple[str, ...]:
    """Return the beginnings of the prompt and the first completions; empty if no text of the group was kept."""
    prompt = rows.asked.get(rows.prompts[at[0]])
    if prompt is None:
        return ()
    heads = [prompt, *(rows.windows.get(row, "")[:HEAD] for row in at[:SHOWN_EACH])]
    return tuple([excerpt(head, SHOWN) for head in heads])


def _example(rows: CollectedRows, at: Sequence[int], pattern: Sequence[int]) -> str:
    """Return an excerpt of the group's most repeated non-empty text; "" if no text was kept."""
    written = [number for number, row in zip(pattern, at, strict=True) if not rows.empty[row]]
    if not written:
        return ""
    (commonest, _), *_ = Counter(written).most_common(1)
    return excerpt(rows.windows.get(at[pattern.index(commonest)], "")[:HEAD])


class TextScan(Struct, frozen=True):
    """Quality of the texts of one group; all None or 0 if the group was not checked.

    ``judged`` texts were long enough to judge, of which ``looping`` and ``scattered`` are degenerate; ``near_unique``
    counts texts, near copies as one; ``distinct`` is distinct-3.
    """

    judged: int | None = None
    looping: int = 0
    scattered: int = 0
    near_unique: int | None = None
    distinct: float | None = None


def look_through(rows: CollectedRows, groups: Mapping[int, Sequence[int]]) -> dict[int, TextScan]:
    """Return the text quality of each group, given by row numbers; equal texts are checked once."""
    windows = {rows.texts[at]: rows.windows.get(at, "") for places in groups.values() for at in reversed(places)}
    looks = {text: (quality(shown), triples(shown)) for text, shown in windows.items()}
    return {number: _scan([rows.texts[at] for at in places], looks) for number, places in groups.items()}


def _scan(texts: Sequence[bytes], looks: Mapping[bytes, tuple[TextQuality, Sequence[Triple]]]) -> TextScan:
    kinds = Counter(looks[text][0] for text in texts)
    alike = near_copies([looks[text][1] for text in dict.fromkeys(texts)])
    judged = len(texts) - kinds[TextQuality.SHORT]
    return TextScan(judged, kinds[TextQuality.LOOPING], kinds[TextQuality.SCATTERED], *alike)
