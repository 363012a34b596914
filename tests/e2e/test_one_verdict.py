"""Every recorded run gets one verdict, in one wording, from command, reports, API, page and messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_watch.catalogue import catalogue
from grpo_watch.cli.check import check_runs, find_runs
from grpo_watch.cli.live_text import summary
from grpo_watch.cli.status import _lines
from grpo_watch.engine.records import Severity, Tick
from grpo_watch.metrics.exposition import Exporter, visible
from grpo_watch.notify.notifications import NotificationContext, notifications
from grpo_watch.report.blindness import coverage, coverage_line, headline
from grpo_watch.report.check_document import document
from grpo_watch.report.compare import compare
from grpo_watch.report.compare import document as diff_document
from grpo_watch.report.junit import junit
from grpo_watch.report.lines import laid_out
from grpo_watch.report.markdown import markdown
from grpo_watch.report.page import page
from grpo_watch.report.series import Series, ThinnedColumns
from grpo_watch.report.text import render
from grpo_watch.report.view import top_view
from grpo_watch.rules.packs import load_rules
from grpo_watch.rules.rule_changes import rule_set
from grpo_watch.web.documents import alert_documents, brief_document, detail_document, run_document
from grpo_watch.web.run_pages import compared, reported
from tests.support.bundles import bundled_runs, unpack
from tests.support.live import Live
from tests.support.reports import PROVENANCE, a_report

NOW = 1_798_761_600.0  # 2027-01-01: long after every run
RULES = rule_set(load_rules(), catalogue())


@pytest.mark.slow
@pytest.mark.parametrize("name", bundled_runs())
def test_every_view_says_the_same(name: str, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path / "runs")
    reports = {
        r.snapshot.run: r for r in check_runs(find_runs([str(folder)])[0], RULES.rules, {}, Tick(NOW, live=False))
    }
    live = Live(folder, tmp_path / "state", now=NOW, rules=lambda: RULES)
    live.settle()
    watched = {run.snapshot.run: run for run in live.daemon.snapshot().shown}
    exposed = Exporter(live.daemon.snapshot, lambda: NOW, process=False).render("", "")[0].decode()
    live.close()
    assert set(watched) == set(reports)
    for run, report in reports.items():
        checked, shown, top = report.snapshot, watched[run], top_view(report.snapshot)
        words, covered = headline(checked), coverage_line(checked)
        overview, detail, listed = brief_document(shown), detail_document(shown), run_document(shown)
        (written,) = document([report])["runs"]

        for each in (overview, detail, listed, written):
            assert (each["verdict"], each["headline"]) == (checked.verdict.value, words)
        assert {each["coverage"]["text"] for each in (overview, detail, listed)} == {covered}
        first, *_ = _lines([listed], "en", verbose=False)
        assert first.startswith(f"{run}: {words}, ended, step {checked.step}")
        assert covered in first
        text = laid_out(render([report]), 100_000)
        assert text.casefold().startswith(words)
        files = (markdown([report], [], PROVENANCE), junit([report], [], PROVENANCE, Severity.WARNING))
        assert all(words in each.casefold() for each in (*files, page([report], [], PROVENANCE)))

        for form in ("markdown", "html"):  # of the page's buttons
            kept_report = reported((shown.snapshot, Series()), form, NOW)
            assert words in kept_report.casefold()
            assert covered.partition(" · ")[0] in kept_report
        lines = [line for line in exposed.splitlines() if f'run="{visible(run)}"' in line and line[0] != "#"]
        if lines:  # of a run that ended long ago there are none
            assert f'grpo_rules_blind{{run="{visible(run)}"}} {coverage(shown.snapshot).blind}.0' in lines
            assert sum("grpo_alert_firing" in line for line in lines) <= coverage(shown.snapshot).applicable
            assert len(lines) <= 90
        if top is None:
            assert overview["top"] is None
            continue
        for each in (*files[:1], page([report], [], PROVENANCE)):  # the reports name the finding as the terminal does
            assert (top.finding.rule in each, top.since.partition(";")[0] in each) == (True, True)
        for each in (
            overview["top"],
            detail["findings"][0],
            alert_documents(shown.snapshot)[0],
            written["findings"][0],
        ):
            assert (each["rule"], each["first_step"]) == (top.finding.rule, top.finding.first_step)
        assert f"{top.finding.rule}  {top.since}" in text
        assert overview["top"]["since"] == top.since
        assert top.finding.summary in text
        if checked.rows:
            seen = top_view(shown.snapshot)  # how long a run is silent is its own
            assert seen is not None
            open_one = seen.finding.resolved_step is None
            assert any(seen.finding.summary in line for line in summary(shown.snapshot)) is open_one


@pytest.mark.parametrize("name", ["ms-swift-4.6.0-04b-frozen-optnoop-full", "trl-1.16.0-14-nan-reward"])
def test_a_message_says_what_the_report_says(name: str, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path / "runs")
    (report,) = check_runs(find_runs([str(folder)])[0], RULES.rules, {}, Tick(NOW, live=False))
    live = Live(folder, tmp_path / "state", now=NOW, rules=lambda: RULES)
    live.settle()
    top = top_view(report.snapshot)
    assert top is not None
    sent = notifications(live.transitions(name), NotificationContext(live.run(name), Series().recent, NOW))
    assert top.finding.summary in {message.message for message in sent if message.rule == top.finding.rule}


def test_the_compare_view_says_what_diff_says(tmp_path: Path) -> None:
    """Of a frozen and a resumed run; the daemon keeps all their rows."""
    names = ["ms-swift-4.6.0-04b-frozen-optnoop-full", "ms-swift-4.6.0-16-resume"]
    folders = [unpack(name, tmp_path / "runs") for name in names]
    reports = [
        check_runs(find_runs([str(folder)])[0], RULES.rules, {}, Tick(NOW, live=False), recording=True)[0]
        for folder in folders
    ]
    live = Live(tmp_path / "runs", tmp_path / "state", now=NOW, rules=lambda: RULES)
    live.settle()
    shown = {run.snapshot.run: run.snapshot for run in live.daemon.snapshot().shown}
    pairs = [(shown[name], live.daemon.detail(name).series) for name in names]
    live.close()
    found, whole = compared(*pairs)
    assert whole
    assert found == diff_document(compare(*reports))
    assert (found["verdict"], found["parted_step"]) == ("parted", 2)


def test_a_long_run_is_not_compared_by_its_extremes() -> None:
    rows = Series.of(ThinnedColumns([1], [1], {"loss": [0.5]}, rows=2000))
    found, whole = compared((a_report().snapshot, rows), (a_report().snapshot, rows))
    assert (whole, found["verdict"]) == (False, "not-evaluable")
