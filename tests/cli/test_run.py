"""``grpo-watch run`` as users start it: a process, signals, exit codes, memory, latency."""

from __future__ import annotations

import re
import signal
import ssl
import threading
from pathlib import Path

import httpx
import pytest
import trustme

from grpo_watch.cli.config import SettingsInForce
from grpo_watch.cli.live_text import verdict
from grpo_watch.cli.main import run_cli
from grpo_watch.cli.run import options_for, running
from grpo_watch.config.fields import converted
from grpo_watch.config.schema import Settings
from grpo_watch.errors import ConfigError, StateNotReadyError
from grpo_watch.metrics.daemon_snapshot import RunOverview
from grpo_watch.sources.discovery.discover import FoundRun
from grpo_watch.store.state import Store
from tests.support.bundles import unpack
from tests.support.process import PATIENCE, Process, until, watching
from tests.support.receiving import secret_file
from tests.support.reports import a_report

FROZEN = "ms-swift-4.6.0-04b-frozen-optnoop-full"
FIRING = re.compile(r'^grpo_alert_firing\{rule="kl-stuck-at-zero",.*\} 1\.0$', re.MULTILINE)


@pytest.fixture
def frozen(tmp_path: Path) -> Path:
    """A real frozen run, ended."""
    return unpack(FROZEN, tmp_path / "runs")


@pytest.fixture
def growing(frozen: Path) -> Path:
    """The log of the same run with only two rows in it; the console is gone."""
    for console in frozen.rglob("*.log"):
        console.unlink()
    log = next(frozen.rglob("logging.jsonl"))
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:2]))
    return log


def resident(process: Process) -> int:
    """Resident memory in MB."""
    status = Path(f"/proc/{process.child.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) // 1024


def at_step(process: Process, step: int) -> bool:
    """Whether the newest step on /metrics is this one."""
    return re.search(rf"^grpo_step\{{.*\}} {step}\.0$", process.get("/metrics"), re.MULTILINE) is not None


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_what_it_watches_and_stops_cleanly(frozen: Path, tmp_path: Path, number: signal.Signals) -> None:
    with watching(frozen, state=tmp_path / "state") as daemon:
        until(lambda: f"watching {FROZEN} (ms-swift 4.6.0), step 60" in daemon.said(), daemon.child)
        until(lambda: " blind: set " in daemon.said(), daemon.child)
        until(lambda: "  critical: kl-stuck-at-zero since step " in daemon.said(), daemon.child)
        until(lambda: daemon.get("/readyz") == "ready\n", daemon.child)
        until(lambda: FIRING.search(daemon.get("/metrics")), daemon.child)
        assert "js/main.js" in daemon.get("/")
        for path in (f"runs/{FROZEN}", f"runs/{FROZEN}/charts", f"runs/{FROZEN}/batches", "runbooks/kl-stuck-at-zero"):
            assert "error" not in daemon.get(f"/api/v1/{path}")[:20]
        assert "kl-stuck-at-zero" in daemon.get("/api/v1/overview")
        assert resident(daemon) <= 80, f"{resident(daemon)} MB"
        daemon.child.send_signal(number)
        assert daemon.ends() == 0  # within how many seconds is a matter of its deadline, which has tests of its own


def test_a_watch_that_was_stopped_does_not_say_that_the_run_ended() -> None:
    snapshot = a_report(run="r", verdict="healthy").snapshot
    (line,) = verdict(RunOverview(snapshot, "r", active=True))
    assert line.endswith(": r was watched up to step 20 and has not ended")
    (line,) = verdict(RunOverview(snapshot, "r", active=False))
    assert line.endswith(": r ended at step 20")


@pytest.mark.slow
def test_it_ends_by_itself_when_the_run_has_ended(frozen: Path, tmp_path: Path) -> None:
    with watching(frozen, state=tmp_path / "state", options=("--exit-when-done",)) as daemon:
        assert daemon.ends() == 0
    store = Store(tmp_path / "state", 0.0)
    assert [run.verdict for run in store.runs()] == ["critical"]
    store.close()


@pytest.mark.slow
def test_every_written_row_shows_on_metrics(growing: Path, tmp_path: Path) -> None:
    """Twenty single rows, each seen before the next is written (how fast: ``make bench``)."""
    template = next(line for line in growing.read_text().splitlines() if '"global_step/max_steps"' in line)
    with watching(growing.parents[2], state=tmp_path / "state") as daemon:
        until(lambda: "watching " in daemon.said(), daemon.child)
        for step in range(10, 30):
            row = re.sub(r'("global_step/max_steps": ")\d+', rf"\g<1>{step}", template)
            with growing.open("a") as log:
                log.write(row + "\n")
            until(
                lambda wanted=f"}} {step}.0": re.search(f"^grpo_step.*{wanted}$", daemon.get("/metrics"), re.MULTILINE)
            )
        assert re.search(r"^grpo_step.*} 29\.0$", daemon.get("/metrics"), re.MULTILINE)


@pytest.mark.slow
def test_kill_minus_nine_and_a_restart_report_nothing_twice(frozen: Path, growing: Path, tmp_path: Path) -> None:
    whole = unpack(FROZEN, tmp_path / "whole")
    lines = next(whole.rglob("logging.jsonl")).read_bytes().splitlines(keepends=True)
    with watching(frozen, state=tmp_path / "state") as daemon:
        until(lambda: "watching " in daemon.said(), daemon.child)
        with growing.open("ab") as log:
            log.writelines(lines[2:40])
        until(lambda: FIRING.search(daemon.get("/metrics")), daemon.child)
        assert until(lambda: daemon.said().count("alert firing"), daemon.child) == 1
        daemon.child.send_signal(signal.SIGKILL)
        daemon.ends()
    with watching(frozen, state=tmp_path / "state") as daemon:
        assert FIRING.search(daemon.get("/metrics"))  # from the first request on
        until(lambda: "watching " in daemon.said(), daemon.child)
        with growing.open("ab") as log:
            log.writelines(lines[40:50])
        until(
            lambda: re.search(r"^grpo_step.* 50\.0$|^grpo_step.* 49\.0$", daemon.get("/metrics"), re.MULTILINE),
            daemon.child,
        )
        assert "alert firing" not in daemon.said()


@pytest.mark.slow
def test_sighup_reloads_and_a_broken_file_changes_nothing(frozen: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("rules: []\n")
    name = "grpo_watch_config_last_reload_successful"
    with watching(frozen, state=tmp_path / "state", options=("--rules", str(mine))) as daemon:
        until(lambda: "watching " in daemon.said(), daemon.child)
        mine.write_text("rules: [{nonsense: 1}]\n")
        daemon.child.send_signal(signal.SIGHUP)
        until(lambda: f"{name} 0.0" in daemon.get("/metrics"), daemon.child)
        assert FIRING.search(daemon.get("/metrics"))
        mine.write_text("rules:\n  - {name: kl-stuck-at-zero, enabled: false}\n")
        daemon.child.send_signal(signal.SIGHUP)
        until(lambda: not FIRING.search(daemon.get("/metrics")), daemon.child)
        until(lambda: f"{name} 1.0" in daemon.get("/metrics"), daemon.child)


@pytest.mark.slow
def test_sighup_takes_labels_and_says_what_needs_a_restart(frozen: Path, tmp_path: Path) -> None:
    """The team's label changes on the run that is watched; the retention waits."""
    config = tmp_path / "grpo-watch.yaml"
    config.write_text(f"runs: [{{path: {frozen}, labels: {{team: a}}}}]\n")
    with watching(frozen, state=tmp_path / "state", options=("--config", str(config))) as daemon:
        until(lambda: 'team="a"' in daemon.get("/metrics"), daemon.child)
        config.write_text(f"runs: [{{path: {frozen}, labels: {{team: b}}}}]\nretention: {{days: 3}}\n")
        daemon.child.send_signal(signal.SIGHUP)
        until(lambda: 'team="b"' in daemon.get("/metrics"), daemon.child)
        until(lambda: "only after a restart" in daemon.said(), daemon.child)
        until(lambda: "settings=retention" in daemon.said(), daemon.child)


def test_a_token_that_can_not_be_read_stops_the_start(
    frozen: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Rather than a page that is open, or that nobody can open; the same for one that every user can read."""
    config = tmp_path / "grpo-watch.yaml"
    config.write_text("web: {token_file: token}\n")
    assert run_cli(["run", str(frozen), "--config", str(config), "--listen", ":0"]) == 2
    assert f"{tmp_path / 'token'}: the secret can't be read" in capfd.readouterr().err
    (tmp_path / "token").write_text("geheim")
    (tmp_path / "token").chmod(0o644)
    assert run_cli(["run", str(frozen), "--config", str(config), "--listen", ":0"]) == 2
    assert "every user" in capfd.readouterr().err


@pytest.mark.slow
def test_the_page_behind_a_token_and_tls(frozen: Path, tmp_path: Path) -> None:
    """The metrics stay open to Prometheus; the address that is printed is the one to open."""
    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1")
    secret_file(tmp_path / "key.pem", made.private_key_pem.bytes().decode())
    made.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    secret_file(tmp_path / "token", "geheim")
    config = tmp_path / "grpo-watch.yaml"
    config.write_text("web: {token_file: token, tls_cert: cert.pem, tls_key: key.pem}\n")
    with watching(frozen, state=tmp_path / "state", options=("--config", str(config))) as daemon:
        assert daemon.url.startswith("https://127.0.0.1:")
        trust = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        with httpx.Client(base_url=daemon.url, verify=trust, timeout=PATIENCE) as client:
            assert client.get("/").status_code == 401
            until(lambda: client.get("/readyz").is_success, daemon.child)
            shown = client.get("/api/v1/overview", headers={"Authorization": "Bearer geheim"})
            assert "kl-stuck-at-zero" in shown.text
            assert FIRING.search(client.get("/metrics").text)
        assert "geheim" not in daemon.said()


@pytest.mark.slow
def test_two_daemons_on_one_state(frozen: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with watching(frozen, state=tmp_path / "state") as daemon:
        code = run_cli(["run", str(frozen), "--listen", ":0", "--state-dir", str(tmp_path / "state")])
    assert code == 4
    assert f"in use by another grpo-watch (pid {daemon.child.pid})" in capfd.readouterr().err


@pytest.mark.slow
def test_a_taken_port(frozen: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with watching(frozen, state=tmp_path / "state") as daemon:
        where = daemon.url.removeprefix("http://")
        code = run_cli(["run", str(frozen), "--listen", where, "--state-dir", str(tmp_path / "other")])
    assert code == 2
    assert f"--listen {where}: " in capfd.readouterr().err
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no PATH was given"),
        (["s3://x/y"], "unsupported; use a folder, glob, file, wandb:"),
        (["x", "--listen", "nonsense"], "HOST:PORT"),
        (["x", "--listen", ":0", "--rules", "missing.yaml"], "missing.yaml"),
        (["x", "--listen", ":0", "--state-dir", "/dev/null/state"], "state can't be kept there"),
    ],
)
def test_wrong_use(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """One line, exit code 2."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert run_cli(["run", *arguments]) == 2
    error = capfd.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_a_missing_path_is_waited_for(tmp_path: Path) -> None:
    later = tmp_path / "runs" / "later"
    with watching(later, state=tmp_path / "state") as daemon:
        until(lambda: daemon.get("/readyz") == "ready\n", daemon.child)
        until(lambda: f"waiting for {later}" in daemon.said(), daemon.child)
        unpack(FROZEN, later.parent).rename(later)
        until(lambda: FIRING.search(daemon.get("/metrics")), daemon.child)


@pytest.mark.slow
def test_an_empty_folder_is_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    with watching(folder, state=tmp_path / "state") as daemon:
        until(lambda: daemon.get("/readyz") == "ready\n", daemon.child)
        assert f"waiting for a run in {folder}, which is empty" in daemon.said()


def test_what_is_set_on_the_command_line_lies_over_the_file(tmp_path: Path) -> None:
    found = FoundRun(tmp_path, "a", None, ())
    settings = converted(Settings, {"runs": [{"path": str(tmp_path), "settings": {"beta": 0.1, "world_size": 8}}]})
    assert options_for(found, settings, overrides={"beta": 0.04}).settings == {"beta": 0.04, "world_size": 8}
    assert options_for(found, Settings(), overrides={"beta": 0.04}).settings == {"beta": 0.04}
    assert run_cli(["run", str(tmp_path), "--set", "bta=1"]) == 2


def test_a_state_that_is_taken_up_later_needs_no_settings_file(
    frozen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file may have broken meanwhile: settings, places, folder and address are those of before."""
    chosen = Settings(listen="127.0.0.1:0", state_dir=tmp_path / "state")
    loads = [chosen]

    def load() -> Settings:
        if not loads:
            raise ConfigError("grpo-watch.yaml:1:1: no")
        return loads.pop()

    def full(*_: object) -> None:
        raise StateNotReadyError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr("grpo_watch.store.state.open_database", full)
        with running([str(frozen)], load, lines_of=lambda _: ()) as first:
            assert not first.daemon.snapshot().state_ok
    with running([str(frozen)], load, lines_of=lambda _: (), before=first.basis) as second:
        one, other = first.basis, second.basis
        assert (other.address, other.places, other.folder) == (one.address, one.places, one.folder)
        assert second.link == first.link
        until(lambda: second.daemon.snapshot().state_ok)


def test_a_reload_changes_no_setting_that_needs_a_restart() -> None:
    loads = [Settings(listen=":9", language="zh"), Settings(listen=":8")]
    current = SettingsInForce(loads.pop)
    current.reload()
    assert (current.settings.listen, current.settings.language) == (":8", "zh")


def test_no_thread_outlives_a_refusal(frozen: Path, tmp_path: Path) -> None:
    """A command that fails once the port is bound leaves nothing running in its process."""
    before = set(threading.enumerate())
    (tmp_path / "state").touch()
    assert run_cli(["run", str(frozen), "--listen", ":0", "--state-dir", str(tmp_path / "state")]) == 2
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert not left & {"engine", "http", "discovery"}
