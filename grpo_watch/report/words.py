"""Puts the evidence of a finding into words: what each value is, and numbers rounded for people."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from grpo_watch.engine.recent_rows import duration
from grpo_watch.engine.records import Scalar
from grpo_watch.safe_text import visible

LABELS: Mapping[str, str] = MappingProxyType(
    {
        "kl_reference": "reference KL",
        "kl_policy_update": "policy-update KL",
        "grad_norm": "gradient norm",
        "reward_mean": "mean reward",
        "reward_group_std": "group spread",
        "reward_batch_std": "batch spread",
        "reward_zero_std_ratio": "groups with zero std",
        "completion_truncated_ratio": "truncated completions",
        "completion_length_mean": "mean completion length",
        "max_completion_length": "length limit",
        "groups_alike_ratio": "groups alike",
        "repeated_ratio": "repeated completions",
        "degenerate_ratio": "degenerate completions",
        "policy_clip_ratio": "clipped tokens",
        "summed_learning_rate": "learning rate summed",
        "chance_of_coincidence": "chance of coincidence",
        "optimizer_steps_between": "optimizer steps between",
    }
)
"""What values are called where the name with spaces would not do."""
SHARES = frozenset({"at_first", "truncated"})
"""Shares, beside all that end in ``_ratio``, as long as they are between 0 and 1."""
DIGITS = 3
SMALL = 1e-3
LARGE = 1e4
LONGEST_EXAMPLE = 60
QUOTED = 24
"""Characters of a text by which it is recognised in the sentence that quotes it."""
DRAWN_WITH_PATTERN = frozenset({"layout"})
"""What the words for the pattern say already."""


def evidence_words(evidence: Mapping[str, Scalar], summary: str = "") -> list[str]:
    """A few words for each value that is known; an example of the texts comes last.

    A text that the finding's ``summary`` quotes, such as an error, is not repeated.
    """
    new = {name: value for name, value in evidence.items() if not _is_quoted(value, summary)}
    return [*_values(new), *_example(new)]


def label_of(name: str) -> str:
    """What a value or a metric is called for people: ``reference KL``, ``step``."""
    return LABELS.get(name, name.removesuffix("_ratio").removesuffix("_seconds").replace("_", " "))


def rounded(value: float) -> str:
    """A number with three significant digits, as people write it: ``0``, ``3.53``, ``24``, ``1.2e-07``, ``512,000``."""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1 / SMALL**3:
        return f"{int(value):,}"
    if SMALL <= abs(value) < LARGE:
        return f"{value:.{DIGITS}g}" if abs(value) < 1 / SMALL else f"{value:,.0f}"
    return f"{value:.{DIGITS - 1}g}" if abs(value) < SMALL else f"{value:,.0f}"


def shown(value: Scalar) -> str:
    """A value as it was recorded; numbers with six digits."""
    return f"{value:.6g}" if isinstance(value, float) else visible(str(value))


def pattern_words(pattern: str) -> str:
    """What repeats in a group whose distinct texts the pattern numbers, as ``(0, 1, 2, 0, 1, 2)``: the second half.

    Empty where the text holds no such numbers.
    """
    texts = [int(number) for number in re.findall(r"\d+", pattern)]
    if len(set(texts)) == len(texts):
        return ""
    if len(set(texts)) == 1:
        return f"all {len(texts)} completions are one text"
    period = len(set(texts))
    if len(texts) % period == 0 and all(text == texts[at % period] for at, text in enumerate(texts)):
        spans = [f"{at + 1}\u2013{at + period}" for at in range(0, len(texts), period)]
        return f"completions {spans[0]} repeat as {' and '.join(spans[1:])}"
    places: dict[int, list[str]] = {}
    for place, text in enumerate(texts, start=1):
        places.setdefault(text, []).append(str(place))
    return f"equal completions: {', '.join(' = '.join(same) for same in places.values() if len(same) > 1)}"


def _is_quoted(value: Scalar, summary: str) -> bool:
    return isinstance(value, str) and len(value) >= QUOTED and value[:QUOTED] in summary


def _values(evidence: Mapping[str, Scalar]) -> Iterator[str]:
    pattern = evidence.get("pattern")
    drawn = pattern_words(pattern) if isinstance(pattern, str) else ""
    for name, value in evidence.items():
        if value is None or name == "example" or (drawn and name in DRAWN_WITH_PATTERN):
            continue
        yield drawn if drawn and name == "pattern" else _value(name, value)


def _value(name: str, value: Scalar) -> str:
    label = label_of(name)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(value, bool):
        return f"{label} {'yes' if value else 'no'}"
    if not number:
        return f"{label} {value}"
    amount = float(value)  # type: ignore[arg-type]  # a number
    if (name.endswith("_ratio") or name in SHARES) and 0.0 <= amount <= 1.0:
        return f"{label} {_percent(amount)}"
    if name.endswith("_seconds") and amount >= 1.0:
        return f"{label} {duration(amount)}"
    return f"{label} {rounded(amount)}{' s' if name.endswith('_seconds') else ''}"


def _percent(share: float) -> str:
    """A share that is not all, and not none, never reads as if it were."""
    shown = f"{100 * share:.0f}%"
    return f"{100 * share:.2g}%" if shown in {"0%", "100%"} and share not in {0.0, 1.0} else shown


def _example(evidence: Mapping[str, Scalar]) -> list[str]:
    text = evidence.get("example")
    if not isinstance(text, str) or not text:
        return []
    return [f"e.g. “{text if len(text) <= LONGEST_EXAMPLE else text[: LONGEST_EXAMPLE - 1] + '…'}”"]
