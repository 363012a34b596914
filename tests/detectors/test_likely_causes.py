"""Likely causes: those that the run's own configuration is known for come first."""

from __future__ import annotations

import pytest

from grpo_watch.catalogue import catalogue
from grpo_watch.engine import traits
from grpo_watch.engine.diagnosis import Finding, with_causes
from grpo_watch.engine.engine import Monitor, RunState
from grpo_watch.engine.metric_names import SETTINGS
from grpo_watch.engine.records import RunConfig, Scalar, Setting, Severity
from grpo_watch.engine.traits import MOST
from tests.support.records import a_rule

DETECTORS = catalogue()
WITH_CAUSES = [name for name, detector in DETECTORS.items() if detector.likely_causes]


def a_run(framework: str | None = "ms-swift", version: str | None = "4.6.0", **settings: Scalar) -> RunState:
    """A run with this configuration."""
    run = RunState("run", (Monitor(a_rule("gradient-lost"), DETECTORS),))
    run.take_config(RunConfig(framework, version, {name: Setting(value, "test") for name, value in settings.items()}))
    return run


def likely(rule: str, run: RunState, summary: str = "") -> tuple[str, ...]:
    """The causes of a shipped rule's finding in this run."""
    return traits.likely(DETECTORS[rule].likely_causes, run, summary)


def a_finding(severity: Severity = Severity.CRITICAL, caused_by: str | None = None) -> Finding:
    """Lost gradients."""
    return Finding("gradient-lost", "", severity, 1, 2, 10, None, {}, "", "", caused_by)


def test_a_run_of_unknown_configuration_has_the_general_causes() -> None:
    (cause,) = likely("gradient-lost", a_run(None, None))
    assert "requires_grad" in cause


def test_the_runs_own_stage_and_offload_come_first() -> None:
    found = likely("gradient-lost", a_run(deepspeed_stage=3, offload_optimizer="cpu"))
    assert "ZeRO-3 with optimizer offload" in found[0]
    found = likely("gradient-lost", a_run(deepspeed_stage=2, offload_optimizer="cpu"))
    assert "PR #6550" in found[0]
    assert len(found) == 3


@pytest.mark.parametrize(("seeds", "expected"), [("same", True), ("different", False), (None, False)])
def test_one_seed_of_all_processes_comes_first(seeds: Scalar, expected: bool) -> None:  # noqa: FBT001  a case's answer
    """As the callback recorded it."""
    causes = likely("duplicate-completions", a_run(rank_seeds=seeds, use_vllm=False))
    assert any("one random seed" in cause for cause in causes) is expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"top_k": 1}, "top_k is 1"),
        ({"top_k": 20}, None),
        ({"top_p": 0.0}, "top_p is 0"),
        ({"do_sample": False}, "do_sample is off"),
        ({"do_sample": True}, None),
        ({"request_seed": 42}, "seed 42"),
        ({"model_temperature": 0.7, "temperature": 1.0, "use_vllm": False}, "temperature 0.7"),
        ({"model_temperature": 0.7, "temperature": 0.9, "use_vllm": False}, None),
        ({"model_temperature": 0.7, "temperature": 1.0, "use_vllm": True}, None),
    ],
)
def test_how_texts_are_sampled(settings: dict[str, Scalar], expected: str | None) -> None:
    """As the callback recorded it, or the framework's arguments say."""
    causes = likely("duplicate-completions", a_run(**settings))
    assert not causes if expected is None else expected in causes[0]


@pytest.mark.parametrize("device", ["none", None, False])
def test_no_offload_is_no_cause(device: Scalar) -> None:
    found = likely("gradient-lost", a_run(deepspeed_stage=2, offload_optimizer=device))
    assert not any("offload" in cause for cause in found)


def test_an_adapter_with_gradient_checkpointing() -> None:
    assert "use_reentrant" in likely("gradient-lost", a_run(adapter=True, gradient_checkpointing=True))[0]
    assert "use_reentrant" not in likely("gradient-lost", a_run(adapter=False, gradient_checkpointing=True))[0]


@pytest.mark.parametrize(("level", "first"), [(2, "sleep level 2"), (1, "gets no weights"), (0, "gets no weights")])
def test_the_sleep_level_of_vllm(level: int, first: str) -> None:
    assert first in likely("stale-rollout-weights", a_run(vllm_sleep_level=level))[0]


def test_explained_and_mild_findings_have_none() -> None:
    run = a_run()
    given = (a_finding(), a_finding(Severity.INFO), a_finding(caused_by="non-finite-metric"))
    assert [bool(found.causes) for found in with_causes(given, run)] == [True, False, False]


def test_a_rule_without_known_causes_names_none() -> None:
    assert likely("memory-creep", a_run()) == ()


def test_never_more_than_three() -> None:
    everything = a_run(
        deepspeed_stage=3, offload_optimizer="cpu", adapter=True, adapter_continued=True, gradient_checkpointing=True
    )
    assert all(len(likely(rule, everything)) <= MOST for rule in WITH_CAUSES)
    assert len(likely("gradient-lost", everything)) == MOST


def test_causes_name_settings_that_exist() -> None:
    causes = [cause for detector in DETECTORS.values() for cause in detector.likely_causes]
    assert set(SETTINGS) >= {name for cause in causes for name in (*cause.settings, *cause.bounds)}


def test_the_runs_own_limit_comes_before_a_guess() -> None:
    """A limit of 4 tokens cuts everything off, whatever the end token is; unknown, only the guess is left."""
    found = likely("completions-truncated", a_run(max_completion_length=4))
    assert found[0].startswith("The limit is 4 tokens")
    assert "end token" in found[-1]
    assert [("end token" in cause) for cause in likely("completions-truncated", a_run())] == [True]
    assert "old default" in likely("completions-truncated", a_run("trl", max_completion_length=256))[0]


@pytest.mark.parametrize(
    ("rate", "adapter", "expected"),
    [(1e-4, False, True), (1e-6, False, False), (2e-5, True, False), (2e-4, True, True), (1e-4, None, False)],
)
@pytest.mark.parametrize("rule", ["kl-explosion", "entropy-collapse", "reward-collapse", "non-finite-metric"])
def test_a_high_learning_rate_is_named(rule: str, rate: float, *, adapter: bool | None, expected: bool) -> None:
    """High for all weights is usual for an adapter; where nobody knows which is trained, nothing is reported."""
    found = [cause for cause in likely(rule, a_run(learning_rate=rate, adapter=adapter)) if "learning_rate" in cause]
    assert bool(found) is expected
    assert all(f"learning_rate is {rate:g}, high" in cause for cause in found)


def test_greedy_decoding_is_a_cause_only_of_what_looks_like_it() -> None:
    """A pattern of seeds is none; a temperature of 0 says so whatever the texts look like."""
    greedy = "1 distinct of 8 completions in 100% of the groups: one text per group, so decoding is greedy"
    seeds = "3 distinct of 6 completions in 100% of the groups: the same pattern in every group"
    assert "generation_config" in likely("duplicate-completions", a_run(), greedy)[0]
    assert likely("duplicate-completions", a_run(), seeds) == ()
    assert likely("duplicate-completions", a_run(temperature=0), seeds)[0].startswith("temperature is 0:")
    assert likely("duplicate-completions", a_run(temperature=0.7), seeds) == ()


@pytest.mark.parametrize(
    ("rule", "settings", "words"),
    [
        ("non-finite-metric", {"fp16": True}, "use bf16"),
        ("checkpoint-unusable", {"deepspeed_stage": 3}, "stage3_gather_16bit"),
        ("memory-creep", {"use_vllm": True, "vllm_mode": "colocate"}, "vllm_gpu_memory_utilization"),
        ("run-stalled", {"use_vllm": True, "vllm_mode": "server"}, "rollout server"),
        ("learning-rate-zero", {"learning_rate": 0.0}, "0 in the configuration"),
        ("reference-follows-policy", {"sync_ref_model": True}, "sync_ref_model"),
        ("entropy-collapse", {"temperature": 0.6}, "temperature is 0.6"),
        ("entropy-explosion", {"mask_truncated_completions": False}, "stay in the loss"),
        ("reward-variance-collapse", {"num_generations": 2}, "Groups of 2"),
        ("kl-explosion", {"beta": 0.0001}, "beta is 0.0001"),
    ],
)
def test_what_the_runs_own_settings_show(rule: str, settings: dict[str, Scalar], words: str) -> None:
    assert words in likely(rule, a_run(**settings))[0]
    assert likely(rule, a_run()) == ()
