"""The first turns of a run that begins to be read: from what is stored of it to what its files hold by then."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress

from grpo_watch.daemon.run_reader import SLICE
from grpo_watch.daemon.watched_run import WatchedRun
from grpo_watch.engine.records import AlertState, Tick
from grpo_watch.rules.rule_changes import RuleSet, reconcile
from grpo_watch.sources.discovery.discover import FoundRun, newest_write
from grpo_watch.store.state import StoreError

log = logging.getLogger("grpo_watch.run")


def begin(run: WatchedRun, found: FoundRun, rules: RuleSet, now: float, *, grown: bool = False) -> None:
    """Begin to read a run, or begin again.

    Args:
        run: the run.
        found: what discovery found.
        rules: the rules in force.
        now: Unix seconds.
        grown: whether its files were seen to grow since it was read before: then their times count, not those of its
            steps.
    """
    if run.is_read:
        run.close(now)
    wholes = {channel.whole for channel in found.channels if channel.run}
    if not wholes.isdisjoint(run.state_writer.cursors(run.name)):
        run.state_writer.forget(run.name)  # rows of other runs in its file are stored as its own
    run.begin(found, rules, now, _first_turns(run, now, grown=grown), urgent=_has_news(run, found))


def _has_news(run: WatchedRun, found: FoundRun) -> bool:
    """Whether a stored alert fires, and a log has another length than the part of it that was read."""
    if not any(alert.state is AlertState.FIRING for alert in run.state_writer.alerts(run.name).values()):
        return False
    cursors = run.state_writer.cursors(run.name)
    for channel in found.channels:
        cursor = cursors.get(channel.name)
        with suppress(OSError):
            if channel.path.is_file() and (cursor is None or channel.path.stat().st_size != cursor.position):
                return True
    return False


def _first_turns(run: WatchedRun, now: float, *, grown: bool) -> Iterator[bool]:
    """Rebuild the run and read what is there; each turn says whether there is more to do at once."""
    try:
        for number, item in enumerate(run.reader.as_set_now(run.state_writer.items(run.name)), 1):
            run.replay(item)
            if number % SLICE == 0:
                yield True
    except StoreError:
        log.exception("a stored run is damaged and read again", extra={"fields": {"run": run.name}})
        run.state_writer.forget(run.name)
        run.forget(now)
    if (run.reader.lacks or not run.announced) and run.state_writer.alerts(run.name):
        yield from _read_again(run, now, grown=grown)
        return
    _settle(run)
    if run.looked and run.state_writer.alerts(run.name):
        run.end.touch(newest_write(run.reader.found))
        run.restored = not run.is_over(now)
        yield True  # what a receiver missed is queued before anything new is read
    run.open()
    yield from _first_pass(run, now, grown=grown)


def _read_again(run: WatchedRun, now: float, *, grown: bool) -> Iterator[bool]:
    """The stored alerts count until all that they rest on (damaged, archived, shown better elsewhere) was read."""
    run.open()
    for more in _first_pass(run, now, grown=grown):
        run.safe = False
        yield more
    run.safe = True
    run.unstored.transitions.clear()  # the stored alerts already hold them
    run.unstored.alerts.clear()
    _settle(run)


def _settle(run: WatchedRun) -> None:
    """Continue from the stored alerts; rules that changed since may make transitions."""
    loaded, fingerprints = run.state_writer.alerts(run.name), run.state_writer.fingerprints(run.name)
    settled = reconcile(run.name, loaded, run.alerts(), run.rules, run.step)
    run.load(settled.alerts)
    if fingerprints != run.rules.fingerprints:
        run.unstored.fingerprints = run.rules.fingerprints
    run.unstored.alerts |= {key: alert for key, alert in settled.alerts.items() if alert != loaded.get(key)}
    run.unstored.transitions += settled.transitions


def _first_pass(run: WatchedRun, now: float, *, grown: bool) -> Iterator[bool]:
    """Read what is there by now. It was written by the time of the newest file, and is taken as seen then."""
    written = run.reader.written()
    run.end.touch(now if written is None else written)
    run.reader.begin(min(now, run.end.written or now), now)
    while not (taken := run.reader.read(now, run.feed)).ended:
        yield taken.more
    if not grown:
        run.end.date_by_steps()
    over = run.is_over(now)
    run.elect(now, ended=over)
    run.feed(Tick(now, live=not over))
