"""A log that is rotated under the daemon: what was read of it is not read again as a channel of its own."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from grpo_watch.daemon.state_writer import StateWriter
from grpo_watch.engine.records import ChannelOpened, RawRow
from tests.support.bundles import RECORDED
from tests.support.live import Live

ROW = (
    "{{'loss': 0.0, 'grad_norm': 0.15, 'learning_rate': 5e-06, 'reward': 0.39, 'reward_std': 0.3, 'kl': 0.012, "
    "'epoch': {}}}\r {:3d}%|#         | {}/100 [00:30<30:00,  2.50s/it]\n"
)


def write(log: Path, steps: Iterable[int], written: float) -> None:
    """Rows of TRL with its bar, as if written at that time (Unix seconds)."""
    with log.open("a") as file:
        file.writelines(ROW.format(step / 100, step, step) for step in steps)
    os.utime(log, (written, written))


def began(tmp_path: Path) -> tuple[Path, Live]:
    """A daemon that has read 19 rows of a log."""
    log = tmp_path / "runs/train.log"
    log.parent.mkdir()
    write(log, range(1, 20), RECORDED)
    live = Live(log.parent, tmp_path / "state", now=RECORDED)
    live.settle()
    return log, live


def rows(live: Live) -> list[tuple[str, int | None]]:
    """Channel and step of each row that was read, in order."""
    items = StateWriter(live.store).items(live.run().run)
    return [(item.channel, item.step) for item in items if isinstance(item, RawRow)]


@pytest.mark.parametrize("looks_between", [0, 1, 3])
def test_what_was_renamed_is_not_read_again(tmp_path: Path, looks_between: int) -> None:
    """The new file comes seconds after the old one's last row, at once or some looks later."""
    log, live = began(tmp_path)
    assert rows(live) == [("train.log", step) for step in range(1, 20)]
    log.rename(tmp_path / "runs/train.log.1")
    for _ in range(looks_between):
        live.settle()
    write(log, range(20, 30), live.now)
    for _ in range(4):
        live.settle()
    assert rows(live) == [("train.log", step) for step in range(1, 30)]
    opened = [item.channel for item in StateWriter(live.store).items(live.run().run) if isinstance(item, ChannelOpened)]
    assert opened == ["train.log"]
    live.close()


def test_a_second_rotation_moves_both_parts_up(tmp_path: Path) -> None:
    log, live = began(tmp_path)
    log.rename(tmp_path / "runs/train.log.1")
    write(log, range(20, 30), live.now)
    live.settle()
    (tmp_path / "runs/train.log.1").rename(tmp_path / "runs/train.log.2")
    log.rename(tmp_path / "runs/train.log.1")
    live.settle()
    write(log, range(30, 40), live.now)
    for _ in range(4):
        live.settle()
    assert rows(live) == [("train.log", step) for step in range(1, 40)]
    live.close()


@pytest.mark.parametrize("follows", [True, False])
def test_a_rotation_while_the_daemon_is_down(tmp_path: Path, *, follows: bool) -> None:
    """Only the stored cursor tells that the numbered file is what was read, where no new one lies beside it yet."""
    log, live = began(tmp_path)
    live.close()
    log.rename(tmp_path / "runs/train.log.1")
    if follows:
        write(log, range(20, 30), RECORDED + 5)
    live = Live(tmp_path / "runs", tmp_path / "state", now=RECORDED + 10)
    live.settle()
    write(log, range(30, 40) if follows else range(20, 40), live.now)
    for _ in range(4):
        live.settle()
    assert rows(live) == [("train.log", step) for step in range(1, 40)]
    live.close()
