"""What ms-swift's console prints besides rows; each of these lines begins with its logger's name."""

from __future__ import annotations

import re

from grpo_watch.frameworks.line_reader import ConsoleMark, MarkKind

MARKS = (
    ConsoleMark("ms-swift", MarkKind.NAME, re.compile(rb"\[INFO:swift\]"), sign=rb"\[INFO:swift\]"),
    ConsoleMark(
        "ms-swift",
        MarkKind.PACKAGE,
        re.compile(rb"\bswift\.__version__: (\d[\w.+]{0,40})"),
        sign=rb"swift\.__version__: \d",
    ),
    ConsoleMark("ms-swift", MarkKind.PROCESSES, re.compile(rb", world_size: (\d{1,6}), local_world_size:")),
    ConsoleMark(  # what is left for training after the split; a streamed one is an IterableDataset without a number
        "ms-swift", MarkKind.DATASET, re.compile(rb"\btrain_dataset: Dataset\(\{\s*$")
    ),
)
