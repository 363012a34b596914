"""The daemon as nobody, without capabilities, on a read-only file system: only its state directory can be written."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.bundles import unpack
from tests.support.process import until

FROZEN = "ms-swift-4.6.0-04b-frozen-optnoop-full"
NOBODY = "65534"
UNPRIVILEGED = [
    "setpriv",
    f"--reuid={NOBODY}",
    f"--regid={NOBODY}",
    "--clear-groups",
    "--bounding-set=-all",
    "--inh-caps=-all",
    "--no-new-privs",
]
LIBRARIES = os.pathsep.join([str(Path.cwd()), sysconfig.get_paths()["purelib"]])


def confined(writable: Path, command: list[str]) -> list[str]:
    """The command in a mount namespace in which everything but ``writable`` is read-only."""
    folder = shlex.quote(str(writable))
    mounts = f"mount --bind {folder} {folder} && mount -o remount,bind,ro / && cd {folder}"
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", f"{mounts} && exec {shlex.join(command)}"]


def environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": LIBRARIES, "HOME": "/nonexistent", "NO_COLOR": "1"}


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that others may enter, other than pytest's own."""
    with tempfile.TemporaryDirectory(prefix="grpo-watch-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def interpreter(tmp_path: Path) -> str:
    """One that nobody may run: ours may be in root's home, the system's is as good where it is of the same version."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("not run, not installed: root's rights to make a mount namespace")
    probe = "import grpo_watch.cli.run"
    for candidate in (sys.executable, "/usr/bin/python3"):
        command = confined(tmp_path, [*UNPRIVILEGED, candidate, "-c", probe])
        if subprocess.run(command, env=environment(), capture_output=True, check=False).returncode == 0:
            return candidate
    pytest.skip("not run, not installed: a kernel that allows unshare, and a Python that nobody may run")


@pytest.mark.system("unshare", "setpriv")
def test_starts_answers_and_stops(place: Path, interpreter: str) -> None:
    """Its process holds no capability, can't gain any, and finds the frozen run's fault."""
    run = unpack(FROZEN, place / "runs")
    state = place / "state"
    state.mkdir()
    os.chown(state, int(NOBODY), int(NOBODY))
    daemon = [interpreter, "-m", "grpo_watch", "run", str(run), "--listen", ":0", "--state-dir", str(state)]
    output = place / "output"
    with output.open("wb") as log:
        command = confined(state, [*UNPRIVILEGED, *daemon])
        child = subprocess.Popen(command, env=environment(), stdout=log, stderr=subprocess.STDOUT)
    try:
        url = until(lambda: re.search(r"http://[^/]+", output.read_text()), child)[0]
        until(lambda: 'rule="kl-stuck-at-zero",run=' in httpx.get(f"{url}/metrics").text, child)
        assert httpx.get(f"{url}/").is_success
        status = dict(
            line.split(":\t", 1) for line in Path(f"/proc/{child.pid}/status").read_text().splitlines() if ":\t" in line
        )
        assert set(status["Uid"].split()) == {NOBODY}
        assert status["NoNewPrivs"] == "1"
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(status[name], 16) == 0, name
        mounts = Path(f"/proc/{child.pid}/mountinfo").read_text().splitlines()
        assert next(line for line in mounts if line.split()[4] == "/").split()[5].startswith("ro")
        child.send_signal(signal.SIGTERM)
        assert child.wait(10) == 0
    finally:
        child.kill()
        child.wait()
    assert (state / "state.db").stat().st_uid == int(NOBODY)
    assert "Read-only" not in output.read_text()
