"""Turns rows of Megatron under ms-swift 3 on its console into rows.

A row: ``iteration  7/ 2174 | consumed samples: 448 | loss: -2.3E-06 | …``.
"""

from __future__ import annotations

from collections.abc import Sequence

from grpo_watch import lazy_re as re
from grpo_watch.frameworks.line_reader import LineReader, MetricLine
from grpo_watch.frameworks.row_numbers import duration, number

BEGIN = re.compile(rb"(?:^|\s)iteration {1,20}(\d{1,9})/ {0,20}(\d{1,9}) \| consumed samples: ")
"""Megatron-LM itself prints the same without a reward."""
LONGEST = 64 << 10


class MegatronLines(LineReader):
    """One line per row; times are texts (``17m 33s``), of which the elapsed one is kept in seconds."""

    framework = "ms-swift"
    marks: Sequence[bytes] = (b"| consumed samples: ",)

    def read_line(self, line: bytes) -> Sequence[MetricLine]:
        """The row of this line."""
        found = BEGIN.search(line)
        if found is None:
            return ()
        text = line[found.end() - len("consumed samples: ") :][:LONGEST].decode("utf-8", "replace")
        parts = (part.rpartition(":") for part in text.split("|") if ":" in part)
        pairs = {key.strip(): value.strip() for key, _, value in parts}
        values = {key: value for key, raw in pairs.items() if (value := number(raw)) is not None}
        if (passed := duration(pairs.get("elapsed time"))) is not None:
            values["elapsed_seconds"] = passed
        return (MetricLine(int(found[1]), values, max_steps=int(found[2])),)


READER = MegatronLines
