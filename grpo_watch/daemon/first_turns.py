"""The first turns of a run: from its stored items to the current end of its files."""

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
    """Begin to read a run, or restart its reading.

    Args:
        run: the run.
        found: what discovery found.
        rules: the rules in force.
        now: Unix seconds.
        grown: whether its files grew since the last read: then the files' times date it, not those of its steps.
    """
    if run.is_read:
        run.close(now)
    wholes = {channel.whole for channel in found.channels if channel.run}
    if not wholes.isdisjoint(run.state_writer.cursors(run.name)):
        run.state_writer.forget(run.name)  # rows of other runs in the same file are stored as its own
    run.begin(found, rules, now, _first_turns(run, now, grown=grown), urgent=_has_news(run, found))


def _has_news(run: WatchedRun, found: FoundRun) -> bool:
    """Whether a stored alert fires and the size of a log differs from the position up to which it was read."""
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
    """Rebuild the run from the store and read its files; each turn yields whether there is more to do at once."""
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
        yield True  # missed notifications are queued before anything new is read
    run.open()
    yield from _first_pass(run, now, grown=grown)


def _read_again(run: WatchedRun, now: float, *, grown: bool) -> Iterator[bool]:
    """Read a run whose stored items are damaged, archived or superseded; the stored alerts hold until all is read."""
    run.open()
    for more in _first_pass(run, now, grown=grown):
        run.safe = False
        yield more
    run.safe = True
    run.unstored.transitions.clear()  # the stored alerts already hold them
    run.unstored.alerts.clear()
    _settle(run)


def _settle(run: WatchedRun) -> None:
    """Continue from the stored alerts; changed rules may cause transitions."""
    loaded, fingerprints = run.state_writer.alerts(run.name), run.state_writer.fingerprints(run.name)
    settled = reconcile(run.name, loaded, run.alerts(), run.rules, run.step)
    run.load(settled.alerts)
    if fingerprints != run.rules.fingerprints:
        run.unstored.fingerprints = run.rules.fingerprints
    run.unstored.alerts |= {key: alert for key, alert in settled.alerts.items() if alert != loaded.get(key)}
    run.unstored.transitions += settled.transitions


def _first_pass(run: WatchedRun, now: float, *, grown: bool) -> Iterator[bool]:
    """Read the files to their current end; items count as seen when the newest file was written."""
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
