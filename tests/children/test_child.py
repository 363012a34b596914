"""Work in a child process: its result, its exception, its progress, and its death come back."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from multiprocessing.connection import Connection

import pytest

from grpo_watch.children.child import REPORTED, Child, ChildLostError, Report, in_child


def test_result_and_progress() -> None:
    reports: list[tuple[int, int]] = []

    def work(report: Report) -> int:
        for done in (REPORTED, REPORTED + 1, 2 * REPORTED):
            report(done, 5)
        return os.getpid()

    assert in_child(work, lambda done, total: reports.append((done, total))) != os.getpid()
    assert reports == [(REPORTED, 5), (2 * REPORTED, 5)]


def test_what_it_raises() -> None:
    def work(_: Report) -> None:
        raise FileNotFoundError(2, "gone", "checkpoint-1")

    with pytest.raises(FileNotFoundError, match="checkpoint-1"):
        in_child(work, None)


def test_a_child_that_is_killed() -> None:
    with pytest.raises(ChildLostError, match="SIGBUS"):
        in_child(lambda _: os.kill(os.getpid(), signal.SIGBUS), None)


def answers(pipe: Connection, greeting: str) -> None:
    pipe.send(greeting)
    with suppress(EOFError):
        while True:
            pipe.send(pipe.recv() * 2)


def test_questions_and_answers_until_it_is_closed() -> None:
    child = Child(answers, "ready", name="answers")
    assert child.receive() == "ready"
    for number in (1, 2):
        child.send(number)
        assert child.receive() == 2 * number
    assert child.alive
    child.close()
    assert not child.alive


def test_an_answer_that_does_not_come() -> None:
    child = Child(answers, "ready", name="answers")
    child.receive()
    with pytest.raises(TimeoutError):
        child.receive(0.0)
    child.kill()
    with pytest.raises(ChildLostError, match="SIGKILL"):
        child.receive()
    child.close()
