"""The user's settings of one run: from the settings file and the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from grpo_watch.engine.records import Scalar
from grpo_watch.sources.checkpoints.weights import UNHURRIED, ReadLimits
from grpo_watch.sources.excerpt_privacy import KeptTexts


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """``{folder}`` in ``name`` stands for the name that discovery found. ``ended``: its input was closed (a pipe)."""

    name: str = "{folder}"
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    examples: KeptTexts = KeptTexts.EXCERPT
    columns: Mapping[str, str] = field(default_factory=dict)
    ended: Callable[[], bool] = lambda: False
    care: ReadLimits = UNHURRIED
