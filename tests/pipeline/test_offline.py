"""The offline driver: in which order it feeds the channels of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from grpo_watch.engine.records import (
    Activity,
    ChannelElected,
    ChannelKind,
    ChannelOpened,
    CheckpointDigest,
    CompletionSummary,
    Cursor,
    EventKind,
    Item,
    Progress,
    RawRow,
    RunConfig,
    RunEvent,
    Stream,
    Tick,
    Transition,
)
from grpo_watch.pipeline.offline import replay
from grpo_watch.pipeline.open_run import OpenedRun, OpenedSource
from grpo_watch.pipeline.pipeline import Pipeline
from grpo_watch.sources.base import SourceStats
from tests.support.records import a_batch, a_checkpoint, raw

JSONL, CONSOLE = ChannelKind.JSONL, ChannelKind.CONSOLE
NOW = Tick(1000.0, live=False)


class Listed:
    """A source that gives these items, the last ``late`` of them only at its end."""

    def __init__(self, name: str, items: Sequence[Item], late: int = 0) -> None:
        self.name, self.stats = name, SourceStats()
        self._early, self._late = items[: len(items) - late], items[len(items) - late :]

    def poll(self, seen: float | None) -> Iterator[Item]:
        """All but the late ones; offline nobody has seen them at any time."""
        assert seen is None
        yield from self._early

    def finish(self) -> Iterator[Item]:
        """The late ones."""
        yield from self._late

    def backlog(self) -> Iterator[Item]:
        """First the one, then the other."""
        yield from self.poll(None)
        yield from self.finish()

    def cursor(self) -> Cursor:
        """Not asked for offline."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is open."""


class Notes(Pipeline):
    """A pipeline that notes what it is fed."""

    def __init__(self) -> None:
        super().__init__("run", [], {})
        self.fed: list[Item] = []

    def feed(self, item: Item) -> list[Transition]:
        """Note the item."""
        self.fed.append(item)
        return super().feed(item)


def source(  # noqa: PLR0913
    name: str,
    kind: ChannelKind | None,
    items: Sequence[Item],
    *,
    segment: int = 0,
    early: bool = False,
    late: int = 0,
    path: Path = Path("/nowhere"),
) -> OpenedSource:
    """An opened source with these items."""
    return OpenedSource(Listed(name, items, late), name, kind, segment, path, early)


def order(*sources: OpenedSource) -> list[Item]:
    """What the pipeline is fed after the announcements, up to the final tick."""
    announced: list[Item] = [
        ChannelOpened(each.name, each.kind, each.segment) for each in sources if each.kind is not None
    ]
    notes = Notes()
    assert list(replay(OpenedRun(list(sources), announced), notes, NOW)) == []
    assert notes.fed[: len(announced)] == announced
    assert notes.fed[-1] is NOW
    return notes.fed[len(announced) : -1]


def brief(items: Sequence[Item]) -> list[str]:
    """Each item as a letter and its step."""
    letters = {RawRow: "", CompletionSummary: "completions ", CheckpointDigest: "checkpoint ", Progress: "bar "}
    named = [(getattr(item, "channel", ""), item) for item in items]
    return [
        f"{letters[type(item)]}{channel if isinstance(item, RawRow) else ''}{getattr(item, 'step', '')}"
        for channel, item in named
        if type(item) in letters
    ]


def rows(channel: str, kind: ChannelKind, *steps: int, segment: int = 0) -> list[Item]:
    """Rows of a channel."""
    return [raw(step, channel, kind, segment=segment) for step in steps]


def test_configuration_comes_first_and_the_clock_last(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("")
    config = RunConfig("trl", None, {})
    got = order(
        source("j", JSONL, rows("j", JSONL, 1), path=log),
        source("args.json", None, [config], early=True),
    )
    assert got[0] is config
    assert got[1] == ChannelElected(Stream.TRAIN, "j", "best channel with rows")
    assert got[-1] == Activity("j", log.stat().st_mtime)


def test_completions_and_checkpoints_come_when_the_rows_have_reached_their_step() -> None:
    got = order(
        source("completions", None, [a_batch(step, (0, 1)) for step in (1, 3, 9)]),
        source("checkpoints", None, [a_checkpoint(2, {"w": "a"}), a_checkpoint(4, {"w": "b"})]),
        source("j", JSONL, rows("j", JSONL, 1, 2, 3, 4)),
    )
    assert brief(got) == [
        "j1",
        "completions 1",
        "j2",
        "checkpoint 2",
        "j3",
        "completions 3",
        "j4",
        "checkpoint 4",
        "completions 9",
    ]


def test_rows_of_another_channel_come_before_the_row_that_passes_them() -> None:
    """So that steps which the primary lost are there to be filled in."""
    got = order(source("c", CONSOLE, rows("c", CONSOLE, 1, 2, 3, 4)), source("j", JSONL, rows("j", JSONL, 1, 4)))
    assert brief(got) == ["j1", "c1", "c2", "c3", "j4", "c4"]


def test_a_consoles_error_stream_goes_beside_its_output() -> None:
    """``job.err`` has bars and tracebacks, ``job.out`` rows: step 2 is reported between rows 2 and 3."""
    died = RunEvent("job.err", EventKind.TRACEBACK, text="ValueError: no")
    again = RunEvent("job.err", EventKind.STARTED, step=0)
    errors: list[Item] = [Progress("job.err", 1, 9), Progress("job.err", 2, 9), died, again]
    output = rows("job.out", CONSOLE, 1, 2, 3)
    got = order(source("job.err", CONSOLE, errors), source("job.out", CONSOLE, output))
    assert [item for item in got if isinstance(item, (RawRow, RunEvent))] == [*output[:2], died, again, output[2]]


def test_the_order_inside_a_source_is_never_changed() -> None:
    late = [a_checkpoint(step, {"w": "a"}) for step in (40, 20, 60)]
    got = order(source("checkpoints", None, late), source("j", JSONL, rows("j", JSONL, 10, 30, 50, 70)))
    assert [item.step for item in got if isinstance(item, CheckpointDigest)] == [40, 20, 60]
    assert brief(got) == ["j10", "j30", "checkpoint 40", "checkpoint 20", "j50", "checkpoint 60", "j70"]


@pytest.mark.parametrize(
    "useless",
    [
        [],
        [Progress("j", 1, 80)],
        [RawRow("j", JSONL, 1, {"eval_reward": 0.5}, Stream.EVAL)],
    ],
)
def test_a_better_channel_without_training_rows_is_not_primary(useless: list[Item]) -> None:
    got = order(source("j", JSONL, useless), source("c", CONSOLE, rows("c", CONSOLE, 1, 2)))
    assert [item for item in got if isinstance(item, ChannelElected)] == [
        ChannelElected(Stream.TRAIN, "c", "best channel with rows")
    ]
    assert [each for each in brief(got) if each.startswith("c")] == ["c1", "c2"]
    assert [item for item in got if item in useless] == useless


def test_what_a_source_holds_back_comes_at_its_end() -> None:
    got = order(source("c", CONSOLE, rows("c", CONSOLE, 1, 2, 3), late=2))
    assert brief(got) == ["c1", "c2", "c3"]


def test_the_folders_of_attempts_follow_each_other() -> None:
    """Completions of the second folder wait for its rows, although their steps are lower than the first folder's."""
    got = order(
        source("v1", JSONL, rows("v1/", JSONL, 3, 4, segment=1), segment=1),
        source("v0", JSONL, rows("v0/", JSONL, 1, 2, 3, 4)),
        source("v0/completions", None, [a_batch(2, (0, 1))]),
        source("v1/completions", None, [a_batch(3, (0, 1), segment=1)], segment=1),
    )
    assert brief(got) == ["v0/1", "v0/2", "completions 2", "v0/3", "v0/4", "v1/3", "completions 3", "v1/4"]


def test_a_run_without_any_row_is_read_all_the_same() -> None:
    got = order(source("checkpoints", None, [a_checkpoint(20, {"w": "a"}), a_checkpoint(40, {"w": "a"})]))
    assert brief(got) == ["checkpoint 20", "checkpoint 40"]
    assert not any(isinstance(item, ChannelElected) for item in got)
