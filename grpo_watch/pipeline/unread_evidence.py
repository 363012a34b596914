"""Says which evidence is there but not read: behind links out of the run's folder, or in Parquet without pyarrow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from grpo_watch.engine.rule_views import ROWS
from grpo_watch.extras import without_parquet
from grpo_watch.frameworks.checkpoint_layouts import layout_of
from grpo_watch.sources.discovery.discover import ChannelContent, FoundRun
from grpo_watch.sources.discovery.walk import LEADS_OUT

COMPLETIONS = "completions"


def unread_evidence(found: FoundRun) -> Mapping[str, str]:
    """By what rules need (``completions``, ``checkpoints``, or rows) why it is not read, and the fix.

    Args:
        found: what discovery found; each line of its problems begins with its path.
    """
    unread: dict[str, str] = {}
    for problem in found.problems:
        path, out, _ = problem.partition(f": {LEADS_OUT}")
        if out:
            name = PurePath(path).name
            unread.setdefault(_need(name), f"{name} leads out of the run's folder, list its target under allow_roots")
    missing = without_parquet()
    if missing and any(channel.what is ChannelContent.COMPLETIONS_PARQUET for channel in found.channels):
        unread.setdefault(COMPLETIONS, missing)
    return unread


def _need(name: str) -> str:
    if layout_of(name) is not None:
        return "checkpoints"
    return COMPLETIONS if COMPLETIONS in name or "rollout" in name else ROWS
