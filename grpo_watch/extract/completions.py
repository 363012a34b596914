"""Turns one dumped generation batch (prompts, texts, rewards) into group summaries that hold no text."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import xxhash

from grpo_watch.core.records import GroupSummary
from grpo_watch.extract.quality import Quality, near_unique, quality, shingles

EXCERPT = 80
"""Most characters of a text that a finding may show."""
HEAD = 400
"""Characters of a text looked at for its excerpt."""

SPECIAL = re.compile(  # \uff5c: the bar of DeepSeek's tokens
    r"<[|\uff5c][^|\uff5c<>\s]{1,40}[|\uff5c]>|</?(?:s|pad|unk|bos|eos|start_of_turn|end_of_turn)>|\[(?:PAD|EOS|SEP|CLS)\]"
)
"""Special tokens as tokenizers print them (ms-swift 3.12 leaves ``<|im_end|>`` in its texts, 4.6 and TRL strip it)."""

MARKS = ("<|", "<\uff5c", "s>", "<pad>", "<unk>", "_of_turn>", "[PAD]", "[EOS]", "[SEP]", "[CLS]")
"""One of these is in every text with a special token: looking for them is much faster than the expression."""

SPOKEN = ("content", "text", "tool_calls", "function", "name", "arguments")
"""Keys of a conversation's messages and their parts that hold what was said."""

_SECRET = re.compile(r"[\w.+-]{1,64}@[\w-]{1,64}\.[\w.-]{1,64}|(?:sk|hf|ghp|xox[a-z])[-_][\w-]{8,200}|\d[\d -]{7,30}\d")
"""Mail addresses, API keys, card and telephone numbers: masked in excerpts."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion reduced to digests; ``head`` is the start of its text ("" where excerpts are switched off).

    ``shingles`` are hashes of its word triples (see ``extract.quality``).
    """

    prompt: bytes
    text: bytes
    length: int
    empty: bool
    head: str
    quality: Quality = Quality.SHORT
    shingles: bytes = b""


@dataclass(frozen=True, slots=True)
class Grouping:
    """The groups of one dump; ``reason`` says why there are none (then ``groups`` is empty).

    ``digest`` is a hash of all prompts and texts in order, ``prompts`` of the prompts alone: equal digests mean a table
    that was dumped again.
    """

    groups: tuple[GroupSummary, ...]
    reason: str = ""
    digest: str = ""
    prompts: str = ""


def sample(prompt: object, completion: object, *, examples: bool = True) -> Sample:
    """Reduce one completion. Prompt and completion are texts or conversations (TRL ≥ 1.15)."""
    text = plain(as_text(completion))
    return Sample(
        prompt=_digest(as_text(prompt)),
        text=_digest(text),
        length=len(text),
        empty=not text or text.isspace(),
        head=text[:HEAD] if examples else "",
        quality=quality(text),
        shingles=shingles(text),
    )


def summarise_groups(
    prompts: Sequence[object],
    completions: Sequence[object],
    rewards: Mapping[str, Sequence[object]],
    group_size: int | None,
    *,
    examples: bool = True,
) -> Grouping:
    """Summarise a batch whose groups are consecutive slices of G rows.

    TRL (0.15 to 1.16) and ms-swift (3.1 to 4.6) write no group id; both keep the G completions of a prompt together.

    Args:
        prompts: one per row.
        completions: one per row.
        rewards: per reward function one value per row; NaN, null and text become None. The key ``advantage`` holds
            advantages. A column of another length than the rows is left out.
        group_size: G where the configuration says it; None derives it from runs of equal prompts.
        examples: whether a redacted excerpt is kept per group.
    """
    if len(prompts) != len(completions):
        return Grouping((), f"{len(prompts)} prompts but {len(completions)} completions")
    samples = [sample(prompt, text, examples=examples) for prompt, text in zip(prompts, completions, strict=True)]
    return group(samples, rewards, group_size)


def group(samples: Sequence[Sample], rewards: Mapping[str, Sequence[object]], group_size: int | None) -> Grouping:
    """The same for rows that are reduced already."""
    size = group_size or derived_group_size(samples)
    reason = _why_not(len(samples), size)
    prompts = xxhash.xxh3_128_hexdigest(b"".join(one.prompt for one in samples))
    digest = _joint_digest(samples)
    if reason or size is None:
        return Grouping((), reason, digest, prompts)
    columns = {name: _numbers(column) for name, column in rewards.items() if len(column) == len(samples)}
    starts = range(0, len(samples), size)
    groups = tuple(_summary(samples[at : at + size], columns, at) for at in starts)
    return Grouping(groups, "", digest, prompts)


def derived_group_size(samples: Sequence[Sample]) -> int | None:
    """Greatest common divisor of the runs of equal consecutive prompts; None when it is below 2."""
    size = math.gcd(*(sum(1 for _ in run) for _, run in groupby(samples, key=lambda one: one.prompt)))
    return size if size > 1 else None


def plain(text: str) -> str:
    """The text without special tokens."""
    return SPECIAL.sub("", text) if any(mark in text for mark in MARKS) else text


def as_text(value: object) -> str:
    """A text, or the contents of a conversation; images and other media count as their type only."""
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        return "\n".join(map(as_text, value))
    if isinstance(value, dict):
        spoken = [as_text(value[key]) for key in SPOKEN if value.get(key)]
        kind = value.get("type")
        return "\n".join(spoken) or (f"[{kind}]" if isinstance(kind, str) and kind != "text" else "")
    return "" if value is None else str(value)


def excerpt(head: str) -> str:
    """One line of at most 80 characters: secrets masked, control characters escaped."""
    masked = _SECRET.sub("[…]", head[:HEAD])
    return "".join(char if char.isprintable() else _escaped(char) for char in masked[:EXCERPT])[:EXCERPT]


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def _digest(text: str) -> bytes:
    return bytes(xxhash.xxh3_128_digest(text.encode("utf-8", "surrogatepass")))


def _joint_digest(samples: Sequence[Sample]) -> str:
    return str(xxhash.xxh3_128_hexdigest(b"".join(part for one in samples for part in (one.prompt, one.text))))


def _why_not(rows: int, size: int | None) -> str:
    if not rows:
        return "an empty table"
    if size is None:
        return "the group size is not configured and the prompts do not show it"
    if size < 1 or rows % size:
        return f"{rows} rows are no multiple of the group size {size}"
    return ""


def _numbers(column: Sequence[object]) -> list[float | None]:
    return [_number(value) for value in column]


def _number(value: object) -> float | None:
    try:
        number = float(value) if isinstance(value, (int, float)) else math.nan
    except OverflowError:  # an integer beyond floats
        return None
    return None if math.isnan(number) else number


def _summary(samples: Sequence[Sample], columns: Mapping[str, list[float | None]], at: int) -> GroupSummary:
    numbers: dict[bytes, int] = {}
    pattern = tuple(numbers.setdefault(one.text, len(numbers)) for one in samples)
    distinct = {one.text: one.shingles for one in samples}
    qualities = Counter(one.quality for one in samples)
    return GroupSummary(
        prompt_id=samples[0].prompt.hex()[:12],
        size=len(samples),
        pattern=pattern,
        unique=len(numbers),
        lengths=tuple(one.length for one in samples),
        empty=sum(one.empty for one in samples),
        prompts=len({one.prompt for one in samples}),
        near_unique=near_unique(list(distinct.values())),
        judged=len(samples) - qualities[Quality.SHORT],
        looping=qualities[Quality.LOOPING],
        scattered=qualities[Quality.SCATTERED],
        rewards={name: tuple(column[at : at + len(samples)]) for name, column in columns.items()},
        digest=_joint_digest(samples),
        example=_example(samples, pattern),
    )


def _example(samples: Sequence[Sample], pattern: Sequence[int]) -> str:
    """The excerpt of the text that the group repeats most, empty ones apart."""
    told = [number for number, one in zip(pattern, samples, strict=True) if not one.empty]
    if not told:
        return ""
    (commonest, _), *_ = Counter(told).most_common(1)
    return excerpt(samples[pattern.index(commonest)].head)
