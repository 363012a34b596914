"""Turns slime's lines ``rollout 7: {…}`` and ``step 7: {…}`` into one row per optimizer step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grpo_watch import lazy_re as re
from grpo_watch.engine.records import Stream
from grpo_watch.frameworks import row_numbers
from grpo_watch.frameworks.line_reader import LineReader, MetricLine
from grpo_watch.frameworks.python_literal import dictionaries

LINE = re.compile(rb"\b(rollout|perf|multi_turn|step|eval) (\d{1,9}): (?=\{'(?:train|rollout|eval|multi_turn|perf)/)")
MEMORY = re.compile(rb"Memory-Usage after wake_up model: (?=\{'gpu': )")
"""One line of each rank, with ``--offload-train``, while a rollout waits for its first step."""
USED, USED_OF_ALL = "used_GB", "memory/used_GB"
PERF = "perf/"
DEAD, LENGTH = "rollout/zero_std/count_", "rollout/response_len/mean"
"""Prefix of the counts of groups by the one value that all of their rewards have, and a key logged beside them."""
DEAD_GROUPS = "rollout/zero_std/groups"


class SlimeLines(LineReader):
    """Holds a rollout's values until the first optimizer step on it, and adds them to that step's row.

    From slime 0.3 on they come in two lines: the sampler's ``perf`` line, with lengths and counts of groups, and the
    trainer's ``rollout`` line. A second ``perf`` line, after the steps, has the time of the rollout and its steps: it
    belongs to the next row.
    """

    framework = "slime"
    marks: Sequence[bytes] = (b"rollout ", b"perf ", b"multi_turn ", b"step ", b"eval ")

    def __init__(self) -> None:
        self._rollout: MetricLine | None = None

    @property
    def held(self) -> bool:
        """Whether a rollout waits for its first step."""
        return self._rollout is not None

    def read_line(self, line: bytes) -> Sequence[MetricLine]:
        """The row that this line completes."""
        self._add_memory(line)
        begin = LINE.search(line)
        found = next(dictionaries(line[begin.end() :]), None) if begin is not None else None
        if begin is None or found is None or not found.row:
            return ()
        number, values = int(begin[2]), row_numbers.numbers(found.row)
        if begin[1] == b"eval":
            return (MetricLine(number, values, Stream.EVAL),)
        held = self._rollout
        if begin[1] == b"step":
            self._rollout = None
            return (MetricLine(number, _counted({**(held.values if held is not None else {}), **values})),)
        joins = held is not None and (held.step == number or _timed(held))
        done = () if joins else self.flush()
        self._rollout = MetricLine(number, {**(held.values if joins and held is not None else {}), **values})
        return done

    def _add_memory(self, line: bytes) -> None:
        """Add the memory of the fullest device when the trainer wakes up to the waiting rollout."""
        held, begin = self._rollout, MEMORY.search(line)
        found = next(dictionaries(line[begin.end() :]), None) if held is not None and begin is not None else None
        used = row_numbers.numbers((found.row if found is not None else None) or {}).get(USED)
        if held is not None and used is not None:
            most = max(used, held.values.get(USED_OF_ALL) or 0.0)
            self._rollout = MetricLine(held.step, {**held.values, USED_OF_ALL: most})

    def flush(self) -> Sequence[MetricLine]:
        """The waiting rollout as a row of its own, without an optimizer step."""
        held, self._rollout = self._rollout, None
        return (MetricLine(held.step, _counted(held.values)),) if held is not None and not _timed(held) else ()


def _counted(values: Mapping[str, float | None]) -> Mapping[str, float | None]:
    """The values with the number of zero-std groups added."""
    dead = [value or 0.0 for key, value in values.items() if key.startswith(DEAD)]
    return {**values, DEAD_GROUPS: sum(dead)} if dead or LENGTH in values else values


def _timed(line: MetricLine) -> bool:
    """Whether a line holds durations only."""
    return all(key.startswith(PERF) for key in line.values)


READER = SlimeLines
