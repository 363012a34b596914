"""KL to the reference stays zero although the weights do change: the reference is the policy itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from types import MappingProxyType

from grpo_watch.core.checkpoints import CheckpointHistory, changed, comparable
from grpo_watch.core.detector import SILENT, Detector, Param, RunView, no_data
from grpo_watch.core.evidence import is_zero, number
from grpo_watch.core.learning import ARITHMETIC_FLOOR, LearningSoFar
from grpo_watch.core.records import CheckpointDigest, MetricRow, Reading, Verdict

REMEMBERED_ROWS = 4096


class ReferenceFollowsPolicy(Detector):
    """Joins KL rows and checkpoint pairs on step: a pair is judged once the rows have reached its later step."""

    reads = (MetricRow, CheckpointDigest)
    needs = (("kl_reference", "checkpoints"),)
    params = MappingProxyType({"min_rows": Param(3, "zero KL rows needed between the two checkpoints", minimum=1)})
    min_rows: int

    def setup(self) -> None:
        """Empty join."""
        self.history = CheckpointHistory()
        self.learning = LearningSoFar()
        self.rows: deque[tuple[int, bool]] = deque(maxlen=REMEMBERED_ROWS)
        self.pairs: deque[tuple[CheckpointDigest, CheckpointDigest]] = deque(maxlen=REMEMBERED_ROWS)
        self.last_step = 0

    def blind_because(self, run: RunView) -> str | None:
        """Without a reference there is nothing to follow; a synced reference follows on purpose."""
        if run.number("beta") == 0:
            return "beta is 0: there is no reference model"
        return "the reference is synced to the policy on purpose" if run.setting("sync_ref_model") else None

    def observe(self, record: MetricRow | CheckpointDigest, run: RunView) -> Iterable[Reading]:
        """Take a row or a checkpoint; judge the pairs that are ready."""
        if isinstance(record, CheckpointDigest):
            before = self.history.before(record) if record.complete and not record.problems else None
            if before is not None:
                self.pairs.append((before, record))
        elif not self._take(record, run):
            return SILENT
        return list(self._judge(run))

    def _take(self, row: MetricRow, run: RunView) -> bool:
        kl = number(row, "kl_reference")
        if row.supplement and kl is None:
            return False
        self.learning.take(row)
        self.last_step = row.step
        if kl is not None:
            visible = max(row.resolution or 0.0, ARITHMETIC_FLOOR)
            telling = self.learning.expected_kl(adapter=bool(run.setting("adapter"))) >= visible
            if telling or not is_zero(kl, row.resolution):
                self.rows.append((row.step, is_zero(kl, row.resolution)))
        return True

    def _judge(self, run: RunView) -> Iterator[Reading]:
        while self.pairs and self.pairs[0][1].step <= self.last_step:
            before, after = self.pairs.popleft()
            why_not = self.blind_because(run)
            between = [zero for step, zero in self.rows if before.step < step <= after.step]
            names = comparable(before, after)
            moved = changed(before, after, names)
            if why_not or (moved and len(between) < self.min_rows):
                yield from no_data(why_not or "too few telling KL rows lie between two checkpoints")
            elif not (moved and all(between)):
                yield Reading(Verdict.OK, step=after.step)
            else:
                yield _breach(before, after, len(between), len(moved), len(names))


def _breach(before: CheckpointDigest, after: CheckpointDigest, rows: int, moved: int, tensors: int) -> Reading:
    return Reading(
        Verdict.BREACH,
        value=0.0,
        message=f"{moved} of {tensors} tensors changed from step {before.step} to {after.step}, yet KL is exactly 0",
        evidence={"kl_reference": 0.0, "rows": rows, "changed_tensors": moved, "tensors": tensors},
        step=after.step,
        first_step=before.step,
        immediate=True,
    )
