"""Completions or prompts are cut off at their length limits."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from grpo_watch.detectors.shared.generations import LoggingInterval
from grpo_watch.detectors.shared.likely_causes import CUT_OFF_CAUSES, NOT_CUT
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import MetricRow, Reading, Severity, Verdict
from grpo_watch.engine.traits import WasteKind
from grpo_watch.engine.window import Window, plain_sum

ROWS = 20
"""Rows in a row with an identical mean length. Texts that end by themselves differ by some tokens in each batch: among
420 labelled runs, those with 20 such rows had all of them cut off, where the share is logged. TRL before 0.17 logs the
length alone; a public run of it had 256.0 on all of 865 rows."""
SHORTEST = 16.0
"""Shorter mean lengths are not judged: answers of one or two words in a fixed form may all have the same length."""


class OneLength:
    """Counts rows with one mean length, which is a whole number."""

    def __init__(self) -> None:
        self._length, self._rows, self._since = 0.0, 0, 0
        self._breached = False

    def judge_length(self, length: float, step: int, run: RunView) -> Iterable[Reading]:
        """Judge a row: a breach once there are enough rows, unless the known limit differs; silent on other rows."""
        if length != self._length:
            self._length, self._rows, self._since = length, 0, step
        self._rows += 1
        limit = run.number("max_completion_length")
        if self._rows < ROWS or length < SHORTEST or not length.is_integer() or (limit or length) != length:
            return QUIET if self._breached else SILENT
        self._breached = True
        return breach(
            value=1.0,
            threshold=1.0,
            message=f"every completion has {length:.0f} tokens, so the length limit cuts off all of them",
            evidence={"completion_length_mean": length, "rows": self._rows},
            first_step=self._since,
        )


LEAST_ROWS = 4
"""Fewest rows whose halves can be compared; a row that averages five generations counts as five."""

ALL_CUT = 0.9
"""Share of a row's completions at the limit above which the limit ends them, not the model."""

NEARLY = 0.99
"""Share of the limit that the longest completion reaches if the limit cuts: consoles round to four digits."""
SOME, MORE = 0.4, 0.3
"""Truncated share, and its rise above the run's lowest, that are a breach together with a fallen reward."""


class CompletionsTruncated(Detector):
    """Averages the truncated share over generation rows; a fallen reward or a lost spread makes it critical."""

    explained_by = (
        "non-finite-metric",
        "stale-rollout-weights",
        "kl-explosion",
        "entropy-explosion",
        "gibberish-completions",
        "entropy-collapse",
        "length-explosion",
        "reward-collapse",
    )
    wastes = WasteKind.STEPS_IF_CRITICAL
    likely_causes = CUT_OFF_CAUSES

    needs = (("completion_truncated_ratio",),)
    share: float = param(0.8, "mean share of truncated completions that is a breach", 0, 1)
    rows: int = param(10, "generation rows averaged; fewer (at least 4) if they cover as many steps", minimum=4)
    falling: float = param(0.05, "fall from the first to the second half of the rows that counts as recovery", 0, 1)
    loss: float = param(0.5, "lost share of the best reward that makes it critical", 0, 1)
    silent: float = param(0.9, "share of groups without reward spread that makes it critical", 0, 1)

    def setup(self) -> None:
        """Start with an empty window."""
        self.cut, self.interval = Window(self.rows), LoggingInterval()
        self.steps: deque[int] = deque(maxlen=self.rows)
        self.longest: deque[float] = deque(maxlen=self.rows)
        self.one_length = OneLength()
        self.enough = False

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one generation row."""
        self.interval.add_row(record.step)
        cut = number(record, "completion_truncated_ratio")
        if cut is None:
            length = number(record, "completion_length_mean")
            return SILENT if length is None or len(self.cut) else self.one_length.judge_length(length, record.step, run)
        self.cut.push(cut)
        self.steps.append(record.step)
        if (longest := number(record, "completion_length_max")) is not None:
            self.longest.append(longest)
        mean = self.cut.mean()
        rows = len(self.cut.values)
        self.enough = self.enough or (rows >= LEAST_ROWS and rows * self.interval.steps >= self.rows)
        if mean is None or not self.enough:
            return no_data(NotYet("too few generation rows yet"))
        most = mean >= self.share
        if not most and not self._drifts(mean, run):
            return QUIET
        values = list(self.cut.values)
        half = len(values) // 2
        if plain_sum(values[-half:]) < plain_sum(values[:half]) - self.falling * half:
            return QUIET
        bar, agrees = (self.share, self._agrees(run)) if most else (SOME, ", and the reward fell")
        limit = run.number("max_completion_length")
        at = f" of {limit:.0f} tokens" if limit else ""
        if limit and self.longest and max(self.longest) < NEARLY * limit:
            at += f", but the longest has {max(self.longest):.0f}: finished ones {NOT_CUT}"
        return breach(
            value=mean,
            threshold=bar,
            message=f"{mean:.0%} of the completions are cut off at the length limit{at}" + agrees,
            evidence={
                "completion_truncated_ratio": round(mean, 4),
                "rows": len(values),
                "completion_length_mean": number(record, "completion_length_mean"),
                "max_completion_length": limit,
            },
            severity=Severity.CRITICAL if agrees and most else None,
            first_step=next((at for at, one in zip(self.steps, values, strict=False) if one >= bar), record.step),
        )

    @staticmethod
    def _drifts(mean: float, run: RunView) -> bool:
        """Whether clearly more completions are cut off than before, at a lower reward."""
        return mean >= max(SOME, run.trend.truncated.lowest + MORE) and run.trend.reward_lost()

    def early_sign(self, run: RunView) -> Reading | None:
        """Nearly every completion of the first rows is cut off."""
        cut = run.newest("completion_truncated_ratio")
        if cut is None or cut < ALL_CUT:
            return None
        text = "nearly every completion ends at the length limit"
        return Reading(Verdict.BREACH, message=text, evidence={"completion_truncated_ratio": cut})

    def _agrees(self, run: RunView) -> str:
        """The second sign that truncation harms the run, in words; empty if there is none."""
        trend = run.trend
        if trend.reward.fell(self.loss):
            return ", and the reward fell"
        silent = trend.silent.mean
        if silent is not None and silent >= self.silent and not (trend.reward.gained() or trend.reward.solved):
            return ", and the groups have no reward spread"
        if run.masked.whole and not run.newest("grad_norm"):
            return ", and none of them is in the loss: the gradient is 0 and nothing is learned"
        if run.setting("mask_truncated_completions") is True:
            return ", and cut ones are left out of the loss (mask_truncated_completions)"
        return ""


class PromptsCut(Detector):
    """Averages the share of prompts at the limit; quiet if the settings rule truncation out.

    The default share suits the smallest batches: with one prompt per row and one in 20 at the limit, five of 20
    coincide in 0.3 % of all windows.
    """

    needs = (("prompt_truncated_ratio",),)
    share: float = param(0.25, "mean share of prompts at the limit that fires", 0.01, 1)
    rows: int = param(20, "rows averaged; a sum already large enough for all of them counts at once", 4, 64)

    def setup(self) -> None:
        """Start with an empty window."""
        self.cut = Window(self.rows)

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one train row."""
        cut = number(record, "prompt_truncated_ratio")
        if cut is None:
            return SILENT
        self.cut.push(cut)
        if run.setting("prompt_truncation") == "error" or run.setting("prompts_filtered") is True:
            return QUIET
        if self.cut.total < self.share * self.rows - 1e-9:
            return QUIET if self.cut.full else no_data(NotYet("too few rows yet"))
        return (self._breach(run),)

    def _breach(self, run: RunView) -> Reading:
        mean, limit = self.cut.mean() or 0.0, run.number("max_prompt_length")
        at = f" of {limit:.0f} tokens" if limit else ""
        return Reading(
            Verdict.BREACH,
            value=mean,
            threshold=self.share,
            message=f"{mean:.0%} of the prompts are as long as the prompt limit{at}: they are probably truncated",
            evidence={
                "prompt_truncated_ratio": round(mean, 4),
                "rows": len(self.cut),
                "max_prompt_length": limit,
                "truncation": run.setting("prompt_truncation"),
            },
        )
