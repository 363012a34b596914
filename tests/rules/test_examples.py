"""The harness of runbook examples: what a block becomes, and that a wrong expectation is reported."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from grpo_watch.engine.detector import QUIET, Detector, RunView
from grpo_watch.engine.records import (
    Activity,
    CheckpointDigest,
    CheckpointKind,
    CompletionSummary,
    EventKind,
    MetricRow,
    Progress,
    Reading,
    RunConfig,
    RunEvent,
    Severity,
    Stream,
    Tick,
    Verdict,
)
from grpo_watch.engine.rule import Rule
from grpo_watch.errors import RuleError
from grpo_watch.rules.example_blocks import Example
from grpo_watch.rules.rule_tests import failure
from grpo_watch.rules.runbook import Runbook
from tests.support.runbooks import examples_of


class HighLoss(Detector):
    """Breaches while the loss is above 1; breaks at 99."""

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:  # noqa: ARG002
        loss = record.values.get("loss") or 0.0
        if loss == 99:
            raise ZeroDivisionError
        return (Reading(Verdict.BREACH, value=loss),) if loss > 1 else QUIET


DETECTORS = {"high-loss": HighLoss}
RULE = Rule("high-loss", detector="high-loss", for_steps=4, severity=Severity.CRITICAL)


def block(yaml: str) -> Example:
    runbook = Runbook(Path("high_loss.md"), f"# high-loss\nSay.\n\n## Examples\n\n```series\n{yaml}\n```\n")
    (example,) = examples_of(runbook)
    return example


def refusal(yaml: str) -> str:
    with pytest.raises(RuleError) as refused:
        block(yaml)
    return str(refused.value)


def test_series_become_rows_on_their_steps() -> None:
    """Missing samples leave the key out; a step without any key has no row; null stays None."""
    example = block(
        "series: {loss: '1 _ null 4', grad_norm: '5 _x2', 'raw:a/b': '7'}\n"
        "start: 10\nevery: 5\nseconds: 30\nresolution: 5e-9\n"
        "config: {beta: 0.04}\nframework: trl\nexpect: {quiet: true}"
    )
    config, *rows = example.records
    assert isinstance(config, RunConfig)
    assert (config.framework, config.settings["beta"].value) == ("trl", 0.04)
    assert [(row.step, row.values, row.raw, row.time) for row in rows if isinstance(row, MetricRow)] == [
        (10, {"loss": 1.0, "grad_norm": 5.0}, {"a/b": 7.0}, 30.0),
        (20, {"loss": None}, {}, 90.0),
        (25, {"loss": 4.0}, {}, 120.0),
    ]


def test_events_follow_the_row_of_their_step() -> None:
    """In step order; without a step they come last, in the order written."""
    example = block(
        "series: {loss: '0x2'}\nexpect: {quiet: true}\nevents:\n"
        "  - {activity: 5}\n"
        "  - {tick: 9, live: false, state: ended}\n"
        "  - {step: 2, event: traceback, text: boom}\n"
        "  - {step: 1, completions: [[0, 1, 0], [0, 0, 0]], length: 7, rewards: {f: [[1, 0, 1], [0, 0, null]]}}\n"
        "  - {step: 2, checkpoint: {w: aa, b: bb}, zero: [b], no_elements: [w], adapter: {r: 8}}\n"
        "  - {step: 9, eval: {loss: 1}}\n"
        "  - {progress: [3, 10]}\n"
    )
    _, _, completions, _, traceback, checkpoint, _, eval_row, activity, tick, progress = example.records
    assert isinstance(completions, CompletionSummary)
    first, second = completions.groups
    assert (first.pattern, first.unique, first.size, first.lengths) == ((0, 1, 0), 2, 3, (7, 7, 7))
    assert (second.unique, second.rewards) == (1, {"f": (0.0, 0.0, None)})
    assert len({first.digest, second.digest, first.prompt_id, second.prompt_id}) == 4
    assert isinstance(traceback, RunEvent)
    assert (traceback.kind, traceback.step, traceback.text) == (EventKind.TRACEBACK, 2, "boom")
    assert isinstance(checkpoint, CheckpointDigest)
    assert checkpoint.kind is CheckpointKind.ADAPTER
    assert checkpoint.tensors["b"].zero
    assert checkpoint.tensors["w"].elements == 0
    assert isinstance(eval_row, MetricRow)
    assert eval_row.stream is Stream.EVAL
    assert activity == Activity("example", 5.0)
    assert isinstance(tick, Tick)
    assert (tick.now, tick.live, tick.state.value) == (9.0, False, "ended")
    assert progress == Progress("example", 3, 10)


def test_a_resume_begins_a_second_attempt_behind_the_events_of_the_first() -> None:
    """After step 3 the run goes on from step 2 as attempt 2; what happened at step 3 comes before."""
    example = block(
        "series: {loss: '0x4'}\nseconds: 10\nresume: {after: 3, at: 2}\nexpect: {quiet: true}\n"
        "events: [{step: 3, event: traceback, text: boom, seen: 31}, {step: 3, event: started}]"
    )
    _, *records = example.records
    assert [(r.attempt, r.step, r.time) if isinstance(r, MetricRow) else getattr(r, "seen", "") for r in records] == [
        (1, 1, 10.0),
        (1, 2, 20.0),
        (1, 3, 30.0),
        31.0,
        None,
        (2, 2, 40.0),
        (2, 3, 50.0),
    ]


@pytest.mark.parametrize(
    "expect",
    ["{fires: 8}", "{fires: 8, first_step: 4, severity: critical}", "{fires: 8, resolves: 10}", "{resolves: 10}"],
)
def test_a_right_expectation_passes(expect: str) -> None:
    """Loss is 5 from step 4 to 9: it fires at 8 (for_steps 4) and resolves at 10."""
    assert failure(block(f"series: {{loss: '0x2 5x5 0x3'}}\nexpect: {expect}"), RULE, DETECTORS) is None


@pytest.mark.parametrize(
    ("series", "expect", "message"),
    [
        ("0x2 5x5 0x3", "{fires: 7}", "expected to fire at step 7, got 8"),
        ("0x2 5x5 0x3", "{fires: 8, first_step: 5}", "expected to fire with first_step 5, got 4"),
        ("0x2 5x5 0x3", "{fires: 8, severity: info}", "expected to fire with severity info, got critical"),
        ("0x2 5x5 0x3", "{fires: 8, resolves: 11}", "expected to resolve at step 11, got 10"),
        ("0x2 5x9", "{fires: 8, resolves: 11}", "expected to resolve at step 11, got None"),
        ("0x2 5x5 0x3", "{quiet: true}", "expected to stay quiet"),
        ("0x9", "{fires: 8}", "expected to fire at step 8, got None"),
        ("99", "{quiet: true}", "the detector broke: ZeroDivisionError"),
    ],
)
def test_a_wrong_expectation_is_reported_with_its_line(series: str, expect: str, message: str) -> None:
    """And with what the rule said instead."""
    said = failure(block(f"series: {{loss: '{series}'}}\nexpect: {expect}"), RULE, DETECTORS)
    assert said is not None
    assert said.startswith(f"high_loss.md:7: {message}")


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        ("series: {}", "high_loss.md:7:1: missing key 'expect'"),
        ("expect: {fire: 3}", "high_loss.md:7:10: unknown key 'fire' (did you mean fires?)"),
        ("expect: {}", "high_loss.md:7:9: expect: expect either `quiet: true` or `fires:`/`resolves:` with a step"),
        ("expect: {quiet: true, fires: 3}", "high_loss.md:7:9: expect: expect either `quiet: true` or"),
        ("expect: {quiet: true}\nseries: {los: '0'}", "high_loss.md:8:10: unknown metric 'los' (did you mean loss?)"),
        ("expect: {quiet: true}\nseries: {loss: '0 y'}", "high_loss.md:8:17: 'y' is not a series term"),
        ("expect: {quiet: true}\nconfig: {bta: 1}", "high_loss.md:8:10: unknown setting 'bta' (did you mean beta?)"),
        ("expect: {quiet: true}\nevents: [{step: 3}]", "high_loss.md:8:10: events.0: an event has exactly one of"),
        ("expect: [", "high_loss.md:8:1: is not valid YAML"),
    ],
)
def test_a_block_that_cannot_be_read_is_refused_with_its_line(yaml: str, message: str) -> None:
    """Places are those of the runbook, not of the block."""
    assert refusal(yaml).startswith(message)
