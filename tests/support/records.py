"""Short builders of records, readings and rules: each test names only what it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from grpo_watch.engine.alerts import Alert
from grpo_watch.engine.detector import Detector
from grpo_watch.engine.metric_names import split_label
from grpo_watch.engine.records import (
    AlertState,
    ChannelKind,
    CheckpointDigest,
    CheckpointKind,
    CompletionSummary,
    GroupSummary,
    MetricRow,
    RawRow,
    Reading,
    Severity,
    Stream,
    TensorDigest,
    Verdict,
)
from grpo_watch.engine.rule import Rule

OK = Reading(Verdict.OK)
BREACH = Reading(Verdict.BREACH)
NO_DATA = Reading(Verdict.NO_DATA)


def a_rule(name: str = "some-rule", **changes: Any) -> Rule:
    """A rule that fires at its first breach unless ``changes`` say otherwise."""
    return Rule(name, **{"min_observations": 1, "severity": Severity.CRITICAL, **changes})


def an_alert(state: AlertState, **changes: Any) -> Alert:
    """An alert in its first episode, begun at step 10 (and fired there)."""
    known: dict[str, Any] = {
        AlertState.INACTIVE: {},
        AlertState.PENDING: {"episode": 1, "first_step": 10, "last_breach_step": 10, "observations": 1},
        AlertState.FIRING: {
            "episode": 1,
            "first_step": 10,
            "last_breach_step": 10,
            "observations": 1,
            "fired_step": 10,
            "fired_total": 1,
        },
        AlertState.RESOLVED: {
            "episode": 1,
            "first_step": 10,
            "last_breach_step": 10,
            "fired_step": 10,
            "resolved_step": 11,
            "fired_total": 1,
        },
    }[state]
    return Alert(**{"state": state, "severity": Severity.CRITICAL, **known, **changes})


def raw(step: int | None, channel: str = "log", kind: ChannelKind = ChannelKind.JSONL, **changes: Any) -> RawRow:
    """A raw row of TRL's names; ``values`` replaces its one metric (which differs from step to step)."""
    values = {"reward": 0.5 + (step or 0) / 1000}
    return RawRow(channel, kind, step, **{"values": values, **changes})


def row(step: int, attempt: int = 1, *, supplement: bool = False, **values: float | None) -> MetricRow:
    """A canonical train row of the run ``run``."""
    return MetricRow("run", Stream.TRAIN, attempt, step, values, supplement=supplement)


def evaluation(step: int, **scores: float) -> MetricRow:
    """The scores of an evaluation of the run ``run``; names have ``__`` for ``/``."""
    values = {f"eval_score[{name.replace('__', '/')}]": score for name, score in scores.items()}
    return MetricRow("run", Stream.EVAL, 1, step, values)


def a_group(pattern: tuple[int, ...], digest: str = "", **changes: Any) -> GroupSummary:
    """A group of long texts that are equal where the pattern says so."""
    lengths = (40,) * len(pattern)
    known = {"prompt_id": "p", "size": len(pattern), "unique": len(set(pattern)), "lengths": lengths}
    return GroupSummary(**{**known, "pattern": pattern, "digest": digest or repr(pattern), **changes})


def a_batch(step: int, *patterns: tuple[int, ...], **changes: Any) -> CompletionSummary:
    """A dumped batch; the texts of each step are new."""
    groups = tuple(a_group(pattern, f"{step}-{index}") for index, pattern in enumerate(patterns))
    return CompletionSummary("completions", step, groups, **changes)


def a_checkpoint(step: int, tensors: Mapping[str, str], **changes: Any) -> CheckpointDigest:
    """A complete checkpoint whose tensors (four float32 each) have these checksums."""
    digests = {name: TensorDigest("F32", (4,), checksum) for name, checksum in tensors.items()}
    known = {"channel": "checkpoints", "path": f"checkpoint-{step}", "complete": True, "kind": CheckpointKind.FULL}
    return CheckpointDigest(**{**known, "step": step, "tensors": digests, **changes})


class Scripted(Detector):
    """Says at each row what the row's own metrics dictate.

    ``breach``, ``ok``, ``blind`` (label: the alert's key) give one reading each, in the row's order, at the step that
    is their number (None: the row's); ``boom`` raises.
    """

    def setup(self) -> None:
        """Count the rows of this instance."""
        self.rows = 0

    def observe(self, record: MetricRow, run: Any) -> Iterable[Reading]:  # noqa: ARG002
        """One reading per metric."""
        self.rows += 1
        return tuple(self._reading(*split_label(name), step) for name, step in record.values.items())

    def _reading(self, word: str, key: str | None, step: float | None) -> Reading:
        if word == "boom":
            raise RuntimeError("boom")
        verdict = {"breach": Verdict.BREACH, "ok": Verdict.OK, "blind": Verdict.NO_DATA}[word]
        return Reading(verdict, key or "", message=f"row {self.rows}", step=None if step is None else int(step))
