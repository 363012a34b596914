"""The engine's state of one run, which detectors get as a read-only view."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite

from grpo_watch.engine.block import Block
from grpo_watch.engine.evidence import no_signal_ratio
from grpo_watch.engine.expected_movement import LearningSoFar
from grpo_watch.engine.guessed_names import GuessedNames
from grpo_watch.engine.masked_loss import MASKS, MaskedLoss
from grpo_watch.engine.metric_names import LABELLED, split_label
from grpo_watch.engine.monitor import Monitor
from grpo_watch.engine.pace import Pace
from grpo_watch.engine.quiescence import LONGEST, QUIET_ROWS, QuiescentRules
from grpo_watch.engine.recent_rows import RecentRows
from grpo_watch.engine.records import (
    SAVED,
    CheckpointDigest,
    CompletionSummary,
    MetricRow,
    Progress,
    Record,
    RunConfig,
    Scalar,
    Setting,
    Stream,
    evidence_of,
)
from grpo_watch.engine.reward_functions import RewardFunctions
from grpo_watch.engine.reward_weights import weights_in
from grpo_watch.engine.trend import Trend

LEAST_ABSORBED = 8
"""Rows from which taking them at once is worth the looking."""


class RunState:
    """Progress, configuration and latest values of one run, and the monitors that watch it.

    ``step`` and ``max_steps`` are optimizer steps; ``values`` holds the newest number per canonical metric;
    ``evidence`` names the non-row evidence seen so far (``completions``, ``checkpoints``); ``shows_end`` says whether
    the end of the run shows in a channel, ``in_folder`` whether the run is a folder (file times mean something);
    ``latest_row_time`` is the latest time at which a row was logged or read (Unix seconds); ``saved`` is the step of
    the newest checkpoint, or the one that the attempt went on from (None: none is known); ``refused`` gives,
    by evidence, why it is not read although it is there. ``guesses`` are the metrics read under a guessed name.
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
        self.masked = MaskedLoss()
        self.pace = Pace()
        self.trend = Trend()
        self.functions = RewardFunctions()
        self.recent = RecentRows()
        self.silent: float | None = None
        self.latest_row_time: float | None = None
        self.values: dict[str, float | None] = {}
        self.evidence: set[str] = set()
        self.refused: Mapping[str, str] = {}
        self.saved: int | None = None
        self.config: dict[str, tuple[int, Setting]] = {}
        self.guesses = GuessedNames()
        self._identity = (99, 99)
        self._quiescent = QuiescentRules()
        self._awake: tuple[Monitor, ...] | None = None
        self._readers: dict[tuple[type, Stream | None], tuple[Monitor, ...]] = {}

    def watch_by(self, monitors: tuple[Monitor, ...]) -> None:
        """Replace the monitors that watch this run."""
        self.monitors = monitors
        self._readers.clear()
        self.rouse()

    def rouse(self) -> None:
        """Wake every monitor: its bounds are no longer valid."""
        self._quiescent.rouse()
        self._awake = None

    def setting(self, name: str) -> Scalar:
        """The configured value, or None where it is not known."""
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

    def guessed(self, metric: str) -> bool:
        """Whether a metric is read under a guessed name: the rows are those of an own loop."""
        return metric in self.guesses.metrics

    def seen(self, metric: str) -> bool:
        """Whether the canonical metric was ever logged in this run, of any label."""
        if metric in LABELLED:
            return any(split_label(key)[0] == metric for key in self.values)
        return metric in self.values

    def newest(self, metric: str) -> float | None:
        """The value of the newest train row that carried the metric; None where it never was or is not finite."""
        value = self.values.get(metric)
        return value if value is not None and isfinite(value) else None

    def readers(self, record: Record) -> tuple[Monitor, ...]:
        """The monitors that read records of this type and stream, asleep or not."""
        stream = record.stream if isinstance(record, MetricRow) else None
        key = (type(record), stream)
        found = self._readers.get(key)
        if found is None:
            found = self._readers[key] = tuple(
                monitor
                for monitor in self.monitors
                if type(record) in monitor.detector.reads and (stream is None or monitor.detector.stream is stream)
            )
        return found

    def awake(self, row: MetricRow) -> tuple[Monitor, ...]:
        """The monitors that a train row with nothing but finite values is shown to."""
        if self._quiescent.woken_by(row) or self._awake is None:
            self._awake = tuple(monitor for monitor in self.readers(row) if monitor not in self._quiescent)
        return self._awake

    def settle(self, row: MetricRow, shown: tuple[Monitor, ...]) -> None:
        """Let those sleep that have not found anything for a while."""
        quiet = [m for m in shown if m.quiet_rows >= QUIET_ROWS and m.detector.quiet_while is not None and not m.active]
        if quiet:
            for monitor in quiet:
                monitor.sleep(self.rows)
            self._quiescent.add(quiet, row)
            self._awake = None

    def recheck(self) -> None:
        """Something else than a usual row was shown to all its readers: some may take their promise back."""
        if self._quiescent.recheck():
            self._awake = None

    def take_row(self, row: MetricRow) -> bool:
        """Account for a train row; whether it is one of the primary channel with finite values only."""
        if row.attempt > self.attempt:
            self.begin_attempt(row.attempt, row.step)
        values, finite = row.values, _all_finite(row)
        self.silent = silent = no_signal_ratio(row)
        if not row.supplement:
            self.rows += 1
            self.step = row.step
            if row.time is not None or row.seen is not None:
                self.last_step_time = row.time or row.seen
                self.latest_row_time = max(self.latest_row_time or 0.0, row.time or 0.0, row.seen or 0.0)
            self.recent.append(row)
            self.masked.take(row, self.setting(MASKS), self.number)
            self.learning.take(row, silent, self.masked.chance)
            self.pace.take(row)
        elif silent is not None:
            self.learning.signal = 1.0 - silent
        self.trend.take(row, silent, finite=finite, diluted=self.masked.diluted)
        self.values.update(values)
        return finite and not row.supplement

    def absorb(
        self,
        block: Block,
        judge: Callable[[Block, tuple[Monitor, ...]], None],
        broke: Callable[[Monitor], None],
    ) -> int:
        """Take in the rows of a block up to the first that a monitor must be shown; how many.

        ``judge`` shows rows to the awake monitors whose detectors need nothing of the run; ``broke`` takes each monitor
        that a row of the block broke.
        """
        monitors = [m for m in self.readers(_ANY_TRAIN_ROW) if m.takes_blocks or m not in self._quiescent]
        if not all(monitor.takes_now for monitor in monitors) or not self._takes(block):
            return 0
        block = block.part(0, min(len(block), LONGEST))
        self._quiescent.release_for_blocks()
        self._awake = None
        count = self._quiescent.reach(block)
        for monitor in monitors:
            if count < LEAST_ABSORBED:
                return 0
            count = min(count, monitor.reach(block.part(0, count), self))
        if count < LEAST_ABSORBED:
            return 0
        part = block.part(0, count)
        if self._quiescent.look_back(part, self):
            return 0
        alone = tuple(monitor for monitor in monitors if monitor.shown_alone(part, self))
        judge(part, alone)
        for monitor in monitors:
            if monitor not in alone and monitor.broken is None and not monitor.absorb(part, self):
                broke(monitor)
        self._take_block(part)
        self._quiescent.pass_over(part)
        self.settle(next(part.rows(count - 1)), alone)
        return count

    def _takes(self, block: Block) -> bool:
        """Whether the rows say no more of the run than its columns do."""
        cut = block.values.get("completion_truncated_ratio")
        all_cut = self.masked.cut == 1.0 if cut is None else max(cut) == 1.0
        return (
            block.attempt == self.attempt
            and self.trend.takes_blocks
            and self.learning.takes_blocks(block.resolution)
            and not self.setting(MASKS)
            and not (all_cut and 0.0 in block.values.get("entropy", ()))
        )

    def _take_block(self, block: Block) -> None:
        newest = next(block.rows(len(block) - 1))
        self.rows += len(block)
        self.step = newest.step
        if block.times is not None:
            self.last_step_time = newest.time
            self.latest_row_time = max(self.latest_row_time or 0.0, *block.times)
        self.recent.extend(block)
        self.masked.take(newest, self.setting(MASKS), self.number)
        self.learning.take_block(block)
        self.pace.take_block(block)
        self.trend.take_block(block)
        self.silent = block.silent[-1]
        self.values.update(newest.values)

    def begin_attempt(self, attempt: int, step: int) -> None:
        """A new attempt begins at ``step``: every monitor rewinds."""
        self.attempt = attempt
        self.saved = step - 1
        self.learning, self.masked = LearningSoFar(), MaskedLoss()
        self.trend = self.trend.resumed(step)
        for monitor in self.monitors:
            monitor.begin_attempt(step)
        self.rouse()

    def take_checkpoint(self, step: int) -> None:
        """A checkpoint of this step is there."""
        self.saved = max(step, self.saved or 0)

    def take_weights(self, digest: CheckpointDigest) -> None:
        """Checksums came: of a checkpoint, or of weights in memory."""
        self.evidence.add(evidence_of(digest.kind))
        if digest.kind in SAVED:
            self.take_checkpoint(digest.step)

    def take_batch(self, batch: CompletionSummary) -> None:
        """Completions were dumped."""
        self.evidence.add("completions")
        if batch.stream is Stream.TRAIN and batch.complete:
            self.trend.take_batch(batch)

    def take_progress(self, progress: Progress) -> None:
        """A progress bar shows the total."""
        self.max_steps = self._least(progress.max_steps)

    def plans(self, total: int) -> bool:
        """Whether the total that a progress bar shows is known."""
        return self.max_steps == self._least(total)

    def take_config(self, config: RunConfig) -> None:
        """Merge a configuration: per setting the lowest precedence wins, then the newer one."""
        if config.framework is not None and config.precedence <= self._identity[0]:
            self.framework, self._identity = config.framework, (config.precedence, self._identity[1])
        if config.version is not None and config.precedence <= self._identity[1]:
            self.version, self._identity = config.version, (self._identity[0], config.precedence)
        self.guesses.take(config)
        for name, setting in config.settings.items():
            known = self.config.get(name)
            if known is None or config.precedence <= known[0]:
                self.config[name] = (config.precedence, setting)
        self.functions.weigh(weights_in(self.setting("reward_weights")))
        self.rouse()
        planned = self.number("steps_printed") or self.number("max_steps")
        if planned is not None and planned > 0:
            self.max_steps = int(planned)
        if self.max_steps is not None:
            self.max_steps = self._least(self.max_steps)

    def _least(self, total: int) -> int:
        """A total counts what the dataset gives; a bound that was set ends the run before."""
        most = self.number("most_steps")
        return int(most) if most is not None and 0 < most < total else total


_ANY_TRAIN_ROW = MetricRow("", Stream.TRAIN, 1, 0, {})


def _all_finite(row: MetricRow) -> bool:
    """Whether each value is a finite number (a sum that overflows is not; that costs time, nothing else).

    A NaN under a key that means no metric, as that of a PPO critic's loss, counts too.
    """
    try:
        if not isfinite(sum(row.values.values())):  # type: ignore[arg-type]  # None: not all are numbers
            return False
        return not any(value != value for value in row.raw.values())  # noqa: PLR0124 (NaN)
    except TypeError:
        return False
