"""Gives console rows their steps, and keeps the log's state between pieces."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from types import MappingProxyType

from grpo_watch.engine.records import (
    ChannelKind,
    EventKind,
    Item,
    Progress,
    RawRow,
    RunConfig,
    RunEvent,
    Scalar,
    Setting,
    Stream,
)
from grpo_watch.sources.base import recalled, remembered
from grpo_watch.sources.console.markers import FAILED, ConsoleMarkers, repeated
from grpo_watch.sources.console.step_placement import StepPlacement
from grpo_watch.sources.rows.bars import ProgressBar
from grpo_watch.sources.settings.config_files import FROM_ARGUMENTS, FROM_LAUNCH
from grpo_watch.sources.settings.printed_config import PRINTED, PrintedSizes

MOST_GUESSED = 2
"""First rows that may be numbered before a bar shows the steps between two rows."""
REPORTED = 8
"""Texts remembered since the last row; each is reported once."""


class ConsoleRows:
    """Shared state of a log's pieces: rows that wait for their step, bars, and reported texts.

    ``idle``: nothing is held back, so ``state()`` is complete. ``saved`` is the state before the piece that ended
    idleness.
    """

    def __init__(self, name: str, segment: int, state: Mapping[str, Scalar]) -> None:
        self.name, self.segment = name, segment
        self.steps = recalled(StepPlacement, state.get("steps"))
        self.framework = str(state.get("framework") or "")
        self.counted = state.get("counted") is True
        self.reported: deque[str] = deque(filter(None, str(state.get("told") or "").split("\n")), maxlen=REPORTED)
        self.failed = Counter({metric: int(state.get(metric) or 0) for metric in FAILED})
        self.saved: dict[str, Scalar] = dict(state)
        self._held: list[RawRow] = []
        self._out: list[Item] = []
        self._fed = b""
        self._seen: float | None = None
        self._savable = self.idle = True
        self._sizes = PrintedSizes()

    def state(self) -> dict[str, Scalar]:
        """Return the state to keep across a restart; complete only while idle."""
        counted = {**+self.failed, **({"counted": True} if self.counted else {})}
        return {
            "steps": remembered(self.steps),
            "framework": self.framework,
            "told": "\n".join(self.reported),
            **counted,
        }

    def _save(self) -> None:
        """Keep the state before this piece, which may give several items or hold something back."""
        if self._savable:
            self.saved, self._savable = self.state(), False

    def _pending(
        self, values: Mapping[str, float | None], stream: Stream | None, total: int | None, resolution: float | None
    ) -> RawRow:
        """Return a row whose step is set when it is placed."""
        where = self.name, ChannelKind.CONSOLE, None, values, stream, self.segment, total
        return RawRow(*where, seen=self._seen, resolution=resolution)

    def _unnamed(self, held: RawRow) -> None:
        """Take a row whose step shows in the text around it."""
        if self.steps.over and held.stream is None:
            self._another()
        if not self.steps.wiped:
            self._release()
        step = self.steps.at_once(train=held.stream is None)
        self._held.append(held)
        if step is not None:
            self._place(step)

    def _named(self, step: int, held: RawRow) -> None:
        self._release()
        self.steps.wiped = False
        self.steps.slots.clear()
        self._held.append(held)
        self._place(step, named=True)

    def _place(self, step: int, *, named: bool = False) -> None:
        """Emit the oldest held row at this step; ``named``: the step is the row's own."""
        held = self._held.pop(0)
        if held.stream is None and not named:
            step = self.steps.fitted(step, held.values.get("epoch"))
        if held.stream is None:
            self.steps.placed(step)
            if self.steps.unknown and self.steps.rows > MOST_GUESSED:
                self._count()
            failed = {metric: float(count) for metric, count in (+self.failed).items()}
            held = held._replace(values={**held.values, **failed}) if failed else held
            self.failed.clear()
        self._out.append(held._replace(step=step))

    def _release(self) -> None:
        """Emit all held rows at their best known steps."""
        steps = self.steps
        while self._held:
            if self._held[0].stream is not None:
                self._place(steps.last if steps.last is not None else steps.bar or 0)
            else:
                self._place(steps.slots.pop(0) if steps.slots else steps.counted())

    def _bar(self, bar: ProgressBar) -> None:
        steps = self.steps
        waits = bool(self._held) and any(held.stream is None for held in self._held)
        if not steps.is_training(bar, train_waits=waits):
            return
        if steps.begins(bar):
            self._save()
            self._begin(bar)
        moved = bar.step != steps.bar
        if steps.drawn(bar, rows_wait=len(self._held), train_waits=waits):
            self._place(bar.step)
        self._release()
        if moved:
            self._out.append(Progress(self.name, bar.step, bar.total, self.segment, self._seen))

    def _begin(self, bar: ProgressBar) -> None:
        """Start another attempt; a row that waits for a redraw of this bar belongs to it."""
        if bar.fresh:
            self._release()
        self.steps.restart()
        self._event(EventKind.STARTED, step=bar.step)

    def _another(self) -> None:
        """Handle a row after a trainer's summary: another training in the log, e.g. GRPO after a supervised one."""
        self._save()
        self.steps.another()
        self._event(EventKind.STARTED)
        if self.steps.bar is not None and self.steps.total is not None:
            self._out.append(Progress(self.name, self.steps.bar, self.steps.total, self.segment, self._seen))

    def _titled(self, step: int) -> None:
        self._save()
        self.steps.titled = True
        while len(self._held) > 1:
            self._place(self.steps.counted())
        if self._held:
            self._place(step)
        elif self.steps.bar is None and self.steps.last is not None:
            self.steps.last = step

    def _once(self, kind: EventKind, text: str) -> bool:
        """Report a text unless it was reported since the last row (every rank prints its own traceback)."""
        key = kind.value if kind is EventKind.REWARD_NONE else text
        if key in self.reported:
            return False
        self.reported.append(key)
        self._event(kind, text)
        return True

    def _event(self, kind: EventKind, text: str = "", step: int | None = None) -> None:
        step = step if step is not None else self.steps.last
        self._out.append(RunEvent(self.name, kind, step, text, self.segment, seen=self._seen))

    def _announced(self, data: bytes, found: ConsoleMarkers) -> None:
        """Handle markers that concern the whole run; with sizes, they may give two items or the beginning of one."""
        if found.failed:
            self.failed[found.failed] += repeated(self._fed)
        if found.opens:
            self._save()
            self._sizes.begin(data)
        self._sized(found.sizes)
        if found.total is not None:
            settings = {"steps_printed": Setting(found.total, PRINTED)}
            self._out.append(RunConfig(None, None, settings, self.name, self.segment, FROM_LAUNCH))
        elif found.epoch is not None:
            self.steps.epochs.set_length(found.epoch)
        elif found.settings is not None:
            self.framework = self.framework or found.framework
            self._configure(found.framework, None, found.settings)
        elif found.resumed is None:
            self._name_framework(found.framework, found.version)
        elif self.steps.rows:  # another attempt in the same log
            self._save()
            self._release()
            self.steps.restart()
            self._event(EventKind.STARTED, step=found.resumed)

    def _configure(
        self,
        framework: str | None,
        version: str | None,
        settings: Mapping[str, Setting],
        printed: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        """Emit the job's settings shown by the log; ``printed``: under transformers' names."""
        every = settings.get("logging_steps")
        in_steps = "epoch" not in str(printed.get("logging_strategy", "")).lower()
        if in_steps and every is not None and isinstance(every.value, int) and every.value > 0:
            self.steps.every(every.value, first=printed.get("logging_first_step") is True)
        self._out.append(RunConfig(framework, version, settings, self.name, self.segment, FROM_ARGUMENTS))

    def _sized(self, sizes: Mapping[str, Setting] | None) -> None:
        if sizes is not None:
            self._save()
            self._configure(None, None, sizes)

    def _count(self) -> None:
        """Report once that steps are row numbers."""
        if not self.counted:
            self.counted = True
            settings = {"steps_counted": Setting(value=True, origin=self.name)}
            self._out.append(RunConfig(None, None, settings, self.name, self.segment, FROM_LAUNCH))

    def _name_framework(self, framework: str, version: str | None = None) -> None:
        if framework and not self.framework:
            self.framework = framework
            self._out.append(RunConfig(framework, version, {}, self.name, self.segment))
