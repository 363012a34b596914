"""Refused batch settings by their text."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from grpo_watch.detectors.shared import refusals
from grpo_watch.detectors.shared.refusals import of_batch
from grpo_watch.detectors.shared.refusals import refused as refused_settings
from grpo_watch.engine.records import EventKind, RunEvent, Severity, Tick
from grpo_watch.engine.snapshot import take_snapshot
from tests.support.detecting import Watched
from tests.support.records import row

RULE = "batch-not-divisible"


def refused(text: str, kind: EventKind = EventKind.CONFIG_ERROR) -> Watched:
    return Watched(RULE).feed(RunEvent("log", kind, text=text))


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: generation_batch_size (6) must be divisible by num_generations (8).",
        "ValueError: generation_batch_size (18) must be divisible by the global batch size (4).",
        "ValueError: generation_batch_size (4) must be evenly divisible by num_generations (6). Valid values: [2, 4].",
        "ValueError: The global eval batch size (1 x 4) must be evenly divisible by num_generations_eval (6).",
        (
            "ValueError: The global train batch size (3 x 1) must be evenly divisible by the number of generations per "
            "prompt (8)."
        ),
        "ValueError: 'generation_batch_size' and 'steps_per_generation' can not be both configured at the same time",
    ],
)
def test_real_refusals(text: str) -> None:
    """TRL 0.15 to 1.16, ms-swift 3.12 and 4.6."""
    assert refused(text).changes == [("firing", 0, "critical")]


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: num_generations must be greater than 1 for GRPO",
        "ValueError: At most one of fp16 and bf16 can be True, but not both",
        "KeyError: 'prompt'",
    ],
)
def test_other_refusals_are_not_its_matter(text: str) -> None:
    """They are run-crashed, or group-size-one."""
    assert refused(text).changes == []


def test_a_traceback_that_mentions_divisibility_is_no_refusal() -> None:
    """Tensor shapes fail with the same words in the middle of a run."""
    assert refused("RuntimeError: shape must be divisible by 8", EventKind.TRACEBACK).changes == []


def test_an_attempt_that_trains_leaves_the_refusal_a_warning() -> None:
    """As after any crash that a new start followed."""
    run = refused("generation_batch_size (6) must be divisible by num_generations (8).").feed(row(1), Tick(9.0))
    (finding,) = take_snapshot(run.state).findings
    assert (finding.rule, finding.severity) == (RULE, Severity.WARNING)


def test_a_run_that_logs_rows_got_past_it() -> None:
    """Launched again with other values into the same log."""
    run = refused("generation_batch_size (6) must be divisible by num_generations (8).").feed(row(1), Tick(9.0))
    assert run.changes == [("firing", 0, "critical"), ("resolved", 1, "critical")]


def test_a_tick_alone_ends_nothing() -> None:
    """The job is still dead."""
    run = refused("generation_batch_size (6) must be divisible by num_generations (8).").feed(Tick(9.0), Tick(99.0))
    assert run.changes == [("firing", 0, "critical")]


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        ("AssertionError: only support equal chunk. Got size of DataProto 100 and chunk 8.", "data.train_batch_size"),
        ("AssertionError: ppo_mini_batch_size 0 should be larger than 0 after normalization", "ppo_mini_batch_size"),
    ],
)
def test_verls_refusals_have_their_own_fix(error: str, fix: str) -> None:
    run = refused(error)
    assert [(state, severity) for state, _, severity in run.changes] == [("firing", "critical")]
    assert fix in run.said[-1].reading.hint


@pytest.mark.parametrize(
    "error",
    [
        "AssertionError: train_batch_size (6) must be larger than or equal to ppo_mini_batch_size (8)",
        "ValueError: rollout.n should be greater than 1 for GRPO when the batch size is 4",
        "AssertionError: micro_batch_size has to fit into mini_batch_size",
        "ValueError: The batch_size 12 needs to be at least group_size x processes",
    ],
)
def test_an_error_that_names_a_batch_setting_is_a_refusal_of_any_framework(error: str) -> None:
    assert refused_settings(error)
    assert refused(error).changes == [("firing", 0, "critical")]


@pytest.mark.parametrize(
    "error",
    [
        "ValueError: Expected input batch_size (4) to match target batch_size (8).",
        "RuntimeError: batch_size must be positive",
        "AssertionError: the reward must be a float",
        "ValueError: model_name should be a path",
    ],
)
def test_an_error_of_shapes_or_of_another_setting_is_none(error: str) -> None:
    assert of_batch(error) is None


def test_what_preflight_predicts_is_recognised_in_a_log() -> None:
    """Every sentence about division that a framework's launch is judged by."""
    said: list[str] = []
    for path in (Path(refusals.__file__).parents[2] / "frameworks").glob("*/launch*.py"):
        texts = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.JoinedStr)]
        said += ["".join(str(p.value) if isinstance(p, ast.Constant) else "8" for p in text.values) for text in texts]
    divisions = [text for text in said if "divisible by" in text]
    assert len(divisions) >= 10
    assert [text for text in divisions if of_batch(f"ValueError: {text}") is None] == []
