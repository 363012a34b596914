"""What detectors say, in another language: templates of a catalogue are found in the English and filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from grpo_watch import lazy_re as re

PLACE = re.compile(r"\{(\w+)\}")
JOINTS = ("; ", ": ", ", ", " and ")
"""What joins parts of a sentence, and what stands between a template and the rest."""
FOLD = re.compile(
    r"(?<=[\u3000-\u303f\uff00-\uff60]) | (?=[\u3000-\u303f\uff00-\uff60])|(?<=[\u4e00-\u9fff]) (?=[\u4e00-\u9fff])"
)
"""Spaces where Chinese has none: beside its punctuation and between two of its characters."""
IN_NAMES = (", ", " and ")
"""Joints that may belong to a name of the run, and are kept where nothing before them is translated."""
LONGEST, MOST_JOINTS = 300, 40
"""Characters and joints of a text beyond which it stays English: no detector says so much, but a run's names may. They
bound the depth of the search as well, as each step takes three characters or more."""
OWN = ("name", "text")
"""Begins of places for what a run wrote, as ``{text}``: it is copied as it is, unless it is an entry by itself."""
LOOSE = 12
"""Letters of a template below which it proves little by itself (``{a} is {b}``): its values must be known as well."""


@dataclass(frozen=True, slots=True)
class Template:
    """A sentence with places for values, as ``{a} of the completions are empty``, and what it is in the language.

    ``shown`` are the translation's texts and, between them, names of places.
    """

    texts: tuple[str, ...]
    names: tuple[str, ...]
    shown: tuple[str, ...]

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
    return Template(tuple(parts[::2]), tuple(parts[1::2]), tuple(PLACE.split(shown)))


@dataclass(frozen=True, eq=False, slots=True)
class Sentences:
    """The catalogue of one language.

    ``whole`` are sentences and words without places, ``templates`` and ``loose`` ones the others, the longest first,
    and before those that begin with a place; ``joints`` is what the parts of a sentence are joined with.
    """

    whole: Mapping[str, str] = field(default_factory=dict)
    templates: tuple[Template, ...] = ()
    loose: tuple[Template, ...] = ()
    joints: Mapping[str, str] = field(default_factory=dict)

    def said(self, english: str) -> str | None:
        """The text in the language; None where the catalogue lacks a part of it, or it is longer than ``LONGEST``.

        A name or number stays as it is.
        """
        return _said(self, english.strip())


def sentences_of(catalogue: Mapping[str, str], joints: Mapping[str, str]) -> Sentences:
    """The entries of a catalogue, ready to be found."""
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
    """The text by this template, if it fits; what stands behind it must be known."""
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
    """The translation with its values, without spaces that Chinese lacks in the template's own text."""
    parts = [values[each] if at % 2 else each for at, each in enumerate(shown)]
    for at in range(0, len(parts), 2):
        left = parts[at - 1][-1:].strip() if at else ""
        right = parts[at + 1][:1].strip() if at + 1 < len(parts) else ""
        folded = FOLD.sub("", f"{left}{parts[at]}{right}")
        parts[at] = folded[len(left) : len(folded) - len(right)]
    return "".join(parts)
