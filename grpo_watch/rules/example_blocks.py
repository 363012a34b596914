"""Turns a ``series`` block of a runbook (``rules.example_grammar``) into the records that it stands for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from grpo_watch.config.document import Document, nearest, parse_document
from grpo_watch.engine.metric_names import METRICS, SETTINGS, split_label
from grpo_watch.engine.records import (
    Activity,
    CheckpointDigest,
    CheckpointKind,
    CompletionSummary,
    GroupSummary,
    MetricRow,
    Progress,
    Record,
    RunConfig,
    RunEvent,
    Setting,
    Stream,
    TensorDigest,
    Tick,
)
from grpo_watch.errors import FilePlace, RuleError
from grpo_watch.rules.example_grammar import ExampleBlock, ExampleEvent, Expectation, block_in
from grpo_watch.rules.series_notation import MISSING, parse_series

RUN = "example"
_CHANNEL = "example"


@dataclass(frozen=True, slots=True)
class Example:
    """One executable example: the records, in order, and what the rule must make of them."""

    place: FilePlace
    records: tuple[Record, ...]
    expect: Expectation
    shows_end: bool = True
    in_folder: bool = True


def read_example(text: str, file: str, line: int) -> Example:
    """One block; ``line`` is where its text begins in ``file``.

    Raises:
        RuleError: naming file and line of what can't be read.
    """
    # Blank lines in front make the places of the block the places of the runbook.
    return example_in(parse_document("\n" * (line - 1) + text, file, RuleError), FilePlace(file, line))


def example_in(document: Document, place: FilePlace) -> Example:
    """The example that a whole document holds; ``place`` is what failures name.

    Raises:
        RuleError: naming file and line of what can't be read.
    """
    block = block_in(document)
    records = tuple(_records(block, document))
    return Example(place, records, block.expect, block.shows_end, block.in_folder)


def _records(block: ExampleBlock, document: Document) -> Iterator[Record]:
    for name in block.config:
        if name not in SETTINGS:
            place = document.place_of(("config", name), key=True)
            raise RuleError(f"unknown setting {name!r}", place, nearest(name, SETTINGS))
    settings = {name: Setting(value, "example") for name, value in block.config.items()}
    yield RunConfig(block.framework, block.version, settings)
    waiting = sorted((event for event in block.events if event.step is not None), key=lambda event: event.step or 0)
    before: MetricRow | None = None
    for row in _rows(block, document):
        due = before.step + 1 if before is not None and row.attempt > before.attempt else row.step
        while waiting and (waiting[0].step or 0) < due:
            yield _record(waiting.pop(0))
        yield row
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
        logged = {key: value for key, value in values.items() if value is not MISSING}
        if logged:
            yield _row(block, index, logged)


def _position(block: ExampleBlock, index: int) -> tuple[int, int]:
    """Attempt and step of a sample."""
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
        rank=event.rank,
        synced=event.synced,
    )
