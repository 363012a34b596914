"""The evidence behind a run's verdict: which GRPO metrics were read, and which were not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from grpo_watch import lazy_re as re
from grpo_watch.engine.engine import RunState
from grpo_watch.engine.metric_names import split_label
from grpo_watch.engine.records import AlertState, Scalar, Severity


class RunVerdict(str, Enum):
    """The verdict on a run by its open findings; those that its last attempt recovered from are at most a warning."""

    HEALTHY = "healthy"
    WARNING = "warning"
    CRITICAL = "critical"
    TOO_SHORT = "too-short"
    NOT_EVALUABLE = "not-evaluable"
    LOST = "lost"
    """Its files are gone, and its end was not seen (a daemon's verdict only)."""


WORST_FIRST = (
    RunVerdict.CRITICAL,
    RunVerdict.WARNING,
    RunVerdict.LOST,
    RunVerdict.NOT_EVALUABLE,
    RunVerdict.TOO_SHORT,
    RunVerdict.HEALTHY,
)
"""The order of verdicts in every list of runs."""
UNJUDGED = frozenset({RunVerdict.TOO_SHORT, RunVerdict.NOT_EVALUABLE})
"""Verdicts of runs that could not be judged (exit code 3)."""
LEAST_ROWS = 3
"""Rows needed before any rule alarms (``min_observations`` is 3 unless a rule sets it)."""
FEW_ROWS = 5
"""With fewer rows, a sign that a rule waits to confirm keeps a run from being called healthy: `dead_rows` of
``reward-variance-collapse``, the last of the rules whose sign one row shows."""
SOON = 20
"""Rows by which all rules have judged whose sign one row shows; a sign of such a rule rules out "healthy"."""
WAITS = "a rule that waits for more rows sees an early sign"
AGAIN = 2
"""Breaches of a critical rule that count as a sign once other rules judge."""
REWARDS = "reward"
"""Prefix of all reward metrics, totals and components."""
AREAS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "KL": frozenset({"kl_reference"}),
        "weights": frozenset({"checkpoints", "probe"}),
        "gradients": frozenset({"grad_norm"}),
        "completions": frozenset(
            {"completions", "completion_length_mean", "completion_length_max", "completion_truncated_ratio"}
        ),
    }
)
"""Areas that a healthy run must show something of, and the metrics or evidence of each."""
MOST_UNREAD = 16
LOOKS_LIKE: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        "reward_mean": re.compile(r"reward|return|score", re.IGNORECASE),
        "kl_reference": re.compile(r"(?:^|[^a-z])kl(?:$|[^a-z])", re.IGNORECASE),
        "grad_norm": re.compile(r"grad", re.IGNORECASE),
        "completion_length_mean": re.compile(r"(?:completion|response|output|gen).{0,20}len", re.IGNORECASE),
    }
)
"""Patterns of raw keys that may hold a missing metric."""
NOT_IT = re.compile(r"chosen|rejected|margin|coef|weight|eval|valid|penalty|max|min|std", re.IGNORECASE)
OTHER_KL = re.compile(r"generation|rollout|mismatch|error|ppo|approx|update|old", re.IGNORECASE)
"""Words of a KL that is not to the reference, but to the rollout engine or to the policy before the update."""
OTHER_TRAINING: Sequence[tuple[re.Pattern[str], str]] = (
    (re.compile(r"rewards/(?:chosen|rejected|margins)|logps/chosen"), "preference training (DPO and similar)"),
    (re.compile(r"vf_loss|value_loss|loss/value|val(?:ue)?/clipfrac|val/ratio"), "PPO with a value model"),
    (
        re.compile(r"mean_token_accuracy|(?:^|/)(?:train_)?perplexity|(?:^|/)ppl$|tokens_per_second|num_tokens"),
        "supervised fine-tuning",
    ),
)
"""Keys that other kinds of training log: TRL's DPO, PPO and SFT trainers, verl's and OpenRLHF's critics."""
OF_PREFERENCES = frozenset({"chosen", "rejected", "margins", "accuracies"})
"""What follows ``rewards/`` in the logs of preference training, which gives completions no rewards."""
ONLY_LOSS = frozenset({"loss", "grad_norm", "learning_rate", "epoch", "step_seconds", "tokens_seen"})


@dataclass(frozen=True, slots=True)
class EarlySign:
    """A sign in one or two rows, before any rule may alarm: the rule that it is about, words and numbers."""

    rule: str
    text: str
    evidence: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Judgement:
    """Why a run could not be judged, and which keys were guessed or not read.

    ``unread`` are raw keys that look like missing metrics, each with the settings line that would read it; ``guessed``
    are raw keys that were read under a guessed name.
    """

    reason: str = ""
    unread: Mapping[str, str] = field(default_factory=dict)
    early_signs: tuple[EarlySign, ...] = ()
    guessed: Mapping[str, str] = field(default_factory=dict)


NOT_JUDGED = Judgement()


def judge(state: RunState, *, blind: bool) -> tuple[RunVerdict, Judgement]:
    """The verdict on a run without a warning, and its evidence; ``blind``: no rule could judge anything."""
    guessed = state.guesses.names()
    signs = early_signs(state) if 0 < state.rows < SOON else ()
    if 0 < state.rows < LEAST_ROWS or signs:
        why = _too_short(state.rows) if state.rows < FEW_ROWS else WAITS
        return RunVerdict.TOO_SHORT, Judgement(why, unread(state), signs, guessed)
    reason = why_not(state, blind=blind)
    if reason is None:
        return RunVerdict.HEALTHY, Judgement(guessed=guessed)
    return RunVerdict.NOT_EVALUABLE, Judgement(reason, unread(state), (), guessed)


def why_not(state: RunState, *, blind: bool) -> str | None:
    """Why the run may not be called healthy; None if it may."""
    if state.rows and not _read_reward(state):
        return _without_reward(state)
    if blind or not (state.rows or state.evidence - {"run end"}):  # rules about versions judge settings alone
        return "no rule had anything to judge: no row of metrics, no completions and no two checkpoints were read"
    if state.rows and not any(_shows(state, evidence) for evidence in AREAS.values()):
        return "too little was read to judge it: nothing shows KL, weights, gradients or completions"
    return None


def early_signs(state: RunState) -> tuple[EarlySign, ...]:
    """Alerts that wait for more rows, then signs of single values; one sign per rule."""
    found: dict[str, EarlySign] = {}
    for sign in (*_pending(state), *_values(state)):
        found.setdefault(sign.rule, sign)
    return tuple(found.values())


def _pending(state: RunState) -> Iterator[EarlySign]:
    for monitor in state.monitors:
        for alert in monitor.alerts.values():
            grave = Severity.CRITICAL in {alert.severity, monitor.rule.severity} and alert.severity is not Severity.INFO
            again = grave and alert.observations >= AGAIN
            if alert.state is AlertState.PENDING and (state.rows < FEW_ROWS or again):
                text = alert.reading.message or monitor.rule.summary
                yield EarlySign(monitor.rule.name, monitor.rule.tells(text), dict(alert.reading.evidence))


def _values(state: RunState) -> Iterator[EarlySign]:
    for monitor in state.monitors:
        waits = state.rows < FEW_ROWS or not monitor.evaluated
        sign = monitor.detector.early_sign(state) if waits else None
        if sign is not None:
            yield EarlySign(monitor.rule.name, monitor.rule.tells(sign.message), dict(sign.evidence))


def unread(state: RunState) -> dict[str, str]:
    """Keys of the newest rows that look like a missing metric, each with the settings line that would read it."""
    missing = [metric for metric in LOOKS_LIKE if not state.seen(metric)]
    if state.rows and not missing:
        return {}
    taken = state.guesses.names()
    keys = dict.fromkeys(key for row in state.recent.newest(LEAST_ROWS) for key in row.raw if key not in taken)
    found = {key: metric for key in keys for metric in missing if _may_be(key, metric)}
    return {key: settings_line(metric, key) for key, metric in list(found.items())[:MOST_UNREAD]}


def settings_line(metric: str, key: str) -> str:
    """The line of grpo-watch.yaml that maps a key to a metric."""
    quoted = key.replace("\\", "\\\\").replace('"', '\\"')
    name = f'"{metric}"' if split_label(metric)[1] is not None else metric
    return f'columns: {{{name}: "{quoted}"}}'


def other_training(state: RunState) -> str | None:
    """The kind of training that a run's keys indicate if it is not GRPO, else None."""
    keys = {key for row in state.recent.newest(LEAST_ROWS) for key in row.raw}
    return next((kind for pattern, kind in OTHER_TRAINING if any(map(pattern.search, keys))), None)


def _without_reward(state: RunState) -> str:
    kind = other_training(state)
    if kind is not None:
        return f"no row has a reward, which GRPO learns from: this is the log of {kind}"
    if state.values.keys() <= ONLY_LOSS:
        return "the rows hold a loss but no reward, which GRPO learns from: pass the log that contains rewards"
    return "no row has a reward, which GRPO learns from: pass the log that contains rewards, or is this other training?"


def _too_short(rows: int) -> str:
    subject = "one row is" if rows == 1 else f"{rows} rows are"
    return f"{subject} too little to judge a run: most rules compare rows and need at least three"


def _read_reward(state: RunState) -> bool:
    named = (split_label(name) for name in state.values if name.startswith(REWARDS))
    return "completions" in state.evidence or any(label not in OF_PREFERENCES for _, label in named)


def _shows(state: RunState, evidence: frozenset[str]) -> bool:
    return any(state.seen(name) or name in state.evidence for name in evidence)


def _may_be(key: str, metric: str) -> bool:
    other = metric == "kl_reference" and OTHER_KL.search(key) is not None
    return LOOKS_LIKE[metric].search(key) is not None and NOT_IT.search(key) is None and not other


def guessed_lines(guessed: Mapping[str, str]) -> Iterator[str]:
    """One line for each metric read under a guessed name, with the `columns:` line that confirms it."""
    for key, metric in guessed.items():
        yield f"{key} is read as {metric}: a guess; settle it with {settings_line(metric, key)} in grpo-watch.yaml"
