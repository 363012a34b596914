"""OpenRLHF's command line: there is no configuration file, so nothing else shows how a job was set up."""

from __future__ import annotations

import re

from grpo_watch.frameworks.line_reader import ConsoleMark, MarkKind

MARKS = (
    ConsoleMark(
        "openrlhf",
        MarkKind.COMMAND,
        re.compile(rb"\bopenrlhf\.cli\.train_ppo(?:_ray)?(?=\s)"),
        sign=rb"openrlhf\.cli\.train_ppo",
    ),
)
