"""Small histories that once broke a promise of the delivery, or that the model once judged wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.model.pipeline_machine import PipelineMachine

HIGH, LOW = {"reward": 0.9}, {"reward": 0.2}
GRAVE, WELL = {"kl": 0.9}, {"kl": 0.01}
LONG, SHORT = {"completions/mean_length": 150.0}, {"completions/mean_length": 50.0}
Step = tuple[str, dict[str, Any]]


def write(run: str, *more: dict[str, float], cut: float = 1.0) -> Step:
    return "write", {"run": run, "more": list(more), "cut": cut}


def send(name: str, *answers: str) -> Step:
    return "send", {"name": name, "answers": list(answers)}


def wait(seconds: float = 1.1) -> Step:
    return "wait", {"seconds": seconds}


def change(name: str, turns: int) -> Step:
    return "receivers_change", {"name": name, "while_away": turns}


FULL: Step = ("fill", {"full": True})
KILL: Step = ("kill", {})
KILLED_BEFORE: Step = ("killed_while_storing", {"moment": "before"})
KILLED_AFTER: Step = ("killed_while_storing", {"moment": "after"})


def play(history: Sequence[Step], *, overflows: bool = False) -> PipelineMachine:
    """Do these steps, hold the promises after each, and let it end well."""
    machine = PipelineMachine()
    try:
        machine.begin(overflows)
        for name, arguments in history:
            getattr(machine, name)(**arguments)
            machine.nothing_but_what_is_owed()
            machine.queues_are_bounded()
    finally:
        machine.teardown()
    return machine


@pytest.mark.parametrize(
    "history",
    [
        pytest.param(
            [write("a", HIGH, GRAVE), wait(), send("plain", "400", "killed")],
            id="a refusal that was not stored is repeated after later news",
        ),
        pytest.param(
            [FULL, write("a", LONG, {}, LONG, HIGH), wait(), KILLED_AFTER, change("digests", 1)],
            id="two alerts that fired while the receiver was away come in the order of their rules",
        ),
        pytest.param(
            [write("b", HIGH), wait(), write("b", LOW, HIGH, LOW), change("plain", 0)],
            id="an alert that ended, fired again and ended while the receiver was away",
        ),
        pytest.param(
            [
                write("b", HIGH, {}, cut=0.5),
                change("digests", 2),
                write("b", {**LOW, **GRAVE}),
                ("repaired_while_down", {"name": "watcher"}),
                ("repaired_while_down", {"name": "digests"}),
            ],
            id="after a restart news go before what a digest still gathers of their run",
        ),
        pytest.param(
            [write("a", LONG), wait(), write("a", {}, LONG), wait(), write("a", {}, SHORT, LONG), change("plain", 0)],
            id="an alert that ended while the receiver was away and is pending again",
        ),
        pytest.param(
            [write("b", GRAVE, WELL), change("plain", 1)],
            id="an alert that came and went while the receiver was away",
        ),
        pytest.param(
            [
                write("b", GRAVE),
                wait(),
                FULL,
                send("critical", "400"),
                write("b", {}),
                wait(),
                send("watcher", "200", "200"),
                KILL,
            ],
            id="a full disk, and a kill that forgets a failing receiver",
        ),
        pytest.param(
            [
                FULL,
                write("b", GRAVE, WELL),
                wait(),
                write("b", {}),
                wait(),
                send("critical", "200", "302", "garbled"),
                KILLED_BEFORE,
                change("critical", 1),
            ],
            id="a full disk, and a kill that forgets that a receiver was away",
        ),
    ],
)
def test_the_promises_hold(history: Sequence[Step]) -> None:
    play(history)


def test_that_a_full_queue_is_empty_again_is_noticed_a_turn_later() -> None:
    """Each episode of a failing receiver ends: the history is not over before that was sent."""
    machine = play([write("a", HIGH, LOW, HIGH), wait()], overflows=True)
    assert {part["status"] for part in machine.wires["watcher"].seen.values()} == {"firing", "resolved"}


def test_what_a_kill_on_a_full_disk_forgets_is_sent_late() -> None:
    """The receiver refused it, and took the next message; the process that follows knows neither."""
    history = [FULL, write("a", HIGH, GRAVE), wait(), send("plain", "400"), wait(), send("plain", "200"), KILL]
    machine = play(history)
    assert [news.rule for news in machine.debts["plain"].late] == ["high"]
    assert [part["rule"] for part in machine.wires["plain"].seen.values()][:2] == ["grave", "high"]
