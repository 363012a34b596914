"""What the demo says around the alerts: blindness in one line, and where to look in the end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from grpo_watch.cli import demo
from grpo_watch.cli.run import RunningDaemon
from grpo_watch.demo.replayer import replay_healthy, replay_run
from grpo_watch.engine.snapshot import RunSnapshot
from tests.support.reports import a_report


def test_blindness_is_one_line() -> None:
    snapshot: RunSnapshot = a_report().snapshot
    assert list(demo._brief(snapshot)) == [
        (
            "watching my run (trl 1.16.0), step 20 of 100: 1 of 2 applicable rules judged"
            " · 1 blind: set log_completions=True (details are on the page)"
        )
    ]


def watch_of(*snapshots: RunSnapshot) -> RunningDaemon:
    runs = [SimpleNamespace(snapshot=snapshot) for snapshot in snapshots]
    daemon = SimpleNamespace(snapshot=lambda: SimpleNamespace(runs=runs))
    return cast("RunningDaemon", SimpleNamespace(address="h:1", link="http://h:1/?token=x", daemon=daemon))


@pytest.mark.parametrize(
    ("stays", "begin"), [(True, "open http://h:1/?token=x "), (False, "To keep the page open, run:")]
)
def test_it_ends_with_where_to_look(stays: bool, begin: str) -> None:  # noqa: FBT001
    closing = list(demo._closing(watch_of(), fired=True, stays=stays))
    assert closing[1].startswith(begin)


def test_the_command_that_it_names_is_one_that_works_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make demo` puts nothing on PATH."""
    monkeypatch.setattr("sys.argv", [".venv/bin/grpo-watch", "demo"])
    for found, called in ((None, ".venv/bin/grpo-watch"), ("/usr/bin/grpo-watch", "grpo-watch")):
        monkeypatch.setattr(demo, "which", lambda _, found=found: found)
        assert list(demo._closing(watch_of(), fired=True, stays=False))[-1].endswith(f": {called} demo --stay")


def test_the_healthy_run_is_named_with_its_verdict() -> None:
    snapshot = replace(a_report().snapshot, run=demo.HEALTHY, step=100, findings=())
    closing = list(demo._closing(watch_of(snapshot), fired=True, stays=True))
    assert closing[1] == f"healthy-policy: {snapshot.verdict.value}, 100 steps."


def test_both_runs_are_replayed_whole(tmp_path: Path) -> None:
    """Their logs end as the trainer's do; an interrupted replay writes nothing more."""
    replay_run(tmp_path / "frozen", lambda _: False, 1.0)
    replay_healthy(tmp_path / "healthy", lambda _: False, 1.0)
    replay_healthy(tmp_path / "none", lambda _: True, 1.0)
    for name in ("frozen", "healthy"):
        assert b"100/100 [" in (tmp_path / name / "train.log").read_bytes()
    assert (tmp_path / "none" / "train.log").read_bytes() == b""


def test_ctrl_c_during_the_replay_ends_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not go on to serve the page; the replay writes nothing more."""

    def pressed(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "_snapshots", pressed)
    folders = [tmp_path / name for name in ("frozen", "healthy")]
    for folder in folders:
        folder.mkdir()
    with pytest.raises(KeyboardInterrupt):
        demo._watch(watch_of(), *folders, color=False)
