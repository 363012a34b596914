"""Whether a log goes on where another one ends: what tells a log that was just rotated from those of ranks."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_watch.cli.main import run_cli
from grpo_watch.sources.discovery.discover import discover
from grpo_watch.sources.files.rotated import counts_on


def epochs(step: int) -> str:
    return f"{{'loss': 0.0, 'reward': 0.39, 'kl': 0.012, 'epoch': {step / 100}}}\n"


def bars(step: int) -> str:
    return f"\r{step:3d}%|#         | {step}/100 [00:30<30:00,  2.50s/it]"


def swift(step: int) -> str:
    return f"{{'loss': 0.1, 'reward': 0.5, 'global_step/max_steps': '{step}/100'}}\n"


def verl(step: int) -> str:
    return f"(TaskRunner pid=7) step:{step} - actor/kl_loss:0.0013 - critic/rewards/mean:0.45\n"


def megatron(step: int) -> str:
    return f" iteration {step:8d}/     100 | consumed samples: {step * 8:12d} | loss: 1.2E-01 |\n"


NOTATIONS = [epochs, bars, swift, verl, megatron]


def two(folder: Path, before: str, after: str) -> tuple[Path, Path]:
    old, new = folder / "train.log.1", folder / "train.log"
    for path, text in ((old, before), (new, after)):
        path.write_text(text)
        os.utime(path, (1e9, 1e9))
    return old, new


def rows(notation: Callable[[int], str], steps: range) -> str:
    return "".join(map(notation, steps))


@pytest.mark.parametrize("notation", NOTATIONS)
@pytest.mark.parametrize(
    ("first", "second", "goes_on"),
    [
        (range(1, 30), range(30, 40), True),
        (range(1, 30), range(29, 40), True),  # a bar is drawn again
        (range(1, 30), range(25, 40), False),  # resumed from a checkpoint: the same steps again
        (range(1, 30), range(1, 30), False),  # ranks
        (range(1, 30), range(1, 20), False),
        (range(1, 2), range(1, 2), False),
        (range(0), range(1, 5), False),
        (range(1, 5), range(0), False),
    ],
)
def test_steps_that_follow(
    notation: Callable[[int], str], first: range, second: range, tmp_path: Path, *, goes_on: bool
) -> None:
    old, new = two(tmp_path, rows(notation, first), rows(notation, second))
    assert counts_on(old, new) is goes_on


def test_the_last_step_is_found_at_the_end_of_a_long_log(tmp_path: Path) -> None:
    noise = "a line of something else\n" * 20_000
    old, new = two(tmp_path, epochs(1) + noise + epochs(50), epochs(40))
    assert not counts_on(old, new)
    new.write_text(epochs(51))
    assert counts_on(old, new)


def test_what_can_not_be_read_goes_on_nowhere(tmp_path: Path) -> None:
    old, new = two(tmp_path, epochs(1), epochs(2))
    new.unlink()
    os.mkfifo(new)
    assert not counts_on(old, new)


def test_a_log_rotated_a_moment_ago_is_one_channel_for_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``train.log.1`` ends within the same second in which ``train.log`` was written last."""
    two(tmp_path, rows(epochs, range(1, 20)), rows(epochs, range(20, 30)))
    (run,) = discover(tmp_path)
    assert [channel.name for channel in run.channels if "train" in channel.name] == ["train.log"]
    assert run_cli(["sources", str(tmp_path)]) == 0
    reported = capsys.readouterr().out
    assert "console: metric rows, progress, tracebacks, 30 records" in reported  # 29 rows, and that they are counted
    assert "train.log.1" not in reported
