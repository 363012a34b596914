"""What a detector is: the readings it answers with, what it may know of the run, its parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, TypeAlias

from grpo_watch.engine.block import Block
from grpo_watch.engine.expected_movement import LearningSoFar
from grpo_watch.engine.likely_causes import ConfiguredRun
from grpo_watch.engine.masked_loss import MaskedLoss
from grpo_watch.engine.pace import Pace
from grpo_watch.engine.recent_rows import RecentRows
from grpo_watch.engine.records import MetricRow, Reading, Stream, Verdict
from grpo_watch.engine.reward_functions import RewardFunctions
from grpo_watch.engine.traits import Traits
from grpo_watch.engine.trend import Trend

OK = Reading(Verdict.OK)
SILENT: tuple[Reading, ...] = ()
"""A record that says nothing about the symptom (a row without the key): state is held, nothing is counted."""
QUIET: tuple[Reading, ...] = (OK,)

Bounds: TypeAlias = Mapping[str, tuple[float, float]]
"""Metric to its lowest and highest value, both allowed. What a row does not carry is within any bounds."""
ANY: Bounds = MappingProxyType({})
"""Bounds that every row is within."""
NEVER = (1.0, 0.0)
"""Bounds of a metric that no value is within: a row that carries it."""


@lru_cache(maxsize=256, typed=True)
def no_data(reason: str, key: str = "") -> tuple[Reading, ...]:
    """The symptom can't be judged at this record; ``reason`` is shown to people who ask why a rule is blind.

    It is a ``NotYet`` or a ``NotApplicable`` where evidence is not what is missing: views show those apart.
    """
    return (Reading(Verdict.NO_DATA, key=key, message=reason),)


class RunView(ConfiguredRun, Protocol):
    """What a detector may know of the run besides the record at hand (read-only).

    ``learning`` and ``masked`` have taken every train row of the attempt up to and including the one at hand, ``pace``
    those of all attempts; ``trend`` has taken every train row and dumped batch of the run. ``rows`` counts the train
    rows of the primary channel and ``recent`` holds the newest 512 of them, whatever their attempt; ``latest_row_time``
    is the latest time at which one was logged or read (Unix seconds). ``silent`` is the share of the newest train row's
    groups without a learning signal (None: it can't tell). ``values`` holds the newest value per canonical metric.
    """

    run: str
    attempt: int
    step: int
    max_steps: int | None
    shows_end: bool
    in_folder: bool
    learning: LearningSoFar
    masked: MaskedLoss
    pace: Pace
    trend: Trend
    functions: RewardFunctions
    rows: int
    recent: RecentRows
    silent: float | None
    latest_row_time: float | None
    values: dict[str, float | None]

    def guessed(self, metric: str) -> bool:
        """Whether a metric is read under a guessed name: the rows are those of an own loop."""

    def seen(self, metric: str) -> bool:
        """Whether the canonical metric was ever logged in this run."""

    def newest(self, metric: str) -> float | None:
        """The value of the newest train row that carried the metric; None where it never was or is not finite."""


@dataclass(frozen=True, slots=True)
class Param:
    """A tunable of a detector: default, inclusive bounds, and one line of help (shown by ``explain``)."""

    default: float | int | bool | str
    help: str
    minimum: float | None = None
    maximum: float | None = None


class Detector(Traits):
    """Base of all detectors; a subclass in ``detectors/<family>/<name>.py`` is in the catalogue by being there.

    One instance judges one run and one attempt. ``observe`` gets each record of the types in ``reads`` (metric rows of
    ``stream`` only) and answers with readings: ``SILENT`` where the record does not carry the key, ``no_data(...)``
    where it can't be judged, ``QUIET`` or a list of ``Reading`` otherwise.

    ``needs`` are alternatives of evidence: the rule is blind until every metric (or ``completions`` / ``checkpoints`` /
    ``run end``) of one alternative was seen. ``survives_attempts`` keeps the instance when a new attempt begins.

    ``quiet_while`` saves most of the work on a healthy run: while its rule is quiescent, the next train
    rows of the primary channel whose values are all finite and within these bounds would be answered with SILENT, QUIET
    or the same ``no_data``, and nothing later would depend on having seen them. They may then not be shown to it
    (``engine/quiescence.py``); all other records are, and a new attempt
    wakes every rule. None: no such promise. ``keys_matter`` ends it at a row with
    other keys. With ``looks_back`` later answers may depend on that many of those rows, of the newest that carry a
    promised metric: they are shown before the next record that is, late but in their order, and what is answered is
    disregarded. So ``observe`` must take them in without asking the run. A detector for which every usual row counts
    (windows of what is usual, sums over the run) says so with ``needs_every_row``; a test wants one or the other.

    A backlog comes in blocks. ``loops_alone`` says that the answer to a train row needs nothing of the run that rows
    change: the rows of a block are shown to such a detector one after the other, while the run takes all of them at
    once. The others have ``could_speak`` and ``still_fires``, or end the block whenever they are awake. Progress bars
    between the rows of a block are left out, unless a detector that reads them has ``needs_every_bar``: one without it
    promises that a bar of the same total as the one before changes nothing, as long as neither is full.
    """

    reads: ClassVar[tuple[type, ...]] = (MetricRow,)
    stream: ClassVar[Stream] = Stream.TRAIN
    needs: ClassVar[tuple[tuple[str, ...], ...]] = ()
    survives_attempts: ClassVar[bool] = False
    params: ClassVar[Mapping[str, Param]] = MappingProxyType({})
    keys_matter: ClassVar[bool] = False
    needs_every_row: ClassVar[bool] = False
    looks_back: ClassVar[int] = 0
    loops_alone: ClassVar[bool] = False
    needs_every_bar: ClassVar[bool] = True
    quiet_while: Bounds | None = None

    def __init__(self, params: Mapping[str, Any] | None = None) -> None:
        chosen = dict(params or {})
        for name, param in self.params.items():
            setattr(self, name, chosen.pop(name, param.default))
        if chosen:
            raise ValueError(f"unknown parameters {sorted(chosen)}; known are {sorted(self.params)}")
        self.setup()

    def setup(self) -> None:
        """Create the windows. No I/O."""

    def observe(self, record: Any, run: RunView) -> Iterable[Reading]:
        """Judge one record."""
        raise NotImplementedError

    def could_speak(self, block: Block, run: RunView) -> int:  # noqa: ARG002
        """How many rows of a block, from its first one on, ``observe`` would answer with SILENT or QUIET.

        ``run`` is as it was before the block. Too few costs time, too many is wrong. A detector that overrides this
        need not sleep: healthy rows are given to ``absorb`` instead. It must be able to say so while its rule is at
        rest and after any row; ``looks_back`` is not for it.
        """
        return 0

    def still_fires(self, block: Block, run: RunView) -> int:  # noqa: ARG002
        """How many rows of a block, from its first one on, ``observe`` would answer with one breach without a key.

        Asked while the rule fires at its own severity, a warning at least, which none of the breaches may exceed.
        """
        return 0

    def absorb(self, block: Block, run: RunView) -> Iterable[Reading]:  # noqa: ARG002
        """Take the rows of a block that one of the two allowed, ``run`` being as before it; gives SILENT or QUIET."""
        return SILENT

    def blind_because(self, run: RunView) -> str | None:  # noqa: ARG002
        """Why the rule is blind although its evidence is there (beta = 0, a PiSSA adapter); None: it can judge.

        A ``NotApplicable``, a ``NotYet`` or, where evidence is missing, a plain text.
        """
        return None

    def early_sign(self, run: RunView) -> Reading | None:  # noqa: ARG002
        """What the newest values show of the symptom in a run of one or two rows, too few for the rule; None: nothing.

        Only the message and the evidence count: a sign is shown next to the verdict and fires nothing.
        """
        return None

    @classmethod
    def stem(cls) -> str:
        """The module's stem, e.g. ``kl_stuck_at_zero``."""
        return cls.__module__.rsplit(".", 1)[-1]

    @classmethod
    def name(cls) -> str:
        """The rule id that this detector is made for, e.g. ``kl-stuck-at-zero``."""
        return cls.stem().replace("_", "-")
