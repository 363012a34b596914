"""The unit file: no warning of systemd's own checker, and an exposure that it calls OK."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_watch.config.schema import HeartbeatSink
from grpo_watch.config.settings import load_settings
from grpo_watch.store.lock import StateLock

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
def test_a_heartbeat_takes_one_line_here_and_one_in_the_settings(unit: Path, tmp_path: Path) -> None:
    """Both stand in the unit as comments; the credential is where systemd puts it."""
    text = unit.read_text()
    (sinks,) = re.findall(r"sinks: \[.*type: heartbeat.*\]", text)
    (tmp_path / "grpo-watch.yaml").write_text(sinks)
    (beat,) = load_settings(config=tmp_path / "grpo-watch.yaml", environ={}).settings.sinks
    assert isinstance(beat, HeartbeatSink)
    assert "url_file: /run/credentials/grpo-watch.service/heartbeat}" in sinks
    unit.write_text(text.replace("# LoadCredential=heartbeat:", "LoadCredential=heartbeat:"))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


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


@pytest.mark.slow
def test_what_another_start_would_not_change_starts_nothing(tmp_path: Path) -> None:
    """The exit codes of settings that can't be used and of state that another daemon holds are among the unit's."""
    (line,) = [line for line in UNIT.read_text().splitlines() if line.startswith("RestartPreventExitStatus=")]
    never = {int(code) for code in line.partition("=")[2].split()}
    (tmp_path / "wrong.yaml").write_text("runz: []\n")
    run = [sys.executable, "-m", "grpo_watch", "run", "--listen=127.0.0.1:0", f"--state-dir={tmp_path / 'state'}"]
    wrong = subprocess.run([*run, f"--config={tmp_path / 'wrong.yaml'}"], capture_output=True, check=False)
    lock = StateLock(tmp_path / "state")
    taken = subprocess.run([*run, str(tmp_path)], capture_output=True, check=False)
    lock.release()
    assert {wrong.returncode, taken.returncode} == never
