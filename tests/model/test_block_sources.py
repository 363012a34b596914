"""A JSON-lines log that is read in blocks gives the rows, counters and judgements that it gives line by line."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from grpo_watch.engine.records import ChannelKind, ChannelOpened, Item, RawRow, RunConfig, Setting, Transition
from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.frameworks.raw_block import LEAST, RawBlock
from grpo_watch.pipeline.channel_merge import ChannelMerge, one_by_one
from grpo_watch.pipeline.channel_reading import ReadToEnd
from grpo_watch.pipeline.open_run import open_run
from grpo_watch.pipeline.pipeline import Pipeline
from grpo_watch.sources.base import Source
from grpo_watch.sources.discovery.discover import discover
from grpo_watch.sources.rows.jsonl import JsonlSource
from tests.pipeline.test_merged_channels import console, jsonl, state
from tests.support.feeding import DETECTORS, END, RULES, RUN

TOTAL = 1_000
Line = dict[str, object]


def a_line(rng: random.Random, step: int) -> Line:
    """A healthy line as ms-swift writes it."""
    return {
        "loss": round(rng.gauss(0.0, 0.02), 8),
        "grad_norm": round(0.5 + 0.1 * rng.random(), 8),
        "learning_rate": round(1e-6 * (1.0 - step / 10_000), 12),
        "completions/mean_length": round(200.0 + rng.random(), 8),
        "completions/clipped_ratio": 0.0,
        "reward": round(0.5 + 0.1 * rng.random(), 8),
        "reward_std": round(0.2 + 0.1 * rng.random(), 8),
        "frac_reward_zero_std": round(rng.randrange(3) / 12, 8),
        "rewards/Accuracy/mean": round(0.5 + 0.1 * rng.random(), 8),
        "rewards/Accuracy/std": round(0.2 + 0.1 * rng.random(), 8),
        "kl": round(1e-5 * step + 1e-6 * rng.random(), 8),
        "step_time": round(0.2 + 0.1 * rng.random(), 8),
        "epoch": round(step / 1024, 8),
        "global_step/max_steps": f"{step}/{TOTAL}",
        "elapsed_time": f"{step // 60}m {step % 60}s" if step >= 60 else f"{step}s",
        "remaining_time": f"{TOTAL - step}s",
    }


def without(line: Line, key: str) -> Line:
    return {name: value for name, value in line.items() if name != key}


CHANGES: dict[str, Callable[[Line], str | bytes]] = {
    "nan": lambda line: json.dumps({**line, "loss": float("nan")}),
    "infinite": lambda line: json.dumps({**line, "grad_norm": float("inf")}),
    "too large": lambda line: json.dumps(line).replace('"loss": ', '"loss": 1e999, "lost": '),
    "null": lambda line: json.dumps({**line, "reward": None}),
    "a key less": lambda line: json.dumps(without(line, "kl")),
    "a key more": lambda line: json.dumps({**line, "entropy": 0.5}),
    "another order": lambda line: json.dumps(dict(reversed(line.items()))),
    "whole number": lambda line: json.dumps({**line, "reward": 1}),
    "long number": lambda line: json.dumps({**line, "reward": 10**400}),
    "text": lambda line: json.dumps({**line, "reward": "0.25"}),
    "words": lambda line: json.dumps({**line, "reward": "high"}),
    "flag": lambda line: json.dumps({**line, "reward": True}),
    "list": lambda line: json.dumps({**line, "elapsed_time": [1, 2]}),
    "no step": lambda line: json.dumps(without(line, "global_step/max_steps")),
    "step back": lambda line: json.dumps({**line, "global_step/max_steps": f"3/{TOTAL}"}),
    "other total": lambda line: json.dumps({**line, "global_step/max_steps": "499/2000"}),
    "total of another kind": lambda line: json.dumps({**line, "global_step/max_steps": f"{TOTAL}/{TOTAL} "}),
    "endless step": lambda line: json.dumps({**line, "global_step/max_steps": "9" * 5_000 + f"/{TOTAL}"}),
    "numbers whose sum overflows": lambda line: json.dumps({**line, "loss": 1.7e308, "step_time": 1.7e308}),
    "opposite numbers": lambda line: json.dumps({**line, "loss": -1.7e308, "kl": 1.7e308}),
    "large reward": lambda line: json.dumps({**line, "reward": 5e6, "reward_std": 1.5}),
    "step in words": lambda line: json.dumps({**line, "global_step/max_steps": "x/y"}),
    "no signal": lambda line: json.dumps({**line, "frac_reward_zero_std": 1.0, "reward_std": 0.0}),
    "spread without signal": lambda line: json.dumps({**line, "frac_reward_zero_std": 1.0}),
    "zero": lambda line: json.dumps({**line, "kl": 0.0}),
    "evaluation": lambda line: json.dumps({"eval_reward": 0.5, "eval_loss": 0.1, "epoch": line["epoch"]}),
    "summary": lambda _: json.dumps({"train_runtime": 10.0, "train_loss": 0.0, "global_step/max_steps": "9/500"}),
    "facts of the model": lambda _: '{"model_parameter_info": "x", "last_model_checkpoint": null}',
    "wrapped": lambda line: json.dumps({"step": 7, "data": {"loss": line["loss"], "reward": 0.5}}),
    "torn": lambda line: json.dumps(line)[:40],
    "empty": lambda _: "",
    "carriage return": lambda line: json.dumps(line) + "\r",
    "zeros": lambda line: b"\0\0\0" + json.dumps(line).encode(),
    "repeated": lambda line: json.dumps(line) + "\n" + json.dumps(line),
    "array": lambda _: "[1, 2]",
    "no text": lambda _: b"\xff\xfe{}",
}


def a_log(seed: int, changed: Iterable[tuple[int, str]], rows: int) -> bytes:
    """A log with some of its lines changed."""
    rng, changes = random.Random(seed), dict(changed)
    lines = []
    for step in range(1, rows + 1):
        line = a_line(rng, step)
        text = CHANGES[changes[step]](line) if step in changes else json.dumps(line)
        lines.append(text if isinstance(text, bytes) else text.encode())
    return b"\n".join(lines) + (b"\n" if seed % 2 else b"")


def read(path: Path, *, blocks: bool) -> tuple[list[Item | RawBlock], object]:
    """All that a log holds, and what its source counted and remembers."""
    source = JsonlSource("logging.jsonl", path, [path.parent])
    items = list(source.backlog() if blocks else [*source.poll(None), *source.finish()])
    kept = (source.stats, source.cursor())
    source.close()
    return items, kept


def judged(items: Iterable[Item | RawBlock]) -> tuple[list[Transition], RunSnapshot]:
    pipeline = Pipeline(RULES, DETECTORS)
    settings = {"beta": Setting(0.04, "test"), "num_generations": Setting(8, "test")}
    first = [
        ChannelOpened("logging.jsonl", ChannelKind.JSONL, shows_end=True),
        RunConfig("ms-swift", "4.6.0", settings),
    ]
    found = [change for item in [*first, *items, END] for change in pipeline.feed(RUN, item)]
    return found, pipeline.snapshot(RUN)


def same(path: Path, log: bytes) -> int:
    """Compare both ways; the number of blocks."""
    path.write_bytes(log)
    by_line, counted = read(path, blocks=False)
    in_blocks, too = read(path, blocks=True)
    assert repr(list(one_by_one(iter(in_blocks)))) == repr(by_line)  # the text, because no NaN equals another
    assert too == counted
    assert repr(judged(in_blocks)) == repr(judged(by_line))
    return sum(isinstance(item, RawBlock) for item in in_blocks)


@pytest.mark.parametrize("change", CHANGES)
def test_one_odd_line_changes_nothing_else(tmp_path: Path, change: str) -> None:
    assert same(tmp_path / "logging.jsonl", a_log(1, [(100, change)], 400)) > 0


@given(
    st.integers(0, 2**16),
    st.lists(st.tuples(st.integers(1, 300), st.sampled_from(sorted(CHANGES))), max_size=6),
    st.integers(LEAST - 1, 330),
)
@settings(derandomize=True, deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_log_is_read_the_same(tmp_path: Path, seed: int, changed: list[tuple[int, str]], rows: int) -> None:
    same(tmp_path / "logging.jsonl", a_log(seed, changed, rows))


@pytest.mark.parametrize("key", ["step", "global_step", "current_steps"])
def test_steps_under_other_keys_are_read_the_same(tmp_path: Path, key: str) -> None:
    rng = random.Random(2)
    lines = [{**without(a_line(rng, step), "global_step/max_steps"), key: 5 * step} for step in range(1, 101)]
    log = b"".join(json.dumps({**line, "total_steps": 500}).encode() + b"\n" for line in lines)
    assert same(tmp_path / "logging.jsonl", log) > 0


def test_rewards_far_from_zero_are_read_the_same(tmp_path: Path) -> None:
    """Where rewards are millions, a spread above 1 may be no more than the rounding of float32."""
    lines = [{**a_line(random.Random(step), step), "reward": 5e6, "reward_std": 1.5} for step in range(1, 200)]
    assert same(tmp_path / "logging.jsonl", b"".join(json.dumps(line).encode() + b"\n" for line in lines)) > 0


def merged(folder: Path) -> list[str]:
    """The items of a folder's channels in the order in which ``check`` feeds them, rows one by one."""
    (found,) = discover(folder)
    opened = open_run(found, Pipeline(RULES, DETECTORS))
    merge = ChannelMerge(opened.sources, ReadToEnd(), lambda _: True)
    items = [repr(item) for item in one_by_one(merge.items())]
    opened.close()
    return items


@given(st.lists(st.tuples(st.integers(1, 400), st.integers(1, 400)), min_size=2, max_size=3))
@example([(100, 300), (1, 150)])
@settings(derandomize=True, deadline=None, max_examples=25)
def test_blocks_beside_other_channels_come_in_the_order_of_rows(spans: list[tuple[int, int]]) -> None:
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patched:
        folder = Path(name) / "run"
        for write, (first, rows) in zip((jsonl, console, state), spans, strict=False):
            write(folder, range(first, first + rows))
        in_blocks = merged(folder)
        patched.setattr(JsonlSource, "backlog", Source.backlog)
        assert in_blocks == merged(folder)


def test_the_only_log_of_a_run_is_given_out_in_blocks_from_its_first_row_on(tmp_path: Path) -> None:
    jsonl(tmp_path / "run", range(1, 51))
    (found,) = discover(tmp_path / "run")
    opened = open_run(found, Pipeline(RULES, DETECTORS))
    items = list(ChannelMerge(opened.sources, ReadToEnd(), lambda _: True).items())
    opened.close()
    assert [list(item.steps) for item in items if isinstance(item, RawBlock)] == [list(range(1, 51))]
    assert not any(isinstance(item, RawRow) for item in items)
