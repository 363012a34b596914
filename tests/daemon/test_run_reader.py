"""The reader gives what channels have that is new, a slice at a time, and knows which of them moved."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import pytest

from grpo_watch.daemon.run_reader import LONGEST_POLL_SECONDS, POLL_SHARE, SLICE, RunReader, WatchOptions
from grpo_watch.engine.records import ChannelOpened, CompletionSummary, Item, RawRow, RunConfig
from grpo_watch.pipeline.channel_merge import ChannelMerge
from grpo_watch.pipeline.open_run import open_run
from grpo_watch.pipeline.pipeline import Pipeline
from grpo_watch.sources.discovery.discover import Discoverer
from tests.support.bundles import unpack
from tests.support.live import Done

PIPELINE = Pipeline("run", (), {})


def rows(first: int, last: int) -> str:
    return "".join(
        json.dumps({"loss": 0.1, "reward": 0.5, "global_step/max_steps": f"{step}/9000"}) + "\n"
        for step in range(first, last)
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The log of a run in its folder."""
    path = tmp_path / "run" / "logging.jsonl"
    path.parent.mkdir()
    path.write_text(rows(1, 3))
    return path


def reader_of(log: Path) -> RunReader:
    (found,) = Discoverer().discover(log)
    return RunReader(found, WatchOptions(), dict, Done)


def steps(items: list[Item]) -> list[int | None]:
    return [item.step for item in items if isinstance(item, RawRow)]


def test_a_channel_is_opened_and_announced_once(log: Path) -> None:
    reader = reader_of(log)
    (announced,) = reader.open(PIPELINE)
    assert isinstance(announced, ChannelOpened)
    assert announced.channel == "logging.jsonl"
    assert list(reader.open(PIPELINE)) == []
    reader.close()


def test_it_gives_what_is_new_and_reports_which_channel_moved(log: Path) -> None:
    reader, items = reader_of(log), list[Item]()
    reader.open(PIPELINE)
    assert not any(reader.touched())
    assert reader.read(10.0, items.append).items == len(items)
    assert steps(items) == [1, 2]
    assert reader.cursors()["logging.jsonl"].position == log.stat().st_size
    assert reader.read_at == {"logging.jsonl": 10.0}
    reader.stored()
    assert reader.cursors() == {}
    with log.open("a") as file:
        file.write(rows(3, 4))
    items.clear()
    reader.read(11.0, items.append)
    assert steps(items) == [3]
    assert [source.name for source in reader.touched()] == ["logging.jsonl"]
    reader.close()


def test_a_long_log_is_given_in_slices(log: Path) -> None:
    log.write_text(rows(1, SLICE + 11))
    reader, items = reader_of(log), list[Item]()
    reader.open(PIPELINE)
    first = reader.read(10.0, items.append)
    assert (first.items, first.more) == (SLICE, True)
    assert reader.read_at == {}
    second = reader.read(10.0, items.append)
    assert not second.more
    assert steps(items) == list(range(1, SLICE + 11))
    reader.close()


def test_when_the_newest_file_was_written(log: Path) -> None:
    reader = reader_of(log)
    assert reader.written() is None
    reader.open(PIPELINE)
    assert reader.written() == log.stat().st_mtime
    log.unlink()
    assert reader.written() is None
    reader.close()


def test_folders_of_a_quiet_run_are_listed_less_often_and_its_log_is_not(log: Path) -> None:
    (log.parent / "args.json").write_text('{"num_generations": 8}')
    reader, items = reader_of(log), list[Item]()
    reader.open(PIPELINE)
    reader.read(10.0, items.append)
    begin = 10.0 + LONGEST_POLL_SECONDS * POLL_SHARE
    reader.read(begin, items.append)
    read_at = dict(reader.read_at)
    reader.read(begin + LONGEST_POLL_SECONDS - 1.0, items.append)
    moved = {name for name, at in reader.read_at.items() if at != read_at[name]}
    assert moved == {"logging.jsonl"}
    reader.read(begin + LONGEST_POLL_SECONDS, items.append)
    assert set(reader.read_at.values()) == {begin + LONGEST_POLL_SECONDS}
    with log.open("a") as file:
        file.write(rows(3, 4))
    reader.read(begin + LONGEST_POLL_SECONDS + 2.0, items.append)  # a row ends the rest
    reader.read(begin + LONGEST_POLL_SECONDS + 3.0, items.append)
    assert set(reader.read_at.values()) == {begin + LONGEST_POLL_SECONDS + 3.0}
    reader.close()


def test_a_folder_that_changed_is_listed_soon_however_long_nothing_came(log: Path) -> None:
    """A run that logs nothing for a while is listed every 20 s; a checkpoint that comes then is seen at once."""
    (found,) = Discoverer().discover(log.parent)
    reader, items = RunReader(found, WatchOptions(), dict, Done), list[Item]()
    reader.open(PIPELINE)
    reader.read(10.0, items.append)
    reader.read(1_000.0, items.append)
    (log.parent / "args.json").write_text(json.dumps({"rlhf_type": "grpo", "beta": 0.1, "swift_version": "4.6.0"}))
    items.clear()
    reader.read(1_002.0, items.append)
    assert items == []
    reader.note_changed(log)
    assert reader.lists_at(1_002.0) is None  # a row alone is no reason
    reader.note_changed(log.parent)
    assert reader.lists_at(1_002.0) == 1_001.0
    reader.read(1_002.5, items.append)
    assert [type(item) for item in items] == [RunConfig]
    assert reader.lists_at(1_002.5) is None
    reader.close()


def test_a_turn_that_finds_several_steps_gives_them_in_the_order_of_check(tmp_path: Path) -> None:
    """It gave all rows before the first completions: what joins both saw another order than afterwards."""
    folder = unpack("ms-swift-4.6.0-05a-dups-i-eq-i-plus-3", tmp_path)
    (found,) = Discoverer().discover(folder)
    live, offline = Pipeline("run", (), {}), Pipeline("run", (), {})
    reader, opened = RunReader(found, WatchOptions(), dict, Done), open_run(found, offline)
    given, expected = list[Item](), list[Item]()
    for item in reader.open(live):
        live.feed(item)
    reader.read(10.0, lambda item: (given.append(item), live.feed(item)))
    for item in chain(opened.announcements, ChannelMerge(opened.sources, offline.assembler).items()):
        expected.append(item)
        offline.feed(item)
    assert places(given) == places(expected)
    assert {kind for kind, _ in places(given)} == {RawRow, CompletionSummary}
    assert [step for _, step in places(given)] == sorted(step for _, step in places(given))
    reader.close()
    opened.close()


def places(items: list[Item]) -> list[tuple[type[Item], int]]:
    kinds = (RawRow, CompletionSummary)
    return [(type(item), item.step or 0) for item in items if isinstance(item, kinds)]
