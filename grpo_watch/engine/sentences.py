"""Translates detectors' messages: finds the English in a catalogue of templates and fills in the translation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from grpo_watch import lazy_re as re

PLACE = re.compile(r"\{(\w+)\}")
JOINTS = ("; ", ": ", ", ", " and ")
"""Separators between parts of a sentence, and between a template and the rest."""
FOLD = re.compile(
    r"(?<=[\u3000-\u303f\uff00-\uff60]) | (?=[\u3000-\u303f\uff00-\uff60])|(?<=[\u4e00-\u9fff]) (?=[\u4e00-\u9fff])"
)
"""Spaces that Chinese lacks: beside its punctuation and between two of its characters."""
IN_NAMES = (", ", " and ")
"""Joints that may belong to a name of the run, and are kept if nothing before them is translated."""
LONGEST, MOST_JOINTS = 300, 40
"""Characters and joints beyond which a text stays English: only a run's names make it so long. They also bound the
depth of the search, as each step takes three characters or more."""
OWN = ("name", "text")
"""Prefixes of places for a run's own words, such as ``{text}``: copied unless the catalogue has them as an entry."""
LOOSE = 12
"""Templates with fewer letters match too easily (``{a} is {b}``): their values must also be in the catalogue."""


@dataclass(frozen=True, slots=True)
class Template:
    """A sentence with places for values, such as ``{a} of the completions are empty``, and its translation.

    ``shown`` alternates texts of the translation with names of places.
    """

    texts: tuple[str, ...]
    names: tuple[str, ...]
    shown: tuple[str, ...]

    @property
    def letters(self) -> int:
        """Number of letters outside its places."""
        return sum(character.isalpha() for text in self.texts for character in text)

    @property
    def loose(self) -> bool:
        """Whether it has too few letters to match by itself."""
        return self.letters < LOOSE


def template(english: str, shown: str) -> Template:
    """The template of a catalogue entry."""
    parts = PLACE.split(english)
    return Template(tuple(parts[::2]), tuple(parts[1::2]), tuple(PLACE.split(shown)))


@dataclass(frozen=True, eq=False, slots=True)
class Sentences:
    """The catalogue of one language.

    ``whole`` are sentences and words without places, ``templates`` and ``loose`` the others: those that begin with a
    text first, and longer before shorter ones; ``joints`` are the translated separators.
    """

    whole: Mapping[str, str] = field(default_factory=dict)
    templates: tuple[Template, ...] = ()
    loose: tuple[Template, ...] = ()
    joints: Mapping[str, str] = field(default_factory=dict)

    def said(self, english: str) -> str | None:
        """The translated text; None if the catalogue lacks a part of it, or if it is longer than ``LONGEST``.

        Names and numbers stay as they are.
        """
        return _said(self, english.strip())


def sentences_of(catalogue: Mapping[str, str], joints: Mapping[str, str]) -> Sentences:
    """Prepare the entries of a catalogue for matching."""
    found = sorted(
        (template(*entry) for entry in catalogue.items()), key=lambda each: (not each.texts[0], -each.letters)
    )
    firm, loose = (tuple(each for each in found if each.names and each.loose is kind) for kind in (False, True))
    return Sentences(catalogue, firm, loose, joints)


@lru_cache(maxsize=4_096)
def _said(known: Sentences, text: str) -> str | None:
    if text in known.whole:
        return known.whole[text]
    if " " not in text:
        return text
    if len(text) > LONGEST or sum(map(text.count, JOINTS)) > MOST_JOINTS:
        return None
    for each in known.templates:
        if (found := _filled(known, each, text)) is not None:
            return found
    for joint in JOINTS:
        before, found_joint, after = text.partition(joint)
        if (
            found_joint
            and (first := _said(known, before.strip())) is not None
            and (rest := _said(known, after.strip())) is not None
        ):
            inside_name = joint in IN_NAMES and first == before and first[:1].isalpha()
            kept = inside_name or (first, rest) == (before, after)
            return f"{first}{joint if kept else known.joints[joint]}{rest}"
    return next((found for each in known.loose if (found := _filled(known, each, text)) is not None), None)


def _filled(known: Sentences, each: Template, text: str) -> str | None:
    """The text translated by this template, if it fits; None also if the text after it is unknown."""
    if not text.startswith(each.texts[0]):
        return None
    at, values = len(each.texts[0]), {}
    for name, fixed in zip(each.names, each.texts[1:], strict=True):
        end = text.find(fixed, at + 1) if fixed else len(text)
        if end <= at:
            return None
        value = text[at:end]
        if name.startswith(OWN):
            said = known.whole.get(value, None if each.loose and " " in value else value)
        else:
            said = _said(known, value.strip())
        if said is None and each.loose:
            return None
        values[name] = value if said is None else said
        at = end + len(fixed)
    rest = text[at:]
    if rest and not rest.startswith((*JOINTS, " ")):
        return None
    said = _said(known, rest.strip())
    return None if said is None else _shown(each.shown, values) + said


def _shown(shown: tuple[str, ...], values: Mapping[str, str]) -> str:
    """The translation filled with values, without spaces that Chinese lacks in the template's own text."""
    parts = [values[each] if at % 2 else each for at, each in enumerate(shown)]
    for at in range(0, len(parts), 2):
        left = parts[at - 1][-1:].strip() if at else ""
        right = parts[at + 1][:1].strip() if at + 1 < len(parts) else ""
        folded = FOLD.sub("", f"{left}{parts[at]}{right}")
        parts[at] = folded[len(left) : len(folded) - len(right)]
    return "".join(parts)
