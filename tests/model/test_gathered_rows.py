"""Rows that are gathered into blocks give the items and judgements that they give one by one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grpo_watch.engine.detector import Detector
from grpo_watch.engine.records import (
    ChannelKind,
    ChannelOpened,
    EventKind,
    Item,
    Progress,
    RawRow,
    RunConfig,
    RunEvent,
    Setting,
    Stream,
)
from grpo_watch.frameworks.raw_block import LEAST, ROWS, RawBlock
from grpo_watch.runtime.gathered_rows import gathered
from grpo_watch.runtime.pipeline import Pipeline
from grpo_watch.sources.logs.console import ConsoleSource
from tests.model.test_blocks import shown
from tests.support.feeding import DETECTORS, END, RULES, RUN

TOTAL = 2_000
NAME = "train.log"


def judged(items: Iterable[Item | RawBlock], kind: ChannelKind) -> tuple[str, str, str]:
    """The transitions, the run's state and what is known of its channel, as texts, because no NaN equals another."""
    pipeline = Pipeline(RULES, DETECTORS)
    first = [
        ChannelOpened(NAME, kind, shows_end=True),
        RunConfig("trl", "1.16.0", {"beta": Setting(0.04, "test"), "num_generations": Setting(8, "test")}),
    ]
    found = [change for item in [*first, *items, END] for change in pipeline.feed(RUN, item)]
    return repr(found), repr(shown(pipeline.state(RUN))), repr((pipeline.channels(RUN), pipeline.own_keys(RUN)))


def apart(items: Iterable[Item | RawBlock]) -> list[Item]:
    """The items with blocks taken apart."""
    return [each for item in items for each in (item.items() if isinstance(item, RawBlock) else (item,))]


def same(items: list[Item], kind: ChannelKind) -> int:
    """Compare both ways; the number of rows in blocks."""
    together = list(gathered(items))
    assert repr(apart(together)) == repr(items)
    assert judged(together, kind) == judged(items, kind)
    return sum(len(item) for item in together if isinstance(item, RawBlock))


def values_at(step: int, rng: random.Random) -> dict[str, float | None]:
    """A healthy row as TRL logs it."""
    return {
        "loss": round(rng.gauss(0.0, 0.02), 8),
        "grad_norm": round(0.5 + 0.1 * rng.random(), 8),
        "learning_rate": 1e-6 * (1.0 - step / 10_000),
        "completions/mean_length": round(200.0 + rng.random(), 8),
        "completions/clipped_ratio": 0.0,
        "reward": round(0.5 + 0.1 * rng.random(), 8),
        "reward_std": round(0.2 + 0.1 * rng.random(), 8),
        "frac_reward_zero_std": round(rng.randrange(3) / 12, 8),
        "rewards/Accuracy/mean": round(0.5 + 0.1 * rng.random(), 8),
        "rewards/Accuracy/std": round(0.2 + 0.1 * rng.random(), 8),
        "kl": round(1e-5 * step + 1e-6 * rng.random(), 8),
        "entropy": round(0.5 + 0.1 * rng.random(), 8),
        "step_time": round(0.2 + 0.1 * rng.random(), 8),
        "epoch": step / 1024,
    }


def a_row(step: int, rng: random.Random, time: float | None = None) -> RawRow:
    return RawRow(NAME, ChannelKind.WANDB, step, values_at(step, rng), time=time)


def event(_row: RawRow) -> list[Item]:
    return [RunEvent(NAME, EventKind.TRACEBACK, None, "RuntimeError: no")]


def config(_row: RawRow) -> list[Item]:
    return [RunConfig(None, None, {"max_steps": Setting(300, "test")}, NAME)]


def bar(step: int, total: int) -> Callable[[RawRow], list[Item]]:
    return lambda _row: [Progress(NAME, step, total)]


CHANGES: dict[str, Callable[[RawRow], list[Item]]] = {
    "nan": lambda row: [row._replace(values={**row.values, "loss": float("nan")})],
    "infinite": lambda row: [row._replace(values={**row.values, "grad_norm": float("inf")})],
    "null": lambda row: [row._replace(values={**row.values, "reward": None})],
    "numbers whose sum overflows": lambda row: [row._replace(values={**row.values, "loss": 1.7e308, "kl": 1.7e308})],
    "a key more": lambda row: [row._replace(values={**row.values, "clip_ratio/low_mean": 0.0})],
    "another order": lambda row: [row._replace(values=dict(reversed(row.values.items())))],
    "no key": lambda row: [row._replace(values={})],
    "no step": lambda row: [row._replace(step=None)],
    "step back": lambda row: [row._replace(step=3)],
    "the same step": lambda row: [row, row],
    "no time": lambda row: [row._replace(time=None)],
    "time of no clock": lambda row: [row._replace(time=0.0)],
    "total": lambda row: [row._replace(max_steps=900)],
    "resolution": lambda row: [row._replace(resolution=1e-4)],
    "later file": lambda row: [row._replace(segment=1)],
    "evaluation": lambda row: [row, row._replace(stream=Stream.EVAL, values={"eval_reward": 0.5})],
    "text": lambda row: [row._replace(text={"algorithm": "grpo"})],
    "collapse": lambda row: [row._replace(values={**row.values, "frac_reward_zero_std": 1.0, "reward_std": 0.0})],
    "traceback": lambda row: [*event(row), row],
    "settings": lambda row: [*config(row), row],
    "bar": lambda row: [*bar(row.step or 0, TOTAL)(row), row],
    "two bars": lambda row: [*bar((row.step or 1) - 1, TOTAL)(row), *bar(row.step or 0, TOTAL)(row), row],
    "bar of another total": lambda row: [*bar(1, 30)(row), row],
    "full bar": lambda row: [*bar(TOTAL, TOTAL)(row), row],
    "settings behind a bar": lambda row: [*bar(row.step or 0, TOTAL)(row), *config(row), row],
}

damage = st.lists(st.tuples(st.integers(1, 320), st.sampled_from(sorted(CHANGES))), max_size=8)


def a_run(seed: int, changed: Iterable[tuple[int, str]], rows: int) -> list[Item]:
    """Items of one channel, with some rows changed; with a clock or without, with bars or without."""
    rng, changes = random.Random(seed), dict(changed)
    items: list[Item] = []
    for step in range(1, rows + 1):
        row = a_row(step, rng, 1e9 + step if seed % 2 else None)
        if seed % 4 > 1:
            items.append(Progress(NAME, step, TOTAL))
        items += CHANGES[changes[step]](row) if step in changes else [row]
    return items


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("change", CHANGES)
def test_one_odd_item_changes_nothing_else(change: str, seed: int) -> None:
    assert same(a_run(seed, [(150, change)], 300), ChannelKind.WANDB) > 150


@given(st.integers(0, 2**16), damage, st.integers(LEAST - 1, 330))
@settings(derandomize=True, deadline=None, max_examples=25)
def test_any_items_are_judged_the_same(seed: int, changed: list[tuple[int, str]], rows: int) -> None:
    same(a_run(seed, changed, rows), ChannelKind.WANDB)


def test_few_rows_stay_rows() -> None:
    assert same(a_run(0, (), LEAST - 1), ChannelKind.WANDB) == 0
    assert same(a_run(0, (), LEAST), ChannelKind.WANDB) == LEAST


def test_what_comes_between_is_given_before_more_is_read() -> None:
    """What reads the next item may ask for what a configuration said."""
    read: list[Item] = []
    rng = random.Random(1)
    items = [*(a_row(step, rng) for step in range(1, ROWS)), *config(a_row(1, rng)), a_row(ROWS, rng)]
    given = gathered(read.append(item) or item for item in items)
    assert isinstance(next(given), RawBlock)
    assert isinstance(next(given), RunConfig)
    assert len(read) == ROWS


def test_a_rule_that_needs_every_bar_sees_them(monkeypatch: pytest.MonkeyPatch) -> None:
    shown_bars: list[int] = []

    class Counts(Detector):
        reads = (Progress,)

        def observe(self, record: Progress, run: object) -> tuple[()]:  # noqa: ARG002  the contract of a detector
            shown_bars.append(record.step)
            return ()

    monkeypatch.setitem(DETECTORS, "run-stalled", Counts)  # type: ignore[misc]
    judged(gathered(a_run(2, (), 100)), ChannelKind.WANDB)
    assert shown_bars == list(range(1, 101))


def printed(step: int, rng: random.Random) -> str:
    """What TRL's console shows of a step: the bar moves, is wiped, the row, the bar again."""
    drawn = f"\r{100 * step // TOTAL:3d}%|          | {step}/{TOTAL} [00:{step % 60:02d}<00:24,  3.96it/s]"
    values = {key: f"{value:.4g}" for key, value in values_at(step, rng).items()}
    return f"{drawn}\r{' ' * 46}\r{values}\n{drawn}"


TEXTS: dict[str, Callable[[str, int], str]] = {
    "nan": lambda text, _: text.replace("'kl': '", "'kl': 'nan', 'lk': '"),
    "null": lambda text, _: text.replace("'kl': '", "'kl': None, 'lk': '"),
    "key less": lambda text, _: text.replace("'kl': ", "'lk': "),
    "torn": lambda text, _: text[: len(text) // 2],
    "traceback": lambda text, _: (
        f'{text}\nTraceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: no\n'
    ),
    "evaluation": lambda text, step: (
        f"{text}\n{{'eval_reward': '0.5', 'eval_loss': '0.1', 'epoch': '{step / 1024}'}}\n"
    ),
    "text": lambda text, _: f"{text}\nsaving\n",
    "another total": lambda text, _: text.replace(f"/{TOTAL} ", "/1000 "),
    "bar starts over": lambda text, _: f"{text}\r  0%|          | 0/{TOTAL} [00:00<?, ?it/s]",
    "no bar": lambda text, _: text[text.index("{") : text.index("}") + 1] + "\n",
    "stale bar": lambda text, step: text.replace(f" {step}/", f" {max(1, step - 1)}/"),
    "total printed": lambda text, _: f"{text}\n  Total optimization steps = 1,500\n",
    "finished": lambda text, _: f"{text}\n{{'train_runtime': '12.5', 'train_loss': '0.1'}}\n",
    "no step": lambda _text, _step: "",
}


@given(st.integers(0, 2**16), st.lists(st.tuples(st.integers(1, 250), st.sampled_from(sorted(TEXTS))), max_size=6))
@settings(derandomize=True, deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_console_is_judged_the_same(tmp_path: Path, seed: int, changed: list[tuple[int, str]]) -> None:
    rng, changes, every = random.Random(seed), dict(changed), 1 + 4 * (seed % 2)
    texts = [f"\r  0%|          | 0/{TOTAL} [00:00<?, ?it/s]"]
    for step in range(every, 250 * every, every):
        text = printed(step, rng)
        texts.append(TEXTS[changes[step]](text, step) if step in changes else text)
    (tmp_path / NAME).write_text("".join(texts), newline="")
    source = ConsoleSource(NAME, tmp_path / NAME, [tmp_path])
    items = apart(source.backlog())
    source.close()
    assert same(items, ChannelKind.CONSOLE) > 0 or changes
