"""A child process: its answers and its death come back."""

from __future__ import annotations

from contextlib import suppress
from multiprocessing.connection import Connection

import pytest

from grpo_watch.children.child import Child, ChildLostError


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
