"""Many runs checked at once give the reports that they give one by one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from grpo_watch.archive.checks import CheckSetup, Execution, check_all, check_run
from grpo_watch.engine.records import Tick
from grpo_watch.errors import UsageError
from grpo_watch.report.check_document import RunReport, document
from grpo_watch.rules.packs import load_rules
from grpo_watch.sources.discovery.discover import FoundRun, discover
from tests.support.bundles import bundled_runs, unpack

SETUP = CheckSetup(tuple(load_rules([])), Tick(1_798_761_600.0, live=False))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[FoundRun]:
    """A few recorded runs."""
    folder = tmp_path_factory.mktemp("runs")
    for name in bundled_runs()[::15]:
        unpack(name, folder)
    return discover(folder)


def text(reports: Sequence[RunReport]) -> str:
    return json.dumps(document(reports), indent=1)


def test_processes_give_the_reports_of_one_process(runs: list[FoundRun]) -> None:
    finished: list[None] = []
    alone = check_all(SETUP, runs, Execution())
    spread = check_all(SETUP, runs, Execution(processes=2), advance=lambda: finished.append(None))
    assert text(spread) == text(alone) == text([check_run(SETUP, run) for run in runs])
    assert len(finished) == len(runs) > 2


def test_a_run_that_cannot_be_checked_is_reported_beside_the_others(
    runs: list[FoundRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(setup: CheckSetup, found: FoundRun, readers: object = None) -> RunReport:
        if found is runs[1]:
            raise ZeroDivisionError("of our own")
        return check_run(setup, found)

    monkeypatch.setattr("grpo_watch.archive.checks.check_run", broken)
    reports = document(check_all(SETUP, runs[:3], Execution()))["runs"]
    assert [report["run"] for report in reports] == [run.name for run in runs[:3]]
    assert reports[1]["verdict"] == "not-evaluable"
    assert reports[1]["problems"] == ["could not be checked: ZeroDivisionError: of our own"]
    with pytest.raises(ZeroDivisionError):
        check_all(SETUP, runs[1:2], Execution())


def test_an_interrupted_check_goes_on_and_what_changed_is_read_again(
    runs: list[FoundRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execution = Execution(results=tmp_path / "results.db")
    whole = text(check_all(SETUP, runs[:3], Execution()))
    read: list[str] = []

    def noted(setup: CheckSetup, found: FoundRun, readers: object = None) -> RunReport:
        if len(read) == 2 and found is runs[2]:
            raise KeyboardInterrupt
        read.append(found.name)
        return check_run(setup, found)

    monkeypatch.setattr("grpo_watch.archive.checks.check_run", noted)
    with pytest.raises(KeyboardInterrupt):
        check_all(SETUP, runs[:3], execution)
    assert read == [run.name for run in runs[:2]]
    read[:] = [""]
    assert text(check_all(SETUP, runs[:3], execution)) == whole
    assert read == ["", runs[2].name]
    log = next(channel.path for channel in runs[0].channels if channel.path.is_file())
    log.touch()
    assert text(check_all(SETUP, runs[:3], execution)) == whole
    assert read == ["", runs[2].name, runs[0].name]
    check_all(replace(SETUP, overrides={"beta": 0.5}), runs[:3], execution)
    assert len(read) == 6


def test_a_file_of_something_else_is_not_written_to(runs: list[FoundRun], tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("mine, and longer than a header of SQLite, which is what is read first of all")
    with pytest.raises(UsageError, match="can't be used for results"):
        check_all(SETUP, runs[:1], Execution(results=file))
    assert file.read_text().startswith("mine")
