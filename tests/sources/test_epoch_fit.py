"""Steps by epoch: bars that were drawn before their row, rows that a bar wiped, and logs that don't fit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from grpo_watch.engine.records import RunConfig
from grpo_watch.sources.base import SourceStats
from grpo_watch.sources.console.parser import ConsoleParser
from grpo_watch.sources.console.step_placement import EpochFit
from tests.sources.test_console import bar, items_of, rows

START = bar(0, 40, "00:00<?, ?it/s")


def logged(step: int, length: int, digits: str = "{:.4g}") -> str:
    return f"{{'loss': '0.1', 'reward': '0.5', 'epoch': '{digits.format(step / length)}'}}\n"


def steps(lines: Sequence[str], cut: int | None = None) -> list[int | None]:
    """The steps of the rows of a log; ``cut``: restarted where so many lines were read."""
    parser = ConsoleParser("train.log", 0, SourceStats(), {})
    items = []
    for number, line in enumerate("".join(lines).replace("\r", "\n").split("\n")):
        if number == cut and parser.idle:
            parser = ConsoleParser("train.log", 0, SourceStats(), parser.state())
        items += parser.feed(line.encode(), None)
    return [row.step for row in rows([*items, *parser.flush(None)])]


@pytest.mark.parametrize("digits", ["{:.4g}", "{:.2f}"])
@pytest.mark.parametrize("cut", [None, 7, 11])
def test_bars_that_were_drawn_before_their_row(digits: str, cut: int | None) -> None:
    """At 20 steps an epoch two decimals are enough: 0.05 a step."""
    lines = [line for step in range(1, 13) for line in (bar(step - 1, 40) + "\n", logged(step, 20, digits))]
    assert steps([START, "\n", *lines], cut) == list(range(1, 13))


def test_the_printed_length_of_an_epoch_places_rows_at_an_interval() -> None:
    """Every tenth step is logged, and a bar drawn at every 25th."""
    printed = "  Num update steps per epoch = 280\n"
    lines = [
        logged(step, 280) + (bar(step // 25 * 25, 300) + "\n" if step % 50 == 30 else "") for step in range(10, 301, 10)
    ]
    assert steps([printed, *lines]) == list(range(10, 301, 10))


OPENING = bar(0, 300, "00:00<?, ?it/s")
AVERAGES = [logged(step, 300) for step in range(10, 301, 10)]


@pytest.mark.parametrize("printed", ["GRPOConfig(\nbeta=0.0,\nlogging_steps=10,\nmax_steps=300,\n)\n", None])
def test_a_bar_that_shows_the_first_and_the_last_step_alone(printed: str | None, tmp_path: Path) -> None:
    """Rows are averages over ten steps; the interval was printed, or the end of the log shows how long an epoch is."""
    end = "{'train_runtime': '99.0', 'train_loss': '0.1', 'epoch': '1'}\n" if printed is None else ""
    text = "".join([printed or "", OPENING, "\n", *AVERAGES, end, bar(300, 300), "\n"])
    found = items_of(tmp_path, text)
    assert [row.step for row in rows(found)] == list(range(10, 301, 10))
    assert not any(isinstance(item, RunConfig) and "steps_counted" in item.settings for item in found)


SUMMARY = "{'train_runtime': '99.0', 'train_loss': '0.1', 'epoch': '1'}\n"


def unknown(found: Sequence[object]) -> bool:
    return any(isinstance(item, RunConfig) and "steps_counted" in item.settings for item in found)


@pytest.mark.parametrize("last", [bar(70, 70), "model.safetensors: " + bar(40, 40).lstrip("\r"), bar(300, 300)])
def test_bars_of_others_behind_the_summary_say_nothing_of_its_epochs(last: str, tmp_path: Path) -> None:
    """An evaluation's, an upload's, and one of as many steps as were planned."""
    found = items_of(tmp_path, "".join([OPENING, "\n", *AVERAGES, bar(300, 300), "\n", SUMMARY, last, "\n"]))
    assert [row.step for row in rows(found)] == list(range(10, 301, 10))
    assert not unknown(found)


@pytest.mark.parametrize(
    "last", [bar(70, 70), "Loading: " + bar(300, 300).lstrip("\r"), "{'eval_loss': '0.1'}\n" + bar(300, 300)]
)
def test_without_a_full_bar_of_the_training_the_steps_are_unknown(last: str, tmp_path: Path) -> None:
    found = items_of(tmp_path, "".join([OPENING, "\n", *AVERAGES, SUMMARY, last, "\n"]))
    assert unknown(found)


def test_a_row_at_the_first_step_comes_before_those_at_the_interval(tmp_path: Path) -> None:
    arguments = "GRPOConfig(\nlogging_first_step=True,\nlogging_steps=10,\nmax_steps=300,\n)\n"
    found = items_of(tmp_path, "".join([arguments, OPENING, "\n", logged(1, 300), *AVERAGES, "\n"]))
    assert [row.step for row in rows(found)] == [1, *range(10, 301, 10)]
    assert not unknown(found)


def test_rows_beyond_the_last_step_show_that_the_interval_is_another(tmp_path: Path) -> None:
    text = "".join(["GRPOConfig(\nlogging_steps=25,\n)\n", OPENING, "\n", *AVERAGES])
    assert unknown(items_of(tmp_path, text))


def test_a_row_per_epoch_is_at_no_interval_of_steps(tmp_path: Path) -> None:
    arguments = "GRPOConfig(\nlogging_strategy=IntervalStrategy.EPOCH,\nlogging_steps=2,\n)\n"
    assert unknown(items_of(tmp_path, "".join([arguments, OPENING, "\n", *AVERAGES[:5]])))


def test_where_nothing_shows_the_interval_the_steps_are_called_unknown(tmp_path: Path) -> None:
    found = items_of(tmp_path, "".join([OPENING, "\n", *AVERAGES]))
    assert any(isinstance(item, RunConfig) and "steps_counted" in item.settings for item in found)


def test_bars_that_are_right_stay_so() -> None:
    """An epoch of 20.5 steps, which accumulation over an odd number of batches makes, fits no whole number."""
    lines = [line for step in range(1, 13) for line in (bar(step, 40) + "\n", logged(step, 20.5))]
    assert steps([START, "\n", *lines]) == list(range(1, 13))


def test_two_decimals_of_long_epochs_show_no_step() -> None:
    fit = EpochFit()
    fit.set_length(400)
    assert fit.step(9, 0.02, 8, None) == 9


def test_right_bars_are_kept_over_hundreds_of_rows() -> None:
    """An epoch of 1868.5 steps in four digits: each epoch leaves one step open, now and then the next one."""
    fit, last, found = EpochFit(), 0, []
    for step in range(1, 401):
        last = fit.step(step, float(f"{step / 1868.5:.4g}"), last, 400)
        found.append(last)
    assert found == list(range(1, 401))


def test_a_bar_that_is_late_from_the_first_row_on() -> None:
    """Every tenth step is logged, each bar shows the step before."""
    fit = EpochFit()
    epochs = {10: 0.03333, 20: 0.06667, 30: 0.1}  # 300 steps each
    assert [fit.step(step - 1, epoch, None, None) for step, epoch in epochs.items()] == [9, 20, 30]


def test_rows_that_contradict_each_other_stay_where_they_are() -> None:
    fit = EpochFit()
    assert [fit.step(shown, epoch, None, None) for shown, epoch in ((5, 0.1), (7, 0.3), (9, 0.31))] == [5, 7, 9]


def test_a_restart_forgets_what_was_learned_and_keeps_what_was_printed() -> None:
    fit = EpochFit()
    fit.set_length(20)
    fit.restart()
    assert fit.step(3, 0.1, None, None) == 2
    learned = EpochFit()
    learned.step(10, 0.1, None, None)
    learned.restart()
    assert learned.step(5, 0.06, None, None) == 5
