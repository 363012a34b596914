"""Rewrites printed text so that each number follows its name: tensors, dictionaries, notes, formulas."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite, nan
from statistics import fmean, pstdev

from grpo_watch import lazy_re as re
from grpo_watch.frameworks.guessing import guess
from grpo_watch.frameworks.row_numbers import number
from grpo_watch.sources.rows.layouts import EVALUATION

THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,3})?|[-+]?(?:nan|inf)\b"
WRAPPED = re.compile(
    rf"(?<![a-z])(?:[a-z]{{1,10}}\.){{0,2}}(?:tensor|b?float\d{{0,3}}|array)\(\[?\s?({NUMBER})\]?[^()\n]{{0,80}}\)",
    re.IGNORECASE,
)
"""``tensor(0.28, device='cuda:0')``, ``np.float64(0.5)``."""
TUPLE = re.compile(rf"\(\s?['\"]([A-Za-z_][\w./@-]{{0,60}})['\"],\s?({NUMBER})\s?\)", re.IGNORECASE)
"""``OrderedDict([('step', 1), ('loss', 0.1)])``."""
CALLED = re.compile(rf"(?<![\w.)])([A-Za-z_][\w./@-]{{0,40}})\(({NUMBER})\)", re.IGNORECASE)
"""``loss(0.1) kl(0.02)``."""
NUMBER_INSIDE = re.compile(r"[A-Za-z0-9_]\(\[?\s?[-+.\dnNiI]")
AROUND = re.compile(r"(?:[A-Za-z_][\w.]{0,60}\(\[?|\[)(?=[A-Za-z_])([^\[]*?)\]?\)?")
"""The call that prints a row: ``Metrics(step=1, loss=0.1)``."""
ELEMENT = re.compile(rf"<([A-Za-z_][\w.-]{{0,60}})>\s?({NUMBER})\s?</\1>", re.IGNORECASE)
"""``<step>1</step><loss>0.1</loss>``."""
ELEMENTS = re.compile(r"</?[A-Za-z][\w.-]{0,60}/?>")
SINGLE = re.compile(
    r"\b(?:name|metric|key|tag|scalar)['\"]?\s?[:=]\s?['\"]?([A-Za-z_][\w./@-]{0,60})['\"]?[,;|\s]{1,4}"
    rf"['\"]?(?:value|val)['\"]?\s?[:=]\s?(?={NUMBER})",
    re.IGNORECASE,
)
"""``name=kl value=0.02``: one number of a row."""
GROUP = re.compile(r"([A-Za-z_][\w./@-]{0,40})['\"]?\s?[:=]\s?(?:dict\()?\{([^{}]{0,1000})\}")
"""``reward_data: {'total_num': 256, 'total_reward': 144.0}``."""
KEYED = re.compile(rf"['\"]?([A-Za-z_][\w./@ -]{{0,40}})['\"]?\s?[:=]\s?['\"]?({NUMBER})")
LISTED = re.compile(
    rf"([A-Za-z_][\w./@-]{{0,40}})(\s?[:=]\s?)\[(\s?['\"]?(?:{NUMBER})['\"]?(?:,?\s['\"]?(?:{NUMBER})['\"]?|,['\"]?(?:{NUMBER})['\"]?){{1,255}},?\s?)\]",
    re.IGNORECASE,
)
"""``rewards=[0.5, 1.0]``: one number for each completion of the step."""
PAIRED = 2
"""Numbers taken from such a list: the mean and the spread."""
DECIMALS = re.compile(r"(?<=\d)\.(\d+)")
COUNTS = frozenset({"total_num", "num", "n", "count", "total_count", "num_samples", "num_total", "num_rollouts"})
"""Names of the sample count beside a sum."""
SUMS = re.compile(r"(?:total|sum)_(?P<name>\w+)|(?P<before>\w+)_(?:total|sum)", re.IGNORECASE)
MARGIN = re.compile(rf"([A-Za-z][\w./ -]{{0,40}}?)(\s?[:=]\s?|\s)({NUMBER})\s?(?:\u00b1|\+/-|\+-)\s?({NUMBER})")
"""``Reward: 0.5 ± 0.1``: the number after the sign is the spread."""
NOTE = re.compile(r"(?<=\d)(%?)\s?\((?:[\u00b1\d]|max|min|best|prev|target|ema)[^()]{0,40}\)")
"""``0.5 (best 0.7)``, ``45.0% (9/20)``."""
BETWEEN = re.compile(
    rf"(?<=\d)\s?[\[(]\s?(?:{NUMBER})\s?(?:\u2026|\.{{2,3}}|,|\bto\b|[-\u2013~])\s?(?:{NUMBER})\s?[\])]"
)
"""``6.06 [-2.1 … 16.3]``: the minimum and maximum of the values whose mean is printed."""
ASIDE = re.compile(r"\s?\(([A-Za-z][^()]{1,160})\)")
BEFORE = re.compile(r"(?P<name>[A-Za-z][\w./-]{0,40})(?:[ :=]{1,3}[-+.\w%]{1,20})?[ :=]{0,2}$")
"""``loss 0.1 (kl 0.02)``, ``reward 0.3 (std 0.2)``: ``BEFORE`` is the field in front of it."""
NEAR = 64
GRADIENT = re.compile(
    r"(?:\|{1,2}(?:g|grad|\u2207\w{0,10})\|{1,2}|\u2016(?:g|grad|\u2207\w{0,10})\u2016|\u2207\w{0,10})(?=\s?[:=]|\s[-+\d.])"
)
"""The gradient norm in formulas."""
LETTERS = {"\u03c3": "std", "\u03bc": "mean"}
MOST_SIGNS = 4
"""Most symbols of a line that are replaced by words."""
SIGN = re.compile(r"[:=]|\.{2,}")
SIGNED = re.compile(r"([:=])\s{2,}")
COUNTED_BEHIND = re.compile(
    r"\s\(((?:global[ _])?(?:step|iter|iteration|update|epoch)[ :=#]{1,3}\d{1,9})\)", re.IGNORECASE
)
"""``loss=0.1 (step 12)``."""
SIGN_AFTER = re.compile(r"(?<=\w)\s{2,40}([:=])(?=\s|\d)")
"""A separator aligned with those of other lines."""
NAME = r"[A-Za-z][\w./@-]{0,40}\.?(?: [A-Za-z(][\w./@)-]{0,24}\.?){0,3}"
FIELD = re.compile(
    rf"[\[(]?(?P<name>{NAME})(?P<between>\s*(?:[:=]{{1,2}}|\.{{2,40}})\s*|\s+(?:(?:is|was)\s+)?)[\[(]?(?P<value>{NUMBER})"
    r"(?:\s?(?:/|of)\s?(?P<total>\d{1,9}))?\s?(?P<unit>%|[A-Za-z]{1,6}(?:/[A-Za-z]{1,10})?)?[\])]{0,2}[.:,]?",
    re.IGNORECASE,
)
STAMP = 10
"""Digits of a time in seconds; Influx writes seconds to nanoseconds."""
OTHER_RANK = re.compile(r",(?:global_?)?rank=0*[1-9]", re.IGNORECASE)
STATISTICS = frozenset({"mean", "avg", "average", "std", "min", "max", "median"})


def plain(text: str) -> str:
    """Return the text with tensors as numbers, dictionaries as pairs, and without quotes and notes."""
    text = text.replace("#011", "\t") if "#011" in text else text  # rsyslog's escape of a tab
    text = THOUSANDS.sub("", _influx(text)) if "," in text else text
    if NUMBER_INSIDE.search(text) is not None:
        text = CALLED.sub(r"\1=\2", WRAPPED.sub(r"\1", text))
    text = TUPLE.sub(r"\1=\2", text) if "('" in text or '("' in text else text
    if text.endswith((")", "]")) and SIGN.search(text) is not None:
        text = around[1] if (around := AROUND.fullmatch(text)) is not None else text
    if "<" in text:
        text = ELEMENTS.sub(" ", ELEMENT.sub(r"\1=\2 ", text))
    if "val" in text:
        text = SINGLE.sub(r"\1=", text)
    if "{" in text:
        text = GROUP.sub(_pairs, text).replace("{", " ").replace("}", " ")
    if "[" in text:
        text = BETWEEN.sub("", LISTED.sub(_listed, text))
    if "(" in text:
        text = ASIDE.sub(_aside, NOTE.sub(r"\1", COUNTED_BEHIND.sub(r", \1", text)))
    if "\u00b1" in text or "+/-" in text or "+-" in text:
        text = MARGIN.sub(r"\1\2\3, \1 std: \4", text)
    if "  " in text:
        text = SIGNED.sub(r"\1 ", SIGN_AFTER.sub(r"\1 ", text))
    return text.replace('"', "").replace("'", "").replace("`", "").replace("**", "")


def _influx(text: str) -> str:
    """Return Influx line protocol (``train,run=a reward=0.5,step=3i 170…``) as pairs; other text unchanged.

    Of several ranks the first counts.
    """
    tags, _, rest = text.partition(" ")
    fields, _, stamp = rest.partition(" ")
    if len(stamp) < STAMP or not stamp.isdigit() or "=" not in fields:
        return text
    if OTHER_RANK.search(tags) is not None:
        return ""
    pairs = (pair.partition("=") for pair in (*tags.split(",")[1:], *fields.split(",")))
    numbers = ((name, value.rstrip("iu")) for name, _, value in pairs)
    return ", ".join(f"{name}={value}" for name, value in numbers if number(value) is not None)


def in_words(text: str) -> str:
    """Return the text with its first few mathematical symbols replaced by words."""
    if not text.isascii() or "|" in text:
        text = GRADIENT.sub("grad_norm", text, MOST_SIGNS)
        for letter, word in LETTERS.items():
            text = text.replace(letter, word, MOST_SIGNS)
    return text


def _aside(found: re.Match[str]) -> str:
    """Return metrics in parentheses as further fields, statistics under the name before them; drop evaluations'."""
    before = BEFORE.search(found.string[max(0, found.start() - NEAR) : found.start()])
    if before is not None and EVALUATION.search(before["name"]) is not None:
        return ""
    inside = [FIELD.fullmatch(part.strip()) for part in found[1].split(",")]
    fields = [field for field in inside if field is not None]
    group = f"{before['name']} " if before is not None else ""
    names = [group + field["name"] if is_statistic(field) else field["name"] for field in fields]
    if len(fields) < len(inside) or None in map(guess, names):
        return found[0]
    values = (field["value"] + ("%" if field["unit"] == "%" else "") for field in fields)
    return "".join(f", {name}: {value}" for name, value in zip(names, values, strict=True))


def is_statistic(field: re.Match[str]) -> bool:
    """Whether a field is a statistic of the metric before it."""
    return field["name"].lower() in STATISTICS


def _listed(found: re.Match[str]) -> str:
    """Return the mean and the spread of a list of rewards; other lists unchanged."""
    name, sign, inside = found.groups()
    if guess(name) != "reward_mean":
        return found[0]
    texts = re.findall(NUMBER, inside, re.IGNORECASE)
    values = [float(text) for text in texts]
    decimals = max((len(part[1]) for text in texts if (part := DECIMALS.search(text)) is not None), default=0)
    both = (fmean(values), pstdev(values)) if all(map(isfinite, values)) else (nan, nan)
    mean, spread = (repr(value) if value else f"{value:.{decimals}f}" for value in both)
    return f"{name}{sign}{mean} {name}_std{sign}{spread}"


def scores_alone(values: Mapping[str, float | None]) -> bool:
    """Whether a row is only a list of rewards."""
    return len(values) == PAIRED and any(f"{name}_std" in values for name in values)


def _pairs(found: re.Match[str]) -> str:
    """Return the pairs of a dictionary under its name; sums become means if their count is beside them."""
    pairs = dict(KEYED.findall(found[2]))
    count = next((number(value) for key, value in pairs.items() if key.lower() in COUNTS), None)
    return ", ".join(f"{found[1]}/{key}: {value}" for key, value in _means(pairs, count).items())


def _means(pairs: Mapping[str, str], count: float | None) -> Mapping[str, str]:
    if not count:
        return pairs
    means: dict[str, str] = {}
    for key, text in pairs.items():
        summed, value = SUMS.fullmatch(key), number(text)
        if summed is None or key.lower() in COUNTS or value is None:
            means[key] = text
        else:
            means[summed["name"] or summed["before"]] = repr(value / count)
    return means
