"""Console logs: rows at their true steps whatever stands around them, signs of trouble, restarts at any item."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.engine.records import Cursor, EventKind, Item, Progress, RawRow, RunConfig, RunEvent, Stream
from grpo_watch.frameworks.python_literal import dictionaries
from grpo_watch.sources.base import Skip
from grpo_watch.sources.console.parser import ConsoleParser
from grpo_watch.sources.console.source import MOST_REPEATS, ConsoleSource
from grpo_watch.sources.rows.bars import training_bar
from tests.support.bundles import unpack

ROW = "{'loss': '0.1', 'reward': '0.5', 'epoch': '0.0%d'}"
WIPE = "\r" + " " * 50 + "\r"


def the_source(path: Path, cursor: Cursor | None = None) -> ConsoleSource:
    return ConsoleSource("train.log", path, [path.parent], cursor=cursor)


def read(path: Path) -> list[Item]:
    source = the_source(path)
    items = [*source.poll(None), *source.finish()]
    source.close()
    return items


def items_of(tmp_path: Path, text: str | bytes) -> list[Item]:
    path = tmp_path / "train.log"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read(path)


def rows(items: Iterable[Item], stream: Stream | None = None) -> list[RawRow]:
    return [item for item in items if isinstance(item, RawRow) and item.stream is stream]


def steps(items: Iterable[Item]) -> list[int | None]:
    return [row.step for row in rows(items)]


def events(items: Iterable[Item]) -> list[EventKind]:
    return [item.kind for item in items if isinstance(item, RunEvent)]


def texts(items: Iterable[Item], kind: EventKind) -> list[str]:
    return [item.text for item in items if isinstance(item, RunEvent) and item.kind is kind]


def bar(step: int, total: int = 100, elapsed: str = "00:09<00:32,  3.05it/s") -> str:
    return f"\r {step * 100 // total:2d}%|█▎        | {step}/{total} [{elapsed}]"


def logged(step: int, total: int = 100) -> str:
    """What tqdm makes of one logged step when nothing is buffered."""
    return bar(step, total) + WIPE + ROW % step + "\n" + bar(step, total)


START = bar(0, elapsed="00:00<?, ?it/s")


# Real runs


def test_steps_of_a_trl_run_are_those_of_its_trainer_state(tmp_path: Path) -> None:
    """100 rows, a pty's line ends and colours; reward and step compared with checkpoint-100/trainer_state.json."""
    run = unpack("trl-1.16.0-04-healthy-lora", tmp_path)
    history = json.loads((run / "output/checkpoint-100/trainer_state.json").read_text())["log_history"]
    got = rows(read(run / "train.log"))
    assert [row.step for row in got] == [entry["step"] for entry in history]
    for row, entry in zip(got, history, strict=True):
        assert row.values["grad_norm"] == pytest.approx(entry["grad_norm"], rel=1e-3)


@pytest.mark.parametrize(
    ("run", "last"),
    [("trl-0.24.0-01-healthy-beta", 100), ("trl-1.16.0-07-healthy-ddp2", 80), ("trl-0.24.0-06-healthy-numiter2", 100)],
)
def test_every_step_of_a_run_once(tmp_path: Path, run: str, last: int) -> None:
    items = read(unpack(run, tmp_path) / "train.log")
    assert steps(items) == list(range(1, last + 1))
    assert [item.step for item in items if isinstance(item, Progress)] == list(range(last + 1))
    assert events(items) == [EventKind.FINISHED]


@pytest.mark.parametrize("run", ["trl-1.16.0-19-crash-resume", "trl-0.24.0-19-crash-resume"])
def test_a_crash_and_a_resume_in_one_log(tmp_path: Path, run: str) -> None:
    """Resumed from checkpoint 40 after a reward function raised in step 51."""
    items = read(unpack(run, tmp_path) / "train.log")
    assert steps(items) == [*range(1, 51), *range(41, 101)]
    assert events(items) == [EventKind.TRACEBACK, EventKind.STARTED, EventKind.FINISHED]
    assert texts(items, EventKind.TRACEBACK) == ["ValueError: could not parse the verifier's answer: ''"]


def test_evaluation_rows_have_the_step_of_the_training(tmp_path: Path) -> None:
    """Every 20 steps, with a bar of their own (16 batches) below the training's."""
    items = read(unpack("trl-1.16.0-03h-healthy-eval", tmp_path) / "train.log")
    assert [row.step for row in rows(items, Stream.EVAL)] == [20, 40, 60, 80, 100]
    assert steps(items) == list(range(1, 101))


def test_a_killed_run_whose_rows_are_flushed_by_tables(tmp_path: Path) -> None:
    """Stdout is block-buffered here; the rows come behind the redrawn bar, before their table."""
    items = read(unpack("trl-1.16.0-18-hang", tmp_path) / "train.log")
    assert steps(items) == list(range(1, 41))
    assert events(items) == []


def test_ms_swift_names_its_steps(tmp_path: Path) -> None:
    """Both attempts in one log; the values are those of the two logging.jsonl, to 4 digits."""
    run = unpack("ms-swift-4.6.0-16-resume", tmp_path)
    items = read(run / "train.log")
    got = rows(items)
    assert [row.step for row in got] == [*range(1, 41), *range(21, 61)]
    assert {(row.max_steps, row.resolution) for row in got} == {(40, 1e-8), (60, 1e-8)}
    written = [
        json.loads(line)
        for path in sorted(run.glob("output/v*/logging.jsonl"))
        for line in path.read_text().splitlines()
        if "train_runtime" not in line and "model_parameter_info" not in line
    ]
    assert [row.values["reward"] for row in got] == [pytest.approx(line["reward"], rel=1e-3) for line in written]
    configs = [item for item in items if isinstance(item, RunConfig)]
    assert [item.framework for item in configs if item.framework] == ["ms-swift"]
    sizes = {name: setting.value for item in configs for name, setting in item.settings.items()}
    assert sizes == {"world_size": 1, "dataset_size": 256, "package:ms-swift": "4.6.0"}


def test_refused_configurations(tmp_path: Path) -> None:
    found = {
        log.stem: texts(read(log), EventKind.CONFIG_ERROR)
        for log in (unpack("trl-1.16.0-20-config-errors", tmp_path)).glob("*.log")
    }
    refused = {name for name, reported in found.items() if reported}
    (text,) = found["num_generations_1"]
    assert text.startswith("ValueError: GRPO requires at least 2 generations per prompt")
    assert refused == {
        "num_generations_1",
        "batch_not_divisible",
        "batch_smaller_than_group",
        "generation_batch_not_divisible",
        "both_generation_settings",
        "default_per_device_8_gens_6",
        "fp16_cpu_bf16_both",
    }


def test_rewards_that_are_none_are_reported_once_per_row(tmp_path: Path) -> None:
    items = read(unpack("trl-1.16.0-14-nan-reward", tmp_path) / "train.log")
    first = next(item for item in items if isinstance(item, RunEvent))
    assert (first.kind, first.step) == (EventKind.REWARD_NONE, 30)
    assert rows(items)[30].values["reward"] is None


def test_failed_rewards_are_counted_from_row_to_row(tmp_path: Path) -> None:
    """AReaL's warning, verl's timeout eight times over, and a program's own error, which is none."""
    log = """\
step:1 - critic/score/mean:0.5 - actor/pg_clipfrac:0.1 - actor/ppo_kl:0.1 - training/global_step:1
Reward API WARNING: Computing reward timeout after 15s. Set reward to 0.
(RewardWorker pid=7) [Timeout] Task timeout: some text \x1b[32m [repeated 8x across cluster]\x1b[0m
type 0 compilation error = invalid syntax
step:2 - critic/score/mean:0.5 - actor/pg_clipfrac:0.1 - actor/ppo_kl:0.1 - training/global_step:2
step:3 - critic/score/mean:0.5 - actor/pg_clipfrac:0.1 - actor/ppo_kl:0.1 - training/global_step:3
"""
    counts = [row.values.get("reward_failures") for row in rows(items_of(tmp_path, log))]
    assert counts == [None, 9.0, None]


def test_failed_calls_that_read_alike_all_count_also_over_a_restart(tmp_path: Path) -> None:
    """64 a step, one after the other: more than of lines that say nothing, which are passed over."""
    path = tmp_path / "train.log"
    failed = "(AgentLoopWorker pid=9) Error when executing tool: timeout\n"
    one, two, three = (f"step:{at} - critic/score/mean:0.5 - actor/ppo_kl:0.1 - actor/lr:1e-06\n" for at in (1, 2, 3))
    path.write_text(one + failed * 30)
    first = the_source(path)
    before = list(first.poll(None))
    cursor = first.cursor()
    first.close()
    with path.open("a") as log:
        log.write(failed * 34 + two + failed * 40 + three)
    second = the_source(path, cursor)
    items = [*before, *second.poll(None), *second.finish()]
    second.close()
    assert [row.values.get("tool_errors") for row in rows(items)] == [None, 64.0, 40.0]


def test_a_line_that_says_nothing_is_passed_over_while_it_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that waits, or another trainer's row, fills a log with one line; what comes behind it is read."""
    parsed: list[bytes] = []
    feed = ConsoleParser.feed

    def counted(parser: ConsoleParser, data: bytes, seen: float | None) -> list[Item]:
        parsed.append(data)
        return feed(parser, data, seen)

    monkeypatch.setattr(ConsoleParser, "feed", counted)
    waiting = "waiting for the server to answer\n"
    first, second = (f"step:{at} - critic/score/mean:0.5 - actor/ppo_kl:0.1 - actor/lr:1e-06\n" for at in (1, 2))
    items = items_of(tmp_path, first + waiting * 500 + second + waiting * 500)
    assert steps(items) == [1, 2]
    assert parsed.count(waiting.rstrip().encode()) == 2 * (MOST_REPEATS + 2)


def of_job(name: str, *lines: str) -> str:
    """Lines as SkyPilot prints those of one of several jobs."""
    return "".join(f"({name}, pid=7) {line}\n" for line in lines)


def test_an_error_of_a_job_that_prints_no_metrics_counts(tmp_path: Path) -> None:
    """A set-up, or a server beside the training: what kills it stops the run. Another run's error is another run's."""
    error = ("Traceback (most recent call last):", '  File "a.py", line 3, in <module>', "ValueError: x")
    trained = of_job("a", *(f"step {n} | reward 0.5 | kl 0.01 | loss 0.1" for n in (1, 2, 3)))
    other = of_job("b", "step 1 | reward 0.1 | kl 0.9 | loss 0.2")
    assert texts(items_of(tmp_path, trained + of_job("setup", *error)), EventKind.TRACEBACK) == ["ValueError: x"]
    several = items_of(tmp_path, trained + other + of_job("b", *error))
    assert (steps(several), events(several)) == ([1, 2, 3], [])


def buffered(data: bytes, size: int) -> bytes:
    """The same log as if stdout had been block-buffered: rows wait until ``size`` bytes have come together."""
    out: list[bytes] = []
    waiting: list[bytes] = []
    for piece in re.findall(rb"[^\r\n]*(?:\r\n|[\r\n]|$)", data):
        before, brace, row = piece.partition(b"{'")
        out.append(before)
        if brace:
            if sum(map(len, waiting)) + len(row) > size:
                out += waiting
                waiting = []
            waiting.append(brace + row)
    return b"".join(out + waiting)


@pytest.mark.parametrize("size", [2_500, 8_192, 10**9])
@pytest.mark.parametrize("run", ["trl-1.16.0-04-healthy-lora", "trl-1.16.0-03h-healthy-eval"])
def test_rows_that_come_in_bursts_get_their_own_steps(tmp_path: Path, run: str, size: int) -> None:
    """The bars are up to a whole run ahead of the rows; the wipes between them say which steps were logged."""
    data = (unpack(run, tmp_path) / "train.log").read_bytes()
    tables = re.compile(rb"\xe2\x95\xad[^\r\n]*[\r\n]+|\xe2\x94[^\r\n]*[\r\n]+|\xe2\x95\xb0[^\r\n]*[\r\n]+")
    items = items_of(tmp_path, buffered(tables.sub(b"\r\n", data), size))
    assert steps(items) == list(range(1, 101))
    assert [row.step for row in rows(items, Stream.EVAL)] == ([20, 40, 60, 80, 100] if "eval" in run else [])


# What stands around a row


def test_a_stale_bar_before_the_row_does_not_mislead(tmp_path: Path) -> None:
    """tqdm redraws at most ten times a second; only the redraw after the row is exact."""
    text = START + bar(1) + WIPE + ROW % 3 + "\n" + bar(3) + WIPE + ROW % 4 + "\n" + bar(4)
    assert steps(items_of(tmp_path, text)) == [3, 4]


def test_bars_of_other_loops_are_not_the_training(tmp_path: Path) -> None:
    other = (
        "\rLoading weights:  50%|█████     | 13/26 [00:01<00:01]\rMap: 10%|█ | 700/7000 [00:01<00:09, 700 examples/s]"
    )
    below = "\n\r 50%|█████     | 8/16 [00:01<00:01,  8.00it/s]\x1b[A"
    items = items_of(tmp_path, other + START + logged(1) + below + other + logged(2))
    assert steps(items) == [1, 2]
    assert {item.max_steps for item in items if isinstance(item, Progress)} == {100}


def test_an_unlabelled_bar_before_training_is_forgotten(tmp_path: Path) -> None:
    """A script that counted its 4 data files with plain tqdm."""
    text = bar(0, 4, "00:00<?, ?it/s") + bar(4, 4) + "\n" + START + logged(1) + logged(2)
    items = items_of(tmp_path, text)
    assert steps(items) == [1, 2]
    assert events(items) == []


def test_rows_without_any_bar_are_counted(tmp_path: Path) -> None:
    assert steps(items_of(tmp_path, "\n".join(ROW % step for step in (1, 2, 3)))) == [1, 2, 3]


def test_a_piece_out_of_the_middle_of_a_log(tmp_path: Path) -> None:
    """How far the first bar is from the rows counted before it is no distance between two rows."""
    text = "\n".join([ROW % 1, ROW % 2, ROW % 3 + bar(7000, 9000), ROW % 4, ROW % 5, ROW % 6])
    assert steps(items_of(tmp_path, text)) == [1, 2, 3, 7000, 7001, 7002]
    later = bar(7010, 9000) + "\n" + ROW % 7 + bar(7020, 9000) + "\n" + ROW % 8 + "\n" + ROW % 9
    assert steps(items_of(tmp_path, text + later))[-3:] == [7010, 7020, 7030]


def test_table_titles_give_the_step_without_bars(tmp_path: Path) -> None:
    """Stdout alone, with log_completions."""
    text = "".join(f"{ROW % step}\n╭─────── Step {step} ───────╮\n│ x │\n" for step in (5, 10, 15))
    assert steps(items_of(tmp_path, text)) == [5, 10, 15]


def test_a_row_printed_over_the_bar_without_tqdm(tmp_path: Path) -> None:
    """A callback that prints: the bar above is the row's, none is redrawn."""
    text = START + "".join(bar(step) + ROW % step + "\n" for step in (1, 2, 3))
    assert steps(items_of(tmp_path, text)) == [1, 2, 3]


@pytest.mark.parametrize("wipe", [WIPE, "\n"], ids=["terminal", "copied out of a notebook"])
def test_bars_of_a_terminal_without_columns(tmp_path: Path, wipe: str) -> None:
    """tqdm leaves the meter itself out where it knows that a line has no columns."""

    def narrow(step: int) -> str:
        return f"\r{step * 100 // 60:3d}% {step}/60 [00:{step:02d}<01:10,  1.17s/it]"

    text = "\r  0% 0/60 [00:00<?, ?it/s]" + "".join(
        narrow(step - 1) + "saved the adapter\n" + narrow(step) + wipe + ROW % (step // 5) + "\n" + narrow(step)
        for step in (5, 10, 15)
    )
    items = items_of(tmp_path, text)
    assert steps(items) == [5, 10, 15]
    assert {item.max_steps for item in items if isinstance(item, Progress)} == {60}
    assert training_bar(b"kept 40% 4/10 [hard]")[0] is None


def test_a_row_cut_by_a_bar_is_put_together(tmp_path: Path) -> None:
    row = ROW % 1
    text = START + bar(1) + WIPE + row[:20] + bar(1) + row[20:] + "\n" + bar(1)
    (got,) = rows(items_of(tmp_path, text))
    assert got.values == {"loss": 0.1, "reward": 0.5, "epoch": 0.01}


def test_a_row_over_several_lines(tmp_path: Path) -> None:
    """As a pretty-printer or a person writes it."""
    (got,) = rows(items_of(tmp_path, "{'loss': 0.0,\n 'reward': 0.25,\n 'kl': nan}\n"))
    assert (got.values["loss"], got.values["reward"]) == (0.0, 0.25)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-0.25", -0.25),
        ("'4.2e-05'", 4.2e-05),
        ("nan", math.nan),
        ("-inf", -math.inf),
        ("'nan'", math.nan),
        ("None", None),
        ("np.float64(0.5)", 0.5),
        ("tensor(0.5, device='cuda:0')", 0.5),
        ("1", 1.0),
    ],
)
def test_values_as_trainers_print_them(tmp_path: Path, text: str, value: float | None) -> None:
    (got,) = rows(items_of(tmp_path, f"{{'reward': {text}, 'loss': 0.5, 'cfg': {{'a': [1, '}}']}}, 'on': True}}"))
    assert got.values == {"reward": pytest.approx(value, nan_ok=True), "loss": 0.5}


@pytest.mark.parametrize(
    "text", ["{'loss': }", "{'a': 1", "{'prompt': 'x'}", "{1: 2}", "{{{{{{", "{'loss': {'a'}", "{'"]
)
def test_what_is_no_row_gives_none(tmp_path: Path, text: str) -> None:
    items = items_of(tmp_path, START + text + "\n" + logged(1))
    assert steps(items) == [1]


def test_reading_is_linear_in_hostile_text() -> None:
    """A megabyte of what only begins like a row or a bar; quadratic work would take hours."""
    for text in (b"{'a': " * 150_000, b"{'a': '" * 150_000, b"{'b': [" + b"(" * 900_000, b"{'b': 1" + b"0" * 900_000):
        assert all(found.row is None for found in dictionaries(text))
    for text in (b"%|" * 400_000, b"10%|" + b" " * 900_000, b"[" * 900_000 + b"%|"):
        assert training_bar(text) == (None, 0)


class CopiesCounted(bytes):
    """Bytes that count how many of them are copied or decoded."""

    copied = 0

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        self.copied += len(found) if isinstance(found, bytes) else 1
        return found

    def decode(self, *how: Any) -> str:  # type: ignore[override]
        self.copied += len(self)
        return super().decode(*how)


@pytest.mark.parametrize("text", ["{'a': {'b': 1}} ", "{'a': {'b': 'é'}, 'c': nan} ", "{'a': nan} "])
def test_each_dictionary_of_a_line_is_copied_once(text: str) -> None:
    data = CopiesCounted((text * 1_000).encode())
    assert sum(found.row is not None for found in dictionaries(data)) == 1_000
    assert data.copied <= 3 * len(data)


def test_a_piece_of_megabytes_is_passed_over(tmp_path: Path) -> None:
    source = the_source(tmp_path / "train.log")
    (tmp_path / "train.log").write_bytes(START.encode() + b"\n" + b"x" * (3 << 20) + b"\n" + logged(1).encode())
    assert steps([*source.poll(None), *source.finish()]) == [1]
    assert source.stats.skipped == {Skip.TOO_LONG: 1}


# Signs of trouble


def test_ranks_that_die_together_are_one_traceback(tmp_path: Path) -> None:
    one = (
        '[rank{0}]: Traceback (most recent call last):\n[rank{0}]:   File "x.py", line 1, in f\n'
        "[rank{0}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
    )
    items = items_of(tmp_path, START + logged(1) + one.format(0) + one.format(1))
    assert texts(items, EventKind.TRACEBACK) == ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"]


def test_a_traceback_glued_to_the_bar(tmp_path: Path) -> None:
    """The bar on stderr has no line end."""
    trace = "Traceback (most recent call last):\n  File \"x.py\", line 1\n    f()\nKeyError: 'prompt'\n"
    assert texts(items_of(tmp_path, START + trace), EventKind.TRACEBACK) == ["KeyError: 'prompt'"]


@pytest.mark.parametrize(
    "line",
    [
        "Killed",
        "run.sh: line 3: 12345 Killed                  python train.py",
        "  exitcode  : -9 (pid: 4242)",
        "traceback : Signal 9 (SIGKILL) received by PID 4242",
        "srun: error: node7: task 0: Killed",
        "slurmstepd: error: Detected 1 oom-kill event(s) in step 7.0",
    ],
)
def test_kill_marks(tmp_path: Path, line: str) -> None:
    assert texts(items_of(tmp_path, START + logged(1) + "\n" + line + "\n"), EventKind.KILLED) == [
        line.strip()[:300]
    ] or (" ".join(line.split()) in texts(items_of(tmp_path, START + logged(1) + "\n" + line + "\n"), EventKind.KILLED))


@pytest.mark.parametrize("line", ["The dragon was Killed by the knight", "│ Killed │", "a task is killed", "Unskilled"])
def test_model_text_kills_nothing(tmp_path: Path, line: str) -> None:
    assert events(items_of(tmp_path, START + logged(1) + "\n" + line + "\n")) == []


# Restarts


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "run", ["trl-1.16.0-19-crash-resume", "trl-1.16.0-03h-healthy-eval", "ms-swift-4.6.0-16-resume", "buffered"]
)
def test_any_chunks_and_restarts_give_the_same_items(tmp_path: Path, run: str, seed: int) -> None:
    """A new source from the cursor goes on after exactly the items that were yielded, rows held back included."""
    real = unpack("trl-1.16.0-04-healthy-lora" if run == "buffered" else run, tmp_path) / "train.log"
    data = buffered(real.read_bytes(), 8192) if run == "buffered" else real.read_bytes()
    real.write_bytes(data)
    expected, chance = read(real), random.Random(seed)
    path = tmp_path / "train.log"
    path.touch()
    source, got = the_source(path), []
    while data:
        size = chance.choice([1, 60, 700, 9_000, 40_000])
        with path.open("ab") as file:
            file.write(data[:size])
        data = data[size:]
        for item in source.poll(None):
            got.append(item)
            if chance.random() < 0.1:
                break
        if chance.random() < 0.7:
            cursor = source.cursor()
            source.close()
            kept = json.loads(json.dumps(dict(cursor.state)))
            source = the_source(path, Cursor(cursor.source, cursor.identity, cursor.position, kept))
    got += [*source.poll(None), *source.finish()]
    source.close()
    assert got == expected


def test_a_rotated_log_goes_on_with_the_same_attempt(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(START + logged(1) + "\n")
    source = the_source(path)
    items = list(source.poll(None))
    path.rename(tmp_path / "train.log.1")
    path.write_text(logged(2) + "\n")
    items += [*source.poll(None), *source.finish()]
    assert steps(items) == [1, 2]
    assert events(items) == []


WAITS = START + logged(1) + WIPE + ROW % 2 + "\n"
"""The bar that shows the second row's step has not come when the log is rotated."""
TABLED = "".join((ROW % number) + "\n" for number in (1, 2, 3))
"""Rows that TRL's titles will place, the last one without its line end."""
BEGINNINGS = ["", logged(3) + "\n", WIPE + ROW % 3 + "\n", f"{logged(3)}\n{logged(4)}\n{WIPE}{ROW % 5}\n"]


@pytest.mark.parametrize("new", BEGINNINGS)
@pytest.mark.parametrize(
    "old", [WAITS, WAITS[:-1], WAITS + WIPE + ROW % 3 + "\n", START + TABLED[:-1], START + logged(1)]
)
@pytest.mark.parametrize("polled", ["", "all of it"])
def test_a_kill_at_any_item_around_a_rotation_loses_and_repeats_nothing(
    old: str, new: str, polled: str, tmp_path: Path
) -> None:
    """Rows that the old file left waiting are given out when the new one begins; a reader may end between any two."""
    whole = rotated(tmp_path / "whole", old, new, polled=bool(polled), kill_after=None)
    assert len(rows(whole)) == len(re.findall("loss", old + new))
    for kill_after in range(len(whole) + 1):
        assert rotated(tmp_path / str(kill_after), old, new, polled=bool(polled), kill_after=kill_after) == whole


def rotated(folder: Path, old: str, new: str, *, polled: bool, kill_after: int | None) -> list[Item]:
    """What is read of a log that is rotated, by a reader that another one follows after so many items.

    Before the rotation it has read all (``polled``) or only the beginning.
    """
    folder.mkdir()
    path, items = folder / "train.log", []
    path.write_text(old if polled else old[: len(START)])
    source = the_source(path)
    for change in ("rotate", "end"):
        stream = source.poll(None)
        while (item := next(stream, None)) is not None:
            items.append(item)
            if len(items) == kill_after:
                cursor = source.cursor()
                source.close()
                source = the_source(path, cursor)
                stream = source.poll(None)
        if change == "rotate":
            path.write_text(old)
            path.rename(folder / "train.log.1")
            path.write_text(new)
    items += source.finish()
    source.close()
    return items


def test_a_kill_while_the_log_is_away_repeats_nothing(tmp_path: Path) -> None:
    """What the cursor says was given stays said until the file is there again."""
    path = tmp_path / "train.log"
    path.write_text(WAITS + logged(3) + WIPE + ROW % 4)
    whole = read(path)
    first = the_source(path)
    given = [next(first.poll(None)) for _ in range(3)]
    cursor = first.cursor()
    path.rename(tmp_path.parent / "away.log")
    second = the_source(path, cursor)
    assert list(second.poll(None)) == []
    again = second.cursor()
    (tmp_path.parent / "away.log").rename(path)
    third = the_source(path, again)
    assert [*given, *third.poll(None), *third.finish()] == whole


def nemo_block(step: int, loss: float) -> str:
    """What NeMo-RL prints of a step; two steps make an epoch."""
    head = f"{'=' * 25} Step {step}/2 {'=' * 25}"
    return f"{head}\n\U0001f4ca Training Results:\n  \u2022 Loss: {loss}\n  \u2022 Total step time: 60.00s\n"


SUMMARY = "{'train_runtime': '12.5', 'train_loss': '0.1'}\n"
SUPERVISED = "{'loss': '0.7', 'entropy': '1.05', 'mean_token_accuracy': '0.81', 'epoch': '0.2'}\n"


def test_a_training_before_this_one_is_an_attempt_of_its_own(tmp_path: Path) -> None:
    """Supervised, then GRPO in one script, as W&B's output.log keeps it: of each bar the last state, above its rows."""
    text = bar(15, 15) + "\n" + SUPERVISED * 3 + SUMMARY + bar(6, 60) + "\n" + (ROW % 1 + "\n") * 6
    items = items_of(tmp_path, text + "Traceback (most recent call last):\nKeyboardInterrupt\n")
    assert events(items) == [EventKind.FINISHED, EventKind.STARTED, EventKind.TRACEBACK]
    assert [item.max_steps for item in items if isinstance(item, Progress)] == [15, 60]
    assert steps(items)[3:] == [6, 7, 8, 9, 10, 11]


def test_a_training_without_bars_behind_another_counts_from_its_begin(tmp_path: Path) -> None:
    text = bar(15, 15) + "\n" + SUPERVISED * 3 + SUMMARY + "saved\n" + (ROW % 1 + "\n") * 6
    items = items_of(tmp_path, text)
    assert events(items) == [EventKind.FINISHED, EventKind.STARTED]
    assert steps(items)[3:] == [1, 2, 3, 4, 5, 6]


def test_an_evaluation_behind_the_summary_begins_no_attempt(tmp_path: Path) -> None:
    text = START + logged(1) + bar(100) + "\n" + SUMMARY + bar(0, 8) + bar(8, 8) + "\n{'eval_loss': '0.2'}\n"
    items = items_of(tmp_path, text)
    assert events(items) == [EventKind.FINISHED]
    assert [row.step for row in rows(items, Stream.EVAL)] == [100]


def test_a_restart_in_a_later_epoch_counts_its_steps_on(tmp_path: Path) -> None:
    """NeMo-RL counts steps again in every epoch, and says which one it is only once."""
    path = tmp_path / "train.log"
    path.write_text(
        "".join(
            f"{'=' * 25} Epoch {epoch}/3 {'=' * 25}\n" + nemo_block(1, epoch / 10) + nemo_block(2, epoch / 5)
            for epoch in (1, 2, 3)
        )
    )
    whole = read(path)
    assert [step for step in steps(whole) if step is not None] == [1, 2, 3, 4, 5, 6]
    assert {item.max_steps for item in whole if isinstance(item, RawRow)} == {6}
    for kill_after in range(1, len(whole)):
        source = the_source(path)
        stream = source.poll(None)
        items = [next(stream) for _ in range(kill_after)]
        source = the_source(path, source.cursor())
        assert [*items, *source.poll(None), *source.finish()] == whole


@pytest.mark.parametrize(("header", "total"), [("", 2), ("Epoch 1/1", 2), ("Epoch 1/3", 6), ("Epoch 2/3", 6)])
def test_the_total_of_nemo_rl_is_that_of_all_epochs(tmp_path: Path, header: str, total: int) -> None:
    path = tmp_path / "train.log"
    path.write_text((f"{'=' * 25} {header} {'=' * 25}\n" if header else "") + nemo_block(1, 0.1))
    assert [item.max_steps for item in read(path) if isinstance(item, RawRow)] == [total]


@pytest.mark.parametrize(
    ("first", "reported"),
    [
        ("rm': 0.5, 'learning_rate': 1e-06, 'reward': 0.5, 'kl': 0.01, 'epoch': 0.01}", {Skip.TRUNCATED: 1}),
        ('rm": 0.5, "learning_rate": 1e-06, "reward": 0.5, "kl": 0.01, "epoch": 0.01}', {Skip.TRUNCATED: 1}),
        ("'reward_weights': [1.0, 0.5]}", {}),
        ("'a': 1, 'b': 2, 'c': 3, 'd': 4}", {}),
        ("a brace without a beginning}", {}),
    ],
)
def test_a_log_that_begins_inside_a_row_says_so(tmp_path: Path, first: str, reported: dict[Skip, int]) -> None:
    """What was copied from the middle of a terminal: the rows after it are read, and nothing is silent."""
    path = tmp_path / "train.log"
    path.write_text(f"{first}\n{ROW % 2}\n{first}\n{ROW % 3}\n")
    source = the_source(path)
    items = [*source.poll(None), *source.finish()]
    assert len(rows(items)) == 2
    assert source.stats.skipped == reported
    source.close()


def test_a_line_of_the_job_s_own_beside_each_printed_row_is_no_row(tmp_path: Path) -> None:
    """The bar is redrawn late, so that rows wait for their step while the lines that repeat them come."""
    text = START + "\n"
    for step in range(1, 5):
        text += (
            bar(step)
            + "\x1b[A\n\n"
            + " " * 50
            + "\n\n"
            + ROW % step
            + f"\n\nstep={step} >>> reward=0.5000 <<< >>> loss=0.1000 <<<\n"
        )
    found = rows(items_of(tmp_path, text))
    assert [(row.step, "epoch" in row.values) for row in found] == [(step, True) for step in range(1, 5)]


def test_a_row_pasted_without_its_opening_brace_is_a_row(tmp_path: Path) -> None:
    pasted = "{'loss': 0.1, 'grad_norm': 0.3, 'reward': 0.5, 'reward_std': 0.2, 'kl': 0.01, 'epoch': 0.02}\n"
    (whole,) = rows(items_of(tmp_path, pasted))
    (found,) = rows(items_of(tmp_path, pasted.removeprefix("{")))
    assert (found.step, found.values) == (whole.step, whole.values)


@pytest.mark.parametrize(("total", "count"), [(40, 2), (0, 12)])
def test_lists_that_reward_functions_print_beside_a_trainer_s_bar_are_no_rows(
    tmp_path: Path, total: int, count: int
) -> None:
    text = (bar(0, total) + "\n") if total else ""
    text += "".join(f"format rewards: [0.0, 1.0, {step % 2}.0]\n" for step in range(12))
    text += "".join(f"{ROW % step}\n{bar(step, total)}\n" for step in (10, 20)) if total else ""
    assert len(rows(items_of(tmp_path, text))) == count
