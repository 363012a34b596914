"""What verl's console prints besides rows."""

from __future__ import annotations

import re

from grpo_watch.frameworks.line_reader import ConsoleMark, MarkKind

MARKS = (
    ConsoleMark(  # the only sign that a job came to its end
        "verl",
        MarkKind.FINISHED,
        re.compile(rb"Final validation metrics: "),
        sign=rb"Final validation metrics: ",
    ),
    ConsoleMark(  # after a checkpoint was loaded; a line of validation at this step comes next
        "verl",
        MarkKind.RESUMED,
        re.compile(rb"[Ss]etting global step to (\d{1,12})"),
        sign=rb"[Ss]etting global step to \d",
    ),
    ConsoleMark(  # the module that is started, as `set -x` shows it
        "verl",
        MarkKind.NAME,
        re.compile(rb"-m verl\.trainer\.main_ppo\b"),
        sign=rb"-m verl\.trainer\.main_ppo",
    ),
    ConsoleMark(  # once the dataset is loaded and filtered
        "verl",
        MarkKind.TOTAL,
        re.compile(rb"Total training steps: (\d{1,12})\s*['\"]?$"),
        sign=rb"Total training steps: \d",
    ),
)
