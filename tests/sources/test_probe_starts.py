"""Jobs that start again in one folder with more or fewer processes: lines are joined with those of their own start."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.engine.records import CheckpointDigest, Cursor, Item
from grpo_watch.sources.checkpoints.probe_file import AHEAD
from grpo_watch.sources.checkpoints.probe_source import ProbeSource

W = "layer.weight"


def job(
    folder: Path, began: float, ranks: int, steps: Sequence[int], *, start: bool = True, without: Sequence[int] = ()
) -> None:
    """Every process writes its shard of 1, a probe per 10 s; clocks and first steps differ by up to 0.9 s."""
    for rank in set(range(ranks)) - set(without):
        place = {"grpo_watch": "probe/1", "rank": rank, "ranks": ranks, "writers": ranks}
        late = began + rank * 0.9 / ranks
        lines: list[dict[str, Any]] = [{"kind": "start", "time": late, "seed": 7, **place}] if start else []
        for number, step in enumerate(steps):
            tensors = {W: ["bfloat16", [4], "0000000000000001", 0, ranks]}
            more = {"kind": "weights", "of": "policy", "step": step, "time": late + 10 * number}
            lines.append({**place, **more, "tensors": tensors})
        with (folder / f"grpo-watch-probe-{rank}.jsonl").open("a") as stream:
            stream.writelines(json.dumps(line) + "\n" for line in lines)


def source(folder: Path, cursor: Cursor | None = None) -> ProbeSource:
    return ProbeSource("probe", folder, [folder], cursor=cursor)


def reported(items: Sequence[Item]) -> list[tuple[int, dict[str, int]]]:
    """Steps, with the sums: as many as there were shards."""
    found = [item for item in items if isinstance(item, CheckpointDigest)]
    return [(one.step, {name: int(each.checksum, 16) for name, each in one.tensors.items()}) for one in found]


def whole(ranks: int, steps: Sequence[int]) -> list[tuple[int, dict[str, int]]]:
    return [(step, {W: ranks}) for step in steps]


def long(count: int) -> range:
    """More probes than are held at once."""
    return range(10, 10 * (count + 1), 10)


@pytest.mark.parametrize("start", [True, False])
@pytest.mark.parametrize("counts", [(1, 8), (8, 4), (8, 1, 8), (2, 2, 4, 1, 4)])
def test_other_numbers_of_processes(tmp_path: Path, counts: Sequence[int], *, start: bool) -> None:
    """Each from the first step on; with the callback or ``probe`` alone; read at once, before the end."""
    expected = []
    for number, ranks in enumerate(counts):
        steps = long(3 * AHEAD + number)
        job(tmp_path, 1_000.0 * number, ranks, steps, start=start)
        expected += whole(ranks, steps)
    assert reported(list(source(tmp_path).poll(1.0))) == expected


@pytest.mark.parametrize("counts", [(1, 8), (8, 4)])
def test_nobody_is_waited_for_who_does_not_write(tmp_path: Path, counts: Sequence[int]) -> None:
    """While it goes on: each step comes at once."""
    reader = source(tmp_path)
    for number, ranks in enumerate(counts):
        job(tmp_path, 1_000.0 * number, ranks, [1])
        assert reported(list(reader.poll(1.0))) == whole(ranks, [1])
        for step in (10, 20):
            job(tmp_path, 1_000.0 * number + step, ranks, [step], start=False)
            assert reported(list(reader.poll(1.0))) == whole(ranks, [step])


def test_what_one_process_alone_wrote_before_a_crash_is_dropped(tmp_path: Path) -> None:
    """The first was killed before step 30; the second had written it. Both begin again at step 21."""
    job(tmp_path, 0.0, 2, [10, 20])
    job(tmp_path, 20.0, 2, [30], start=False, without=[0])
    job(tmp_path, 60.0, 2, [21, 30, 40])
    assert reported(list(source(tmp_path).poll(1.0))) == whole(2, [10, 20, 21, 30, 40])


def test_the_first_process_missed_a_start(tmp_path: Path) -> None:
    """Its file was removed, say: what the others wrote by then joins with nothing, and what follows is whole."""
    job(tmp_path, 0.0, 4, long(20), without=[0])
    job(tmp_path, 1_000.0, 4, long(20))
    assert reported(list(source(tmp_path).poll(1.0))) == whole(4, long(20))


def test_another_process_missed_a_start(tmp_path: Path) -> None:
    """Its file was removed: its later lines join with none of the earlier start, whose shards alone prove nothing."""
    job(tmp_path, 0.0, 2, long(20), without=[1])
    job(tmp_path, 1_000.0, 2, long(20))
    assert reported(list(source(tmp_path).poll(1.0))) == whole(2, long(20))


@pytest.mark.parametrize("ahead", [300.0, -300.0])
def test_a_process_whose_clock_is_wrong(tmp_path: Path, ahead: float) -> None:
    """A shard that stays the same is no unchanged tensor: nothing is judged, and the source says why."""
    for rank, wrong in ((0, 0.0), (1, ahead)):
        job(tmp_path, 1_000.0 + wrong, 2, long(20), without=[1 - rank])
    of = source(tmp_path)
    assert reported(list(of.poll(1.0))) == []
    assert reported(list(of.finish())) == []
    assert of.stats.problem.startswith("grpo-watch-probe-1.jsonl: step 200 has another time")


def test_few_lines_are_held_whatever_is_missing(tmp_path: Path) -> None:
    """The first process is silent; the second goes on for ever, and is read on once the first is there again."""
    job(tmp_path, 0.0, 2, [10])
    reader = source(tmp_path)
    assert reported(list(reader.poll(1.0))) == whole(2, [10])
    rest = range(20, 1020, 10)
    job(tmp_path, 10.0, 2, rest, start=False, without=[0])
    for _ in range(3):
        assert reported(list(reader.poll(1.0))) == []
    assert len(reader._files["1"].held) == AHEAD
    job(tmp_path, 10.0, 2, rest, start=False, without=[1])
    assert reported(list(reader.poll(1.0))) == whole(2, rest)


@pytest.mark.slow
@pytest.mark.parametrize("start", [True, False])
def test_restarts_of_the_reader_change_nothing(tmp_path: Path, *, start: bool) -> None:
    """It is rebuilt from its cursor after any item, while a job of two, one and two processes is read."""
    expected = []
    for number, ranks in enumerate((2, 1, 2, 2)):
        steps = long(5 + 3 * number)
        job(tmp_path, 1_000.0 * number, ranks, steps, start=start)
        expected += whole(ranks, steps)
    for seed in range(20):
        draw = random.Random(seed)
        reader, got, more = source(tmp_path), [], True
        while more:
            more = False
            for item in reader.poll(None):
                got.append(item)
                if draw.random() < 0.3:
                    cursor, more = reader.cursor(), True
                    reader.close()
                    reader = source(tmp_path, cursor)
                    break
        assert reported(got) == expected, seed
