"""Texts for people in their language: names of evidence, costs, rounded numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from grpo_watch.engine.diagnosis import Waste
from grpo_watch.engine.recent_rows import duration
from grpo_watch.engine.records import Scalar
from grpo_watch.engine.rule import ENGLISH
from grpo_watch.engine.waste import SECONDS_PER_HOUR
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
"""Names of values for which the key with spaces would not do."""
SHARES = frozenset({"at_first", "truncated"})
"""Shares between 0 and 1, besides the values whose names end in ``_ratio``."""
DIGITS = 3
SMALL = 1e-3
LARGE = 1e4
LONGEST_EXAMPLE = 60
QUOTED = 24
"""Characters of a text that identify it in a sentence that quotes it."""
OF_THE_RUN = frozenset({"channel", "error", "function", "log", "metrics", "problem", "rule"})
"""Evidence written by a run, or a system beside it: shown verbatim."""
DRAWN_WITH_PATTERN = frozenset({"layout"})
"""Evidence that the words for the pattern already include."""


def say(language: str, text: str, /, **values: object) -> str:
    """One of our texts in a language, with its placeholders filled; English if there is no translation."""
    if language != ENGLISH:
        text = _catalogue(language)["words"].get(text, text)
    return text.format_map(values) if values else text


def _catalogue(language: str) -> Mapping[str, Mapping[str, Any]]:
    from grpo_watch.rules.packs import translations  # noqa: PLC0415  English needs no file

    return translations(language)


def sentence_words(language: str, text: str, part: str = "sentences") -> str:
    """A likely cause or a detector's sentence, which may contain numbers of the run; or one of the ``errors``."""
    if language == ENGLISH:
        return text
    from grpo_watch.rules.packs import sentences  # noqa: PLC0415  English needs no file

    return sentences(language, part).said(text) or text


TIMES = ("{n} second", "{n} seconds", "{n} minutes", "{n} hours", "{n} days")
"""The texts of ``time_words``."""


def time_words(language: str, seconds: float) -> str:
    """A duration for people: ``12 minutes``."""
    number, unit = duration(seconds).split(" ")
    return say(language, f"{{n}} {unit}", n=number)


def cost_words(language: str, waste: Waste) -> str:
    """The cost in few words: ``57 steps, 12 minutes on 8 GPUs``."""
    parts = [say(language, "1 step" if waste.steps == 1 else "{n} steps", n=waste.steps)] if waste.steps else []
    if waste.hours and waste.hours * SECONDS_PER_HOUR >= 1.0:
        lasted, gpus = time_words(language, waste.hours * SECONDS_PER_HOUR), round((waste.gpu_hours or 0) / waste.hours)
        parts.append(say(language, "{time} on {n} GPUs", time=lasted, n=gpus) if gpus > 1 else lasted)
    return say(language, ", ").join(parts)


def evidence_words(evidence: Mapping[str, Scalar], summary: str = "", language: str = ENGLISH) -> list[str]:
    """A few words for each known value; an example of the texts comes last.

    A text that the finding's ``summary`` quotes, such as an error, is not repeated.
    """
    new = {
        name: value
        for name, value in evidence.items()
        if not (isinstance(value, str) and len(value) >= QUOTED and value[:QUOTED] in summary)
    }
    return [*_values(new, language), *_example(new, language)]


def label_of(name: str, language: str = ENGLISH) -> str:
    """The name of a value or a metric for people: ``reference KL``, ``step``."""
    known = {} if language == ENGLISH else _catalogue(language)["evidence"]
    base, bracket, of = name.partition("[")
    if base in known:
        return f"{known[base]}{bracket}{of}"
    return LABELS.get(name, name.removesuffix("_ratio").removesuffix("_seconds").replace("_", " "))


def rounded(value: float) -> str:
    """A number with three significant digits: ``0``, ``3.53``, ``24``, ``1.2e-07``, ``512,000``."""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1 / SMALL**3:
        return f"{int(value):,}"
    if SMALL <= abs(value) < LARGE:
        return f"{value:.{DIGITS}g}" if abs(value) < 1 / SMALL else f"{value:,.0f}"
    return f"{value:.{DIGITS - 1}g}" if abs(value) < SMALL else f"{value:,.0f}"


def shown(value: Scalar) -> str:
    """A value as recorded; numbers with six digits."""
    return f"{value:.6g}" if isinstance(value, float) else visible(str(value))


def pattern_words(pattern: str, language: str = ENGLISH) -> str:
    """The repetition in a group whose distinct texts the pattern numbers, as ``(0, 1, 2, 0, 1, 2)``: the second half.

    Empty if the text holds no such numbers.
    """
    texts = [int(number) for number in re.findall(r"\d+", pattern)]
    if len(set(texts)) == len(texts):
        return ""
    if len(set(texts)) == 1:
        return say(language, "all {n} completions are one text", n=len(texts))
    period = len(set(texts))
    if len(texts) % period == 0 and all(text == texts[at % period] for at, text in enumerate(texts)):
        spans = [f"{at + 1}\u2013{at + period}" for at in range(0, len(texts), period)]
        others = say(language, " and ").join(spans[1:])
        return say(language, "completions {first} repeat as {others}", first=spans[0], others=others)
    places: dict[int, list[str]] = {}
    for place, text in enumerate(texts, start=1):
        places.setdefault(text, []).append(str(place))
    equal = say(language, ", ").join(" = ".join(same) for same in places.values() if len(same) > 1)
    return say(language, "equal completions: {equal}", equal=equal)


def _values(evidence: Mapping[str, Scalar], language: str) -> Iterator[str]:
    pattern = evidence.get("pattern")
    drawn = pattern_words(pattern, language) if isinstance(pattern, str) else ""
    for name, value in evidence.items():
        if value is None or name == "example" or (drawn and name in DRAWN_WITH_PATTERN):
            continue
        yield drawn if drawn and name == "pattern" else _value(name, value, language)


def _value(name: str, value: Scalar, language: str) -> str:
    label = label_of(name, language)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(value, bool):
        return f"{label} {say(language, 'yes') if value else say(language, 'no')}"
    if not number:
        return f"{label} {value if name in OF_THE_RUN else sentence_words(language, str(value))}"
    amount = float(value)  # type: ignore[arg-type]  # a number
    if (name.endswith("_ratio") or name in SHARES) and 0.0 <= amount <= 1.0:
        return f"{label} {_percent(amount)}"
    if name.endswith("_seconds") and amount >= 1.0:
        return f"{label} {time_words(language, amount)}"
    return f"{label} {rounded(amount)}{' s' if name.endswith('_seconds') else ''}"


def _percent(share: float) -> str:
    """A share in percent; never 0 % or 100 % unless it is exact."""
    shown = f"{100 * share:.0f}%"
    return f"{100 * share:.2g}%" if shown in {"0%", "100%"} and share not in {0.0, 1.0} else shown


def _example(evidence: Mapping[str, Scalar], language: str) -> list[str]:
    text = evidence.get("example")
    if not isinstance(text, str) or not text:
        return []
    text = text if len(text) <= LONGEST_EXAMPLE else f"{text[: LONGEST_EXAMPLE - 1]}…"
    return [say(language, "e.g. “{text}”", text=text)]
