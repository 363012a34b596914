"""prime-rl writes several lines per step: together they are one row, at any point of the file's growth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.sources.base import Skip
from grpo_watch.sources.discovery.channels import ChannelContent
from grpo_watch.sources.discovery.discover import discover
from grpo_watch.sources.rows.jsonl import JsonlPiecesSource
from tests.support.channel import rows


def step(number: int, grad_norm: float | None = 0.125) -> str:
    """The five lines of a step; a value that is not finite is left out."""
    norm = {} if grad_norm is None else {"optim/grad_norm": grad_norm}
    pieces: list[dict[str, float]] = [{"perf/mfu": 31.0}, {"optim/lr": 1e-06, **norm}, {"loss/mean": 0.002}]
    pieces += [{"mismatch_kl/all/mean": 0.0009}, {"time/step": 40.0 + number}]
    lines = [json.dumps({"step": number, "time": 1000.0 + number, **piece}) for piece in pieces]
    return "".join(f"{line}\n" for line in lines)


def test_the_lines_of_a_step_are_one_row(tmp_path: Path) -> None:
    """The newest step is held until another one begins, or the input ends."""
    path = tmp_path / "metrics.jsonl"
    path.write_text(step(0) + step(1, None))
    source = JsonlPiecesSource(path.name, path, [tmp_path])
    (first,) = rows(list(source.poll(5.0)))
    assert (first.step, first.time, first.seen) == (0, 1000.0, 5.0)
    assert first.values == {
        "perf/mfu": 31.0,
        "optim/lr": 1e-06,
        "optim/grad_norm": 0.125,
        "loss/mean": 0.002,
        "mismatch_kl/all/mean": 0.0009,
        "time/step": 40.0,
    }
    (second,) = rows(list(source.finish()))
    assert second.step == 1
    assert "optim/grad_norm" not in second.values


def test_steps_that_a_resumed_run_writes_again_come_once(tmp_path: Path) -> None:
    """Steps 5 and 6 are computed again: 5 was complete, of 6 the later values count."""
    path = tmp_path / "metrics.jsonl"
    path.write_text(step(4) + step(5) + step(6) + step(5, 0.5) + step(6, 0.5) + step(7))
    source = JsonlPiecesSource(path.name, path, [tmp_path])
    found = [(row.step, row.values["optim/grad_norm"]) for row in rows([*source.poll(None), *source.finish()])]
    assert found == [(4, 0.125), (5, 0.125), (6, 0.5), (7, 0.125)]
    assert set(source.stats.skipped) == {Skip.DUPLICATE}


def test_what_is_no_row_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('nonsense\n{"step": 1}\n{"optim/lr": 1.0}\n' + step(1))
    source = JsonlPiecesSource(path.name, path, [tmp_path])
    assert [row.step for row in rows([*source.poll(None), *source.finish()])] == [1]
    assert source.stats.skipped == {Skip.NOT_JSON: 1, Skip.NOT_A_ROW: 1, Skip.NO_STEP: 1}
    assert source.stats.first_bad == "not-json: byte 0: no JSON object"


@settings(max_examples=40, deadline=None)
@given(cuts=st.lists(st.integers(1, 400), max_size=12), restarts=st.sets(st.integers(0, 12)))
def test_however_it_grows_and_whichever_goes_on(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], restarts: set[int]
) -> None:
    """Every step once and whole, whatever pieces the file grows in and wherever the reader is restarted."""
    folder = tmp_path_factory.mktemp("pieces")
    path, data = folder / "metrics.jsonl", "".join(step(number) for number in range(8)).encode()
    source, found, at = JsonlPiecesSource(path.name, path, [folder]), [], 0
    for turn, cut in enumerate([*cuts, len(data)]):
        with path.open("ab") as file:
            file.write(data[at : at + cut])
        at += cut
        found += rows(list(source.poll(None)))
        if turn in restarts:
            cursor = source.cursor()
            source.close()
            source = JsonlPiecesSource(path.name, path, [folder], cursor=cursor)
    found += rows(list(source.finish()))
    assert [row.step for row in found] == list(range(8))
    assert {len(row.values) for row in found} == {6}


def test_it_is_found_by_its_keys(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(step(0))
    (run,) = discover(tmp_path)
    assert ChannelContent.JSONL_PIECES in {channel.what for channel in run.channels}
