"""open-r1: TRL makes its batches."""

from __future__ import annotations

from grpo_watch.frameworks.trl.launch import RULES

LAUNCHES = {"open-r1": RULES}
