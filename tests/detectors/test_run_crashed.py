"""Signs of death, and rows that take them back."""

from __future__ import annotations

import pytest

from grpo_watch.engine.records import EndState, EventKind, MetricRow, RunConfig, RunEvent, Tick
from grpo_watch.engine.snapshot import RuleStatus, take_snapshot
from tests.support.detecting import Watched
from tests.support.records import row

RULE = "run-crashed"
DIED = [("firing", 3, "critical")]


def event(kind: EventKind, text: str = "ValueError: boom", seen: float | None = None) -> RunEvent:
    return RunEvent("log", kind, text=text, seen=seen)


def rows(attempt: int = 1, *steps: int) -> list[MetricRow]:
    return [row(step, attempt, step_seconds=2.0) for step in steps or (1, 2, 3)]


def crashed(**settings: float) -> Watched:
    return Watched(RULE, max_steps=100, **settings).feed_all(rows())


@pytest.mark.parametrize("kind", [EventKind.TRACEBACK, EventKind.KILLED, EventKind.CRASH_SUMMARY])
def test_each_sign_at_the_end_is_a_crash(kind: EventKind) -> None:
    """Offline the final tick settles it, with the error's own text."""
    run = crashed().feed(event(kind), Tick(9e4, live=False))
    assert run.changes == DIED
    assert run.said[-1].reading.evidence["error"] == "ValueError: boom"


def test_live_it_waits_for_ten_seconds_without_a_row() -> None:
    """At 109.9 it may still go on."""
    run = crashed().feed(event(EventKind.TRACEBACK, seen=100.0), Tick(109.9))
    assert run.changes == []
    assert run.feed(Tick(110.0)).changes == DIED


def test_two_median_steps_when_those_are_longer() -> None:
    """Steps of 60 seconds: 120."""
    run = Watched(RULE).feed_all(row(s, step_seconds=60.0) for s in (1, 2, 3))
    run.feed(event(EventKind.TRACEBACK, seen=100.0), Tick(219.0))
    assert run.changes == []
    assert run.feed(Tick(220.0)).changes == DIED


def test_rows_that_go_on_take_it_back() -> None:
    """A caught exception."""
    run = crashed().feed(event(EventKind.TRACEBACK, seen=100.0)).feed_all(rows(1, 4, 5)).feed(Tick(9e4, live=False))
    assert run.changes == []


def test_a_resume_settles_it_for_the_attempt_before() -> None:
    """Fired at step 3 of attempt 1, over with the first row of attempt 2."""
    run = crashed().feed(event(EventKind.TRACEBACK)).feed_all(rows(2, 2, 3))
    assert run.changes == [*DIED, ("resolved", 2, "critical")]
    assert run.said[0].attempt == 1


def test_a_new_start_in_the_same_log_settles_it() -> None:
    """The next launch's progress bar begins."""
    assert crashed().feed(event(EventKind.TRACEBACK), event(EventKind.STARTED, "")).changes == DIED


def test_after_the_end_nothing_is_a_crash() -> None:
    """Interpreters complain while shutting down."""
    run = crashed().feed(event(EventKind.FINISHED, ""), event(EventKind.TRACEBACK), Tick(9e4, live=False))
    assert run.changes == []


def test_it_fires_once() -> None:
    """Traceback of every rank, summary, many ticks."""
    run = crashed().feed(event(EventKind.TRACEBACK), event(EventKind.CRASH_SUMMARY), event(EventKind.TRACEBACK))
    run.feed(Tick(9e4), Tick(9e5), Tick(9e6, live=False))
    assert run.changes == DIED


def test_the_summary_does_not_hide_the_error() -> None:
    """ms-swift writes its summary after the traceback."""
    run = crashed().feed(event(EventKind.TRACEBACK, "KeyError: 'x'"), event(EventKind.CRASH_SUMMARY, "summary"))
    assert run.said[-1].reading.evidence["error"] == "KeyError: 'x'"


@pytest.mark.parametrize(
    ("state", "live", "changes"),
    [(EndState.ENDED, False, DIED), (EndState.UNKNOWN, False, []), (EndState.RUNNING, True, [])],
)
def test_without_a_sign_the_user_decides(state: EndState, live: bool, changes: list[object]) -> None:  # noqa: FBT001
    """Step 3 of 100: --ended makes it a crash."""
    assert crashed().feed(Tick(9e4, live=live, state=state)).changes == changes


def test_a_complete_run_has_ended_well() -> None:
    """All 3 of 3 steps are there, so --ended says nothing bad."""
    run = Watched(RULE, max_steps=3).feed_all(rows()).feed(Tick(9e4, live=False, state=EndState.ENDED))
    assert run.changes == []


def test_blind_where_the_end_does_not_show() -> None:
    """Only TensorBoard files are read."""
    run = Watched(RULE, shows_end=False).feed_all(rows()).feed(Tick(9e4, live=False))
    assert run.changes == []
    assert "no channel" in run.blind_reason


def test_died_before_the_first_row() -> None:
    """Refused settings, an import error: step 0."""
    run = Watched(RULE).feed(event(EventKind.TRACEBACK), Tick(9e4, live=False))
    assert run.changes == [("firing", 0, "critical")]


def test_rows_without_an_end_are_blindness_not_health() -> None:
    """Event files alone: each row was quiet, and yet nothing is known of the end."""
    run = Watched(RULE, shows_end=False, max_steps=100).feed(row(1), row(2), Tick(9e4, live=False))
    (view,) = take_snapshot(run.state).rules
    assert view.status is RuleStatus.BLIND
    assert "no channel that is read shows" in view.reason


OOM = "torch.OutOfMemoryError: CUDA out of memory."
NCCL = "NCCL watchdog: [Rank 1] Watchdog caught collective operation timeout"
ROOT = "SIGSEGV, a crash in native code (torchrun's root cause: rank 3, exit code -11)"
CHILD = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"


@pytest.mark.parametrize(
    ("signs", "cause"),
    [
        ((OOM, CHILD), OOM),
        (("ValueError: one answer", NCCL, "torch.distributed.DistBackendError: NCCL"), NCCL),
        ((NCCL, OOM), OOM),
        ((OOM, NCCL, ROOT, CHILD), ROOT),
        (("KeyError: 'x'", "ray.exceptions.ActorDiedError: The actor died"), "KeyError: 'x'"),
        (("KeyError: 'x'", "BrokenPipeError: [Errno 32] Broken pipe"), "KeyError: 'x'"),
        (("KeyError: 'caught'", "ValueError: the last"), "ValueError: the last"),
        ((CHILD,), CHILD),
    ],
)
def test_the_cause_is_not_what_followed_from_it(signs: tuple[str, ...], cause: str) -> None:
    run = crashed().feed(*(event(EventKind.TRACEBACK, text) for text in signs), Tick(9e4, live=False))
    assert run.said[-1].reading.evidence["error"] == cause


def test_a_scheduler_that_cleans_up_is_not_the_cause() -> None:
    """Slurm cancels the step once one task failed."""
    cleaning = "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-02T03:04:05 ***"
    run = crashed().feed(event(EventKind.TRACEBACK), event(EventKind.KILLED, cleaning), Tick(9e4, live=False))
    assert run.said[-1].reading.evidence["error"] == "ValueError: boom"


@pytest.mark.parametrize(
    "sign",
    [
        event(EventKind.TRACEBACK, "KeyboardInterrupt"),
        event(EventKind.KILLED, "interrupted, by wandb's exit code"),
    ],
)
def test_a_job_stopped_by_hand_is_no_fault(sign: RunEvent) -> None:
    run = crashed().feed(sign, Tick(9e4, live=False))
    assert run.changes == [("firing", 3, "info")]
    assert "stopped manually" in run.said[-1].reading.message


@pytest.mark.parametrize(("planned", "severity"), [(100, "critical"), (3, "warning"), (None, "warning")])
def test_an_exit_code_alone_is_a_crash_only_before_the_planned_end(planned: int | None, severity: str) -> None:
    run = Watched(RULE, max_steps=planned).feed_all(rows())
    run.feed(event(EventKind.CRASH_SUMMARY, "wandb stored the exit code 1"))
    assert run.changes == [("firing", 3, severity)]


def test_an_exit_code_without_any_row_is_no_verdict() -> None:
    run = Watched(RULE).feed(event(EventKind.CRASH_SUMMARY, "wandb stored the exit code 1"))
    assert run.changes == [("firing", 0, "info")]


def test_an_error_before_the_end_marker_ended_nothing() -> None:
    """A final evaluation that fails is caught, and the trainer writes its last row."""
    run = crashed().feed(event(EventKind.TRACEBACK), event(EventKind.FINISHED, ""), Tick(9e4, live=False))
    assert run.changes == []


def test_an_error_that_refers_to_its_cause_does_not_hide_it() -> None:
    """verl on vLLM: the engine's error, then Ray's that carries the server's, which refers to the engine's."""
    cause = "ValueError: Free memory on device (10.94/23.52 GiB) is less than desired GPU memory utilization"
    ray = "ray.exceptions.RayTaskError(RuntimeError): ray::TaskRunner.run() (pid=11)"
    server = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
    run = Watched(RULE).feed(*(event(EventKind.TRACEBACK, text) for text in (cause, ray, server)))
    run.feed(Tick(9e4, live=False))
    assert [each.reading.evidence["error"] for each in run.said] == [cause]


@pytest.mark.parametrize(
    ("framework", "phase", "fix"),
    [
        ("trl", "generation", "vllm_gpu_memory_utilization"),
        ("ms-swift", "the backward pass", "--gradient_accumulation_steps"),
        ("verl", "the optimizer", "optimizer_offload"),
        ("slime", "the optimizer", "Shard or offload"),
    ],
)
def test_memory_that_ran_out_has_a_fix_by_framework_and_place(framework: str, phase: str, fix: str) -> None:
    run = crashed().feed(RunConfig(framework, None, {}))
    run.feed(event(EventKind.TRACEBACK, f"{OOM} (in {phase})"), Tick(9e4, live=False))
    assert fix in run.said[-1].reading.hint


def test_memory_that_ran_out_somewhere_is_to_be_placed_first() -> None:
    run = crashed().feed(event(EventKind.TRACEBACK, OOM), Tick(9e4, live=False))
    assert run.said[-1].reading.hint.startswith("Find out where")
