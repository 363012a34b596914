"""Unsloth's banner: version, training set, processes (``Num GPUs used`` may count more than the processes)."""

from __future__ import annotations

import re

from grpo_watch.frameworks.line_reader import ConsoleMark, MarkKind

MARKS = (
    ConsoleMark("unsloth", MarkKind.VERSION, re.compile(rb"Unsloth (\d{4}\.\d{1,2}\.\d{1,3})"), sign=rb"Unsloth \d"),
    ConsoleMark(
        "unsloth",
        MarkKind.SIZES,
        re.compile(rb"\bNum examples = (\d[\d,]{0,20}) \| Num Epochs = (\d[\d,]{0,25})(?!\S)"),
        sign=rb"Num examples = \d",
    ),
    ConsoleMark(
        "unsloth",
        MarkKind.PROCESSES,
        re.compile(rb"\bData Parallel GPUs = (\d{1,6})(?= \|)"),
        sign=rb"Data Parallel GPUs = \d",
    ),
    ConsoleMark(  # of an older banner
        "unsloth",
        MarkKind.PROCESSES,
        re.compile(rb"\bfinetuning \| Num GPUs = (1)\s*$"),
        sign=rb"Num GPUs = 1",
    ),
)
