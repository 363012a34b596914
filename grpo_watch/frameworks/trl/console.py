"""What transformers' Trainer leaves besides rows, under every framework that is built on it."""

from __future__ import annotations

import re

from grpo_watch.frameworks.line_reader import ConsoleMark, MarkKind

MARKS = (
    ConsoleMark(  # what train() returns, as a notebook shows it
        "trl",
        MarkKind.FINISHED,
        re.compile(rb"TrainOutput\(global_step=(\d{1,12}), "),
        sign=rb"TrainOutput\(global_step=\d",
    ),
    ConsoleMark(
        "trl",
        MarkKind.EPOCH,
        re.compile(rb"Num update steps per epoch = ([1-9]\d{0,11})\s*$"),
        sign=rb"Num update steps per epoch = \d",
    ),
)
