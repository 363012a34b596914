"""Metrics that own loops show in a progress bar."""

from __future__ import annotations

from pathlib import Path

from grpo_watch.engine.records import RawRow
from grpo_watch.sources.base import recalled, remembered
from grpo_watch.sources.console.source import ConsoleSource
from grpo_watch.sources.rows.bars import BarRows

BAR = "\rTraining:  10%|#   | {done}/40 [00:0{done}<01:00,  1.00s/it, loss=0.1, reward={reward}]"


def rows_of(text: str, path: Path) -> list[RawRow]:
    path.write_text(text, encoding="utf-8")
    source = ConsoleSource("log", path, [path.parent])
    return [item for item in [*source.poll(None), *source.finish()] if isinstance(item, RawRow)]


def test_one_row_for_each_iteration(tmp_path: Path) -> None:
    """tqdm draws the old metrics at a new count first; ``set_postfix`` draws the new ones before the count."""
    text = "".join(BAR.format(done=done, reward=0.1 * n) for n in range(1, 5) for done in (n - 1, n))
    rows = rows_of(text + "\n", tmp_path / "train.log")
    assert [(row.step, row.values["reward"]) for row in rows] == [(n, 0.1 * n) for n in range(1, 5)]


def test_a_long_list_of_metrics_is_part_of_the_bar(tmp_path: Path) -> None:
    others = ", ".join(f"env/episode_length_{n}=160.0" for n in range(30))
    bars = "".join(BAR.format(done=n, reward=0.1 * n).replace("loss", f"{others}, loss") for n in range(1, 6))
    rows = rows_of(bars + "\n", tmp_path / "train.log")
    assert [(row.step, row.values["reward"]) for row in rows] == [(n, 0.1 * n) for n in range(1, 6)]


def test_metrics_that_stay_give_no_new_row(tmp_path: Path) -> None:
    """A loop that logs every third iteration."""
    text = "".join(BAR.format(done=done, reward=done // 3) for done in range(1, 10))
    assert [row.values["reward"] for row in rows_of(text + "\n", tmp_path / "train.log")] == [0.0, 1.0, 2.0, 3.0]


def test_other_bars_give_none(tmp_path: Path) -> None:
    text = "".join(f"\rProcessed prompts:  {n}0%|#  | {n}/9 [00:01<00:08, 1.0it/s, input: 9 toks/s]" for n in range(9))
    assert rows_of(text + "\n", tmp_path / "train.log") == []


def test_the_bar_of_an_evaluation_gives_way_to_the_loop_s_own_lines(tmp_path: Path) -> None:
    evaluation = "".join(f"\rMATH eval:  {n}0%|#  | {n}/9 [00:01<00:08, 1.0q/s, score={n / 9:.3f}]" for n in range(9))
    lines = [f"Iter {n} | loss=0.01 | reward mean={0.1 * n:.1f} std=0.2" for n in range(1, 7)]
    rows = rows_of("\n".join([evaluation, *lines, evaluation, ""]), tmp_path / "train.log")
    assert [(row.step, row.values["reward mean"]) for row in rows] == [(n, round(0.1 * n, 1)) for n in range(1, 7)]


def test_a_reader_goes_on_where_another_stopped() -> None:
    pieces = [BAR.format(done=n, reward=n).encode() for n in range(1, 7)]
    whole = BarRows()
    expected = [row.step for piece in pieces for row in whole.rows_of(piece)]
    for cut in range(len(pieces)):
        first = BarRows()
        steps = [row.step for piece in pieces[:cut] for row in first.rows_of(piece)]
        second = recalled(BarRows, remembered(first))
        assert steps + [row.step for piece in pieces[cut:] for row in second.rows_of(piece)] == expected
