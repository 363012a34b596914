"""What a person reads in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from grpo_watch.engine.diagnosis import Waste
from grpo_watch.engine.judgement import EarlySign, Judgement
from grpo_watch.engine.records import Severity
from grpo_watch.report.check_document import RunReport, document, exit_code
from grpo_watch.report.junit import junit
from grpo_watch.report.lines import columns, laid_out
from grpo_watch.report.markdown import markdown
from grpo_watch.report.page import page
from grpo_watch.report.text import render
from grpo_watch.report.view import in_short, pasteable
from tests.support.reports import PROVENANCE, a_finding, a_report, frozen


def as_text(reports: Sequence[RunReport], *, verbose: bool = False) -> str:
    return laid_out(render(reports, verbose=verbose), 200)


def test_the_first_sign_and_reported_severity_stay() -> None:
    shown = as_text([a_report(*frozen())])
    lines = [line.strip() for line in shown.splitlines()]
    assert "critical  parameters-unchanged  since step 60, fired at 80; first sign: step 2 (kl-stuck-at-zero)" in lines
    assert "↳ explained by parameters-unchanged: kl-stuck-at-zero (warning, since step 2)" in lines
    shown = as_text([a_report(*frozen())], verbose=True)
    consequence = "kl-stuck-at-zero (warning, since step 2, fired at 10 as critical) explained by parameters-unchanged"
    assert f"↳ {consequence}" in shown


def test_what_could_not_be_seen_is_one_line_and_verbose_names_each_rule() -> None:
    """One rule of four lacks completions, which TRL dumps under one setting."""
    brief = as_text([a_report(*frozen())])
    whole = as_text([a_report(*frozen())], verbose=True)
    assert brief.splitlines()[0].endswith(" · 3 of 4 applicable rules judged")
    assert brief.splitlines()[-1] == "  1 blind: set log_completions=True (-v lists the rules)"
    assert "duplicate-completions" not in brief
    assert "blind: duplicate-completions: needs completions" in whole


def test_functions_that_say_the_same_are_one_finding() -> None:
    findings = [
        a_finding(
            "dead-reward-component", key=name, summary=f"{name} returned no score for any completion in {rows} rows"
        )
        for name, rows in (("format", 20), ("style", 24), ("length", 30))
    ]
    values = {f"reward_function_mean[{name}]": 0.0 for name in ("format", "style", "length", "right", "short")}
    shown = as_text([a_report(*findings, values=values)])
    assert shown.count("dead-reward-component") == 1
    counted = "3 of 5 reward functions (format, style, length): format returned no score for any completion in 20 rows"
    assert counted in shown


def test_a_finding_without_a_headline_is_shown_once() -> None:
    report = a_report(a_finding(headline="", summary="KL is 1e-06"))
    shown = as_text([report])
    assert shown.count("KL is 1e-06") == 1
    assert markdown([report], (), PROVENANCE).count("KL is") == 1


def test_what_explains_a_cause_comes_before_it() -> None:
    """The cause explains b, b explains a, as diagnosis sorts them: the worst first, then by the step of firing."""
    a = a_finding("a", severity=Severity.WARNING, fired_step=9, caused_by="b")
    b = a_finding("b", severity=Severity.WARNING, fired_step=10, caused_by="cause")
    for verbose, first in ((False, "explained by cause: b"), (True, "b (warning, since step 2, fired at 10)")):
        report = a_report(a_finding("cause"), a, b)
        shown = as_text([report], verbose=verbose)
        lines = [line.strip() for line in shown.splitlines() if "↳" in line]
        assert [line.startswith(f"↳ {first}") for line in lines] == [True, False]


def test_several_runs_end_in_a_table_worst_first() -> None:
    reports = [a_report(run="a", verdict="healthy"), a_report(*frozen(), run="longer name")]
    shown = as_text(reports)
    assert [line.split() for line in shown.splitlines()[-4:-1]] == [
        ["run", "verdict", "top", "finding", "since"],
        ["longer", "name", "critical", "parameters-unchanged", "step", "2"],
        ["a", "healthy", "-", "-"],
    ]


def test_the_table_is_in_the_readers_language_with_columns_below_each_other() -> None:
    reports = [a_report(run="a", verdict="healthy", language="zh"), a_report(*frozen(), run="b", language="zh")]
    shown = as_text(reports)
    table = [cells_of(line) for line in shown.splitlines()[-4:]]
    assert [cells[0].split()[1] for cells in table[:3]] == ["结论", "严重", "正常"]
    assert len({place for _, place in table[:3]}) == 1
    assert table[3][0] == "2 个任务：严重 1，正常 1"


def cells_of(line: str) -> tuple[str, int]:
    """The line, and the column of the terminal where its second word begins."""
    return line, columns(line[: line.index(line.split()[1])])


def test_more_than_ten_runs_are_the_table_only() -> None:
    reports = [a_report(*frozen(), run=f"run-{number}") for number in range(11)]
    few = as_text(reports[:10])
    many = as_text(reports)
    whole = as_text(reports, verbose=True)
    assert few.count("CRITICAL") == 10
    assert many.count("CRITICAL") == 0
    assert len(many.splitlines()) == 1 + 11 + 2
    assert whole.count("CRITICAL") == 11


def test_the_first_line_says_in_plain_words_what_is_wrong_and_what_it_cost() -> None:
    """58 steps of 0.2 hours on 8 GPUs; a finding that is over, and one whose headline names its step itself."""
    lost = a_finding(headline="Not learning", first_step=3, wasted=Waste(57, 0.2, 1.6))
    assert in_short(lost) == "Not learning since step 3 (57 steps, 12 minutes on 8 GPUs)"
    assert in_short(lost, "zh").startswith("第 3 步起")
    assert "57 步" in in_short(lost, "zh")
    weights = a_finding("parameters-unchanged", headline="Not learning: the weights don't change", first_step=60)
    sign = a_finding("kl-stuck-at-zero", first_step=2, caused_by="parameters-unchanged")
    assert in_short(replace(weights, wasted=None), "en", (weights, sign)) == (
        "Not learning since step 2: the weights don't change"
    )
    over = a_finding(headline="Not learning", first_step=3, resolved_step=9, wasted=None)
    assert in_short(over) == "Not learning from step 3 to 9"
    crash = a_finding(headline="Crashed after step {step}", fired_step=40, wasted=Waste(1, None, None))
    assert in_short(crash) == "Crashed after step 40 (1 step)"
    assert in_short(replace(lost, severity=Severity.INFO)) == lost.summary
    assert in_short(replace(lost, headline="")) == lost.summary
    weaker = replace(lost, headline="The gradient norm never changes", wasted=None)
    assert in_short(weaker) == "The gradient norm never changes since step 3"
    assert in_short(weaker, "zh") == "第 3 步起梯度范数一成不变"
    shown = as_text([a_report(lost)])
    assert shown.splitlines()[1] == "  Not learning since step 3 (57 steps, 12 minutes on 8 GPUs)"


def test_commands_of_a_hint_work_outside_the_run() -> None:
    finding = a_finding(
        evidence={"earlier_checkpoint": "output/checkpoint-20", "later_checkpoint": "/elsewhere/checkpoint-40"},
        hint="Compare `grpo-watch digest output/checkpoint-20 /elsewhere/checkpoint-40`.",
    )
    snapshot = a_report(finding).snapshot
    (there,) = pasteable(snapshot, "my run").findings
    assert there.hint == "Compare `grpo-watch digest 'my run/output/checkpoint-20' /elsewhere/checkpoint-40`."
    assert pasteable(snapshot, "") is snapshot


def test_scripts_get_the_same() -> None:
    (run,) = document([a_report(*frozen())])["runs"]
    names = ("rule", "severity", "told_severity", "first_step", "first_sign", "first_sign_rule")
    assert [tuple(finding[name] for name in names) for finding in run["findings"]] == [
        ("parameters-unchanged", "critical", "critical", 60, 2, "kl-stuck-at-zero"),
        ("kl-stuck-at-zero", "warning", "critical", 2, 2, "kl-stuck-at-zero"),
    ]


def test_several_runs_are_counted_worst_first() -> None:
    reports = [a_report(run="a", verdict="healthy"), a_report(*frozen(), run="b"), a_report(run="c", verdict="healthy")]
    shown = as_text(reports)
    assert shown.splitlines()[-1] == "3 runs: 1 critical, 2 healthy"
    shown = as_text(reports[:1])
    assert "runs:" not in shown


def test_few_rows_are_no_verdict() -> None:
    """One or two rows are too short to judge, and what they show already is reported in every format."""
    sign = EarlySign("gradient-lost", "the gradient norm is exactly 0 although rewards differ", {"grad_norm": 0.0})
    judgement = Judgement("2 rows are too little to judge a run", early_signs=(sign,))
    report = a_report(verdict="too-short", rows=2, judgement=judgement)
    shown = as_text([report])
    assert shown.startswith("TOO SHORT")
    (run,) = document([report])["runs"]
    assert (run["verdict"], run["reason"], run["headline"]) == ("too-short", judgement.reason, "too short")
    assert run["early_signs"] == [{"rule": sign.rule, "text": sign.text, "evidence": {"grad_norm": 0.0}}]
    formats = (shown, markdown([report], [], PROVENANCE), page([report], [], PROVENANCE))
    for text in (*formats, junit([report], [], PROVENANCE, Severity.WARNING)):
        assert "rows are too little to judge a run" in text
        assert f"{sign.rule}: {sign.text}" in text.replace("\\", "")
    assert exit_code([report], Severity.WARNING) == 3
    assert exit_code([report, a_report(verdict="healthy")], Severity.WARNING) == 0


def test_what_was_not_read_and_what_was_guessed_come_with_the_line_that_settles_it() -> None:
    line = 'columns: {reward_mean: "ret"}'
    judgement = Judgement("no row has a reward", {"ret": line}, (), {"kl_div": "kl_reference"})
    report = a_report(verdict="not-evaluable", judgement=judgement)
    shown = as_text([report])
    assert f"not read: ret: if this is it, say so with {line} in grpo-watch.yaml" in shown
    assert 'settle it with columns: {kl_reference: "kl_div"} in grpo-watch.yaml' in shown
    (run,) = document([report])["runs"]
    assert (run["unread"], run["guessed"]) == ({"ret": line}, {"kl_div": "kl_reference"})


def test_healthy_says_how_much_could_be_seen() -> None:
    """A rule of severity critical lacks its channel."""
    report = a_report(verdict="healthy")
    shown = as_text([report])
    headline = "HEALTHY as far as judged"
    assert shown.startswith(headline)
    assert headline in markdown([report], [], PROVENANCE)
    assert headline.replace("HEALTHY", "healthy") in page([report], [], PROVENANCE)
    assert headline.replace("HEALTHY", "healthy") in junit([report], [], PROVENANCE, None)
    (run,) = document([report])["runs"]
    assert (run["verdict"], run["judged"]) == ("healthy", 1)
