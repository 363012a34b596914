"""Advisories that apply to a run, and the findings that they explain."""

from __future__ import annotations

from grpo_watch.advisories.judge import AdvisoryLedger
from grpo_watch.engine.detector import Blindness
from grpo_watch.engine.engine import Engine
from grpo_watch.engine.record_parts import AdvisoryMet
from grpo_watch.engine.records import RunConfig, Scalar, Setting
from grpo_watch.engine.snapshot import RunSnapshot, take_snapshot
from tests.support.detecting import DETECTORS, SHIPPED, Watched
from tests.support.records import row

RULE = "known-bug"


def config(version: str | None, precedence: int = 1, framework: str = "ms-swift", **settings: Scalar) -> RunConfig:
    named = {name.replace("__", ":"): Setting(value, "args.json") for name, value in settings.items()}
    return RunConfig(framework, version, named, "run-config", 0, precedence)


def bugs(*configs: RunConfig) -> list[tuple[str, bool]]:
    ledger = AdvisoryLedger()
    return [(bug.id, bug.applies) for each in configs for bug in ledger.add_config(each)]


def test_it_applies_once_version_and_setting_are_known_in_either_order() -> None:
    version, setting = config("3.11.3"), config(None, vllm_sleep_level=2)
    assert bugs(version) == bugs(setting) == []
    assert bugs(version, setting, version) == bugs(setting, version) == [("GW-2025-0104", True)]


def test_a_more_exact_source_withdraws_it() -> None:
    """The log printed an old banner; the arguments of the run say another version."""
    first, better = config("3.11.3", vllm_sleep_level=2), config("3.12.0", precedence=0)
    assert bugs(first, better) == [("GW-2025-0104", True), ("GW-2025-0104", False)]
    less_exact = config("3.11.3", precedence=3)
    assert bugs(config("3.12.0", vllm_sleep_level=2), less_exact) == []


def test_versions_of_other_packages() -> None:
    """DeepSpeed under any trainer, by what `pip freeze` printed."""
    found = bugs(config(None, framework="trl", deepspeed_stage=2), config(None, package__deepspeed="0.18.2"))
    assert found == [("GW-2025-0201", True)]


def test_a_bug_of_one_framework_is_none_of_another() -> None:
    """ms-swift depends on TRL, and has a trainer of its own."""
    settings: dict[str, Scalar] = {"use_vllm": True, "vllm_mode": "colocate", "raw__vllm_enable_sleep_mode": True}
    assert bugs(config("1.0.0", framework="trl", **settings)) == [("GW-2025-0003", True)]
    assert bugs(config("3.12.0", package__trl="1.0.0", **settings)) == []


def bug(*, applies: bool = True, severity: str = "critical") -> AdvisoryMet:
    return AdvisoryMet("GW-2025-0104", "ms-swift", "3.11.3", severity, "loses weights", "Upgrade.", "", ("x",), applies)


def test_it_fires_and_resolves_under_its_id() -> None:
    run = Watched(RULE).feed(bug(), bug(applies=False))
    assert run.changes == [("firing", 0, "critical"), ("resolved", 0, "critical")]
    assert {change.key for change in run.said if change.to_state.value == "firing"} == {"GW-2025-0104"}
    assert Watched(RULE).feed(bug(severity="warning")).changes == [("firing", 0, "warning")]


def test_it_is_blind_until_a_version_is_known() -> None:
    run = Watched(RULE, beta=0.04)
    assert "version" in run.blind_reason
    assert "no advisory applies" in run.feed(RunConfig("trl", "1.16.0", {})).blind_reason
    assert not run.monitor.evaluated, "a version alone makes no run a healthy one"


def stuck(version: str) -> RunSnapshot:
    """A frozen policy on DeepSpeed: rewards differ and the KL stays at 0."""
    settings: dict[str, Scalar] = {"beta": 0.04, "num_generations": 8, "learning_rate": 1e-5, "deepspeed_stage": 2}
    known = config("3.2.0", package__deepspeed=version, **settings)
    engine = Engine("run", [SHIPPED["kl-stuck-at-zero"], SHIPPED[RULE]], DETECTORS)
    for record in (known, *AdvisoryLedger().add_config(known)):
        engine.feed(record)
    for step in range(1, 31):
        engine.feed(row(step, kl_reference=0.0, reward_group_std=0.3, learning_rate=1e-5, reward_mean=0.5))
    return take_snapshot(engine.state)


def test_a_finding_names_the_advisory_as_its_likely_cause() -> None:
    found = {finding.rule: finding for finding in stuck("0.18.0").findings}
    assert found["kl-stuck-at-zero"].causes[0].endswith("(GW-2025-0201)")
    assert found[RULE].evidence["version"] == "0.18.0"
    fixed = {finding.rule: finding for finding in stuck("0.18.3").findings}
    assert RULE not in fixed
    assert not any("GW-" in cause for cause in fixed["kl-stuck-at-zero"].causes)


def test_a_run_with_known_versions_and_no_bug_is_not_applicable() -> None:
    view = next(view for view in stuck("0.19.1").rules if view.rule == RULE)
    assert (view.blind, view.evaluated) == (Blindness.NOT_APPLICABLE, False)
