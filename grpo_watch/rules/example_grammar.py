"""The grammar of a ``series`` block of a runbook, as models that refuse what they do not know.

A block is YAML; only ``expect`` is required::

    config: {beta: 0.04}                  # settings of the run; framework: and version: are next to it
    series: {kl_reference: "0x30", learning_rate: "1e-6x30"}     # notation of rules/series_notation.py
    start: 1                              # step of the first sample, then every: steps further
    seconds: 30                           # the producer's time between rows (none without it); the first is at 30
    resume: {after: 20, at: 15}           # the row after step 20 begins attempt 2 at step 15
    events:                               # after the row of their step; without a step: at the end, in order
      - {step: 20, completions: [[0, 1, 0, 1], [0, 1, 2, 3]], length: 80}
      - {step: 20, checkpoint: {model.w: aa, model.b: bb}}
      - {step: 20, event: traceback, text: "ValueError: boom", seen: 600}
      - {tick: 9999}
    expect: {fires: 10, severity: critical}      # or {quiet: true}; with resolves: STEP when it ends
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from grpo_watch.config.document import Document, first_problem
from grpo_watch.engine.records import CheckpointKind, EndState, EventKind, Severity
from grpo_watch.errors import RuleError

_Scalar = bool | int | float | str | None
_Step = Annotated[int, Field(ge=0)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Expectation(_Model):
    """What the rule must do: fire at a step, perhaps resolve at a later one, or stay quiet."""

    quiet: Literal[True] | None = None
    fires: _Step | None = None
    first_step: _Step | None = None
    severity: Severity | None = None
    resolves: _Step | None = None

    @model_validator(mode="after")
    def _one_verdict(self) -> Expectation:
        if (self.quiet is None) == (self.fires is None and self.resolves is None):
            raise ValueError("expect either `quiet: true` or `fires:`/`resolves:` with a step")
        return self


class ExampleEvent(_Model):
    """One record that is not a metric row; exactly one of the keys in ``_KINDS`` says which."""

    step: _Step | None = None
    completions: list[list[int]] | None = None
    length: int = 100
    empty: int = 0
    prompts: int = 1
    prompt_ids: list[str] | None = None
    near_unique: int | None = None
    looping: int = 0
    scattered: int = 0
    openings: list[list[int]] | None = None
    marks: list[list[int]] | None = None
    odd: list[str] = []
    batch: str | None = None
    rewards: dict[str, list[list[float | None]]] = {}
    checkpoint: dict[str, str] | None = None
    adapter: dict[str, _Scalar] | None = None
    kind: CheckpointKind | None = None
    zero: list[str] = []
    nonfinite: list[str] = []
    no_elements: list[str] = []
    problems: list[str] = []
    rank: int | None = None
    synced: bool = False
    event: EventKind | None = None
    text: str = ""
    seen: float | None = None
    tick: float | None = None
    live: bool = True
    state: EndState = EndState.UNKNOWN
    activity: float | None = None
    progress: tuple[int, int] | None = None
    eval: dict[str, float | None] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> ExampleEvent:
        if sum(getattr(self, kind) is not None for kind in _KINDS) != 1:
            raise ValueError(f"an event has exactly one of {', '.join(_KINDS)}")
        return self


_KINDS = ("completions", "checkpoint", "event", "tick", "activity", "progress", "eval")


class ExampleResume(_Model):
    """A new attempt begins after the row of one step, at another."""

    after: _Step
    at: _Step


class ExampleBlock(_Model):
    """All that a block may hold; the module's example shows each part."""

    expect: Expectation
    config: dict[str, _Scalar] = {}
    framework: str | None = None
    version: str | None = None
    series: dict[str, str] = {}
    start: _Step = 1
    every: Annotated[int, Field(ge=1)] = 1
    seconds: float | None = None
    resume: ExampleResume | None = None
    resolution: float | None = None
    shows_end: bool = True
    in_folder: bool = True
    events: list[ExampleEvent] = []


def block_in(document: Document) -> ExampleBlock:
    """The block that a whole document holds.

    Raises:
        RuleError: naming file and line of what can't be read.
    """
    try:
        return ExampleBlock.model_validate(document.value)
    except ValidationError as invalid:
        known = {
            *ExampleBlock.model_fields,
            *ExampleEvent.model_fields,
            *Expectation.model_fields,
            *ExampleResume.model_fields,
        }
        raise first_problem(invalid, document, RuleError, known) from None
