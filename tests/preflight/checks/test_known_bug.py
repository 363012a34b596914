"""Advisories of a launch, under the names that preflight had for the older ones."""

from __future__ import annotations

from grpo_watch.engine.records import Severity
from grpo_watch.frameworks.launches import Launch
from grpo_watch.preflight.findings import LaunchProblem
from tests.preflight.launches import judged, launch

ASLEEP = {"use_vllm": True, "vllm_enable_sleep_mode": True, "vllm_mode": "colocate"}
ON = {"version": "0.15.2", "gradient_checkpointing": True}


def bugs(check: str, given: Launch) -> list[LaunchProblem]:
    return [problem for problem in judged("known-bug", given) if problem.check == check]


def test_trl_loses_slept_weights_by_version() -> None:
    """The level was 1 until 0.24 and the weights are sent again from 1.10 on."""
    versions = ("0.24.0", "0.25.1", "0.27.0", "1.9.0", "1.10.0")
    affected = [v for v in versions if bugs("sleep-loses-weights", launch(version=v, **ASLEEP))]
    assert affected == ["0.25.1", "0.27.0", "1.9.0"]


def test_a_server_does_not_sleep() -> None:
    assert bugs("sleep-loses-weights", launch(version="1.0.0", **{**ASLEEP, "vllm_mode": "server"})) == []


def test_ms_swift_loses_slept_weights_by_version() -> None:
    (problem,) = bugs("sleep-loses-weights", launch("ms-swift", "3.11.3", sleep_level=2))
    assert problem.severity is Severity.CRITICAL
    assert "GW-2025-0104" in problem.message
    assert problem.where == "train.sh:3"
    assert bugs("sleep-loses-weights", launch("ms-swift", "3.12.6", sleep_level=2)) == []


def test_only_re_entrant_checkpoints_lose_gradients() -> None:
    check = "checkpointing-loses-gradients"
    assert len(bugs(check, launch(peft=True, **ON))) == 1
    for written in ("{'use_reentrant': False}", '{"use_reentrant": false}'):
        assert bugs(check, launch(peft=True, gradient_checkpointing_kwargs=written, **ON)) == []
    assert bugs(check, launch(peft=True, gradient_checkpointing_kwargs__use_reentrant=False, **ON)) == []


def test_without_a_known_adapter_nothing_is_reported() -> None:
    assert bugs("checkpointing-loses-gradients", launch(**ON)) == []
    assert bugs("checkpointing-loses-gradients", launch(peft=False, **ON)) == []


def test_zero_2_is_wrong_in_some_versions() -> None:
    """From 0.17.6 up to but not with 0.18.3, with offload or without; ZeRO-3 is right."""
    settings = {"deepspeed": "zero2", "gradient_accumulation_steps": 8}
    check = "gradients-lost-with-offload"
    wrong = {
        version: bool(bugs(check, launch("ms-swift", packages={"deepspeed": version}, **settings)))
        for version in ("0.17.5", "0.17.6", "0.18.2", "0.18.3")
    }
    assert wrong == {"0.17.5": False, "0.17.6": True, "0.18.2": True, "0.18.3": False}
    (problem,) = bugs(check, launch("ms-swift", packages={"deepspeed": "0.18.0"}, **settings))
    assert "deepspeed 0.18.0 computes wrong gradients" in problem.message
    stage_3 = {**settings, "deepspeed": "zero3"}
    assert bugs(check, launch("ms-swift", packages={"deepspeed": "0.18.0"}, **stage_3)) == []


def test_versions_that_are_not_known_make_one_line() -> None:
    """It is information, however many advisories it concerns, and says what settles it."""
    (line,) = bugs("known-bug", launch("ms-swift", version=None, deepspeed="zero2", sleep_level=2, use_vllm=True))
    assert line.severity is Severity.INFO
    assert "deepspeed" in line.message
    assert line.hint.startswith("pip show deepspeed")
