"""Evaluation that the launch itself switches off."""

from __future__ import annotations

from tests.preflight.launches import judged, launch

CHECK = "no-evaluation"


def test_switched_off() -> None:
    assert len(judged(CHECK, launch(eval_strategy="no"))) == 1
    assert len(judged(CHECK, launch("verl", "0.9.0", trainer__test_freq=-1))) == 1


def test_on_or_left_alone() -> None:
    assert judged(CHECK, launch()) == []
    assert judged(CHECK, launch(eval_strategy="steps")) == []
    assert judged(CHECK, launch("verl", "0.9.0", trainer__test_freq=5)) == []
