"""Turns the lines of prime-rl's trainer and orchestrator into rows.

``Step 7 | 12.3s | Loss 0.0012 | … | LR 1.00e-06 | …`` is the trainer's, and
``Step 7 | Time: 5.23s | Reward: 0.3498 | … | Seq. Length: 142.7 tokens/sample | …`` the orchestrator's.
"""

from __future__ import annotations

from collections.abc import Sequence

from grpo_watch import lazy_re as re
from grpo_watch.frameworks.line_reader import LineReader, MetricLine

LINE = re.compile(rb"\bStep (\d{1,9}) \| ")
FIELD = re.compile(r"([A-Z][A-Za-z. ]{0,30}?):? +(-?\d[\d.]{0,20}(?:e[-+]?\d{1,3})?|-?inf|nan)(?: ?[A-Za-z%/]{1,20})?")
OWN = {1: frozenset({"Loss", "LR"}), 2: frozenset({"Reward", "Seq. Length"})}
"""Fields in every line of the trainer (1) and of the orchestrator (2)."""
FOUR_DECIMALS = 1e-4


class PrimeRlLines(LineReader):
    """Keeps fields under the names in the line; ``Mismatch KL`` and ``Grad. Norm`` are optional.

    The orchestrator is ahead of the trainer, so in a console of both, the one whose line comes first is read.
    """

    framework = "prime-rl"
    marks: Sequence[bytes] = (b"| Loss", b"| Reward")
    memory: int = 0

    def read_line(self, line: bytes) -> Sequence[MetricLine]:
        """The row of one line."""
        if (begin := LINE.search(line)) is None:
            return ()
        fields = line[begin.end() :].decode("utf-8", "replace").split("|")
        shown = [found for field in fields if (found := FIELD.fullmatch(field.strip())) is not None]
        values: dict[str, float | None] = {found[1]: float(found[2]) for found in shown}
        writer = next((number for number, own in OWN.items() if values.keys() >= own), 0)
        if not writer or self.memory not in {0, writer}:
            return ()
        self.memory = writer
        return (MetricLine(int(begin[1]), values, resolution=FOUR_DECIMALS),)


READER = PrimeRlLines
