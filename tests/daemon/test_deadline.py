"""A process that is asked to stop leaves in time, whatever hangs in it."""

from __future__ import annotations

import os
import signal
import threading
from queue import SimpleQueue

import pytest

from grpo_watch.daemon.service import LEAVE_SECONDS, WORD_SECONDS, Deadline, signal_inbox
from tests.support.process import PATIENCE


class Asked:
    """What a deadline did: waits that return at once, and the exit code."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.left: SimpleQueue[int] = SimpleQueue()
        self.deadline = Deadline(self.waits.append, self.left.put)


def test_it_leaves_after_so_many_seconds_with_the_code_of_the_first_call() -> None:
    reported = Asked()
    assert reported.waits == []
    reported.deadline.begin(7.0, 3)
    reported.deadline.begin(60.0, 0)
    assert reported.left.get(timeout=PATIENCE) == 3
    assert reported.waits == [7.0, WORD_SECONDS]
    assert reported.left.empty()


def test_a_log_that_hangs_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe behind the log that nobody empties: the line is never written, and the process leaves."""
    never = threading.Event()
    monkeypatch.setattr("grpo_watch.daemon.service.log.error", lambda *_: never.wait(PATIENCE))
    reported = Asked()
    reported.deadline.begin(1.0, 0)
    assert reported.left.get(timeout=PATIENCE) == 0
    never.set()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_signal_itself_begins_it(number: int) -> None:
    """Not the loop that reads the inbox: that may hang. Five seconds are promised."""
    reported = Asked()
    with signal_inbox(reported.deadline) as inbox:
        os.kill(os.getpid(), number)
        assert inbox.get(timeout=PATIENCE) == number
    assert reported.left.get(timeout=PATIENCE) == 0
    assert reported.waits == [LEAVE_SECONDS, WORD_SECONDS]
    assert sum(reported.waits) < 5


def test_a_reload_is_no_end() -> None:
    reported, before = Asked(), signal.getsignal(signal.SIGHUP)
    with signal_inbox(reported.deadline) as inbox:
        os.kill(os.getpid(), signal.SIGHUP)
        assert inbox.get(timeout=PATIENCE) == signal.SIGHUP
    assert reported.waits == []
    assert signal.getsignal(signal.SIGHUP) == before
