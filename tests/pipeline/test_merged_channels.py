"""Rows of all channels of a run are merged by attempt and step; where two have a step, the better channel decides."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboardX import SummaryWriter

from grpo_watch.catalogue import catalogue
from grpo_watch.engine.records import (
    ChannelElected,
    ChannelKind,
    ChannelOpened,
    Item,
    MetricRow,
    RawRow,
    Record,
    Stream,
    Tick,
)
from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.pipeline.assembler import Assembler
from grpo_watch.pipeline.channel_merge import ChannelMerge
from grpo_watch.pipeline.offline import replay
from grpo_watch.pipeline.open_run import OpenedSource, open_run
from grpo_watch.pipeline.pipeline import Pipeline
from grpo_watch.rules.packs import load_rules
from grpo_watch.sources.discovery.discover import discover
from tests.support.bundles import RECORDED
from tests.support.live import Live

WEEK = 7 * 86_400.0
Place = tuple[int, int]

KINDS = (ChannelKind.JSONL, ChannelKind.TFEVENTS, ChannelKind.CONSOLE)
many = settings(derandomize=True, deadline=None, max_examples=300)


def values(step: int, scale: float = 1.0) -> dict[str, float]:
    """A healthy row; channels differ by what rounding explains (1e-4), so that a row shows where it came from."""
    return {"reward": scale * (0.5 + step / 10_000), "loss": 0.1, "grad_norm": 0.4, "learning_rate": 1e-5}


def state(folder: Path, steps: Iterable[int], scale: float = 1.0001) -> None:
    """A Trainer's state file."""
    history = [{"step": step, **values(step, scale)} for step in steps]
    (folder / f"checkpoint-{history[-1]['step']:.0f}").mkdir(parents=True, exist_ok=True)
    reported = {"global_step": history[-1]["step"], "log_history": history, "max_steps": 2_000}
    (folder / f"checkpoint-{history[-1]['step']:.0f}" / "trainer_state.json").write_text(json.dumps(reported))


def events(folder: Path, steps: Iterable[int]) -> None:
    """An event file as transformers writes it."""
    writer = SummaryWriter(str(folder / "runs"))
    for step in steps:
        for key, value in values(step).items():
            writer.add_scalar(f"train/{key}", value, step)
    writer.close()


def jsonl(folder: Path, steps: Iterable[int], name: str = "metrics.jsonl") -> None:
    """A log of JSON lines."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(json.dumps({"step": step, **values(step)}) + "\n" for step in steps))


def console(folder: Path, steps: Iterable[int], scale: float = 1.0001) -> None:
    """A console that prints step, numbers and an entropy that the other channels lack."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = (str({"step": step, **values(step, scale), "entropy": 2.0, "epoch": step / 100}) for step in steps)
    (folder / "train.log").write_text("".join(f"{line}\n" for line in lines))


def rewards(records: Iterable[Record]) -> dict[Place, float]:
    """The reward of each train row by attempt and step; fails where a step has two rows."""
    found: dict[Place, float] = {}
    for row in records:
        if isinstance(row, MetricRow) and row.stream is Stream.TRAIN and not row.supplement:
            assert (row.attempt, row.step) not in found
            found[row.attempt, row.step] = row.values["reward_mean"] or 0.0
    return found


def checked(folder: Path) -> tuple[dict[Place, float], RunSnapshot]:
    """What ``check`` makes of a folder: the rewards by place, and the snapshot."""
    (found,) = discover(folder)
    records: list[Record] = []
    pipeline = Pipeline("run", load_rules([]), catalogue(), observe=records.append)
    opened = open_run(found, pipeline)
    for _ in replay(opened, pipeline, Tick(RECORDED, live=False)):
        pass
    opened.close()
    return rewards(records), pipeline.snapshot()


def watched(folder: Path, state_folder: Path) -> RunSnapshot:
    """What a daemon makes of a folder, after a restart too."""
    for _ in range(2):
        live = Live(folder, state_folder, now=RECORDED)
        live.settle()
        shown = live.run()
        live.close()
    return shown


def aged(folder: Path, seconds: float) -> None:
    """Let the files be so old when they are read."""
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (RECORDED - seconds, RECORDED - seconds))


def same(expected: Mapping[Place, float], folder: Path, state_folder: Path) -> None:
    """``check`` and the daemon give these rows of a folder that was written a week ago, once each."""
    aged(folder, WEEK)
    got, snapshot = checked(folder)
    assert got == pytest.approx(expected, rel=1e-6)
    live = watched(folder, state_folder)
    assert (live.rows, live.step, live.attempt) == (len(expected), max(expected)[1], max(expected)[0])
    assert (live.rows, live.step, live.attempt) == (snapshot.rows, snapshot.step, snapshot.attempt)
    assert {f.rule for f in live.findings} == {f.rule for f in snapshot.findings}


def first(steps: Iterable[int], scale: float = 1.0) -> dict[Place, float]:
    """The rewards of these steps of the first attempt."""
    return {(1, step): values(step, scale)["reward"] for step in steps}


def test_a_partial_event_file_beside_a_complete_state_file(tmp_path: Path) -> None:
    """A resumed part of 3 rows to step 1000, and 40 rows to step 2000: all 40 count, the 3 from the event file."""
    part, complete = (900, 950, 1_000), range(50, 2_001, 50)
    events(tmp_path / "run", part)
    state(tmp_path / "run", complete)
    same({**first(complete, 1.0001), **first(part)}, tmp_path / "run", tmp_path / "state")


def test_a_console_that_begins_late_beside_complete_json_lines(tmp_path: Path) -> None:
    """It adds nothing but its entropy."""
    jsonl(tmp_path / "run", range(1, 101))
    console(tmp_path / "run", range(61, 101))
    same(first(range(1, 101)), tmp_path / "run", tmp_path / "state")


@pytest.mark.slow
def test_json_lines_that_begin_late_and_end_early_beside_a_complete_console(tmp_path: Path) -> None:
    """The earlier part of a resumed run, and the end, are in the console only; more rows than may wait for a step."""
    jsonl(tmp_path / "run", range(3_001, 3_051))
    console(tmp_path / "run", range(1, 6_001))
    expected = {**first(range(1, 6_001), 1.0001), **first(range(3_001, 3_051))}
    same(expected, tmp_path / "run", tmp_path / "state")


def test_channels_with_the_same_steps_are_counted_once(tmp_path: Path) -> None:
    for write in (jsonl, events, state, console):
        write(tmp_path / "run", range(1, 41))
    same(first(range(1, 41)), tmp_path / "run", tmp_path / "state")


def test_a_state_file_of_every_tenth_row_beside_json_lines_of_every_row(tmp_path: Path) -> None:
    jsonl(tmp_path / "run", range(1, 101))
    state(tmp_path / "run", range(10, 101, 10))
    same(first(range(1, 101)), tmp_path / "run", tmp_path / "state")


def test_json_lines_of_every_tenth_row_beside_a_console_of_every_row(tmp_path: Path) -> None:
    jsonl(tmp_path / "run", range(10, 101, 10))
    console(tmp_path / "run", range(1, 101))
    expected = {**first(range(1, 101), 1.0001), **first(range(10, 101, 10))}
    same(expected, tmp_path / "run", tmp_path / "state")


@pytest.mark.parametrize("last", [30, 20])
def test_a_console_misprints_a_step_which_json_lines_have_right(last: int, tmp_path: Path) -> None:
    """The lines may end before the console does."""
    jsonl(tmp_path, range(1, last + 1))
    console(tmp_path, [*range(1, 7), 2623, *range(8, 31)])
    aged(tmp_path, WEEK)
    expected = first(range(1, last + 1)) | first(range(last + 1, 31), 1.0001)
    assert checked(tmp_path)[0] == pytest.approx(expected, rel=1e-6)
    live = watched(tmp_path, tmp_path / "state")
    assert (live.rows, live.step, live.attempt) == (30, 30, 1)


def test_consoles_that_are_far_ahead_misprint_a_step() -> None:
    """TensorBoard's writer flushes every two minutes: step 13 of two copies of a console waits among many."""
    printed = [raw(CONSOLE, 130_000 if step == 13 else step) for step in range(1, 41)]
    items: list[Item] = [
        ChannelOpened(name, kind) for name, kind in ((TFEVENTS.name, TFEVENTS), (CONSOLE.name, CONSOLE))
    ]
    items += [ChannelOpened("copy", CONSOLE), *(raw(TFEVENTS, step) for step in range(1, 6))]
    items += [each for row in printed for each in (row, row._replace(channel="copy"))]
    items += [raw(TFEVENTS, step) for step in range(6, 31)]
    assembler = Assembler("run")
    records = [record for item in items for record in assembler.feed(item)]
    election = assembler.election(1e6, ended=True)
    assert election is not None
    got = rewards([*records, *assembler.feed(election)])
    assert list(got) == [(1, step) for step in range(1, 41)]
    assert assembler.ledger.last_step == 40


def test_the_last_waiting_row_of_an_attempt_is_no_misprint() -> None:
    """Of a log of every 200th step, which is far ahead of the primary and begins again at 400."""
    items: list[Item] = [ChannelOpened(TFEVENTS.name, TFEVENTS), ChannelOpened(CONSOLE.name, CONSOLE)]
    items += [raw(TFEVENTS, 200), *(raw(CONSOLE, step) for step in (200, 400, 600, 400))]
    assembler = Assembler("run")
    records = [record for item in items for record in assembler.feed(item)]
    election = assembler.election(1e6, ended=True)
    assert election is not None
    got = rewards([*records, *assembler.feed(election)])
    assert list(got) == [(1, 200), (1, 400), (1, 600)]


def test_another_jobs_rows_are_not_appended(tmp_path: Path) -> None:
    """A state file whose rewards contradict the log's at most steps that both have."""
    jsonl(tmp_path / "run", range(1, 41))
    state(tmp_path / "run", range(5, 101, 5), scale=3.0)
    same(first(range(1, 41)), tmp_path / "run", tmp_path / "state")


def test_contradicting_values_are_counted_as_conflicts(tmp_path: Path) -> None:
    """One for each step that both have: the rewards differ, the other values do not."""
    jsonl(tmp_path / "run", range(1, 41))
    state(tmp_path / "run", range(5, 101, 5), scale=3.0)
    aged(tmp_path / "run", WEEK)
    live = Live(tmp_path / "run", tmp_path / "state", now=RECORDED)
    live.settle()
    errors = live.daemon.snapshot().errors
    live.close()
    assert {reason: count for (_, reason), count in errors.items()} == {"conflict": 8}


def test_a_channel_that_may_still_be_written_keeps_the_rows_for_a_minute(tmp_path: Path) -> None:
    """TensorBoard's writer flushes every two minutes: what the state file has beyond it counts once it is silent."""
    events(tmp_path / "run", (900, 950, 1_000))
    state(tmp_path / "run", range(50, 2_001, 50))
    aged(tmp_path / "run", 0.0)
    live = Live(tmp_path / "run", tmp_path / "state", now=RECORDED)
    live.settle()
    assert (live.run().rows, live.run().step) == (19, 950)  # the newest step of an event file may lack a tag
    live.settle(61.0)
    live.settle()
    assert (live.run().rows, live.run().step) == (40, 2_000)
    live.close()


JSONL, TFEVENTS, CONSOLE = KINDS


def raw(kind: ChannelKind, step: int, segment: int = 0) -> RawRow:
    """A row whose reward shows its channel."""
    name = f"{kind.name}{segment or ''}"
    return RawRow(name, kind, step, {"reward": step * (1 + kind / 1e5)}, segment=segment, seen=float(step))


def test_the_beginning_of_a_resumed_attempt_that_only_one_channel_has() -> None:
    """Attempt 1 reaches 50, attempt 2 begins at 41; the better channel's second file begins at 45."""
    channels = [ChannelOpened(f"{kind.name}{segment or ''}", kind, segment) for kind in KINDS[:2] for segment in (0, 1)]
    items: list[Item] = [*channels, *(raw(kind, step) for step in range(1, 51) for kind in KINDS[:2])]
    items += [raw(TFEVENTS, step, 1) for step in range(41, 61)] + [raw(JSONL, step, 1) for step in range(45, 61)]
    assembler = Assembler("run")
    got = rewards(record for item in items for record in assembler.feed(item))
    assert list(got) == [*((1, step) for step in range(1, 51)), *((2, step) for step in range(41, 61))]
    assert got[2, 44] == raw(TFEVENTS, 44).values["reward"]
    assert got[2, 45] == raw(JSONL, 45).values["reward"]


def test_the_second_file_of_another_channel_is_not_lost_where_the_primarys_stays_empty() -> None:
    """The better channel's second file is opened and gives no row; the other's repeats 41 to 50 and is elected."""
    channels = [ChannelOpened(f"{kind.name}{segment or ''}", kind, segment) for kind in KINDS[:2] for segment in (0, 1)]
    items: list[Item] = [*channels, *(raw(JSONL, step) for step in range(1, 51))]
    items += [raw(TFEVENTS, step, 1) for step in range(41, 51)]
    assembler = Assembler("run")
    records = [record for item in items for record in assembler.feed(item)]
    assert assembler.election(100.0) is None
    election = assembler.election(110.0)
    assert election == ChannelElected(Stream.TRAIN, "TFEVENTS1", "jsonl silent")
    got = rewards([*records, *assembler.feed(election)])
    assert list(got) == [*((1, step) for step in range(1, 51)), *((2, step) for step in range(41, 51))]


def test_the_history_in_a_resumed_state_file_is_no_second_attempt(tmp_path: Path) -> None:
    """ms-swift writes a folder per attempt; the second one's state file repeats steps 1 to 20 of the first."""
    run = tmp_path / "run"
    for folder, logged, history in (("v0", range(1, 41), range(1, 41)), ("v1", range(21, 61), range(1, 61))):
        jsonl(run / f"{folder}-20261121-08404{folder[1]}", logged, "logging.jsonl")
        state(run / f"{folder}-20261121-08404{folder[1]}", history)
    expected = {**first(range(1, 41)), **{(2, step): values(step)["reward"] for step in range(21, 61)}}
    same(expected, run, tmp_path / "state")


STEPS = st.lists(st.sets(st.integers(1, 14)).map(sorted), min_size=len(KINDS), max_size=len(KINDS))


class Listed:
    """A source over rows."""

    def __init__(self, rows: Sequence[RawRow]) -> None:
        self.name, self._rows = rows[0].channel if rows else "", rows

    def poll(self, seen: float | None) -> Iterator[Item]:
        """All of them."""
        assert seen is None
        yield from self._rows

    def finish(self) -> Iterator[Item]:
        """Nothing more."""
        return iter(())

    def backlog(self) -> Iterator[Item]:
        """First the one, then the other."""
        yield from self.poll(None)
        yield from self.finish()


@pytest.mark.slow
@many
@given(STEPS)
def test_a_merge_gives_every_step_from_the_best_channel_that_has_it(steps: list[list[int]]) -> None:
    lanes = [[raw(kind, step) for step in mine] for kind, mine in zip(KINDS, steps, strict=True) if mine]
    opened = [ChannelOpened(rows[0].channel, rows[0].kind) for rows in lanes]
    sources = [OpenedSource(Listed(rows), "", rows[0].kind, 0, Path()) for rows in lanes]  # type: ignore[arg-type]
    assembler, records = Assembler("run"), list[Record]()
    for item in chain(opened, filter(None, ChannelMerge(sources, assembler).items())):
        records += assembler.feed(item)
    expected = {(1, row.step): row.values["reward"] for rows in reversed(lanes) for row in rows}
    got = rewards(records)
    assert got == expected
    assert list(got) == sorted(got)


@pytest.mark.slow
@many
@given(STEPS, st.lists(st.integers(0, 2), max_size=60), st.lists(st.floats(0.0, 90.0), min_size=1, max_size=12))
def test_rows_in_any_order_of_arrival(steps: list[list[int]], order: list[int], pauses: list[float]) -> None:
    """No step twice or going back; none lost that came before the rows had passed it; a replay gives the same."""
    lanes = [[raw(kind, step) for step in reversed(mine)] for kind, mine in zip(KINDS, steps, strict=True)]
    arrivals = [lanes[lane].pop() for lane in order if lanes[lane]]
    arrivals += [row for lane in lanes for row in reversed(lane)]
    live, fed, records, due, now = Assembler("run"), list[Item](), list[Record](), set[int](), 0.0

    def feed(item: Item) -> None:
        fed.append(item)
        records.extend(live.feed(item))

    for kind in KINDS:
        feed(ChannelOpened(kind.name, kind))
    for number, row in enumerate(arrivals):
        now += pauses[number % len(pauses)]
        passed = max((step for _, step in rewards(records)), default=0)
        due |= {row.step} if row.step is not None and row.step > passed else set()
        feed(row._replace(seen=now))
        election = live.election(now)
        if election is not None:
            feed(election)
    while (election := live.election(now, ended=True)) is not None:
        feed(election)
    got = rewards(records)
    assert list(got) == sorted(got)
    assert {step for _, step in got} >= due
    assert {attempt for attempt, _ in got} <= {1}
    again = Assembler("run")
    assert [record for item in fed for record in again.feed(item)] == records
    assert all(isinstance(item, (ChannelOpened, ChannelElected, RawRow)) for item in fed)


def test_one_file_for_each_metric_is_one_run(tmp_path: Path) -> None:
    """TensorBoard exports a metric at a time; the files share no column but the step."""
    for name, first_value in (("kl", 0.0), ("reward", 0.1)):
        lines = "".join(f"1758600000,{n},{first_value + n / 100}\n" for n in range(1, 9))
        (tmp_path / f"{name}.csv").write_text(f"Wall time,Step,Value\n{lines}")
    (found,) = discover(tmp_path)
    records: list[Record] = []
    pipeline = Pipeline("run", load_rules([]), catalogue(), observe=records.append)
    for _ in replay(open_run(found, pipeline), pipeline, Tick(RECORDED, live=False)):
        pass
    rows = [row for row in records if isinstance(row, MetricRow)]
    seen = {(row.step, name): value for row in rows for name, value in row.values.items()}
    expected = {
        (n, name): low + n / 100 for n in range(1, 9) for name, low in (("kl_reference", 0.0), ("reward_mean", 0.1))
    }
    assert seen == pytest.approx(expected)
    assert pipeline.snapshot().rows == 8


@pytest.mark.parametrize("names", [("nemo-rl.log", "torchforge.jsonl", "trl-async.jsonl"), None])
def test_logs_of_several_trainers_in_one_folder_come_to_an_end(names: Sequence[str] | None, tmp_path: Path) -> None:
    """Elected by turns without a row in between, two channels took over from each other for ever."""
    lines = Path(__file__).resolve().parents[1] / "frameworks" / "lines"
    for path in [lines / name for name in names] if names else sorted(lines.iterdir()):
        shutil.copy(path, tmp_path / path.name)
    (found,) = discover(tmp_path)
    pipeline = Pipeline("run", load_rules([]), catalogue())
    opened, elections = open_run(found, pipeline), 0
    for item in ChannelMerge(opened.sources, pipeline.assembler).items():
        assert item is not None
        pipeline.feed(item)
        elections += isinstance(item, ChannelElected)
        assert elections < 100
    opened.close()
