"""What detectors say, in another language: templates of a catalogue are found in the English and filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

PLACE = re.compile(r"\{(\w+)\}")
JOINTS = ("; ", ": ", ", ", " and ")
"""What joins parts of a sentence, and what stands between a template and the rest."""
FOLD = re.compile(
    r"(?<=[\u3000-\u303f\uff00-\uff60]) | (?=[\u3000-\u303f\uff00-\uff60])|(?<=[\u4e00-\u9fff]) (?=[\u4e00-\u9fff])"
)
"""Spaces where Chinese has none: beside its punctuation and between two of its characters."""
LOOSE = 12
"""Letters of a template below which it proves little by itself (``{a} is {b}``): its values must be known as well."""


@dataclass(frozen=True, slots=True)
class Template:
    """A sentence with places for values, as ``{a} of the completions are empty``, and what it is in the language."""

    texts: tuple[str, ...]
    names: tuple[str, ...]
    shown: str

    @property
    def letters(self) -> int:
        """How much of it is fixed."""
        return sum(character.isalpha() for text in self.texts for character in text)

    @property
    def loose(self) -> bool:
        """Whether it proves too little."""
        return self.letters < LOOSE


def template(english: str, shown: str) -> Template:
    """The template of an entry of the catalogue."""
    parts = PLACE.split(english)
    return Template(tuple(parts[::2]), tuple(parts[1::2]), shown)


@dataclass(frozen=True, eq=False, slots=True)
class Sentences:
    """The catalogue of one language.

    ``whole`` are sentences and words without places, ``templates`` and ``loose`` ones the others, the longest first;
    ``joints`` is what the parts of a sentence are joined with.
    """

    whole: Mapping[str, str] = field(default_factory=dict)
    templates: tuple[Template, ...] = ()
    loose: tuple[Template, ...] = ()
    joints: Mapping[str, str] = field(default_factory=dict)

    def said(self, english: str) -> str | None:
        """The text in the language; None where the catalogue lacks a part of it. A name or number stays as it is."""
        return _said(self, english.strip())


def sentences_of(catalogue: Mapping[str, str], joints: Mapping[str, str]) -> Sentences:
    """The entries of a catalogue, ready to be found."""
    found = sorted((template(*entry) for entry in catalogue.items()), key=lambda each: -each.letters)
    firm, loose = (tuple(each for each in found if each.names and each.loose is kind) for kind in (False, True))
    return Sentences(catalogue, firm, loose, joints)


@lru_cache(maxsize=4_096)
def _said(known: Sentences, text: str) -> str | None:
    if text in known.whole:
        return known.whole[text]
    if " " not in text:
        return text
    for each in known.templates:
        if (found := _filled(known, each, text)) is not None:
            return found
    for joint in JOINTS:
        before, found_joint, after = text.partition(joint)
        if found_joint and (first := known.said(before)) is not None and (rest := known.said(after)) is not None:
            return text if (first, rest) == (before, after) else f"{first}{known.joints[joint]}{rest}"
    return next((found for each in known.loose if (found := _filled(known, each, text)) is not None), None)


def _filled(known: Sentences, each: Template, text: str) -> str | None:
    """The text by this template, if it fits; what stands behind it must be known."""
    if not text.startswith(each.texts[0]):
        return None
    at, values = len(each.texts[0]), {}
    for name, fixed in zip(each.names, each.texts[1:], strict=True):
        end = text.find(fixed, at + 1) if fixed else len(text)
        if end <= at:
            return None
        value = text[at:end]
        said = known.said(value)
        if said is None and each.loose:
            return None
        values[name] = value if said is None else said
        at = end + len(fixed)
    rest = text[at:]
    if rest and not rest.startswith((*JOINTS, " ")):
        return None
    said = known.said(rest)
    return None if said is None else FOLD.sub("", each.shown.format_map(values) + said)
