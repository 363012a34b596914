"""Turns a ``series`` block of a runbook, which is YAML, into the records that it stands for.

Series are in promtool's notation (``0x3 0.02+0.01x6 _x3 nan``): ``a`` is one sample; ``axn`` is a and n repetitions
(n + 1 samples); ``a+bxn`` and ``a-bxn`` step by b, n times; ``_`` is a step at which the key is not logged and ``_xn``
are n of them; ``nan``, ``inf`` and ``-inf`` are logged as such; ``null`` is logged without a value.

Only ``expect`` is required::

    config: {beta: 0.04}                  # settings of the run; framework: and version: are next to it
    series: {kl_reference: "0x30", learning_rate: "1e-6x30"}     # in the notation above
    start: 1                              # step of the first sample, then every: steps further
    seconds: 30                           # the producer's time between rows (none without it); the first is at 30
    resume: {after: 20, at: 15}           # the row after step 20 begins attempt 2 at step 15
    events:                               # after the row of their step; without a step: at the end, in order
      - {step: 20, completions: [[0, 1, 0, 1], [0, 1, 2, 3]], length: 80}
      - {step: 20, checkpoint: {model.w: aa, model.b: bb}}
      - {step: 20, event: traceback, text: "ValueError: boom", seen: 600}
      - {tick: 9999}
    expect: {fires: 10, severity: critical}      # or {quiet: true}; with resolves: STEP when it ends
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import EllipsisType
from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec

from grpo_watch import lazy_re as re
from grpo_watch.advisories.judge import AdvisoryLedger
from grpo_watch.config.document import Document, first_problem, nearest
from grpo_watch.engine.metric_names import METRICS, SETTINGS, split_label
from grpo_watch.engine.records import (
    Activity,
    CheckpointDigest,
    CheckpointKind,
    CompletionSummary,
    EndState,
    EventKind,
    GroupSummary,
    MetricRow,
    Progress,
    Record,
    RunConfig,
    RunEvent,
    Setting,
    Severity,
    Stream,
    TensorDigest,
    Tick,
)
from grpo_watch.errors import FilePlace, RuleError

_Scalar = bool | int | float | str | None
_Step = Annotated[int, msgspec.Meta(ge=0)]


class _Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a block; unknown keys are refused."""


class Expectation(_Model, frozen=True):
    """The expected result: the rule fires at a step and perhaps resolves at a later one, or stays quiet."""

    quiet: Literal[True] | None = None
    fires: _Step | None = None
    first_step: _Step | None = None
    severity: Severity | None = None
    resolves: _Step | None = None

    def __post_init__(self) -> None:
        if (self.quiet is None) == (self.fires is None and self.resolves is None):
            raise ValueError("expect either `quiet: true` or `fires:`/`resolves:` with a step")


class ExampleEvent(_Model, frozen=True):
    """One record that is not a metric row; exactly one of the keys in ``_KINDS`` gives its kind."""

    step: _Step | None = None
    completions: list[list[int]] | None = None
    length: int = 100
    empty: int = 0
    prompts: int = 1
    prompt_ids: list[str] | None = None
    near_unique: int | None = None
    looping: int = 0
    scattered: int = 0
    openings: list[list[int]] | None = None
    marks: list[list[int]] | None = None
    odd: list[str] = []
    batch: str | None = None
    rewards: dict[str, list[list[float | None]]] = {}
    checkpoint: dict[str, str] | None = None
    adapter: dict[str, _Scalar] | None = None
    kind: CheckpointKind | None = None
    zero: list[str] = []
    nonfinite: list[str] = []
    no_elements: list[str] = []
    problems: list[str] = []
    replicas: list[list[str]] = []
    event: EventKind | None = None
    text: str = ""
    seen: float | None = None
    tick: float | None = None
    live: bool = True
    state: EndState = EndState.UNKNOWN
    activity: float | None = None
    progress: tuple[int, int] | None = None
    eval: dict[str, float | None] | None = None

    def __post_init__(self) -> None:
        if sum(getattr(self, kind) is not None for kind in _KINDS) != 1:
            raise ValueError(f"an event has exactly one of {', '.join(_KINDS)}")


_KINDS = ("completions", "checkpoint", "event", "tick", "activity", "progress", "eval")


class ExampleResume(_Model, frozen=True):
    """A new attempt that begins at step ``at``, after the row of step ``after``."""

    after: _Step
    at: _Step


class ExampleBlock(_Model, frozen=True):
    """All parts of a block, as in the module's example; unknown keys are refused."""

    expect: Expectation
    config: dict[str, _Scalar] = {}
    framework: str | None = None
    version: str | None = None
    series: dict[str, str] = {}
    start: _Step = 1
    every: Annotated[int, msgspec.Meta(ge=1)] = 1
    seconds: float | None = None
    resume: ExampleResume | None = None
    resolution: float | None = None
    shows_end: bool = True
    in_folder: bool = True
    events: list[ExampleEvent] = []


Block = TypeVar("Block", bound=ExampleBlock)


def block_in(document: Document, model: type[Block]) -> Block:
    """The block in a whole document.

    Raises:
        RuleError: naming file and line of the part that can't be read.
    """
    try:
        return msgspec.convert(document.value, model, str_keys=True)
    except msgspec.ValidationError as invalid:
        models = (model, ExampleEvent, Expectation, ExampleResume)
        raise first_problem(invalid, document, RuleError, models) from None


MAX_SAMPLES = 100_000


MISSING = ...
"""The sample of a step whose row lacks the key (``None`` is a key logged as null)."""
Sample: TypeAlias = "float | EllipsisType | None"

_NUMBER = r"[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?"
_TERM = re.compile(
    rf"(?P<start>[-+]?(?:{_NUMBER}|nan|inf)|null|_)(?:(?P<sign>[-+])(?P<step>{_NUMBER}))?(?:x(?P<times>[0-9]{{1,6}}))?\Z",
    re.IGNORECASE,
)


def parse_series(text: str, place: FilePlace | None = None) -> tuple[Sample, ...]:
    """The samples of a series, in order.

    Raises:
        RuleError: naming the term that can't be read, or more than 100,000 samples.
    """
    samples: list[Sample] = []
    for term in text.split():
        match = _TERM.match(term)
        if match is None:
            raise RuleError(f"{term!r} is not a series term", place, "e.g. 0.5  0x30  1-0.1x9  _x3  nan  null")
        times = int(match["times"] or 0)
        if len(samples) + times >= MAX_SAMPLES:
            raise RuleError(f"a series has at most {MAX_SAMPLES} samples", place)
        samples += _expanded(match, times, term, place)
    return tuple(samples)


def _expanded(match: re.Match[str], times: int, term: str, place: FilePlace | None) -> list[Sample]:
    start = match["start"].lower()
    if start in {"_", "null"}:
        if match["step"] is not None:
            raise RuleError(f"{term!r} steps from no number", place)
        if start == "_":
            return [MISSING] * (times if match["times"] else 1)
        return [None] * (times + 1)
    first = float(start)
    if match["step"] is None:
        return [first] * (times + 1)
    if match["times"] is None:
        raise RuleError(f"{term!r} does not say how often it steps", place, f"write {term}x5")
    step = float(match["sign"] + match["step"])
    return [first + index * step for index in range(times + 1)]


RUN = "example"
_CHANNEL = "example"


@dataclass(frozen=True, slots=True)
class Example:
    """One executable example: the records, in order, and the result expected of the rule."""

    place: FilePlace
    records: tuple[Record, ...]
    expect: Expectation
    shows_end: bool = True
    in_folder: bool = True


def example_in(document: Document, place: FilePlace) -> Example:
    """The example in a whole document; failures name ``place``.

    Raises:
        RuleError: naming file and line of the part that can't be read.
    """
    return example_of(block_in(document, ExampleBlock), document, place)


def example_of(block: ExampleBlock, document: Document, place: FilePlace) -> Example:
    """The example of a block; ``document`` gives the places of its parts."""
    return Example(place, tuple(_records(block, document)), block.expect, block.shows_end, block.in_folder)


def _records(block: ExampleBlock, document: Document) -> Iterator[Record]:
    for name in block.config:
        if name not in SETTINGS:
            place = document.place_of(("config", name), key=True)
            raise RuleError(f"unknown setting {name!r}", place, nearest(name, SETTINGS))
    settings = {name: Setting(value, "example") for name, value in block.config.items()}
    config = RunConfig(block.framework, block.version, settings)
    yield config
    yield from AdvisoryLedger().add_config(config)
    waiting = sorted((event for event in block.events if event.step is not None), key=lambda event: event.step or 0)
    before: MetricRow | None = None
    for row in _rows(block, document):
        due = before.step + 1 if before is not None and row.attempt > before.attempt else row.step
        while waiting and (waiting[0].step or 0) < due:
            yield _record(waiting.pop(0))
        yield from _by_stream(row)
        before = row
    for event in (*waiting, *(event for event in block.events if event.step is None)):
        yield _record(event)


def _rows(block: ExampleBlock, document: Document) -> Iterator[MetricRow]:
    columns = {}
    for key, text in block.series.items():
        if split_label(key)[0] not in METRICS and not key.startswith("raw:"):
            place = document.place_of(("series", key), key=True)
            raise RuleError(f"unknown metric {key!r}", place, nearest(key, METRICS))
        columns[key] = parse_series(text, document.place_of(("series", key)))
    for index in range(max(map(len, columns.values()), default=0)):
        values = {key: column[index] for key, column in columns.items() if index < len(column)}
        logged = {key: value for key, value in values.items() if not isinstance(value, EllipsisType)}
        if logged:
            yield _row(block, index, logged)


def _position(block: ExampleBlock, index: int) -> tuple[int, int]:
    step = block.start + index * block.every
    if block.resume is None or step <= block.resume.after:
        return 1, step
    in_first = (block.resume.after - block.start) // block.every + 1
    return 2, block.resume.at + (index - in_first) * block.every


def _row(block: ExampleBlock, index: int, logged: Mapping[str, float | None]) -> MetricRow:
    attempt, step = _position(block, index)
    time = None if block.seconds is None else block.seconds * (index + 1)
    return MetricRow(
        run=RUN,
        stream=Stream.TRAIN,
        attempt=attempt,
        step=step,
        values={key: value for key, value in logged.items() if not key.startswith("raw:")},
        raw={key.removeprefix("raw:"): value for key, value in logged.items() if key.startswith("raw:")},
        time=time,
        seen=time,
        resolution=block.resolution,
    )


def _by_stream(row: MetricRow) -> Iterator[MetricRow]:
    """An evaluation's scores as a row of their own, then the row of training."""
    scores = {name: value for name, value in row.values.items() if split_label(name)[0] == "eval_score"}
    if scores:
        yield row._replace(stream=Stream.EVAL, values=scores)
    if len(scores) < len(row.values) or row.raw:
        yield row._replace(values={name: value for name, value in row.values.items() if name not in scores})


def _record(event: ExampleEvent) -> Record:
    step = event.step or 0
    made: Record
    if event.completions is not None:
        made = _completions(event, event.completions, step)
    elif event.checkpoint is not None:
        made = _checkpoint(event, event.checkpoint, step)
    elif event.event is not None:
        made = RunEvent(_CHANNEL, event.event, event.step, event.text, seen=event.seen)
    elif event.tick is not None:
        made = Tick(event.tick, event.live, event.state)
    elif event.activity is not None:
        made = Activity(_CHANNEL, event.activity)
    elif event.progress is not None:
        made = Progress(_CHANNEL, *event.progress)
    else:
        made = MetricRow(RUN, Stream.EVAL, 1, step, event.eval or {})
    return made


def _completions(event: ExampleEvent, patterns: list[list[int]], step: int) -> CompletionSummary:
    batch = event.batch or str(step)
    groups = tuple(
        GroupSummary(
            prompt_id=event.prompt_ids[index] if event.prompt_ids else f"prompt {batch}-{index}",
            size=len(pattern),
            pattern=tuple(pattern),
            unique=len(set(pattern)),
            lengths=(event.length,) * len(pattern),
            empty=event.empty,
            prompts=event.prompts,
            near_unique=len(set(pattern)) if event.near_unique is None else event.near_unique,
            judged=len(pattern),
            looping=event.looping,
            scattered=event.scattered,
            rewards={name: tuple(scores[index]) for name, scores in event.rewards.items()},
            digest=f"{batch}-{index}",
            openings=tuple(event.openings[index]) if event.openings else (),
            marks=tuple(event.marks[index]) if event.marks else (),
        )
        for index, pattern in enumerate(patterns)
    )
    return CompletionSummary(_CHANNEL, step, groups, seen=event.seen, odd=tuple(event.odd))


def _checkpoint(event: ExampleEvent, checksums: dict[str, str], step: int) -> CheckpointDigest:
    tensors = {
        name: TensorDigest(
            dtype="F32",
            shape=(0,) if name in event.no_elements else (4,),
            checksum=checksum,
            nonfinite=1 if name in event.nonfinite else 0,
            zero=name in event.zero,
        )
        for name, checksum in checksums.items()
    }
    kind = event.kind or (CheckpointKind.FULL if event.adapter is None else CheckpointKind.ADAPTER)
    return CheckpointDigest(
        channel=_CHANNEL,
        step=step,
        path=f"checkpoint-{step}",
        complete=True,
        tensors=tensors,
        kind=kind,
        seen=event.seen,
        problems=tuple(event.problems),
        adapter=event.adapter or {},
        replicas=tuple(map(tuple, event.replicas)),
    )
