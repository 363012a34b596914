"""verl's lines that are read many at a time give the items and judgements that they give one by one."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grpo_watch.frameworks.raw_block import LEAST
from grpo_watch.sources.console.parser import ConsoleParser
from tests.model.test_gathered_rows import NAME, read, same_console

RAY = "\x1b[36m(TaskRunner pid=4617, ip=10.1.51.94)\x1b[0m "
BAR = "Training Progress:  12%|█▏        | 34/290 [05:01<37:46,  8.85s/it]"


def a_line(step: int, rng: random.Random) -> str:
    """A healthy step as verl 0.5 prints it."""
    numbers = {
        "actor/entropy": 0.5 + 0.1 * rng.random(),
        "actor/pg_loss": rng.gauss(0.0, 0.02),
        "actor/ppo_kl": 1e-5 * rng.random(),
        "actor/grad_norm": 0.5 + 0.1 * rng.random(),
        "actor/lr": 1e-6,
        "training/global_step": step,
        "critic/score/mean": 0.5 + 0.1 * rng.random(),
        "critic/score/max": 1.0,
        "critic/advantages/max": 1.4 + 0.1 * rng.random(),
        "critic/advantages/min": -1.4 - 0.1 * rng.random(),
        "response_length/mean": 200.0 + rng.random(),
        "response_length/clip_ratio": 0.0,
        "timing_s/step": 8.0 + rng.random(),
    }
    texts = (f"{key}:np.float64({number})" if "score" in key else f"{key}:{number}" for key, number in numbers.items())
    return f"step:{step} - " + " - ".join(texts)


def with_number(number: str) -> Callable[[str, int], str]:
    """The line with this number for its gradient norm."""
    return lambda text, _: re.sub(r"grad_norm:[^ ]*", f"grad_norm:{number}", text)


CHANGES: dict[str, Callable[[str, int], str]] = {
    "nan": with_number("nan"),
    "infinite": with_number("-inf"),
    "flag": with_number("True"),
    "too large": with_number("1e999"),
    "plus": with_number("+0.5"),
    "whole number": with_number("1"),
    "zero in front": with_number("007.5"),
    "minus zero": with_number("-0"),
    "capital exponent": with_number("1E-06"),
    "no digit behind": with_number("1."),
    "words": with_number("high"),
    "scalar of numpy": with_number("np.float32(0.5)"),
    "one key less": lambda text, _: text.replace(" - critic/score/max:np.float64(1.0)", ""),
    "one key more": lambda text, _: f"{text} - actor/kl_loss:0.001 - actor/kl_coef:0.001",
    "key twice": lambda text, _: f"{text} - actor/lr:2e-06",
    "a dataset with colons": lambda text, _: f"{text} - val-core/a:b - c/acc/mean@1:0.5",
    "validation alone": lambda _, step: f"step:{step} - val-core/gsm8k/acc/mean@1:0.5",
    "three decimals": lambda text, _: re.sub(r"(?<=[:(])-?[\d.e-]+", "0.125", text),
    "no step": lambda text, _: text.partition(" - ")[2],
    "long step": lambda text, _: text.replace("step:", "step:99999999999999", 1),
    "step back": lambda text, step: text.replace(f"step:{step}", "step:3", 1),
    "other framework": lambda text, _: f"Train step {text}",
    "torn": lambda text, _: text[: len(text) // 2],
    "torn inside a key": lambda text, _: text.replace("critic/score/max", "critic\n/score/max"),
    "torn behind a pair": lambda text, _: text.replace(" - critic/score/max", " -\ncritic/score/max"),
    "torn at the last digit": lambda text, _: text[:-1],
    "end glued": lambda text, _: text + BAR,
    "bar before": lambda text, _: BAR + text,
    "bar": lambda text, _: f"{text}\n{BAR}\r{BAR}",
    "text behind": lambda text, _: f"{text} saved",
    "space behind": lambda text, _: f"{text}  ",
    "carriage return": lambda text, _: f"{text}\r",
    "empty": lambda text, _: f"\n\n{text}\n",
    "zeros": lambda text, _: f"\0\0{text}",
    "wrapped": lambda text, _: RAY + text,
    "of a rank": lambda text, _: f"[rank1]: {text}",
    "repeated": lambda text, _: f"{text}\x1b[32m [repeated 3x across cluster]\x1b[0m",
    "colours": lambda text, _: text.replace("actor/lr", "\x1b[32mactor/lr"),
    "settings": lambda text, _: f"{text}\n{{'trainer': {{'total_training_steps': 300}}}}",
    "traceback": lambda text, _: f'{text}\nTraceback (most recent call last):\n  File "a.py", line 1\nValueError: no',
    "inside a traceback": lambda text, _: f'Traceback (most recent call last):\n  File "a.py", line 1\n{text}',
    "text": lambda text, _: f"{text}\nsaving",
    "dictionary": lambda text, step: f"{text}\n{{'loss': 0.1, 'reward': 0.5, 'step': {step}}}",
    "nothing": lambda _text, _step: "",
}


def a_log(seed: int, changed: Iterable[tuple[int, str]], rows: int) -> str:
    """A log with some of its lines changed, by itself or behind what Ray prints."""
    rng, changes = random.Random(seed), dict(changed)
    lines = []
    for step in range(1, rows + 1):
        text = a_line(step, rng)
        lines.append((RAY if seed % 2 else "") + (CHANGES[changes[step]](text, step) if step in changes else text))
    return "\n".join(lines) + "\n" * (seed % 3)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("change", CHANGES)
def test_one_odd_line_changes_nothing_else(tmp_path: Path, change: str, seed: int) -> None:
    assert same_console(tmp_path / NAME, a_log(seed, [(60, change)], 110), "verl") >= LEAST


@given(st.integers(0, 2**16), st.lists(st.tuples(st.integers(1, 200), st.sampled_from(sorted(CHANGES))), max_size=6))
@settings(derandomize=True, deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_log_is_read_the_same(tmp_path: Path, seed: int, changed: list[tuple[int, str]]) -> None:
    same_console(tmp_path / NAME, a_log(seed, changed, 200), "verl")


@pytest.mark.parametrize("seed", range(2))
def test_usual_lines_are_not_read_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    fed: list[bytes] = []
    feed = ConsoleParser.feed
    monkeypatch.setattr(ConsoleParser, "feed", lambda self, data, seen: (fed.append(data), feed(self, data, seen))[1])
    (tmp_path / NAME).write_text(a_log(seed, (), 300))
    read(tmp_path / NAME, at_once=True)
    assert len(fed) < 10
