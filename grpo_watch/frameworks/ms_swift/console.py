"""ms-swift's console: rows of Megatron under ms-swift 3, and marks, which begin with its logger's name.

A row: ``iteration  7/ 2174 | consumed samples: 448 | loss: -2.3E-06 | …``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from grpo_watch.frameworks.line_reader import ConsoleMark, MarkKind, MetricLine
from grpo_watch.frameworks.row_numbers import duration, number

BEGIN = re.compile(rb"(?:^|\s)iteration {1,20}(\d{1,9})/ {0,20}(\d{1,9}) \| consumed samples: ")
"""Megatron-LM itself prints the same without a reward."""
LONGEST = 64 << 10


class MegatronLines:
    """One line per row; times are texts (``17m 33s``), of which the passed one is kept in seconds."""

    framework = "ms-swift"
    marks: Sequence[bytes] = (b"| consumed samples: ",)
    held = False

    def feed(self, line: bytes) -> Sequence[MetricLine]:
        """The row of this line."""
        found = BEGIN.search(line)
        if found is None:
            return ()
        text = line[found.end() - len("consumed samples: ") :][:LONGEST].decode("utf-8", "replace")
        pairs = dict(_pair(part) for part in text.split("|") if ":" in part)
        values = {key: value for key, raw in pairs.items() if (value := number(raw)) is not None}
        if (passed := duration(pairs.get("elapsed time"))) is not None:
            values["elapsed_seconds"] = passed
        return (MetricLine(int(found[1]), values, max_steps=int(found[2])),)

    def flush(self) -> Sequence[MetricLine]:
        """Nothing is ever held."""
        return ()


READER = MegatronLines


def _pair(part: str) -> tuple[str, str]:
    key, _, value = part.rpartition(":")
    return key.strip(), value.strip()


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
