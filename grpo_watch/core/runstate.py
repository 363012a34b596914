"""What the engine knows of one run; the read-only view that detectors get."""

from __future__ import annotations

from grpo_watch.core.course import Course
from grpo_watch.core.functions import RewardFunctions
from grpo_watch.core.learning import LearningSoFar
from grpo_watch.core.monitor import Monitor
from grpo_watch.core.pace import Pace
from grpo_watch.core.records import MetricRow, Progress, Record, RunConfig, Scalar, Setting, Stream


class RunState:
    """Progress, configuration and latest values of one run, and the monitors that watch it.

    ``step`` and ``max_steps`` are optimizer steps; ``values`` holds the newest number per canonical metric;
    ``evidence`` names the non-row evidence seen so far (``completions``, ``checkpoints``); ``shows_end`` says whether
    the end of the run shows in a channel, ``in_folder`` whether the run is a folder (file times mean something).
    """

    def __init__(self, run: str, monitors: tuple[Monitor, ...]) -> None:
        self.run = run
        self.monitors = monitors
        self.framework: str | None = None
        self.version: str | None = None
        self.attempt = 1
        self.step = 0
        self.rows = 0
        self.max_steps: int | None = None
        self.now: float | None = None
        self.last_seen: float | None = None
        self.last_step_time: float | None = None
        self.shows_end = False
        self.in_folder = True
        self.learning = LearningSoFar()
        self.pace = Pace()
        self.course = Course()
        self.functions = RewardFunctions()
        self.values: dict[str, float | None] = {}
        self.evidence: set[str] = set()
        self.config: dict[str, tuple[int, Setting]] = {}
        self._identity = (99, 99)
        self._train_readers: tuple[Monitor, ...] | None = None
        self._readers: dict[tuple[type, Stream | None], tuple[Monitor, ...]] = {}

    def watch_by(self, monitors: tuple[Monitor, ...]) -> None:
        """Replace the monitors that watch this run."""
        self.monitors = monitors
        self._train_readers = None
        self._readers.clear()

    def setting(self, name: str) -> Scalar:
        """The configured value, or None when nobody said it."""
        known = self.config.get(name)
        return known[1].value if known else None

    def number(self, name: str) -> float | None:
        """The configured value as a number, or None."""
        value = self.setting(name)
        if value is None or isinstance(value, str):
            try:
                return float(value) if value is not None else None
            except ValueError:
                return None
        return float(value)

    def known(self, name: str) -> bool:
        """Whether the setting was read or inferred."""
        return self.setting(name) is not None

    def seen(self, metric: str) -> bool:
        """Whether the canonical metric was ever logged in this run."""
        return metric in self.values

    def readers(self, record: Record) -> tuple[Monitor, ...]:
        """The monitors that read records of this type and stream."""
        if self._train_readers is not None and type(record) is MetricRow and record.stream is Stream.TRAIN:
            return self._train_readers
        stream = record.stream if isinstance(record, MetricRow) else None
        key = (type(record), stream)
        found = self._readers.get(key)
        if found is None:
            found = tuple(
                monitor
                for monitor in self.monitors
                if type(record) in monitor.detector.reads and (stream is None or monitor.detector.stream is stream)
            )
            self._readers[key] = found
        if stream is Stream.TRAIN:
            self._train_readers = found
        return found

    def take_row(self, row: MetricRow) -> None:
        """Account for a train row: attempt, step, newest values."""
        if row.attempt > self.attempt:
            self.begin_attempt(row.attempt, row.step)
        if not row.supplement:
            self.rows += 1
            self.step = row.step
            self.last_step_time = row.time or row.seen or self.last_step_time
            self.learning.take(row)
            self.pace.take(row)
        self.course.take(row)
        self.values.update(row.values)

    def begin_attempt(self, attempt: int, step: int) -> None:
        """A new attempt begins at ``step``: every monitor rewinds."""
        self.attempt = attempt
        self.learning = LearningSoFar()
        self.course = self.course.resumed(step)
        for monitor in self.monitors:
            monitor.begin_attempt(step)

    def take_progress(self, progress: Progress) -> None:
        """A progress bar knows the total."""
        self.max_steps = progress.max_steps

    def take_config(self, config: RunConfig) -> None:
        """Merge a configuration: per setting the lowest precedence wins, then the newer one."""
        if config.framework is not None and config.precedence <= self._identity[0]:
            self.framework, self._identity = config.framework, (config.precedence, self._identity[1])
        if config.version is not None and config.precedence <= self._identity[1]:
            self.version, self._identity = config.version, (self._identity[0], config.precedence)
        for name, setting in config.settings.items():
            known = self.config.get(name)
            if known is None or config.precedence <= known[0]:
                self.config[name] = (config.precedence, setting)
        planned = self.number("max_steps")
        if planned is not None and planned > 0:
            self.max_steps = int(planned)
