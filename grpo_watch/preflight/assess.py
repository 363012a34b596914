"""Turns a launch into its assessment: every check, the nearest valid settings, and the predicted run."""

from __future__ import annotations

from grpo_watch.preflight.findings import Assessment, Prediction, Problem, Suggestion
from grpo_watch.preflight.launch import Launch

__all__ = ["Assessment", "Prediction", "Problem", "Suggestion", "assess"]


def assess(launch: Launch) -> Assessment:
    """Judge a launch without running anything."""
    if launch.framework is None:
        return Assessment(None, launch.version, missing=("the framework is not known (--framework)",))
    return Assessment(launch.framework, launch.version)
