"""How much of prompts and completions is kept: what the privacy settings come down to."""

from __future__ import annotations

from enum import IntEnum


class KeptTexts(IntEnum):
    """What a summary keeps of texts: nothing, an excerpt per odd group, or also how those of the first groups begin."""

    NOTHING = 0
    EXCERPT = 1
    BEGINNINGS = 2
