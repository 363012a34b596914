"""The real daemon while its machine fails it: a full or read-only disk, no file handles."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.support.high import Run, options, ready, reported
from tests.support.process import PATIENCE, PROGRAM, Process, until, watching
from tests.support.receiving import receiving

DELIVERED = 'grpo_watch_deliveries_total{outcome="delivered",sink="hook"} 1.0'
ROOM = "1m"
"""Of the file system that is filled; an empty state takes a tenth of it."""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


class Disk:
    """A small file system in a mount namespace of its own, which the daemon is started in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        mount = f"mount -t tmpfs -o size={ROOM},mode=700 none {folder} && echo up && exec sleep 600"
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount]
        self._holder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self._holder.stdout is not None
        with self._holder.stdout as said:
            up = said.readline() == b"up\n"
        if not up:
            self.close()
            pytest.skip("not run, not installed: a kernel that allows unshare and tmpfs")

    def inside(self, *command: str) -> list[str]:
        """The command, where the file system is seen."""
        return ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt", "--", *command]

    def remount(self, wanted: str) -> None:
        """Change its options (``ro``)."""
        subprocess.run(self.inside("mount", "-o", f"remount,{wanted}", str(self.folder)), check=True)

    def fill(self) -> None:
        """Another program takes all the room that is left."""
        write = f"cat /dev/zero > {self.folder}/other"
        subprocess.run(self.inside("sh", "-c", write), check=False, stderr=subprocess.DEVNULL)

    def free(self) -> None:
        """It gives it back."""
        subprocess.run(self.inside("rm", f"{self.folder}/other"), check=True)

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait()

    @contextmanager
    def watching(self, run: Run, *more: str) -> Iterator[Process]:
        """A daemon whose state lies on it."""
        with watching(run.path, state=self.folder / "state", options=more, wrapped=self.inside()) as daemon:
            yield daemon


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("not run, not installed: root's rights to make a mount namespace")
    made = Disk(tmp_path / "disk")
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.system("unshare", "nsenter")
def test_a_disk_that_fills_up(run: Run, disk: Disk, tmp_path: Path) -> None:
    """It is reported, alerts are still sent; once there is room all is stored, and a kill loses and repeats nothing."""
    with receiving() as hook:
        given = options(tmp_path, hook)
        with disk.watching(run, *given) as daemon:
            ready(daemon)
            disk.fill()
            run.write(*[0.2] * 400)
            until(lambda: "state can't be written" in daemon.said(), daemon.child)
            until(lambda: "State can't be written" in daemon.get("/api/v1/runs"), daemon.child)
            run.write(0.9)
            until(lambda: len(reported(hook)) == 1, daemon.child)
            until(lambda: DELIVERED in daemon.get("/metrics"), daemon.child)  # the answer was heard
            disk.free()
            until(lambda: "state is written again" in daemon.said(), daemon.child)
            daemon.child.send_signal(signal.SIGKILL)
            daemon.ends()
        run.write(0.9, 0.2)
        with disk.watching(run, *given) as daemon:
            until(lambda: len(reported(hook)) == 2, daemon.child)
            assert reported(hook) == [("firing", run.step - 2), ("resolved", run.step)]
            assert len(hook.sent) == 2


def kept(daemon: Process) -> bool:
    """Whether it says that the state is kept; it may be between two daemons."""
    with suppress(httpx.TransportError):
        return "grpo_watch_state_ok 1.0" in daemon.get("/metrics")
    return False


@pytest.mark.slow
@pytest.mark.system("unshare", "nsenter")
def test_a_disk_that_is_full_at_the_start(run: Run, disk: Disk, tmp_path: Path) -> None:
    """It watches, alerts and says so; once there is room it goes on with the state, under the same address."""
    with receiving() as hook:
        disk.fill()
        with disk.watching(run, *options(tmp_path, hook)) as daemon:
            ready(daemon)
            assert "watching without state" in daemon.said()
            assert "grpo_watch_state_ok 0.0" in daemon.get("/metrics")
            run.write(0.9)
            until(lambda: reported(hook) == [("firing", run.step)], daemon.child)
            disk.free()
            until(lambda: "beginning again with it" in daemon.said(), daemon.child)
            until(lambda: kept(daemon), daemon.child)
            run.write(0.2)
            until(lambda: len(reported(hook)) == 2, daemon.child)
            daemon.child.send_signal(signal.SIGKILL)
            daemon.ends()
        with disk.watching(run, *options(tmp_path, hook)) as daemon:
            ready(daemon)
            run.write(0.9)
            until(lambda: len(reported(hook)) == 3, daemon.child)
        assert [status for status, _ in reported(hook)] == ["firing", "resolved", "firing"]


@pytest.mark.slow
@pytest.mark.system("unshare", "nsenter")
def test_a_read_only_state_directory_at_the_start_is_one_line(run: Run, disk: Disk) -> None:
    disk.remount("ro")
    command = [*PROGRAM, "run", str(run.path), "--listen", ":0", "--state-dir", str(disk.folder / "state")]
    done = subprocess.run(disk.inside(*command), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "state can't be kept there: Read-only file system (give another --state-dir)" in line


@pytest.mark.slow
def test_out_of_file_handles_while_alerts_wait(run: Run, tmp_path: Path) -> None:
    """No connection can be opened: the alert waits, and arrives once when handles are free again."""
    with receiving() as hook:
        with watching(run.path, state=tmp_path / "state", options=options(tmp_path, hook)) as daemon:
            ready(daemon)
            pid = daemon.child.pid
            before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))  # those that are open stay so
            run.write(0.9)
            until(lambda: "a message was not delivered" in daemon.said(), daemon.child)
            until(lambda: "not looked for new runs: no file descriptor is left" in daemon.said(), daemon.child)
            assert hook.sent == []
            assert "not found any more" not in daemon.said()
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            until(lambda: reported(hook), daemon.child)
            run.write(0.2)
            until(lambda: len(reported(hook)) == 2, daemon.child)
            assert daemon.child.poll() is None
        assert reported(hook) == [("firing", 2), ("resolved", 3)]


FEW = 200
"""Descriptors of a daemon under attack, fewer than the connections that are opened to it."""
CLIENTS = 300


@pytest.mark.slow
def test_silent_connections_keep_no_alert_back(tmp_path: Path) -> None:
    """More of them than descriptors, opened again and again: health answers, alerts go, no run is lost."""
    runs = [Run(tmp_path, f"run-{number}") for number in range(20)]
    with receiving() as hook:
        limited = ["sh", "-c", f'ulimit -n {FEW}; exec "$@"', "sh"]
        given = options(tmp_path, hook)
        with watching(tmp_path / "runs", state=tmp_path / "state", options=given, wrapped=limited) as daemon:
            ready(daemon)
            host, _, port = daemon.url.rpartition("/")[2].rpartition(":")
            for wanted in (1, 2):
                with ExitStack() as stack:
                    for _ in range(CLIENTS):
                        stack.enter_context(socket.create_connection((host, int(port)), timeout=PATIENCE))
                    for run in runs[:wanted]:
                        run.write(0.9 if run.step % 2 else 0.2)
                    assert daemon.get("/healthz") == "ok\n"
                    new = Run(tmp_path, f"new-{wanted}")
                    new.write(0.9)
                    until(lambda: len(reported(hook)) == sum(range(1, wanted + 1)) + wanted, daemon.child)  # noqa: B023
            until(lambda: 'run="new-2"' in daemon.get("/metrics"), daemon.child)
            assert "not found any more" not in daemon.said()
            assert "Traceback" not in daemon.said()


@pytest.mark.slow
def test_the_soft_limit_of_descriptors_is_raised(run: Run, tmp_path: Path) -> None:
    limited = ["sh", "-c", 'ulimit -Sn 100; ulimit -Hn 4000; exec "$@"', "sh"]
    with watching(run.path, state=tmp_path / "state", wrapped=limited) as daemon:
        ready(daemon)
        assert resource.prlimit(daemon.child.pid, resource.RLIMIT_NOFILE) == (4000, 4000)


@pytest.mark.slow
def test_a_console_with_a_hole_is_read_on_after_a_kill(tmp_path: Path) -> None:
    """Cut by copytruncate while the job writes on at its old offset; then the daemon is killed and started again."""
    folder = tmp_path / "runs" / "run"
    folder.mkdir(parents=True)

    def steps() -> int:
        found = re.search(r"^grpo_step\{[^}]*\} (\S+)", daemon.get("/metrics"), re.MULTILINE)
        return int(float(found[1])) if found else 0

    with (folder / "train.log").open("wb", buffering=0) as log:

        def write(first: int, last: int) -> None:
            for step in range(first, last + 1):
                row = {"loss": 0.1, "reward": 0.5, "kl": 0.01, "learning_rate": 1e-6, "epoch": step / 100}
                log.write(f"{row}\r  1%|          | {step}/100 [00:00<00:32,  3.05it/s]\n".encode())

        with watching(tmp_path / "runs", state=tmp_path / "state") as daemon:
            write(1, 30)
            until(lambda: steps() >= 29, daemon.child)
            os.truncate(log.name, 0)
            write(31, 40)
            until(lambda: steps() >= 39, daemon.child)
            daemon.child.send_signal(signal.SIGKILL)
            daemon.ends()
        write(41, 50)
        with watching(tmp_path / "runs", state=tmp_path / "state") as daemon:
            until(lambda: steps() >= 49, daemon.child, 30.0)
