"""Turns two checkpoints into the part of ``digest --elements``: per tensor, per layer, and what rounding can hide."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_watch.detectors.shared.checkpoint_history import layer_of
from grpo_watch.sources.checkpoints.element_changes import ComparedTensor, compare_elements

if TYPE_CHECKING:
    from grpo_watch.sources.checkpoints.elements import ElementChange
    from grpo_watch.sources.files.throttle import Throttle

COARSE = frozenset({"BF16", "F16"})
"""Types whose resolution is near the size of an update."""


def elements_document(
    first: Path, second: Path, changed: Collection[str], throttle: Throttle | None = None
) -> dict[str, Any]:
    """Elements, share and relative change of ``tensors`` (those in ``changed``), ``layers``, ``all``; ``rounding``.

    Raises:
        SourceError, TensorFileError, OSError: a file can't be read any more, or changed.
    """
    compared = compare_elements(first, second, throttle)
    return {
        "tensors": {one.name: _entry(one.change) for one in compared if one.name in changed},
        "layers": {name: _entry(change) for name, change in _layers(compared).items()},
        "all": _entry(_sum([one.change for one in compared])),
        "rounding": _rounding(compared),
    }


def _entry(change: ElementChange) -> dict[str, Any]:
    return {
        "elements": change.elements,
        "changed": change.changed,
        "share": change.share,
        "relative": change.relative,
    }


def _sum(changes: list[ElementChange]) -> ElementChange:
    from grpo_watch.sources.checkpoints.elements import ElementChange  # noqa: PLC0415  numpy is not needed without --elements

    return sum(changes, ElementChange())


def _layers(compared: list[ComparedTensor]) -> dict[str, ElementChange]:
    """Layers in the order of their numbers, after what lies outside them."""
    parts: dict[str, list[ElementChange]] = {}
    for one in compared:
        parts.setdefault(layer_of(one.name), []).append(one.change)
    ordered = sorted(parts, key=lambda name: (int(name[6:]) if name.startswith("layer ") else -1, name))
    return {name: _sum(parts[name]) for name in ordered}


def _rounding(compared: list[ComparedTensor]) -> str:
    """Below which size an update of a typical weight rounds away; empty where the weights are float32."""
    from grpo_watch.sources.checkpoints.elements import resolution  # noqa: PLC0415  with numpy

    coarse = [one for one in compared if one.dtype in COARSE]
    if not coarse:
        return ""
    dtype = max(coarse, key=lambda one: one.change.elements).dtype
    change = _sum([one.change for one in coarse if one.dtype == dtype])
    step = resolution(change.typical, dtype)
    if not step:
        return ""
    name = "bf16" if dtype == "BF16" else "fp16"
    return (
        f"the resolution of {name} near {change.typical:.2g} (the weights' root mean square) is {step:.2g}: "
        f"an update below {step / 2:.2g} leaves such a weight unchanged unless a float32 copy accumulates it"
    )
