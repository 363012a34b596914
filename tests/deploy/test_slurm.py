"""Slurm's scripts with the real watcher and Pushgateway, Slurm's variables, and a stand-in for srun."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.support.bundles import unpack
from tests.support.process import PATIENCE, UNHURRIED, until
from tests.support.servers import Served, free_port, serving

FOLDER = Path("deploy/slurm").resolve()
SCRIPTS = sorted(FOLDER.iterdir())
FROZEN = "ms-swift-4.6.0-04b-frozen-optnoop-full"
FIRES = 'rule="kl-stuck-at-zero",run="'
EPILOG_SECONDS = 5.0
"""After which slurmstepd kills a user's task epilog (``_run_script_as_user("user task_epilog", …, 5, …)``)."""
SRUN = """#!{python}
import os, shutil, sys, threading, urllib.request
assert sys.argv[1:] == ["--ntasks=2", "python", "train.py"], sys.argv
shutil.copytree({recorded!r}, os.environ["GRPO_WATCH_RUN"])
while {fires!r} not in urllib.request.urlopen({metrics!r}).read().decode():
    threading.Event().wait(0.05)
sys.exit(3)
"""


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def job(tmp_path: Path) -> dict[str, str]:
    """The environment of a job's first task, with our program on its PATH."""
    executable(tmp_path / "bin" / "grpo-watch", f'#!/bin/sh\nexec {shlex.join(UNHURRIED)} "$@"\n')
    return {
        "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin",
        "PYTHONPATH": str(Path.cwd()),
        "HOME": str(tmp_path),
        "SLURM_JOB_ID": "17",
        "SLURM_PROCID": "0",
        "SLURM_NODEID": "0",
        "SLURM_STEP_ID": "0",
        "GRPO_WATCH_RUN": str(tmp_path / "out"),
    }


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Where the script keeps what is the job's; a watcher that is left over is killed."""
    folder = tmp_path / ".local" / "state" / "grpo-watch" / "slurm-17"
    yield folder
    if (folder / "pid").exists():
        with suppress(ProcessLookupError):
            os.kill(watcher(folder), 9)


@pytest.fixture
def gateway(tmp_path: Path, program: Callable[[str], str], job: dict[str, str]) -> Iterator[Served]:
    """A Pushgateway that the job's settings name."""
    port = free_port()
    with serving([program("pushgateway"), f"--web.listen-address=127.0.0.1:{port}"], port, "/-/ready") as served:
        settings = tmp_path / "grpo-watch.yaml"
        settings.write_text(f'sinks: [{{type: pushgateway, url: "{served.url}", every: 1}}]\n')
        job |= {"GRPO_WATCH_CONFIG": str(settings), "GRPO_WATCH_SECONDS": "0"}
        yield served


def call(script: str, job: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(FOLDER / script), *arguments]
    return subprocess.run(command, env=job, capture_output=True, text=True, check=False, timeout=PATIENCE)


def by_slurmstepd(script: str, job: dict[str, str], seconds: float = PATIENCE) -> str | None:
    """What the script wrote to stdout, run as slurmstepd runs it; None if it had to be killed.

    With stdin and stderr closed and in a process group of its own, of which nothing is left afterwards: Slurm's
    ``_run_script_and_set_env`` and ``_run_script_as_user`` end with killpg(SIGKILL).
    """
    command = f"exec {shlex.quote(str(FOLDER / script))} <&- 2>&-"
    with subprocess.Popen(
        ["sh", "-c", command], env=job, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as group:
        try:
            stdout: str | None = group.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            stdout = None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(group.pid, signal.SIGKILL)
    return stdout


def watcher(place: Path) -> int:
    """The process of the watcher that was started last."""
    return int((place / "pid").read_text().split()[0])


def runs(pid: int) -> bool:
    """Whether the process is there; one that ended and that nobody waited for is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.system("pushgateway")
def test_the_wrapper_watches_ends_as_srun_did_and_leaves_a_last_sample(
    tmp_path: Path, job: dict[str, str], place: Path, gateway: Served
) -> None:
    """srun ends with 3 once the frozen run's fault is reported; the gateway then shows it, and no active run."""
    recorded = unpack(FROZEN, tmp_path / "recorded")
    metrics = f"{gateway.url}/metrics"
    text = SRUN.format(python=sys.executable, recorded=str(recorded), fires=FIRES, metrics=metrics)
    executable(tmp_path / "bin" / "srun", text)
    done = call("grpo-watch-srun", job, "--ntasks=2", "python", "train.py")
    assert done.returncode == 3, done.stderr
    assert "kl-stuck-at-zero" in done.stdout
    assert done.stdout == (place / "verdict").read_text()
    last = httpx.get(metrics).text
    assert FIRES in last
    active = [line for line in last.splitlines() if line.startswith("grpo_run_active{")]
    assert active
    assert all(line.endswith(" 0") for line in active)
    assert not (place / "pid").exists()


@pytest.mark.slow
def test_prolog_starts_it_and_epilog_stops_it(tmp_path: Path, job: dict[str, str], place: Path) -> None:
    """The watcher outlives the prolog; after the epilog it has ended, and the verdict is there."""
    assert by_slurmstepd("task-prolog.sh", job) == ""
    pid = watcher(place)
    until(lambda: "metrics: http://127.0.0.1:" in (place / "log").read_text())
    assert runs(pid)
    unpack(FROZEN, tmp_path / "out")
    assert by_slurmstepd("task-epilog.sh", job) == ""
    assert not runs(pid)
    assert not (place / "pid").exists()
    assert (place / "state" / "state.db").exists()
    assert "kl-stuck-at-zero" in (place / "verdict").read_text()


@pytest.mark.slow
def test_the_epilog_ends_the_watcher_in_time_even_if_the_verdict_is_late(
    tmp_path: Path, job: dict[str, str], place: Path
) -> None:
    """A large run takes longer to judge than the epilog may: the verdict comes when the script was killed long ago."""
    run = "trap 'exit 0' TERM\nwhile :; do sleep 0.05; done"
    check = f"until [ -e {shlex.quote(str(tmp_path / 'go'))} ]; do sleep 0.05; done\necho frozen"
    text = f'#!/bin/sh\nif [ "$1" = run ]; then\n{run}\nfi\n{check}\n'
    stub = executable(tmp_path / "stub", text)
    job["GRPO_WATCH_PROGRAM"] = str(stub)
    by_slurmstepd("task-prolog.sh", job)
    pid = watcher(place)
    assert runs(pid)
    assert by_slurmstepd("task-epilog.sh", job, EPILOG_SECONDS) is None
    (tmp_path / "go").touch()
    assert not runs(pid)
    assert not (place / "pid").exists()
    until((place / "verdict").exists)
    assert (place / "verdict").read_text() == "frozen\n"


@pytest.mark.slow
def test_a_second_step_leaves_the_watcher_to_the_first(job: dict[str, str], place: Path) -> None:
    """It starts none, and its end ends none; the first step's does. A step after that starts a new one."""
    second = {**job, "SLURM_STEP_ID": "1"}
    call("task-prolog.sh", job)
    pid = watcher(place)
    assert "is there already" in call("task-prolog.sh", second).stderr
    assert watcher(place) == pid
    until(lambda: "metrics: " in (place / "log").read_text())
    call("task-epilog.sh", second)
    assert runs(pid)
    call("task-epilog.sh", job)
    assert not runs(pid)
    call("task-prolog.sh", second)
    assert runs(watcher(place))


@pytest.mark.parametrize(
    ("variables", "reported"),
    [
        ({"SLURM_PROCID": "1"}, ""),
        ({"GRPO_WATCH_RUN": ""}, ""),
        ({"GRPO_WATCH_PROGRAM": "no-such-program"}, "no-such-program is not found; the job runs unwatched\n"),
        ({"GRPO_WATCH_DIR": "/proc/none"}, "/proc/none can't be made; the job runs unwatched\n"),
    ],
    ids=["another task", "no run named", "no program", "no folder"],
)
def test_otherwise_the_job_is_left_alone(
    job: dict[str, str], place: Path, variables: dict[str, str], reported: str
) -> None:
    for script in ("task-prolog.sh", "task-epilog.sh"):
        done = call(script, {**job, **variables})
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr.endswith(reported) if script == "task-prolog.sh" else done.stderr == ""
    assert not place.exists()


@pytest.mark.slow
def test_a_cancelled_job_stops_its_tasks_and_its_watcher(tmp_path: Path, job: dict[str, str], place: Path) -> None:
    """SIGTERM goes on to srun, whose exit code is the wrapper's."""
    ready = tmp_path / "ready"
    srun = f"trap 'exit 143' TERM\n: >{shlex.quote(str(ready))}\nwhile :; do sleep 0.05; done\n"
    executable(tmp_path / "bin" / "srun", f"#!/bin/sh\n{srun}")
    nowhere = subprocess.DEVNULL
    at_once = {**job, "GRPO_WATCH_SECONDS": "0"}
    wrapper = subprocess.Popen([FOLDER / "grpo-watch-srun"], env=at_once, stdout=nowhere, stderr=nowhere)
    try:
        until(ready.exists, wrapper)
        pid = watcher(place)
        until(lambda: "metrics: " in (place / "log").read_text(), wrapper)
        wrapper.terminate()
        assert wrapper.wait(PATIENCE) == 143
        assert not runs(pid)
    finally:
        wrapper.kill()
        wrapper.wait()


@pytest.mark.system("shellcheck")
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_has_nothing_to_say(path: Path, program: Callable[[str], str]) -> None:
    assert path.read_text().startswith("#!/bin/sh\n")
    assert os.access(path, os.X_OK)
    done = subprocess.run([program("shellcheck"), path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
