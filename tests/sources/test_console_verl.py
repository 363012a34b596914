"""verl's console lines of all eras, glued, broken and wrapped, and restarts at any item."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from grpo_watch.engine.records import Cursor, EventKind, Item, Progress, RunConfig, RunEvent, Stream
from grpo_watch.frameworks.line_reader import MetricLine
from grpo_watch.frameworks.verl.console import VerlLines
from grpo_watch.sources.base import Skip
from grpo_watch.sources.console.source import ConsoleSource
from tests.support.channel import rows

BAR = "Training Progress:  12%|█▏        | 34/290 [05:01<37:46,  8.85s/it]"


def the_source(path: Path, cursor: Cursor | None = None) -> ConsoleSource:
    return ConsoleSource("train.log", path, [path.parent], cursor=cursor)


def items_of(tmp_path: Path, text: str) -> list[Item]:
    path = tmp_path / "train.log"
    path.write_bytes(text.encode())
    source = the_source(path)
    items = [*source.poll(None), *source.finish()]
    source.close()
    return items


def line(text: str) -> MetricLine:
    (row,) = VerlLines().read_line(text.encode())
    return row


def test_full_precision() -> None:
    row = line(
        "step:34 - actor/kl_loss:0.0013280365410537343 - actor/ppo_kl:-8.163164312320433e-06 - perf/mfu/actor:0.0"
    )
    assert (row.step, row.stream, row.resolution) == (34, None, None)
    assert row.values == {
        "actor/kl_loss": 0.0013280365410537343,
        "actor/ppo_kl": -8.163164312320433e-06,
        "perf/mfu/actor": 0.0,
    }


def test_three_decimals_show_nothing_below_half_a_thousandth() -> None:
    row = line("step:1 - global_seqlen/min:484245.000 - actor/kl_loss:0.000 - actor/ppo_kl:-0.000 - actor/lr:0.000")
    assert row.resolution == 0.0005
    assert row.values["global_seqlen/min"] == 484245.0


def test_scalars_of_numpy_2() -> None:
    row = line(
        "step:3 - actor/entropy:0.41 - training/num_turns/mean:np.float64(2.0) - training/num_turns/max:np.int64(2)"
    )
    assert row.values == {"actor/entropy": 0.41, "training/num_turns/mean": 2.0, "training/num_turns/max": 2.0}


def test_numbers_that_are_none_and_truth_values() -> None:
    values = line("step:5 - actor/grad_norm:nan - critic/score/max:inf - critic/score/min:-inf - a/b:True").values
    assert math.isnan(values["actor/grad_norm"] or 0.0)
    assert (values["critic/score/max"], values["critic/score/min"], values["a/b"]) == (math.inf, -math.inf, 1.0)


def test_names_of_datasets_with_colons_and_dashes() -> None:
    row = line("step:0 - val-core/hub:org/set - v2/acc/mean@1:0.508 - val-aux/x/reward/mean@1:0.5")
    assert row.values == {"val-core/hub:org/set - v2/acc/mean@1": 0.508, "val-aux/x/reward/mean@1": 0.5}
    assert row.stream is Stream.EVAL


@pytest.mark.parametrize(
    "text",
    [
        "Final step:3 - was written by the model",
        "step:1 - do this: 3 times - then: 4",
        "first_step:3 - a/b:1",
        "step:x - a/b:1",
        "step:3 - a/b:1.2.3",
    ],
)
def test_text_that_only_looks_like_a_row(text: str) -> None:
    reader = VerlLines()
    assert [*reader.read_line(text.encode()), *reader.flush()] == []


def test_a_row_glued_to_a_bar(tmp_path: Path) -> None:
    items = items_of(tmp_path, f"{BAR}step:34 - actor/pg_loss:0.5 - actor/lr:1e-06\n")
    assert [(row.step, row.values) for row in rows(items)] == [(34, {"actor/pg_loss": 0.5, "actor/lr": 1e-06})]
    assert [(item.step, item.max_steps) for item in items if isinstance(item, Progress)] == [(34, 290)]
    assert [item.framework for item in items if isinstance(item, RunConfig)] == ["verl"]


def test_a_row_broken_inside_a_key(tmp_path: Path) -> None:
    items = items_of(tmp_path, "step:1 - a/b:1 - critic\n/rewards/min:0.25 - c/d:2\nstep:2 - a/b:3\n")
    assert [(row.step, row.values) for row in rows(items)] == [
        (1, {"a/b": 1.0, "critic/rewards/min": 0.25, "c/d": 2.0}),
        (2, {"a/b": 3.0}),
    ]


def test_a_row_that_stays_broken_loses_its_last_key(tmp_path: Path) -> None:
    items = items_of(tmp_path, "step:1 - a/b:1 - critic\nloading something: 4\nstep:2 - a/b:3 - act")
    assert [(row.step, row.values) for row in rows(items)] == [(1, {"a/b": 1.0}), (2, {"a/b": 3.0})]


TEXT_BEHIND = [
    BAR,
    f" {BAR}",
    "INFO:root:3 files were written",
    "wandb: Syncing run",
    '", "_PID": "12"}',
    " 2026-11-21 19:06:58,123 - INFO - loaded: 3",
    " -",
]


@pytest.mark.parametrize("behind", TEXT_BEHIND)
@pytest.mark.parametrize("number", ["0.001", "1e-06", "np.float64(0.001)", "nan", "3"])
def test_text_behind_a_row_takes_no_value_with_it(tmp_path: Path, behind: str, number: str) -> None:
    items = items_of(tmp_path, f"step:1 - actor/kl_loss:0.0 - actor/kl_coef:{number}{behind}\nstep:2 - a/b:3\n")
    first, second = rows(items)
    assert first.values["actor/kl_loss"] == 0.0
    assert str(first.values["actor/kl_coef"]) == str(float(number.removeprefix("np.float64(").removesuffix(")")))
    assert second.values == {"a/b": 3.0}


def test_a_bar_inside_a_row_takes_no_value_with_it() -> None:
    assert line(f"step:1 - a/b:0.5{BAR} - c/d:2").values == {"a/b": 0.5, "c/d": 2.0}


@pytest.mark.parametrize("cut", ["1e-", "1e", "1.2.3", "0.001100%|███| 3/3", "7b/acc/mean@1:0.5Training x", "org"])
def test_a_number_that_may_be_cut_is_not_read_and_counted(tmp_path: Path, cut: str) -> None:
    path = tmp_path / "train.log"
    path.write_text(f"step:1 - a/b:1 - actor/lr:{cut}\nstep:2 - a/b:3\n")
    source = the_source(path)
    assert [row.values for row in rows([*source.poll(None), *source.finish()])] == [{"a/b": 1.0}, {"a/b": 3.0}]
    assert source.stats.skipped == {Skip.TRUNCATED: 1}
    assert source.stats.first_bad == "truncated: step 1: the row breaks off inside a value, which is not read"


LOG = (
    f"{BAR}\nstep:1 - a/b:1 - critic\n/rewards/min:0.25 - c/d:2\nTraceback (most recent call last):\n"
    "  File x\nValueError: no\nstep:2 - a/b:3 - cri\nstep:3 - a/b:4\nstep:4 - a/b:5 - x\n"
)


@pytest.mark.parametrize("taken", range(9))
def test_a_restart_at_any_item_loses_and_repeats_nothing(tmp_path: Path, taken: int) -> None:
    everything = items_of(tmp_path, LOG)
    assert len(everything) == 7  # progress, framework, four rows, one traceback
    source = the_source(tmp_path / "train.log")
    stream = source.poll(None)
    first = [item for _, item in zip(range(taken), stream, strict=False)]
    cursor = source.cursor()
    stream.close()  # type: ignore[attr-defined]
    source.close()
    again = the_source(tmp_path / "train.log", cursor)
    assert [*first, *again.poll(None), *again.finish()] == everything
    assert [item.kind for item in everything if isinstance(item, RunEvent)] == [EventKind.TRACEBACK]


def test_the_code_in_a_traceback_is_no_strange_row(tmp_path: Path) -> None:
    """The job died before its first row: the traceback tells it, and no line of code is shown as an odd row."""
    code = "    tr_loss_step = self.training_step(model, inputs)\n"
    text = f"Traceback (most recent call last):\n  File x, line 2, in step\n{code}ValueError: no\n"
    (tmp_path / "train.log").write_text(text)
    source = the_source(tmp_path / "train.log")
    assert [type(item) for item in (*source.poll(None), *source.finish())] == [RunEvent]
    assert source.stats.skipped == {}


def test_a_log_of_an_unknown_format_says_so(tmp_path: Path) -> None:
    """The first line that looks like a row stands in ``sources`` where not one row could be read."""
    (tmp_path / "train.log").write_text("start\nstep:1 | actor=0.5 | critic=0.1\nstep:2 | actor=0.4\n")
    source = the_source(tmp_path / "train.log")
    assert [*source.poll(None), *source.finish()] == []
    assert source.stats.first_bad == (
        "not-a-row: no row could be read; the first line that looks like one: step:1 | actor=0.5 | critic=0.1"
    )
