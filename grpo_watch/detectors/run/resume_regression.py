"""A restart that does not continue the run: learning rate, policy or data order was not restored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotApplicable, NotYet, RunView, no_data, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import MetricRow, Reading, Scalar, Severity, Verdict
from grpo_watch.engine.traits import LikelyCause
from grpo_watch.engine.window import deviation

LEAST_ROWS = 3
"""Rows needed for a median."""


def one_line(rows: Iterable[MetricRow]) -> list[MetricRow]:
    """The rows before the newest one with rising steps: each attempt replaces the rows from its first step on."""
    line: list[MetricRow] = []
    for row in list(rows)[:-1]:
        if line and row.attempt > line[-1].attempt:
            line = [known for known in line if known.step < row.step]
        line.append(row)
    return line


BACK = 0.75
"""Share of the gain whose loss at the restart proves by itself that what was learned is gone."""
LOST_OPTIMIZER = (
    LikelyCause("The optimizer's state was not saved (save_only_model) or not loaded; its moments restarted at zero."),
)


def passes_again(before: MetricRow, after: MetricRow) -> str:
    """A phrase if the count of passes over the data started over, else an empty string."""
    old, new = number(before, "epoch"), number(after, "epoch")
    again = old is not None and new is not None and new < old / 2
    return f"{old:.3g} restarted at {new:.3g}" if again else ""


def both(metric: str, before: Sequence[MetricRow], after: Sequence[MetricRow]) -> tuple[list[float], list[float]]:
    """The finite values of a metric before and after the restart."""
    old, new = ([number(row, metric) for row in rows] for rows in (before, after))
    return [value for value in old if value is not None], [value for value in new if value is not None]


class ResumeRegression(Detector):
    """Compares an attempt's first rows with the last rows before the step at which it continues."""

    likely_causes = LOST_OPTIMIZER

    survives_attempts = True
    needs = (("reward_mean",), ("learning_rate",))
    rows: int = param(10, "rows compared on each side", minimum=3)
    rate: float = param(0.2, "relative difference of the learning rate that is a sign", minimum=0)
    fall: float = param(0.3, "fall of the reward as a share of the gain since the start", 0, 1)
    reset: float = param(0.1, "KL after as a share of before at which the policy is back at its start", 0, 1)
    least_kl: float = param(1e-3, "least KL before the restart", minimum=0)

    def setup(self) -> None:
        """Start with no rows and no restart."""
        self.attempt, self.back = 1, False
        self.before: list[MetricRow] = []
        self.after: list[MetricRow] = []
        self.start: list[float] = []  # the first rewards of the whole run
        self.overlap: dict[int, MetricRow] = {}  # rows of steps that were trained twice

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Keep the row; judge once, when enough rows follow a restart."""
        values = record.values
        if record.supplement or ("reward_mean" not in values and "learning_rate" not in values):
            return SILENT
        if len(self.start) < self.rows and (reward := number(record, "reward_mean")) is not None:
            self.start.append(reward)
        if record.attempt > self.attempt:
            self._restart(record, one_line(run.recent))
        compares = bool(self.before) and len(self.after) < self.rows
        if not compares:
            return SILENT if self.attempt > 1 else no_data(NotApplicable("the run was not restarted"))
        self.after.append(record)
        if len(self.after) < self.rows:
            return no_data(NotYet("too few rows after the restart yet"))
        signs = self._signs()
        return (self._breach(signs),) if signs else QUIET

    def _restart(self, row: MetricRow, rows: Sequence[MetricRow]) -> None:
        """Note a restart, unless the run starts again at its first steps."""
        known = [each for each in rows if "reward_mean" in each.values or "learning_rate" in each.values]
        old = [each for each in known if each.step < row.step]
        same = [each for each in known if each.step >= row.step]
        self.attempt = row.attempt
        self.before = old[-self.rows :] if len(old) >= self.rows else []
        self.overlap = {each.step: each for each in same}
        self.after = []

    def _signs(self) -> dict[str, str]:
        """A phrase for each sign, by its subject."""
        self.back = False
        said = {
            "learning rate": self._rate(),
            "KL": self._kl(),
            "reward": self._reward(),
            "epoch": passes_again(self.before[-1], self.after[0]),
        }
        return {name: phrase for name, phrase in said.items() if phrase}

    def _rate(self) -> str:
        """A phrase if learning rates of the same steps (or the last before, the first after) differ too much."""
        twice = [(self.overlap[row.step], row) for row in self.after if row.step in self.overlap]
        pairs = twice or [(self.before[-1], self.after[0])]
        rates = [(number(old, "learning_rate"), number(new, "learning_rate")) for old, new in pairs]
        known = [(old, new) for old, new in rates if old is not None and new is not None]
        if not known:
            return ""
        was, now = median([old for old, _ in known]), median([new for _, new in known])
        return f"{was:.3g} became {now:.3g}" if abs(now - was) > self.rate * max(was, now) else ""

    def _kl(self) -> str:
        """A phrase if KL was at least ``least_kl`` and fell below a share of it."""
        old, new = both("kl_reference", self.before, self.after)
        if len(old) < LEAST_ROWS or len(new) < LEAST_ROWS:
            return ""
        was, now = median(old), median(new[: max(LEAST_ROWS, len(new) // 2)])
        reset = was >= self.least_kl and now <= self.reset * was
        return f"{was:.3g} became {now:.3g}: the policy is the base model again" if reset else ""

    def _reward(self) -> str:
        """A phrase if reward lost a share of the run's gain, beyond three robust deviations of its rows."""
        old, new = both("reward_mean", self.before, self.after)
        if len(old) < LEAST_ROWS or len(new) < LEAST_ROWS:
            return ""
        was, now = median(old), median(new)
        noise = 3.0 * max(deviation(old), deviation(new), 1e-3)
        gain = was - median(self.start)
        fell = was - now > max(self.fall * gain, noise)
        self.back = fell and gain > noise and was - now > BACK * gain
        return f"{was:.3g} fell to {now:.3g}" if fell else ""

    def _breach(self, signs: dict[str, str]) -> Reading:
        alone = len(signs) == 1 and "KL" not in signs and not self.back
        evidence: dict[str, Scalar] = {name.replace(" ", "_"): said for name, said in signs.items()}
        return Reading(
            Verdict.BREACH,
            severity=Severity.INFO if alone else None,
            message="after the restart " + "; ".join(f"{name} {said}" for name, said in signs.items()),
            evidence={**evidence, "resumed_at": self.after[0].step},
            first_step=self.after[0].step,
            immediate=True,
        )
