"""Compiles the key set of a raw row into a plan that maps later rows with the same keys at little cost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from grpo_watch import lazy_re as re
from grpo_watch.engine.metric_names import LABELLED, MAX_FUNCTIONS, METRICS, labelled, split_label
from grpo_watch.engine.records import Stream
from grpo_watch.frameworks.framework import KeyRule
from grpo_watch.frameworks.guessing import REWARD, SPREAD, WORDS, guess, only_reward

if TYPE_CHECKING:
    from grpo_watch.engine.records import CompletionSummary
    from grpo_watch.frameworks.framework import Framework

EVAL_SCORE = "eval_score"
ADVANTAGE = "advantage"
"""A column beside the functions in dumps, not a function itself."""


class FunctionNames:
    """The names of the first ``most`` reward functions (or held-out scores), in order of appearance."""

    def __init__(self, most: int = MAX_FUNCTIONS) -> None:
        self._known: set[str] = set()
        self._most = most

    def admits(self, name: str) -> bool:
        """Whether a function of this name is read; new names are added while there is room."""
        if name not in self._known and len(self._known) < self._most:
            self._known.add(name)
        return name in self._known

    def admitted(self, batch: CompletionSummary) -> CompletionSummary:
        """The batch with the scores of admitted functions only, and with its advantages."""
        names = dict.fromkeys(name for group in batch.groups for name in group.rewards)
        refused = {name for name in names if name != ADVANTAGE and not self.admits(name)}
        if not refused:
            return batch
        groups = [
            replace(group, rewards={name: scores for name, scores in group.rewards.items() if name not in refused})
            for group in batch.groups
        ]
        return replace(batch, groups=tuple(groups))


TIED = "tied"
"""Conversion for a share of completions that are as long as the longest (``KeyRule.tied``)."""
PLAIN = KeyRule(metric=None)
"""Rule for a column that the user mapped: the value is used unchanged."""

OWN_OF_TRAINING = frozenset({"loss", "grad_norm", "reward"})
OWN_METRICS = frozenset({"loss", "grad_norm", "reward_mean"})
"""Metrics of every training row, as raw keys that all frameworks share and as canonical names."""
VALIDATES = re.compile(r"(?:val|valid|validation|eval|evaluation|test)(?:-(?:core|aux|rollout))?[_/]")
"""Prefixes of validation keys: verl's, NeMo-RL's, AReaL's, tinker-cookbook's, the Trainer's and own loops'."""

SCORE = re.compile(
    r"(?:env/all/)?rewards?(?:/total)?(?:/mean|/avg)?|rewards/.{1,80}/mean|test_score(?:/.{1,80})?|"
    r"(?:mean_|avg_)?(?:rewards?|score|acc)(?:_mean|_avg)?|"
    r"(?:.{1,80}/)?(?:acc|accuracy|reward|score)/mean@\d{1,4}|"
    r"(?:.{1,80}/)?(?:accuracy|acc|avg_score|avg@\d{1,4}|pass@1)(?:/mean)?|.{1,80}_pass1"
)
"""Mean scores of a validation: the total, a function's, a dataset's; no best of several, spread or length. verl
averages every field that a reward function returns, penalties too: only these four are scores."""
SCORES = 16
"""Most scores kept of one evaluation."""
MAX_SCORES = 64
"""Most scores read per channel, as ``MAX_FUNCTIONS`` limits reward functions."""

Picker = Callable[[Mapping[str, float | None]], Sequence[float | None]]


class KeyPlan(Struct, frozen=True):
    """How rows with one set of keys are read: ``pick`` takes the raw values of ``metrics``, in order.

    ``functions`` counts reward functions; ``function`` names the mean and spread metrics of the only one;
    ``off_at_zero`` are metrics whose exact 0 is a placeholder; ``guesses`` are unknown keys with the metrics guessed
    for them. ``converted``: metrics and their conversions. ``keys`` names the raw key of each metric. ``scores`` are
    those of an evaluation, the only values read of its own row.
    """

    stream: Stream
    metrics: tuple[str, ...]
    pick: Picker
    converted: tuple[tuple[str, str], ...]
    spread_key: str | None
    rate_key: str | None
    functions: int
    function: tuple[str, str] | None
    unknown: tuple[str, ...]
    off_at_zero: tuple[str, ...] = ()
    guesses: tuple[tuple[str, str], ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    scores: tuple[tuple[str, str], ...] = ()


def scores_of(keys: Sequence[str], *, alone: bool = False) -> tuple[tuple[str, str], ...]:
    """The mean scores of an evaluation among these keys, as canonical metrics with their keys.

    ``alone``: the row is an evaluation's, so the keys need no prefix.
    """
    found = []
    for key in keys:
        begin = VALIDATES.match(key.removeprefix("train/"))
        name = key.removeprefix("train/")[begin.end() if begin is not None else 0 :]
        if (begin is not None or alone) and SCORE.fullmatch(name) and "/std" not in name:
            found.append((labelled(EVAL_SCORE, name), key))
    return tuple(found[:SCORES])


def stripped(key: str, prefixes: Sequence[str]) -> str | None:
    """The key without the first prefix that fits; None if none does."""
    for prefix in prefixes:
        if key.startswith(prefix):
            return key[len(prefix) :]
    return None


def train_keys(keys: Sequence[str], framework: Framework) -> frozenset[str]:
    """The keys of the train stream, prefixes stripped."""
    evals = framework.eval_prefixes
    return frozenset(stripped(key, framework.strip_prefixes) or key for key in keys if not key.startswith(evals))


def stream_of(keys: Sequence[str], framework: Framework) -> Stream:
    """EVAL for rows that have evaluation keys and none of the keys that every training row has.

    Before the framework is known, a row whose keys all have a validation's prefix is EVAL too: it comes from a
    validation before the first step.
    """
    trains = train_keys(keys, framework)
    named = [key for key in keys if key != "epoch"]
    if framework.fallback and named and all(map(VALIDATES.match, named)):
        return Stream.EVAL
    if len(trains) < len(keys) and not any(_of_training(key, framework) for key in trains):
        return Stream.EVAL
    return Stream.TRAIN


def _of_training(key: str, framework: Framework) -> bool:
    found = framework.find(key)
    return key in OWN_OF_TRAINING or (found is not None and found[1].metric in OWN_METRICS)


def compile_plan(
    keys: Sequence[str],
    stream: Stream | None,
    framework: Framework,
    switched_on: Collection[str] = (),
    columns: Mapping[str, str] = MappingProxyType({}),
    admits: Callable[[str], bool] = lambda _: True,
) -> KeyPlan:
    """The plan for rows with exactly these keys.

    ``stream`` is set if the channel knows it; ``columns`` are raw keys with the metrics that the user maps them to.
    Keys of a reward function that ``admits`` refuses by its name are unknown.
    """
    stream = stream or stream_of(keys, framework)
    chosen: dict[str, tuple[int, str, KeyRule]] = {}
    unknown: list[str] = []
    spread_key = rate_key = None
    names = [_own_name(key, stream, framework) for key in keys]
    for key, name in zip(keys, names, strict=True):
        if name is None:
            continue
        found = framework.find(name)
        plain = name if found is None and name in METRICS.keys() - LABELLED else None
        if (own := columns.get(key) or columns.get(name) or plain) is not None:
            chosen[own] = (-1, key, PLAIN)
        elif name == framework.spread_key:
            spread_key = key
        elif found is None:
            unknown.append(key)
        elif found[1].metric is not None and found[1].holds(names, switched_on):
            rank, rule, label = found
            if rule.metric in LABELLED and label and (label.lower() in WORDS.statistics or not admits(label)):
                unknown.append(key)
                continue
            metric = _metric(rule, label)
            if metric not in chosen or rank < chosen[metric][0]:
                chosen[metric] = (rank, key, rule)
    raw = {metric: key for metric, (_, key, _) in chosen.items()}
    early = framework.learning_rate == "next" or not framework.next_rate_beside.isdisjoint(names)
    if early and "learning_rate" in chosen:
        rate_key = chosen.pop("learning_rate")[1]
    labels = [split_label(metric)[1] or "" for metric in chosen if metric.startswith("reward_function_mean[")]
    taken = {*chosen, *(["learning_rate"] if rate_key else []), *([SPREAD] if spread_key else [])}
    return KeyPlan(
        stream=stream,
        metrics=tuple(chosen),
        pick=_picker(tuple(key for _, key, _ in chosen.values())),
        converted=tuple((metric, how) for metric, (_, _, rule) in chosen.items() if (how := _conversion(rule, names))),
        spread_key=spread_key,
        rate_key=rate_key,
        functions=len(labels),
        function=(_of("mean", labels[0]), _of("std", labels[0])) if len(labels) == 1 else None,
        unknown=tuple(unknown),
        off_at_zero=tuple(metric for metric, (_, _, rule) in chosen.items() if rule.zero == "absent"),
        guesses=_guesses(taken, keys, unknown, columns, admits),
        keys=raw,
        scores=scores_of(keys, alone=stream is Stream.EVAL),
    )


def _conversion(rule: KeyRule, names: Collection[str | None]) -> str:
    return rule.convert or (TIED if rule.tied is not None and rule.tied in names else "")


def _metric(rule: KeyRule, label: str | None) -> str:
    return labelled(rule.metric or "", label) if rule.metric in LABELLED and label else rule.metric or ""


def _guesses(
    taken: Collection[str],
    keys: Sequence[str],
    unknown: Sequence[str],
    columns: Mapping[str, str],
    admits: Callable[[str], bool],
) -> tuple[tuple[str, str], ...]:
    """The metrics guessed for unknown keys, unless a known key of the row gives them; the first key wins."""
    found: dict[str, str] = {}
    for key in (key for key in unknown if key not in columns):
        metric = guess(key)
        label = split_label(metric)[1] if metric is not None else None
        if metric is not None and metric not in taken and (label is None or admits(label)):
            found.setdefault(metric, key)
    if columns.keys().isdisjoint(unknown) and REWARD not in taken and REWARD not in found:
        only = only_reward(unknown, keys)
        if only is not None:
            found[REWARD] = only
    return tuple((key, metric) for metric, key in found.items())


def _own_name(key: str, stream: Stream, framework: Framework) -> str | None:
    """The key of a training row without prefixes; None for an evaluation's."""
    if stream is Stream.EVAL or key.startswith(framework.eval_prefixes):
        return None
    return stripped(key, framework.strip_prefixes) or key


def _of(statistic: str, function: str) -> str:
    return labelled(f"reward_function_{statistic}", function)


def _picker(keys: tuple[str, ...]) -> Picker:
    """A function from a row to the values of ``keys``, in order."""
    if len(keys) > 1:
        many: Any = itemgetter(*keys)
        return many  # type: ignore[no-any-return]
    return lambda values: tuple(values[key] for key in keys)
