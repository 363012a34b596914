"""The unit file: no warning of systemd's own checker, and an exposure that it calls OK."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

UNIT = Path("deploy/systemd/grpo-watch.service")
PROGRAM = "/opt/grpo-watch/bin/grpo-watch"
EXPOSURE = "20"
"""Tenths of what ``systemd-analyze security`` shows; it calls less than 50 OK."""


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that exists on any machine; systemd looks for it."""
    text = UNIT.read_text()
    assert f"ExecStart={PROGRAM} run --config " in text
    copy = tmp_path / UNIT.name
    copy.write_text(text.replace(PROGRAM, "/bin/true"))
    return copy


@pytest.mark.system("systemd-analyze")
def test_the_unit_is_sound(unit: Path) -> None:
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.system("systemd-analyze")
def test_a_mistake_in_the_unit_is_seen(unit: Path) -> None:
    """The checker does look: a key that systemd does not know is named."""
    unit.write_text(unit.read_text().replace("WatchdogSec=", "WatchdogSeconds="))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert "WatchdogSeconds" in done.stderr


@pytest.mark.system("systemd-analyze")
def test_the_unit_is_closed(unit: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=yes", f"--threshold={EXPOSURE}", str(unit)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


def test_the_process_metrics_are_left() -> None:
    """prometheus-client asks /proc/stat for the time of boot, and without it gives no process_* metric at all."""
    assert not [line for line in UNIT.read_text().splitlines() if line.startswith("ProcSubset=")]
