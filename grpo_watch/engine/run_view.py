"""The run's state that detectors may read, besides the record at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite, nan

from grpo_watch.engine.evidence import no_signal_ratio
from grpo_watch.engine.learning import MASKS, LearningSoFar, MaskedLoss
from grpo_watch.engine.metric_names import LABELLED, split_label
from grpo_watch.engine.recent_rows import Pace, RecentRows
from grpo_watch.engine.records import (
    SAVED,
    Activity,
    CheckpointDigest,
    CompletionSummary,
    EndState,
    EventKind,
    MetricRow,
    Progress,
    RunConfig,
    RunEvent,
    Scalar,
    Setting,
    Stream,
    Tick,
    evidence_of,
)
from grpo_watch.engine.reward_functions import RewardFunctions, weights_in
from grpo_watch.engine.trend import Trend


@dataclass(slots=True)
class GuessedNames:
    """Raw keys by channel, and the canonical metrics that they were read as."""

    by_channel: dict[str, Mapping[str, str]] = field(default_factory=dict)
    metrics: frozenset[str] = frozenset()

    def add_config(self, config: RunConfig) -> None:
        """Take the guessed names of a channel."""
        if config.guessed is not None:
            self.by_channel[config.channel] = config.guessed
            self.metrics = frozenset(split_label(metric)[0] for metric in self.names().values())

    def names(self) -> dict[str, str]:
        """Every guessed raw key and its metric."""
        return {key: metric for names in self.by_channel.values() for key, metric in names.items()}


MOST_NOTES = 50
ENDED = 3600.0
"""Seconds without a row after which no more rows are expected for now."""


class RunView:
    """Progress, configuration and latest values of one run; detectors only read them.

    ``learning`` and ``masked`` have taken every train row of the attempt up to and including the current one, ``pace``
    those of all attempts; ``trend`` has taken every train row and dumped batch of the run. ``rows`` counts the train
    rows of the primary channel and ``recent`` holds the newest 512 of them, whatever their attempt; ``silent`` is the
    share of the newest train row's groups without a learning signal (None: it can't tell), ``steps_per_batch`` the
    configured optimizer steps per generation (1 if unset). ``values`` holds the newest number per canonical metric,
    ``evidence`` names what else was seen so far (``completions``, ``checkpoints``).

    ``step`` and ``max_steps`` are optimizer steps; ``shows_end`` says whether a channel shows the end of the run,
    ``in_folder`` whether the run is a folder (file times mean something); ``latest_row_time`` is the latest time at
    which a row was logged or read (Unix seconds), ``written`` that of a write to a file; ``saved`` is the step of the
    newest checkpoint, or of the one that the attempt went on from (None: unknown), ``evaluated`` that of the newest
    evaluation; ``refused`` gives, by evidence, why it is not read although it is there. ``guesses`` are the metrics
    read under a guessed name.
    """

    def __init__(self, run: str) -> None:
        self.run = run
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
        self.clip: float | None = None
        self.steps_per_batch = 1.0
        self.latest_row_time: float | None = None
        self.written: float | None = None
        self.values: dict[str, float | None] = {}
        self.evidence: set[str] = set()
        self.refused: Mapping[str, str] = {}
        self.saved: int | None = None
        self.evaluated: int | None = None
        self.config: dict[str, tuple[int, Setting]] = {}
        self.guesses = GuessedNames()
        self.notes: tuple[tuple[int, str], ...] = ()
        self._identity = (99, 99)
        self._digest = ""
        self._numbers: dict[str, float | None] = {}

    def setting(self, name: str) -> Scalar:
        """The configured value, or None if unknown."""
        known = self.config.get(name)
        return known[1].value if known else None

    def number(self, name: str) -> float | None:
        """The configured value as a finite number, or None."""
        if name not in self._numbers:
            self._numbers[name] = finite(self.setting(name))
        return self._numbers[name]

    def known(self, name: str) -> bool:
        """Whether the setting was read or inferred."""
        return self.setting(name) is not None

    def guessed(self, metric: str) -> bool:
        """Whether the metric is read under a guessed name, as in rows of an own loop."""
        return metric in self.guesses.metrics

    def seen(self, metric: str) -> bool:
        """Whether the canonical metric was ever logged in this run, with any label."""
        if metric in LABELLED:
            return any(split_label(key)[0] == metric for key in self.values)
        return metric in self.values

    def newest(self, metric: str) -> float | None:
        """The value of the newest train row that carried the metric; None if none did or it is not finite."""
        value = self.values.get(metric)
        return value if value is not None and isfinite(value) else None

    def log_ended(self, tick: Tick) -> bool | None:
        """Whether no more rows are expected for now.

        None if nothing shows when rows were written and their file is new, so that it may be growing or a copy.
        """
        if tick.state is not EndState.UNKNOWN:
            return tick.state is EndState.ENDED
        last = self.written if self.latest_row_time is None else self.latest_row_time
        if last is not None and tick.now - last >= ENDED:
            return True
        return False if tick.live or self.latest_row_time is not None else None

    def take_time(self, record: Tick | Activity) -> None:
        """Take the clock's time, or the time of a write to a file."""
        if isinstance(record, Tick):
            self.now = record.now
        else:
            self.written = max(record.time, self.written or record.time)

    def take_event(self, event: RunEvent) -> int:
        """The step of an event; also keeps the newest notes of the run itself."""
        step = self.step if event.step is None else event.step
        if event.kind is EventKind.NOTED:
            self.notes = (*self.notes, (step, event.text))[-MOST_NOTES:]
        return step

    def take_row(self, row: MetricRow) -> None:
        """Take a train row."""
        if row.attempt > self.attempt:
            self.begin_attempt(row.attempt, row.step)
        self.silent = silent = no_signal_ratio(row)
        if not row.supplement:
            self.rows += 1
            self.step = row.step
            if row.time is not None or row.seen is not None:
                self.last_step_time = row.time or row.seen
                self.latest_row_time = max(self.latest_row_time or 0.0, row.time or 0.0, row.seen or 0.0)
            self.recent.append(row)
            self.masked.add_row(row, self.setting(MASKS), self.number)
            self.learning.add_row(row, silent, self.masked.chance, self.clip)
            self.pace.add_row(row)
        else:
            self.learning.complete(row, silent)
        self.trend.add_row(row, silent, diluted=self.masked.diluted)
        self.values.update(row.values)

    def take_evaluation(self, row: MetricRow) -> None:
        """Take the scores of an evaluation."""
        if row.attempt > self.attempt:
            self.begin_attempt(row.attempt, row.step)
        self.evaluated = row.step
        self.values.update(row.values)

    def begin_attempt(self, attempt: int, step: int) -> None:
        """Begin a new attempt at ``step``."""
        self.attempt = attempt
        self.saved = step - 1
        self.learning, self.masked = LearningSoFar(), MaskedLoss()
        self.trend = self.trend.resumed(step)

    def take_checkpoint(self, step: int) -> None:
        """Take a checkpoint of this step."""
        self.saved = max(step, self.saved or 0)

    def take_weights(self, digest: CheckpointDigest) -> None:
        """Take checksums of a checkpoint, or of weights in memory."""
        self.evidence.add(evidence_of(digest.kind))
        if digest.kind in SAVED:
            self.take_checkpoint(digest.step)

    def knows_batch(self, batch: CompletionSummary) -> bool:
        """Whether the batch is the newest one: TRL and ms-swift dump it again when it is reused or training ends."""
        if batch.stream is not Stream.TRAIN:
            return False
        before, self._digest = self._digest, "".join(group.digest for group in batch.groups)
        return before == self._digest != ""

    def take_batch(self, batch: CompletionSummary) -> None:
        """Take dumped completions."""
        self.evidence.add("completions")
        if batch.stream is Stream.TRAIN and batch.complete:
            self.trend.add_batch(batch)

    def take_progress(self, progress: Progress) -> None:
        """Take the total that a progress bar shows."""
        self.max_steps = self._least(progress.max_steps)

    def take_config(self, config: RunConfig) -> None:
        """Merge a configuration: per setting the lowest precedence wins, then the newer one."""
        if config.framework is not None and config.precedence <= self._identity[0]:
            self.framework, self._identity = config.framework, (config.precedence, self._identity[1])
        if config.version is not None and config.precedence <= self._identity[1]:
            self.version, self._identity = config.version, (self._identity[0], config.precedence)
        self.guesses.add_config(config)
        self._numbers.clear()
        for name, setting in config.settings.items():
            known = self.config.get(name)
            if known is None or config.precedence <= known[0]:
                self.config[name] = (config.precedence, setting)
        self.functions.weigh(weights_in(self.setting("reward_weights")))
        self.clip, self.steps_per_batch = self.number("max_grad_norm"), self._steps_per_batch()
        planned = self.number("steps_printed") or self.number("max_steps")
        if planned is not None and planned > 0:
            self.max_steps = int(planned)
        if self.max_steps is not None:
            self.max_steps = self._least(self.max_steps)

    def _steps_per_batch(self) -> float:
        iterations = self.number("num_iterations") or 1
        reuse, accumulation = self.number("steps_per_generation"), self.number("gradient_accumulation_steps")
        uses = reuse / accumulation if reuse is not None and accumulation else 1.0
        return max(1.0, iterations) * max(1.0, uses)

    def _least(self, total: int) -> int:
        """The smaller of a total by the dataset and a configured bound, which ends the run earlier."""
        most = self.number("most_steps")
        return int(most) if most is not None and 0 < most < total else total


def finite(value: Scalar) -> float | None:
    """A setting's value as a finite number, or None."""
    try:
        known = nan if value is None else float(value)
    except (ValueError, OverflowError):  # a word, or an integer of hundreds of digits
        return None
    return known if isfinite(known) else None
