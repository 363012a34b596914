"""Rows that are gathered into blocks give the items and judgements that they give one by one."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from functools import partial
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
from grpo_watch.pipeline.gathered_rows import gathered
from grpo_watch.pipeline.pipeline import Pipeline
from grpo_watch.sources.console.parser import ConsoleParser
from grpo_watch.sources.console.source import ConsoleSource
from grpo_watch.sources.excerpt_privacy import KeptTexts
from grpo_watch.sources.trackers.console_tables import ConsoleTables
from tests.model.test_blocks import shown
from tests.support.feeding import DETECTORS, END, RULES, RUN

TOTAL = 2_000
NAME = "train.log"


def judged(items: Iterable[Item | RawBlock], kind: ChannelKind, framework: str = "trl") -> tuple[str, str, str]:
    """The transitions, the run's state and what is known of its channel, as texts, because no NaN equals another."""
    pipeline = Pipeline(RULES, DETECTORS)
    first = [
        ChannelOpened(NAME, kind, shows_end=True),
        RunConfig(framework, None, {"beta": Setting(0.04, "test"), "num_generations": Setting(8, "test")}),
    ]
    found = [change for item in [*first, *items, END] for change in pipeline.feed(RUN, item)]
    return repr(found), repr(shown(pipeline.state(RUN))), repr((pipeline.channels(RUN), pipeline.own_keys(RUN)))


def apart(items: Iterable[Item | RawBlock]) -> list[Item]:
    """The items with blocks taken apart."""
    return [each for item in items for each in (item.items() if isinstance(item, RawBlock) else (item,))]


def same(items: list[Item], kind: ChannelKind, framework: str = "trl") -> int:
    """Compare both ways; the number of rows in blocks."""
    together = list(gathered(items))
    assert repr(apart(together)) == repr(items)
    assert judged(together, kind, framework) == judged(items, kind, framework)
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


def with_number(number: str) -> Callable[[str, int], str]:
    """The row with this number for its KL."""
    return lambda text, _: re.sub(r"'kl': '[^']*'", f"'kl': {number}", text)


def with_pair(pair: str) -> Callable[[str, int], str]:
    """The row with another pair at its end."""
    return lambda text, _: text.replace("}", f", {pair}}}")


def with_bar(more: str) -> Callable[[str, int], str]:
    """The row with this instead of the speed in its bars."""
    return lambda text, _: text.replace("  3.96it/s]", more)


TEXTS: dict[str, Callable[[str, int], str]] = {
    "nan": with_number("'nan'"),
    "bare nan": with_number("nan"),
    "null": with_number("None"),
    "bare number": with_number("0.25"),
    "whole number": with_number("3"),
    "minus zero": with_number("'-0'"),
    "bare minus zero": with_number("-0"),
    "minus zero with decimals": with_number("'-0.0'"),
    "minus zero with an exponent": with_number("'-0e-05'"),
    "too large": with_number("'1e999'"),
    "large": with_number("'1e300'"),
    "zero in front": with_number("'007'"),
    "plus": with_number("'+0.5'"),
    "no digit in front": with_number("'.5'"),
    "underscore": with_number("'1_0'"),
    "many digits": with_number("'0.12345678901234567890123'"),
    "long number": with_number("'123456789012345678901234567890'"),
    "half a quote": with_number("'0.5"),
    "other quotes": with_number('"0.5"'),
    "scalar of numpy": with_number("np.float64(0.5)"),
    "key less": lambda text, _: text.replace("'kl': ", "'lk': "),
    "key twice": with_pair("'reward': '0.1'"),
    "own step": with_pair("'step': 7"),
    "own total": with_pair("'max_steps': 70"),
    "time that passed": with_pair("'elapsed_time': '3'"),
    "words": with_pair("'note': 'high'"),
    "evaluation beside": with_pair("'eval_reward': '0.5'"),
    "dictionary": with_pair("'more': {'a': 1}"),
    "end inside": with_pair("'runtime': '5', 'train_runtime': '5'"),
    "a mark of another framework": with_pair("'Global step ': '5'"),
    "torn": lambda text, _: text[: len(text) // 2],
    "torn in the number": lambda text, _: text[: text.index("'kl': '") + 8],
    "traceback": lambda text, _: (
        f'{text}\nTraceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: no\n'
    ),
    "traceback before": lambda text, _: (
        f'\nTraceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: no\n{text}'
    ),
    "evaluation": lambda text, step: (
        f"{text}\n{{'eval_reward': '0.5', 'eval_loss': '0.1', 'epoch': '{step / 1024}'}}\n"
    ),
    "text": lambda text, _: f"{text}\nsaving\n",
    "text behind the row": lambda text, _: text.replace("}", "} saved"),
    "text before the row": lambda text, _: text.replace("{", "saved {"),
    "two rows": lambda text, _: text.replace("}", "}" + text[text.index("{") : text.index("}") + 1]),
    "two rows below each other": lambda text, _: text.replace("}", "}\n" + text[text.index("{") : text.index("}") + 1]),
    "another total": lambda text, _: text.replace(f"/{TOTAL} ", "/1000 "),
    "bar starts over": lambda text, _: f"{text}\r  0%|          | 0/{TOTAL} [00:00<?, ?it/s]",
    "bar with metrics": with_bar("  3.96it/s, reward=0.5]"),
    "slow bar": with_bar(" 12.40s/it]"),
    "bar without a speed": with_bar(" ?it/s]"),
    "bar that is not closed": with_bar("  3.96it/s"),
    "bar that is nested": with_bar("  3.96it/s]\x1b[A"),
    "bar with a label": lambda text, _: re.sub(r"( *\d+%)", r"Loading:\1", text),
    "bar of a rank": lambda text, _: re.sub(r"( *\d+%)", r"[rank0]: \1", text),
    "no bar": lambda text, _: text[text.index("{") : text.index("}") + 1] + "\n",
    "no bar behind": lambda text, _: text[: text.index("}") + 1] + "\n",
    "no wipe": lambda text, _: text.replace(" " * 46, ""),
    "short wipe": lambda text, _: text.replace(" " * 46, "   "),
    "no row": lambda text, _: text[: text.index("{")] + text[text.index("}") + 1 :],
    "no row, then two": lambda text, _: (
        text[: text.index("{")] + text[text.index("}") + 1 :] + text + text[text.index("{") : text.index("}") + 1]
    ),
    "stale bar": lambda text, step: text.replace(f" {step}/", f" {max(1, step - 1)}/"),
    "stale bar before": lambda text, step: text.replace(f" {step}/", f" {max(1, step - 1)}/", 1),
    "bar ahead": lambda text, step: f" {step + 1}/".join(text.rsplit(f" {step}/", 1)),
    "carriage returns": lambda text, _: text.replace("\n", "\r\n"),
    "zeros": lambda text, _: f"\0\0{text}",
    "colours": lambda text, _: text.replace("{", "\x1b[32m{"),
    "stamps": lambda text, _: text.replace("{", "2026-01-02T03:04:05.123456789Z {"),
    "total printed": lambda text, _: f"{text}\n  Total optimization steps = 1,500\n",
    "finished": lambda text, _: f"{text}\n{{'train_runtime': '12.5', 'train_loss': '0.1'}}\n",
    "configuration": lambda text, _: f"{text}\nGRPOConfig(\nmax_steps=300,\nbeta=0.04,\n)\n",
    "table": lambda text, step: f"{text}\n╭──── Step {step} ────╮\n│ Prompt │ {text[-9:]} │\n╰────╯\n",
    "no step": lambda _text, _step: "",
}


def a_console(seed: int, changed: Iterable[tuple[int, str]], rows: int) -> str:
    """A console log with some of its rows changed; every step is logged, or every fifth."""
    rng, changes, every = random.Random(seed), dict(changed), 1 + 4 * (seed % 2)
    texts = [f"\r  0%|          | 0/{TOTAL} [00:00<?, ?it/s]"]
    for number in range(1, rows + 1):
        step = number * every
        texts += [
            f"\r{100 * between // TOTAL:3d}%|          | {between}/{TOTAL} [00:01<00:24,  3.96it/s]"
            for between in range(step - every + 1, step)
        ]
        text = printed(step, rng)
        texts.append(TEXTS[changes[number]](text, step) if number in changes else text)
    return "".join(texts)


def read(path: Path, *, at_once: bool) -> tuple[list[Item], object]:
    """All that a console holds, and what its source counted and remembers."""
    source = ConsoleSource(NAME, path, [path.parent], tables=partial(ConsoleTables, examples=KeptTexts.EXCERPT))
    items = list(source.backlog() if at_once else [*source.poll(None), *source.finish()])
    kept = (source.stats, source.cursor())
    source.close()
    return items, kept


def same_console(path: Path, text: str, framework: str = "trl") -> int:
    """Compare both ways of reading, and of judging; the number of rows in blocks."""
    path.write_text(text, newline="")
    by_line, counted = read(path, at_once=False)
    at_once, too = read(path, at_once=True)
    assert repr(at_once) == repr(by_line)
    assert too == counted
    return same(at_once, ChannelKind.CONSOLE, framework)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("change", TEXTS)
def test_one_odd_text_changes_nothing_else(tmp_path: Path, change: str, seed: int) -> None:
    assert same_console(tmp_path / NAME, a_console(seed, [(60, change)], 110)) >= LEAST


@pytest.mark.slow
@given(st.integers(0, 2**16), st.lists(st.tuples(st.integers(1, 200), st.sampled_from(sorted(TEXTS))), max_size=6))
@settings(derandomize=True, deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_console_is_judged_the_same(tmp_path: Path, seed: int, changed: list[tuple[int, str]]) -> None:
    same_console(tmp_path / NAME, a_console(seed, changed, 200))


def test_a_console_that_is_cut_anywhere_is_read_the_same(tmp_path: Path) -> None:
    text = a_console(0, (), 40)
    for place in range(len(text) - 1_300, len(text), 7):
        (tmp_path / NAME).write_text(text[:place], newline="")
        assert repr(read(tmp_path / NAME, at_once=True)) == repr(read(tmp_path / NAME, at_once=False))


def test_usual_rows_are_not_read_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[bytes] = []
    feed = ConsoleParser.feed
    monkeypatch.setattr(ConsoleParser, "feed", lambda self, data, seen: (fed.append(data), feed(self, data, seen))[1])
    (tmp_path / NAME).write_text(a_console(0, (), 300), newline="")
    read(tmp_path / NAME, at_once=True)
    assert len(fed) < 20
