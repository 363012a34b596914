"""One top finding per run, the rest explained; every rule of the interface about ``caused_by`` and severities."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_watch.catalogue import catalogue
from grpo_watch.engine.detector import SILENT, Detector, RunView
from grpo_watch.engine.diagnosis import Finding, diagnose
from grpo_watch.engine.engine import Episode, Monitor
from grpo_watch.engine.records import MetricRow, Reading, Severity, Verdict
from grpo_watch.engine.rule import Rule
from tests.support.records import a_rule

INFO, WARNING, CRITICAL = Severity
DETECTORS = catalogue()
COLLAPSE = [name for name, detector in DETECTORS.items() if detector.part_of_collapse]


def an_episode(**changes: object) -> Episode:
    """A critical episode of attempt 1 that fired at step 10 and goes on."""
    known = {"key": "", "attempt": 1, "first_step": 2, "fired_step": 10, "resolved_step": None}
    reading = Reading(Verdict.BREACH, message="what is seen", hint="", evidence={"kl_reference": 0.0})
    return Episode(**{**known, "severity": CRITICAL, "reading": reading, **changes})  # type: ignore[arg-type]


def findings(**episodes: Episode | list[Episode]) -> tuple[Finding, ...]:
    """The findings of a run in which these rules (names with underscores) had these episodes."""
    monitors = []
    for stem, had in episodes.items():
        monitor = Monitor(a_rule(stem.replace("_", "-"), summary="what it means", hint="what to do"), DETECTORS)
        monitor.episodes = had if isinstance(had, list) else [had]
        monitors.append(monitor)
    return diagnose(monitors)


def reported(found: tuple[Finding, ...]) -> dict[str, tuple[Severity, str | None]]:
    """Severity and cause by rule."""
    return {each.rule: (each.severity, each.caused_by) for each in found}


def test_a_finding_carries_the_episode_and_the_rules_texts() -> None:
    (found,) = findings(kl_stuck_at_zero=an_episode(key="k", attempt=2, resolved_step=30))
    assert (found.rule, found.key, found.attempt, found.severity) == ("kl-stuck-at-zero", "k", 2, CRITICAL)
    assert (found.first_step, found.fired_step, found.resolved_step) == (2, 10, 30)
    assert (found.summary, found.hint, found.evidence) == ("what is seen", "what to do", {"kl_reference": 0.0})
    assert found.caused_by is None


def test_the_readings_own_hint_wins_and_the_summary_falls_back_to_the_rules() -> None:
    (found,) = findings(kl_stuck_at_zero=an_episode(reading=Reading(Verdict.BREACH, hint="turn it on")))
    assert (found.summary, found.hint) == ("what it means", "turn it on")


def test_an_explained_finding_is_at_most_a_warning_and_stays_in_the_list() -> None:
    found = findings(kl_stuck_at_zero=an_episode(), learning_rate_zero=an_episode())
    assert reported(found) == {
        "learning-rate-zero": (CRITICAL, None),
        "kl-stuck-at-zero": (WARNING, "learning-rate-zero"),
    }


def test_an_info_stays_an_info_when_it_is_explained() -> None:
    found = findings(kl_stuck_at_zero=an_episode(severity=INFO), learning_rate_zero=an_episode())
    assert reported(found)["kl-stuck-at-zero"] == (INFO, "learning-rate-zero")


def test_the_best_explanation_is_named() -> None:
    """Weights that stood still explain a KL of zero; lost gradients explain both."""
    found = findings(kl_stuck_at_zero=an_episode(), parameters_unchanged=an_episode(), gradient_lost=an_episode())
    assert {rule: cause for rule, (_, cause) in reported(found).items()} == {
        "gradient-lost": None,
        "kl-stuck-at-zero": "gradient-lost",
        "parameters-unchanged": "gradient-lost",
    }


def test_an_info_explains_nothing() -> None:
    found = findings(kl_stuck_at_zero=an_episode(), learning_rate_zero=an_episode(severity=INFO))
    assert reported(found)["kl-stuck-at-zero"] == (CRITICAL, None)


def test_another_attempt_explains_nothing() -> None:
    found = findings(kl_stuck_at_zero=an_episode(), learning_rate_zero=an_episode(attempt=2))
    assert reported(found)["kl-stuck-at-zero"] == (CRITICAL, None)


@pytest.mark.parametrize(
    ("cause", "effect", "explained"),
    [
        ({"resolved_step": 5}, {"first_step": 6}, False),
        ({"resolved_step": 6}, {"first_step": 6}, True),
        ({"first_step": 31}, {"first_step": 25, "resolved_step": 30}, False),
        ({"first_step": 30}, {"first_step": 25, "resolved_step": 30}, True),
    ],
)
def test_cause_and_effect_overlap(cause: dict[str, int], effect: dict[str, int], *, explained: bool) -> None:
    found = findings(kl_stuck_at_zero=an_episode(**effect), learning_rate_zero=an_episode(**cause))
    assert (reported(found)["kl-stuck-at-zero"][1] is not None) is explained


def test_a_kl_finding_is_withdrawn_when_the_weights_do_move() -> None:
    found = findings(kl_stuck_at_zero=an_episode(), reference_follows_policy=an_episode(severity=WARNING))
    assert reported(found) == {
        "reference-follows-policy": (WARNING, None),
        "kl-stuck-at-zero": (INFO, "reference-follows-policy"),
    }


def test_a_crash_that_a_resume_cleared_is_at_most_a_warning() -> None:
    assert reported(findings(run_crashed=an_episode()))["run-crashed"] == (CRITICAL, None)
    assert reported(findings(run_crashed=an_episode(resolved_step=12)))["run-crashed"] == (WARNING, None)


def test_other_resolved_findings_keep_their_severity() -> None:
    assert reported(findings(gradient_lost=an_episode(resolved_step=12)))["gradient-lost"] == (CRITICAL, None)


def test_the_top_finding_comes_first() -> None:
    """Unresolved before resolved, unexplained before explained, then severity, step and name."""
    found = findings(
        gradient_lost=an_episode(resolved_step=12),
        kl_stuck_at_zero=an_episode(),
        learning_rate_zero=an_episode(fired_step=11),
        non_finite_metric=an_episode(severity=WARNING, fired_step=1, resolved_step=None, attempt=2),
        checkpoint_unusable=an_episode(fired_step=11),
    )
    assert [each.rule for each in found] == [
        "checkpoint-unusable",
        "learning-rate-zero",
        "non-finite-metric",
        "kl-stuck-at-zero",
        "gradient-lost",
    ]


def test_each_episode_is_a_finding() -> None:
    two = [an_episode(resolved_step=20), replace(an_episode(), first_step=40, fired_step=48)]
    assert [each.fired_step for each in findings(kl_stuck_at_zero=two)] == [48, 10]


def test_no_episodes_no_findings() -> None:
    assert findings(kl_stuck_at_zero=[]) == ()


def test_of_one_collapse_the_symptom_that_began_first_explains_the_others() -> None:
    """Whatever their order; one that is over before, or milder, explains nothing."""
    early, late = an_episode(first_step=5), an_episode(first_step=9)
    assert reported(findings(reward_collapse=early, entropy_explosion=late)) == {
        "reward-collapse": (CRITICAL, None),
        "entropy-explosion": (WARNING, "reward-collapse"),
    }
    assert reported(findings(reward_collapse=late, entropy_explosion=early))["reward-collapse"] == (
        WARNING,
        "entropy-explosion",
    )
    milder, over = replace(early, severity=WARNING), replace(early, resolved_step=8)
    for other in (milder, over):
        assert reported(findings(reward_collapse=late, entropy_explosion=other))["reward-collapse"] == (CRITICAL, None)


def test_a_collapse_has_one_top_finding() -> None:
    """Six symptoms at one step: five are explained, by the same one."""
    found = reported(findings(**{rule.replace("-", "_"): an_episode() for rule in COLLAPSE}))
    assert [cause for _, cause in found.values()].count(None) == 1
    assert len({cause for _, cause in found.values()}) == 2


@pytest.mark.parametrize(("began", "explained"), [(9, True), (30, True), (31, False)])
def test_a_cause_may_show_a_window_later_but_not_more(*, began: int, explained: bool) -> None:
    """Spread lost at step 20, entropy beyond its bounds at 9, at 30 (ten steps later) or at 31."""
    effect, cause = an_episode(first_step=20, fired_step=20), an_episode(first_step=began)
    found = reported(findings(reward_variance_collapse=effect, entropy_explosion=cause))
    assert (found["reward-variance-collapse"][1] == "entropy-explosion") is explained


@pytest.mark.parametrize(("began", "explained"), [(20, True), (21, False)])
def test_what_an_earlier_row_shows_is_not_explained_by_the_first_nan(*, began: int, explained: bool) -> None:
    """KL explodes at step 20; NaN comes in the same row, or as its consequence in the next."""
    effect, cause = an_episode(first_step=20, fired_step=24), an_episode(first_step=began, fired_step=began)
    found = reported(findings(kl_explosion=effect, non_finite_metric=cause))
    assert (found["kl-explosion"][1] == "non-finite-metric") is explained


def test_completions_may_show_an_effect_before_the_row_that_covers_their_step() -> None:
    """Rows every ten steps: the NaN of row 40 emptied the completions of step 32."""
    effect, cause = an_episode(first_step=32, fired_step=32), an_episode(first_step=40, fired_step=40)
    found = reported(findings(empty_completions=effect, non_finite_metric=cause))
    assert found["empty-completions"][1] == "non-finite-metric"


def test_a_cause_that_shows_in_checkpoints_may_come_long_after() -> None:
    """KL was 0 from step 2; the saves of steps 400 and 500 are equal."""
    found = reported(findings(kl_stuck_at_zero=an_episode(), parameters_unchanged=an_episode(first_step=400)))
    assert found["kl-stuck-at-zero"] == (WARNING, "parameters-unchanged")


def test_a_cause_that_began_before_wins_over_a_better_one_that_came_after() -> None:
    """Truncation explains lost spread better than a fallen reward does, unless it follows."""
    unsolved = Reading(Verdict.BREACH, evidence={"kind": "unknown"})
    effect = an_episode(first_step=20, fired_step=25, reading=unsolved)
    for began, cause in ((20, "completions-truncated"), (25, "reward-collapse")):
        found = reported(
            findings(
                reward_variance_collapse=effect,
                reward_collapse=an_episode(first_step=15),
                completions_truncated=an_episode(first_step=began, severity=WARNING),
            )
        )
        assert found["reward-variance-collapse"][1] == cause


def test_of_the_symptoms_of_one_collapse_the_first_is_the_cause() -> None:
    found = reported(
        findings(
            completions_truncated=an_episode(first_step=50),
            entropy_explosion=an_episode(first_step=40),
            reward_collapse=an_episode(first_step=30),
        )
    )
    assert {cause for _, cause in found.values()} == {None, "reward-collapse"}


@pytest.mark.parametrize(("kind", "explained"), [("constant", True), ("never scored", True), ("lowest", False)])
def test_a_dead_function_explains_lost_spread_only_where_the_total_stands_still(kind: str, *, explained: bool) -> None:
    reading = Reading(Verdict.BREACH, evidence={"kind": kind})
    found = reported(
        findings(
            reward_variance_collapse=an_episode(reading=reading), dead_reward_component=an_episode(severity=WARNING)
        )
    )
    assert (found["reward-variance-collapse"][1] == "dead-reward-component") is explained


@pytest.mark.parametrize(
    ("effect", "cause"),
    [
        ("duplicate-completions", "entropy-collapse"),
        ("completions-truncated", "entropy-collapse"),
        ("completions-truncated", "reward-collapse"),
        ("completions-truncated", "length-explosion"),
        ("gibberish-completions", "duplicate-completions"),
    ],
)
def test_two_findings_of_one_fault_are_reported_as_one(effect: str, cause: str) -> None:
    """As seen in real runs that ended with both of them open."""
    found = reported(findings(**{rule.replace("-", "_"): an_episode() for rule in (effect, cause)}))
    assert found == {cause: (CRITICAL, None), effect: (WARNING, cause)}


def test_what_to_do_is_reported_in_the_frameworks_words() -> None:
    """Where the rule has some, and the reading none of its own."""
    rule = a_rule("kl-explosion", hint="lower --learning_rate", hints={"verl": "lower optim.lr"})
    monitor = Monitor(rule, DETECTORS)
    monitor.episodes.append(an_episode())
    shown = {framework: diagnose([monitor], framework)[0].hint for framework in ("verl", "trl", None)}
    assert shown == {"verl": "lower optim.lr", "trl": "lower --learning_rate", None: "lower --learning_rate"}
    monitor.episodes[0] = an_episode(reading=Reading(Verdict.BREACH, hint="its own"))
    assert diagnose([monitor], "verl")[0].hint == "its own"


@pytest.mark.parametrize(("resolved", "told_as"), [(None, ""), (41, "41 of a later attempt"), (50, "50"), (60, "60")])
def test_where_a_finding_ended(resolved: int | None, told_as: str) -> None:
    """Fired at step 50: a crash that a resume at step 41 cleared did not end before it began."""
    (found,) = findings(run_crashed=an_episode(first_step=50, fired_step=50, resolved_step=resolved))
    assert found.resolved == told_as


def test_what_was_reported_before_its_cause_was_seen_stays_reported() -> None:
    found = findings(kl_stuck_at_zero=an_episode(), parameters_unchanged=an_episode(first_step=60, fired_step=80))
    (effect,) = (each for each in found if each.rule == "kl-stuck-at-zero")
    assert (effect.severity, effect.told_as, effect.told_severity) == (WARNING, CRITICAL, CRITICAL)


def test_what_was_explained_when_it_fired_was_reported_as_it_is() -> None:
    found = findings(kl_stuck_at_zero=an_episode(), learning_rate_zero=an_episode(fired_step=4))
    assert [(each.told_as, each.told_severity) for each in found] == [(None, CRITICAL), (None, WARNING)]


def test_a_crash_that_was_overcome_was_reported_as_critical() -> None:
    (found,) = findings(run_crashed=an_episode(resolved_step=20))
    assert (found.severity, found.told_severity) == (WARNING, CRITICAL)


def test_the_hint_names_what_the_evidence_names() -> None:
    reading = Reading(Verdict.BREACH, hint="look at {later_checkpoint}", evidence={"later_checkpoint": "out/my 8"})
    (found,) = findings(parameters_unchanged=an_episode(reading=reading))
    assert found.hint == "look at 'out/my 8'"


class Mute(Detector):
    """Judges nothing."""

    def observe(self, record: MetricRow, run: RunView) -> tuple[Reading, ...]:  # noqa: ARG002
        """Never says anything."""
        return SILENT


class Downstream(Mute):
    """A shipped rule explains it, and refutes it."""

    explained_by = ("gradient-lost",)
    withdrawn_by = "gradient-lost"


OTHERS = {"downstream": Downstream}


def of_rules(*rules: Rule) -> dict[str, tuple[Severity, str | None]]:
    """Severity and cause by rule, where each has the same critical episode."""
    monitors = [Monitor(rule, {**DETECTORS, **OTHERS}) for rule in rules]
    for monitor in monitors:
        monitor.episodes = [an_episode()]
    return reported(diagnose(monitors))


def test_a_cause_that_refutes_leaves_an_info() -> None:
    assert of_rules(a_rule("downstream"), a_rule("gradient-lost"))["downstream"] == (INFO, "gradient-lost")


def test_a_rule_under_another_name_is_explained_and_explains_like_its_detector() -> None:
    mine, lost = a_rule("my-kl", detector="kl-stuck-at-zero"), a_rule("my-gradient", detector="gradient-lost")
    assert of_rules(mine, lost) == {"my-gradient": (CRITICAL, None), "my-kl": (WARNING, "my-gradient")}


def test_a_condition_is_neither_cause_nor_effect() -> None:
    """Whatever its name."""
    named = a_rule("gradient-lost", when="reward_mean < 0")
    assert of_rules(named, a_rule("kl-stuck-at-zero"))["gradient-lost"] == (CRITICAL, None)
