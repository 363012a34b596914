"""Which monitors of a run need not be shown the usual train row, and which rows wake them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grpo_watch.engine.block import Block, first_outside
from grpo_watch.engine.detector import Bounds, RunView
from grpo_watch.engine.monitor import Monitor
from grpo_watch.engine.records import MetricRow

QUIET_ROWS = 16
"""Rows in a row with nothing to say before a monitor falls asleep: falling asleep costs as much as a few rows."""
LONGEST = 400
"""Rows after which monitors that look back are woken: fewer than a run remembers for them."""


class QuiescentRules:
    """The monitors whose detectors promised (``quiet_while``) to have nothing to say about rows within bounds.

    What all of them need is one comparison per metric, however many they are. A row outside the bounds, or with other
    keys where keys matter, or printed at another resolution, wakes those that it concerns.
    """

    __slots__ = ("_backward", "_bounds", "_here", "_keys_matter", "_layout", "_promised", "_resolution", "_rows")

    def __init__(self) -> None:
        self._promised: dict[Monitor, Bounds] = {}
        self._bounds: dict[str, tuple[float, float]] = {}
        self._here: tuple[tuple[str, float, float], ...] = ()
        self._keys_matter = False
        self._backward = 0
        self._layout: tuple[str, ...] = ()
        self._resolution: float | None = None
        self._rows = 0

    def __contains__(self, monitor: Monitor) -> bool:
        return monitor in self._promised

    def __len__(self) -> int:
        return len(self._promised)

    def add(self, monitors: Iterable[Monitor], row: MetricRow) -> None:
        """Let these sleep after this row, which ``woken_by`` was asked about."""
        if row.resolution != self._resolution:
            self._promised.clear()
            self._forget()
            self._resolution = row.resolution
        promises = {m: m.detector.quiet_while for m in monitors if m.detector.quiet_while is not None}
        renewed = not self._promised.keys().isdisjoint(promises)
        self._promised.update(promises)
        if renewed:
            self._merge()
        else:
            self._narrow(promises)

    def woken_by(self, row: MetricRow) -> bool:
        """Whether any monitor is woken by this row, whose values are all finite."""
        self._rows += 1
        if row.resolution != self._resolution:
            return self.rouse()
        woken = self._rows > LONGEST and self._wake_backward()
        values = row.values
        layout = tuple(values)
        if layout != self._layout:
            self._layout = layout
            self._look_at_layout()
            if self._keys_matter:
                return self._wake(row, other_keys=True) or woken
        for metric, low, high in self._here:
            if not low <= values[metric] <= high:  # type: ignore[operator]  # all are finite
                return self._wake(row, other_keys=False) or woken
        return woken

    def reach(self, block: Block) -> int:
        """How many rows of a block, from its first one on, wake none."""
        if not self._promised:
            return len(block)
        if block.resolution != self._resolution or tuple(block.values) != self._layout:
            return 0
        return min((first_outside(block.values[name], low, high) for name, low, high in self._here), default=len(block))

    def pass_over(self, block: Block) -> None:
        """The rows of a block woke none."""
        if not self._promised:
            self._layout = tuple(block.values)
        self._rows = self._backward if self._is_enough(block) else self._rows + len(block)

    def _is_enough(self, block: Block) -> bool:
        """Whether those that look back need no row from before the block."""
        return not self._late(block)

    def _late(self, block: Block) -> list[Monitor]:
        """Those that look back and need rows from before the block: it is short, or has nothing that they promised."""
        looking = (monitor for monitor in self._promised if monitor.detector.looks_back)
        return [
            monitor
            for monitor in looking
            if len(block) < monitor.detector.looks_back or monitor.promised.isdisjoint(block.values)
        ]

    def look_back(self, block: Block, run: RunView) -> bool:
        """Let those look back in time that need rows from before a block; whether any of them promises less now."""
        if self._rows + len(block) <= LONGEST:
            return False
        late = self._late(block)
        if not late:
            return False
        self._rows = 0
        before = dict(self._promised)
        for monitor in late:
            bounds = monitor.look_back(run)
            if bounds is None:
                del self._promised[monitor]
            else:
                self._promised[monitor] = bounds
        if self._promised == before:
            return False
        self._merge()
        return True

    def release_for_blocks(self) -> bool:
        """Wake those that can say of a block what bounds can't; whether there were any."""
        return self._keep({monitor: bounds for monitor, bounds in self._promised.items() if not monitor.takes_blocks})

    def recheck(self) -> bool:
        """Whether any monitor is woken because it was shown something else and takes its promise back."""
        kept = {
            monitor: bounds
            for monitor, bounds in self._promised.items()
            if not monitor.active and monitor.detector.quiet_while is bounds
        }
        return self._keep(kept)

    def rouse(self) -> bool:
        """Wake all; whether there were any."""
        self._rows = 0
        return self._keep({})

    def _wake_backward(self) -> bool:
        """Wake those that look back, while the run still remembers what they slept through."""
        self._rows = 0
        return self._keep({m: bounds for m, bounds in self._promised.items() if not m.detector.looks_back})

    def _wake(self, row: MetricRow, *, other_keys: bool) -> bool:
        kept = {
            monitor: bounds
            for monitor, bounds in self._promised.items()
            if not (other_keys and monitor.detector.keys_matter) and _within(row, bounds)
        }
        return self._keep(kept)

    def _keep(self, kept: dict[Monitor, Bounds]) -> bool:
        if len(kept) == len(self._promised):
            return False
        for monitor in self._promised.keys() - kept.keys():
            monitor.quiet_rows = 0
        self._promised = kept
        self._merge()
        return True

    def _merge(self) -> None:
        """The narrowest bounds of each metric."""
        self._forget()
        self._narrow(self._promised)

    def _forget(self) -> None:
        """No bounds yet."""
        self._bounds, self._keys_matter, self._backward = {}, False, 0

    def _narrow(self, promises: Mapping[Monitor, Bounds]) -> None:
        """Merge more bounds into those of each metric, which costs nothing for those who sleep already."""
        merged = self._bounds
        for monitor, bounds in promises.items():
            for metric, (low, high) in bounds.items():
                lowest, highest = merged.get(metric, (low, high))
                merged[metric] = max(low, lowest), min(high, highest)
            self._keys_matter = self._keys_matter or monitor.detector.keys_matter
            self._backward = max(self._backward, monitor.detector.looks_back)
        self._look_at_layout()

    def _look_at_layout(self) -> None:
        """The bounds of the metrics that rows carry now."""
        here = self._bounds.keys() & set(self._layout)
        self._here = tuple((metric, *self._bounds[metric]) for metric in here)


def _within(row: MetricRow, bounds: Bounds) -> bool:
    for metric, (low, high) in bounds.items():
        value = row.values.get(metric)
        if value is not None and not low <= value <= high:
            return False
    return True
