"""The base class of detectors: readings, reasons for giving none, and parameters."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar

from grpo_watch.engine.records import MetricRow, Reading, Scalar, Severity, Stream, Verdict
from grpo_watch.engine.run_view import RunView as RunView  # noqa: PLC0414  an argument of ``observe``
from grpo_watch.engine.traits import Traits


class Blindness(str, Enum):
    """Why a rule is blind: the run can't have the symptom, more steps will show it, or evidence is missing."""

    NOT_APPLICABLE = "not-applicable"
    NOT_YET = "not-yet"
    MISSING = "missing"


class NotApplicable(str):
    """The run can't have the symptom, or shows it by design (beta is 0, no adapter)."""

    __slots__ = ()


class NotYet(str):
    """More steps, batches or checkpoints resolve it."""

    __slots__ = ()


def blindness_of(reason: str) -> Blindness:
    """The kind of a reason; a plain text means missing evidence."""
    if isinstance(reason, NotApplicable):
        return Blindness.NOT_APPLICABLE
    return Blindness.NOT_YET if isinstance(reason, NotYet) else Blindness.MISSING


OK = Reading(Verdict.OK)
SILENT: tuple[Reading, ...] = ()
"""The record does not carry the metric: the alert's state is held, nothing is counted."""
QUIET: tuple[Reading, ...] = (OK,)


@lru_cache(maxsize=256, typed=True)
def no_data(reason: str, key: str = "") -> tuple[Reading, ...]:
    """The symptom can't be judged at this record; ``reason`` is shown for blind rules.

    Use ``NotYet`` or ``NotApplicable`` unless evidence is missing: views show these apart.
    """
    return (Reading(Verdict.NO_DATA, key=key, message=reason),)


def breach(  # noqa: PLR0913  the fields of a reading
    key: str = "",
    value: float | None = None,
    threshold: float | None = None,
    message: str = "",
    evidence: Mapping[str, Scalar] = MappingProxyType({}),
    severity: Severity | None = None,
    *,
    step: int | None = None,
    first_step: int | None = None,
    immediate: bool = False,
    hint: str = "",
    headline: str = "",
) -> tuple[Reading, ...]:
    """A single breaching reading (see ``Reading`` for the fields)."""
    said = (key, value, threshold, message, dict(evidence), severity, step, first_step)
    return (Reading(Verdict.BREACH, *said, immediate=immediate, hint=hint, headline=headline),)


@dataclass(frozen=True, slots=True)
class Param:
    """A tunable of a detector: default, inclusive bounds, and one line of help (shown by ``explain``)."""

    default: float | int | bool | str
    help: str
    minimum: float | None = None
    maximum: float | None = None


def param(default: float | str, says: str, minimum: float | None = None, maximum: float | None = None) -> Any:
    """Declare a parameter as an attribute of a detector's class.

    As in ``rows: int = param(10, "rows averaged", minimum=3)``.
    """
    return Param(default, says, minimum, maximum)


class Detector(Traits, ABC):
    """Base of all detectors; a subclass in ``detectors/<family>/`` needs no registration.

    One instance judges one run and one attempt. ``observe`` gets each record of the types in ``reads`` (metric rows of
    ``stream`` only) and returns readings: ``SILENT`` if the record does not carry the metric, ``no_data(...)`` if it
    can't be judged, ``QUIET`` or a list of ``Reading`` otherwise.

    ``needs`` are alternatives of evidence: the rule is blind until every metric (or ``completions`` / ``checkpoints`` /
    ``run end``) of one alternative was seen. ``survives_attempts`` keeps the instance when a new attempt begins.
    ``params`` are the class's attributes made with ``param``; an instance holds the values that its rule sets.
    """

    reads: ClassVar[tuple[type, ...]] = (MetricRow,)
    stream: ClassVar[Stream] = Stream.TRAIN
    needs: ClassVar[tuple[tuple[str, ...], ...]] = ()
    survives_attempts: ClassVar[bool] = False
    params: ClassVar[Mapping[str, Param]] = MappingProxyType({})

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Param)}
        cls.params = MappingProxyType({**cls.params, **own})

    def __init__(self, params: Mapping[str, Any] | None = None) -> None:
        chosen = dict(params or {})
        for name, param in self.params.items():
            setattr(self, name, chosen.pop(name, param.default))
        if chosen:
            raise ValueError(f"unknown parameters {sorted(chosen)}; known are {sorted(self.params)}")
        self.setup()

    def setup(self) -> None:
        """Create the windows. No I/O."""

    @abstractmethod
    def observe(self, record: Any, run: RunView) -> Iterable[Reading]:
        """Judge one record."""

    def blind_because(self, run: RunView) -> str | None:  # noqa: ARG002
        """Why the rule is blind although its evidence is there (beta = 0, a PiSSA adapter); None if it can judge.

        A ``NotApplicable``, a ``NotYet`` or, if evidence is missing, a plain text.
        """
        return None

    def silent_too_long_at(self, run: RunView) -> float | None:  # noqa: ARG002
        """Unix time from which a tick shows the symptom unless something is written before; None if no tick does."""
        return None

    def early_sign(self, run: RunView) -> Reading | None:  # noqa: ARG002
        """A sign of the symptom in a run of one or two rows, too few for the rule; None if there is none.

        Only the message and the evidence are used: a sign is shown next to the verdict and fires nothing.
        """
        return None

    @classmethod
    def stem(cls) -> str:
        """The class name in snake case, e.g. ``kl_stuck_at_zero``, which also names the runbook."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()

    @classmethod
    def name(cls) -> str:
        """The rule id of this detector, e.g. ``kl-stuck-at-zero``."""
        return cls.stem().replace("_", "-")
