"""A package of the run has a known bug in this version, and the run's settings meet its condition."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_watch.engine.detector import Detector, NotApplicable, RunView, no_data
from grpo_watch.engine.record_parts import AdvisoryMet
from grpo_watch.engine.records import Reading, RunConfig, Severity, Verdict

VERSION_OF = "package:"
"""Prefix of settings that hold a package's version."""


class KnownBug(Detector):
    """Reports each advisory that applies, under its id; the pipeline judges them by what configurations say."""

    reads = (RunConfig, AdvisoryMet)
    names_causes = True
    survives_attempts = True

    def setup(self) -> None:
        """Nothing is known yet."""
        self.knows_version = False

    def observe(self, record: RunConfig | AdvisoryMet, run: RunView) -> Iterable[Reading]:
        """One alert per advisory; without one the run can't have the symptom, once any version was read."""
        if isinstance(record, AdvisoryMet):
            return (_reading(record),)
        said = record.version or run.version or any(name.startswith(VERSION_OF) for name in record.settings)
        self.knows_version = self.knows_version or bool(said)
        known = NotApplicable("no advisory applies to the versions and settings that were read")
        return no_data(known if self.knows_version else "no package's version is known (--set framework_version=V)")


def _reading(bug: AdvisoryMet) -> Reading:
    if not bug.applies:
        return Reading(Verdict.OK, key=bug.id)
    return Reading(
        Verdict.BREACH,
        key=bug.id,
        severity=Severity(bug.severity),
        message=f"{bug.package} {bug.version}: {bug.title} ({bug.id})",
        evidence={
            "advisory": bug.id,
            "package": bug.package,
            "version": bug.version,
            "settings": bug.given,
            "explains": " ".join(bug.shows),
        },
        immediate=True,
        hint=f"{bug.fix} More: grpo-watch advisories {bug.id}.",
    )
