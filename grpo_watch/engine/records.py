"""The small immutable records that flow through the pipeline.

Sources make *items* (``RawRow``, …, ``Activity``); the driver adds ``Tick``. The assembler turns raw
rows into ``MetricRow``. The same items in the same order give the same transitions, live or replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from math import prod
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from grpo_watch.engine.record_parts import AdvisoryMet, Movement
from grpo_watch.engine.record_parts import GroupSummary as GroupSummary  # noqa: PLC0414  it belongs to these records

Scalar: TypeAlias = str | int | float | bool | None
NOTHING: Mapping[str, float | None] = MappingProxyType({})


class Stream(str, Enum):
    """The sequence of steps that a row belongs to: training, or evaluations on held-out data."""

    TRAIN = "train"
    EVAL = "eval"


class ChannelKind(IntEnum):
    """How channels of one run are trusted, lower first: by precision, then by liveness."""

    CALLBACK = 0
    JSONL = 1
    TFEVENTS = 2
    WANDB = 3
    TRACKIO = 4
    CONSOLE = 5
    TRAINER_STATE = 6


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a source was read.

    ``source`` is the source's name, ``identity`` identifies the file (device, inode, head fingerprint; empty if there
    is no file), ``position`` is a byte offset or a step. ``state`` is what the parser must remember across a restart
    (small, JSON scalars only), e.g. the last step shown by a progress bar.
    """

    source: str
    identity: str
    position: int
    state: Mapping[str, Scalar] = field(default_factory=dict)


class RawRow(NamedTuple):
    """One complete row as a framework logged it, keys untouched.

    ``step`` is the optimizer step if the channel knows it. ``segment`` orders the files of one channel kind that follow
    each other (a resume's new folder): a higher segment is a new attempt. ``values`` keeps ``None`` for a key logged as
    null. ``time`` is the producer's own time, ``seen`` the driver's clock at a live read (Unix seconds). ``resolution``
    is the smallest non-zero number this channel prints (None: it prints true zeros).
    """

    channel: str
    kind: ChannelKind
    step: int | None
    values: Mapping[str, float | None]
    stream: Stream | None = None
    segment: int = 0
    max_steps: int | None = None
    time: float | None = None
    seen: float | None = None
    resolution: float | None = None
    text: Mapping[str, str] = {}


class MetricRow(NamedTuple):
    """One optimizer step (or logging window), or one evaluation, in canonical names (docs/decisions/0007).

    ``values`` maps canonical names to numbers; NaN and infinities stay, ``None`` means logged as null. Labelled metrics
    are written ``name[label]`` (see ``metric_names.labelled``); those of an evaluation are ``eval_score[…]`` alone.
    ``raw`` is the row as it was logged. ``supplement`` marks a row that only adds keys which the primary channel lacks.
    """

    run: str
    stream: Stream
    attempt: int
    step: int
    values: Mapping[str, float | None]
    raw: Mapping[str, float | None] = NOTHING
    time: float | None = None
    seen: float | None = None
    resolution: float | None = None
    supplement: bool = False


@dataclass(frozen=True, slots=True)
class CompletionSummary:
    """One dumped generation batch, group by group; ``by_prompt``: completions are grouped by equal prompts.

    ``complete`` is False when the groups could not be recovered, with a ``reason``; ``odd`` columns differ in length.
    """

    channel: str
    step: int
    groups: tuple[GroupSummary, ...]
    stream: Stream = Stream.TRAIN
    segment: int = 0
    seen: float | None = None
    complete: bool = True
    reason: str = ""
    odd: tuple[str, ...] = ()
    by_prompt: bool = False


@dataclass(frozen=True, slots=True)
class TensorDigest:
    """One tensor of a checkpoint (dtype FILE: a whole file): its bytes as xxh3_128 hex, and its suspicious values."""

    dtype: str
    shape: tuple[int, ...]
    checksum: str
    nonfinite: int = 0
    zero: bool = False

    @property
    def elements(self) -> int:
        """Number of elements (1 for a scalar, 0 when any dimension is 0)."""
        return prod(self.shape)


class CheckpointKind(str, Enum):
    """The contents of weight files, or of memory: trained or frozen parameters."""

    FULL = "full"
    ADAPTER = "adapter"
    PROBE = "probe"
    FROZEN = "frozen"


SAVED = frozenset({CheckpointKind.FULL, CheckpointKind.ADAPTER})
"""Kinds that lie on the disk and can be resumed from; the others were read in memory."""
TRAINED = SAVED | {CheckpointKind.PROBE}
"""Kinds that training should change."""


def evidence_of(kind: CheckpointKind) -> str:
    """The name of this kind in a detector's ``needs``."""
    return "checkpoints" if kind in SAVED else "probe"


@dataclass(frozen=True, slots=True)
class CheckpointDigest:
    """Checksums of one complete checkpoint; ``problems`` names files that can't be used (truncated, empty, refused).

    ``replicas``: groups of tensors that must agree, since several ranks hold each. ``optimizer``: checksums of its
    ``moments`` and ``masters``. ``base``: the base model's folder, if all tensors equal it. ``unrelated``: how many
    matrices have nothing in common with the previous checkpoint's, and out of how many.
    """

    channel: str
    step: int
    path: str
    complete: bool
    tensors: Mapping[str, TensorDigest]
    kind: CheckpointKind = CheckpointKind.FULL
    segment: int = 0
    seen: float | None = None
    problems: tuple[str, ...] = ()
    adapter: Mapping[str, Scalar] = field(default_factory=dict)
    replicas: tuple[tuple[str, ...], ...] = ()
    optimizer: Mapping[str, Scalar] = field(default_factory=dict)
    movement: Movement | None = None
    unrelated: tuple[int, int] = (0, 0)
    base: str = ""


@dataclass(frozen=True, slots=True)
class Setting:
    """A value of a run's configuration and where it was read (``args.json``, ``inferred from keys``, ``--set``)."""

    value: Scalar
    origin: str


@dataclass(frozen=True, slots=True)
class RunConfig:
    """A run's configuration in canonical names; the lowest ``precedence`` wins, then the newer."""

    framework: str | None
    version: str | None
    settings: Mapping[str, Setting]
    channel: str = ""
    segment: int = 0
    precedence: int = 1
    columns: Mapping[str, str] = field(default_factory=dict)  # canonical name → the user's name for it
    guessed: Mapping[str, str] | None = None  # raw key → guessed metric; None: as before


class EventKind(str, Enum):
    """What a source can report besides rows."""

    STARTED = "started"
    FINISHED = "finished"
    TRACEBACK = "traceback"
    CRASH_SUMMARY = "crash-summary"
    KILLED = "killed"
    CONFIG_ERROR = "config-error"
    REWARD_NONE = "reward-none"
    NOTED = "noted"
    SOURCE_PROBLEM = "source-problem"
    SOURCE_RECOVERED = "source-recovered"
    RULE_BROKEN = "rule-broken"
    RULE_LOADED = "rule-loaded"
    DELIVERY_PROBLEM = "delivery-problem"
    DELIVERY_RECOVERED = "delivery-recovered"


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something other than a row: a traceback, an end marker, a rejected configuration, an unreadable source.

    ``channel`` names its subject: a channel, the broken rule, the receiver that gets nothing.
    """

    channel: str
    kind: EventKind
    step: int | None = None
    text: str = ""
    segment: int = 0
    time: float | None = None
    seen: float | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """A progress bar moved: the step it shows, and the total."""

    channel: str
    step: int
    max_steps: int
    segment: int = 0
    seen: float | None = None


@dataclass(frozen=True, slots=True)
class Activity:
    """A channel's file was written; ``time`` is the driver's clock (live) or the file's time (offline)."""

    channel: str
    time: float


@dataclass(frozen=True, slots=True)
class ChannelOpened:
    """Discovery found a channel of the run; sent before any of its items, so that no verdict depends on arrival order.

    ``shows_end`` says whether this channel shows the end of a run (the job's own console, ms-swift's JSONL).
    """

    channel: str
    kind: ChannelKind
    segment: int = 0
    shows_end: bool = False
    in_folder: bool = True


@dataclass(frozen=True, slots=True)
class ChannelElected:
    """From now on this channel gives the rows of the stream. Stored, so that a replay repeats the election."""

    stream: Stream
    channel: str
    reason: str


class EndState(str, Enum):
    """The run's end as the user declares it; UNKNOWN lets the clock decide."""

    UNKNOWN = "unknown"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Tick:
    """The driver's clock: "nothing happened until now". ``live`` is False for the one tick that ``check`` sends."""

    now: float
    live: bool = True
    state: EndState = EndState.UNKNOWN


Item: TypeAlias = (
    RawRow
    | CompletionSummary
    | CheckpointDigest
    | RunConfig
    | RunEvent
    | Progress
    | Activity
    | ChannelOpened
    | ChannelElected
    | Tick
)
"""The input of a pipeline, from sources and the driver; also what the store keeps."""

Record: TypeAlias = (
    MetricRow | CompletionSummary | CheckpointDigest | RunConfig | AdvisoryMet | RunEvent | Progress | Activity | Tick
)
"""The input of the engine: items, with raw rows replaced by canonical ones."""


class Verdict(str, Enum):
    """A detector's verdict about its symptom at one record."""

    OK = "ok"
    BREACH = "breach"
    NO_DATA = "no-data"


class Severity(str, Enum):
    """critical: compute is being wasted now, page someone; warning: look today; info: explanation."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """0 for info, 1 for warning, 2 for critical."""
        return ("info", "warning", "critical").index(self.value)


@dataclass(frozen=True, slots=True)
class Reading:
    """A detector's answer to one record.

    ``key`` separates alerts of one rule (a tensor set, a reward function; empty for most). ``severity`` overrides the
    rule's. ``step`` is set if the reading is about another step than the record's (a join), ``first_step`` if the
    symptom began earlier than this step (the older checkpoint of an identical pair), ``attempt`` if it is about an
    attempt that is over. ``immediate`` fires without waiting for the rule's distance: one record is proof. ``headline``
    replaces the rule's.
    """

    verdict: Verdict
    key: str = ""
    value: float | None = None
    threshold: float | None = None
    message: str = ""
    evidence: Mapping[str, Scalar] = field(default_factory=dict)
    severity: Severity | None = None
    step: int | None = None
    first_step: int | None = None
    attempt: int | None = None
    immediate: bool = False
    hint: str = ""
    headline: str = ""


class AlertState(str, Enum):
    """Life of an alert; RESOLVED is kept until the next episode begins."""

    INACTIVE = "inactive"
    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class Transition:
    """An alert changed state; FIRING → FIRING is an escalation to a higher severity.

    ``id`` is a hash of run, attempt, rule, key, episode, to_state and severity: the same event has the same id after
    any restart. ``step`` is the step of the record that caused it, ``first_step`` the episode's first breaching one.
    """

    id: str
    run: str
    attempt: int
    rule: str
    key: str
    episode: int
    from_state: AlertState
    to_state: AlertState
    step: int
    first_step: int
    severity: Severity
    time: float | None
    reading: Reading
