"""Resuming from weights alone."""

from __future__ import annotations

from tests.preflight.launches import launch, told

CHECK = "resume-without-optimizer"


def test_a_switched_off_resume_is_none() -> None:
    for off in (False, "false", "None", ""):
        assert told(CHECK, launch(save_only_model=True, resume_from_checkpoint=off)) == []
    assert len(told(CHECK, launch(save_only_model="true", resume_from_checkpoint=True))) == 1
