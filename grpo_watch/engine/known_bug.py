"""An advisory that applies to a run, as the engine is fed it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AdvisoryMet:
    """An advisory that applies to the run by the versions and settings read so far.

    ``given`` names the settings that meet its condition, ``shows`` the rules whose findings it explains; ``severity``
    is the advisory's. It no longer ``applies`` once something more exact was read.
    """

    id: str
    package: str
    version: str
    severity: str
    title: str
    fix: str
    given: str
    shows: tuple[str, ...]
    applies: bool = True
