"""Reports of runs made by hand, some with the worst names and texts that a run folder can hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grpo_watch.engine.diagnosis import Finding, Waste
from grpo_watch.engine.records import MetricRow, Setting, Severity, Stream
from grpo_watch.engine.snapshot import RuleStatus, RuleView, RunSnapshot, RunVerdict
from grpo_watch.report.check_document import ChannelReport, Provenance, RunReport
from grpo_watch.report.series import Series

EVIL = (
    '</script><img src=x onerror="document.title=1"><script>document.title="taken"</script>|`]]>&amp;\x1b[31m\u202e\x00'
)
PROVENANCE = Provenance("grpo-watch check 'my run' --now 2026-11-21T10:00:00Z", "9.9.9", 1_795_255_200.0)
"""2026-11-21 10:00:00 UTC."""


def a_series(rows: Sequence[Mapping[str, float | None]], attempt: int = 1, first: int = 1) -> Series:
    """A series with one row for each step from ``first``."""
    series = Series()
    for step, values in enumerate(rows, start=first):
        series.take(MetricRow("r", Stream.TRAIN, attempt, step, values))
    return series


def a_finding(rule: str = "kl-stuck-at-zero", **changes: object) -> Finding:
    """A critical finding since step 2 that fired at step 10 and lasts."""
    known: dict[str, object] = {
        "rule": rule,
        "key": "",
        "severity": Severity.CRITICAL,
        "attempt": 1,
        "first_step": 2,
        "fired_step": 10,
        "resolved_step": None,
        "evidence": {"kl_reference": 0.0},
        "summary": "KL is 0",
        "hint": "try `this`",
        "wasted": Waste(8, 0.5, 4.0),
        "causes": ("The optimizer holds nothing.",),
    }
    return Finding(**{**known, **changes})  # type: ignore[arg-type]


def frozen() -> tuple[Finding, Finding]:
    """Two checkpoints tell at step 80 what the KL reported as critical at step 10."""
    cause = a_finding("parameters-unchanged", first_step=60, fired_step=80)
    effect = a_finding(severity=Severity.WARNING, told_as=Severity.CRITICAL, caused_by=cause.rule, wasted=None)
    return cause, effect


def a_report(*findings: Finding, run: str = "my run", verdict: str = "critical", **changes: object) -> RunReport:
    """A run of 20 of 100 steps with one rule that is fine, one that is blind, and those of the findings."""
    rules = [
        RuleView("entropy-collapse", Severity.WARNING, RuleStatus.OK, evaluated=True),
        RuleView("duplicate-completions", Severity.CRITICAL, RuleStatus.BLIND, "needs completions"),
        *(RuleView(f.rule, f.severity, RuleStatus.FIRING, evaluated=True) for f in findings),
    ]
    known: dict[str, object] = {
        "run": run,
        "framework": "trl",
        "version": "1.16.0",
        "attempt": 1,
        "step": 20,
        "rows": 20,
        "max_steps": 100,
        "last_step_time": None,
        "verdict": RunVerdict(verdict),
        "values": {},
        "config": {"beta": Setting(0.04, "args.json")},
        "rules": tuple(rules),
        "alerts": (),
        "findings": findings,
    }
    snapshot = RunSnapshot(**{**known, **changes})  # type: ignore[arg-type]
    return RunReport(snapshot, series=a_series([{"reward_mean": 0.5, "kl_reference": 0.0}] * 20))


def a_hostile_report() -> RunReport:
    """Every text that may come from a run folder or a rule file holds markup, quotes, control characters."""
    finding = a_finding(key=EVIL, summary=EVIL, hint=EVIL, causes=(EVIL,), evidence={EVIL: EVIL}, rule=f"my-{EVIL}")
    report = a_report(
        finding,
        a_finding("reward-collapse", caused_by=finding.rule, summary=EVIL, key=EVIL),
        run=EVIL,
        framework=EVIL,
        version=EVIL,
        config={EVIL: Setting(EVIL, EVIL)},
        notes=((3, EVIL),),
    )
    rules = (*report.snapshot.rules, RuleView(EVIL, Severity.WARNING, RuleStatus.BROKEN, EVIL))
    rules = (*rules, RuleView("blind-one", Severity.WARNING, RuleStatus.BLIND, EVIL))
    series = a_series(
        [{f"reward_function_mean[{EVIL}]": 0.5, "reward_mean": 1.0, f"reward_function_mean[b{EVIL}]": 2.0}]
    )
    channels = (ChannelReport(EVIL, EVIL, 3, {EVIL: 2}, EVIL, EVIL),)
    snapshot = RunSnapshot(
        **{name: getattr(report.snapshot, name) for name in RunSnapshot.__slots__} | {"rules": rules}
    )
    return RunReport(snapshot, channels, (EVIL,), (EVIL,), series)
