"""Monitors the training health of GRPO fine-tuning: reads a job's logs and reports when the run is silently dead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grpo_watch.api import Watch, check, check_all, digest, watch
    from grpo_watch.engine.diagnosis import Finding
    from grpo_watch.preflight import preflight
    from grpo_watch.report.check_document import RunReport

__version__ = "0.1.0"
__all__ = ["Finding", "RunReport", "Watch", "check", "check_all", "digest", "preflight", "watch"]


def __getattr__(name: str) -> Any:
    """Import a name on first use, so that a training script with the callback imports nothing else."""
    from importlib import import_module  # noqa: PLC0415  the callback pays for it otherwise

    if name == "preflight":
        return import_module("grpo_watch.preflight")  # the package is callable and has the function's name
    homes = {"Finding": "engine.diagnosis", "RunReport": "report.check_document"}
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"grpo_watch.{homes.get(name, 'api')}"), name)
