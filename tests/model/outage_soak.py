"""Lets one receiver be gone and another slow for minutes while alerts fire, in real time; counts what each has then.

    python -m tests.model.outage_soak [--minutes 3] [--answers-after 30]

A third receiver is well all the time: it has to hear of the two. Then both work again. The last line says PASS or FAIL
(news that are missing, come under two ids or in another order, more than a minute after the repair, or nothing of the
failing reported), and the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.high import RULE, RULES, Run, ready
from tests.support.process import Process, until, watching
from tests.support.receiving import Answer, Receiving, receiving
from tests.support.servers import free_port

RUNS = ("a", "b", "c")
EVERY = 5.0
"""Seconds between two news."""
PROMISED = 60.0
"""Seconds after its return within which a receiver has all that waited."""
SENDING = 5.0
"""Seconds that the sending itself may take on a busy machine, beyond that."""
PATIENCE = 300.0
OWN = "delivery-failing"

News = tuple[str, str, int]
"""Run, status and step of an alert."""


@dataclass
class Got:
    """What one receiver has: its requests, the seconds until it had all (its repair is the beginning), its faults."""

    name: str
    requests: int
    seconds: float
    missing: int
    second_ids: int
    out_of_order: int

    @property
    def failed(self) -> bool:
        """Whether it lacks something, or got it wrongly."""
        return bool(self.missing or self.second_ids or self.out_of_order)

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.requests} requests, all there {self.seconds:.1f} s later, {self.missing} missing, "
            f"{self.second_ids} second ids, {self.out_of_order} out of order"
        )


@dataclass
class Figures:
    """What is printed: ``slowest`` is the longest time from a row to its message at the receiver that is well."""

    news: int
    minutes: float
    slowest: float
    reported: bool
    got: list[Got] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether a promise was broken."""
        late = any(each.seconds > PROMISED + SENDING for each in self.got)
        return late or not self.reported or any(each.failed for each in self.got)

    def __str__(self) -> str:
        reported = (
            "was notified of both and of their end" if self.reported else "was not notified of both and of their end"
        )
        return (
            f"{'FAIL' if self.failed else 'PASS'}: {self.news} news in {self.minutes:.1f} minutes; "
            f"{'; '.join(map(str, self.got))}; the one that is well had each within {self.slowest:.1f} s, "
            f"and {reported}"
        )


def play(folder: Path, seconds: float, after: float) -> Figures:
    """One daemon, three receivers, three runs."""
    runs = [Run(folder, name) for name in RUNS]
    written: dict[News, float] = {}
    with ExitStack() as stack:
        well, slow = stack.enter_context(receiving()), stack.enter_context(receiving(Answer(after=after)))
        port = free_port()
        options = settings(folder, well.url, slow.url, f"http://127.0.0.1:{port}")
        daemon = stack.enter_context(watching(folder / "runs", state=folder / "state", options=options))
        ready(daemon)
        write(runs, written, seconds, daemon)
        repaired = time.monotonic()
        slow.answers = [Answer()]
        gone = stack.enter_context(receiving(port=port))
        ends = {name: until(lambda name=name: idle(daemon, name), daemon.child, PATIENCE) for name in ("gone", "slow")}
        until(lambda: len(news(well)) >= len(written) and healed(well), daemon.child, PATIENCE)
        got = [of(name, hook, written, ends[name] - repaired) for name, hook in (("gone", gone), ("slow", slow))]
        at = {each: sent for each, (_, sent) in news(well).items()}
        slowest = max(at[each] - began for each, began in written.items())
        return Figures(len(written), seconds / 60.0, slowest, healed(well), [*got, of("well", well, written, 0.0)])


def settings(folder: Path, well: str, slow: str, gone: str) -> tuple[str, ...]:
    """The rule, and the three receivers; only the one that is well is notified of the others."""
    (folder / "rules.yaml").write_text(RULES)
    lines = [
        f"  - {{type: webhook, name: {name}, url: '{url}', only_rules: [{rules}]}}\n"
        for name, url, rules in (("well", well, f"{RULE}, {OWN}"), ("slow", slow, RULE), ("gone", gone, RULE))
    ]
    file = folder / "grpo-watch.yaml"
    file.write_text(f"rules: [rules.yaml]\nsinks:\n{''.join(lines)}")
    return ("--config", str(file))


def write(runs: Sequence[Run], written: dict[News, float], seconds: float, daemon: Process) -> None:
    """For so long, the alert of one run after the other fires or resolves."""
    pause, began = threading.Event(), time.monotonic()
    for number in range(int(seconds / EVERY)):
        run, fires = runs[number % len(runs)], number // len(runs) % 2 == 0
        written[run.path.name, "firing" if fires else "resolved", run.step + 1] = time.monotonic()
        run.write(0.9 if fires else 0.2)
        pause.wait(max(0.0, began + (number + 1) * EVERY - time.monotonic()))
        assert daemon.child.poll() is None


def idle(daemon: Process, sink: str) -> float | None:
    """When nothing waited for a receiver any more; None while something does."""
    waits = f'grpo_watch_delivery_queue_length{{sink="{sink}"}} 0.0'
    return time.monotonic() if waits in daemon.get("/metrics") else None


def documents(hook: Receiving) -> list[tuple[dict[str, Any], float]]:
    """All requests, and when they came."""
    return [(json.loads(sent.body), sent.at) for sent in list(hook.sent)]


def news(hook: Receiving) -> dict[News, tuple[set[str], float]]:
    """The ids of each piece of news, and when it came first; in order of that."""
    found: dict[News, tuple[set[str], float]] = {}
    for each, at in documents(hook):
        if each["rule"] == RULE:
            found.setdefault((each["run"], each["status"], each["step"]), (set(), at))[0].add(each["id"])
    return found


def healed(hook: Receiving) -> bool:
    """Whether both that failed were reported, and the end of each."""
    stories: dict[tuple[str, str], list[str]] = {}
    for each, _ in documents(hook):
        if each["rule"] == OWN:
            stories.setdefault((each["run"], each["evidence"]["channel"]), []).append(each["status"])
    ended = all(story[0] == "firing" and story[-1] == "resolved" for story in stories.values())
    return ended and {sink for _, sink in stories} == {"gone", "slow"}


def of(name: str, hook: Receiving, written: dict[News, float], seconds: float) -> Got:
    """What a receiver has, held against what was written."""
    found = news(hook)
    steps = {run: [step for other, _, step in found if other == run] for run in RUNS}
    return Got(
        name,
        len(hook.sent),
        seconds,
        missing=len(written.keys() - found.keys()),
        second_ids=sum(len(ids) > 1 for ids, _ in found.values()) + len(found.keys() - written.keys()),
        out_of_order=sum(each != sorted(each) for each in steps.values()),
    )


def main() -> int:
    """The exit code: 0 where the promises were kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--answers-after", type=float, default=30.0)
    given, load = parser.parse_args(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="soak") as folder:
        figures = play(Path(folder), given.minutes * 60.0, given.answers_after)
    print(f"{figures}; load {load:.1f} before, {os.getloadavg()[0]:.1f} after")  # noqa: T201  its output
    return int(figures.failed)


if __name__ == "__main__":
    sys.exit(main())
