"""What a framework with its own batch arithmetic demands, as one shape: the rule broken and the framework's text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Broken:
    """One rule that the settings break.

    ``text`` is what the framework says, ``when`` the moment; ``settings`` are the names to blame, the likeliest first;
    ``fix`` says what has to hold.
    """

    text: str
    when: str
    fix: str
    settings: tuple[str, ...]
