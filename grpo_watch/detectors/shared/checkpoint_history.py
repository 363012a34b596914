"""A run's checkpoints, and which of them a new one is compared with."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from grpo_watch.engine.records import CheckpointDigest, CheckpointKind, Scalar, TensorDigest

TRAINED_BESIDE = (
    "lora_",
    "modules_to_save",
    "magnitude_vector",
    "prompt_",
    "ia3_",
    "vera_",
    "trainable_tokens",
    "bias",
    "score.",
    ".safetensors",
)
"""Parts of tensor names that an adapter run may train, the last ones read from a separate file next to the adapter; all
other tensors are its frozen base."""
WRAPPED = ".base_layer."
"""Part of the names that PEFT gives to the weights of modules with an adapter, the only ones that merging changes."""

WRAPPERS = frozenset({"base_model", "model", "language_model", "base_layer"})
"""Parts of module names that don't tell modules apart: PEFT's, and those that transformers 4.52 moved in multimodal
models (``language_model.model.layers`` is saved, ``model.language_model.layers`` is in memory)."""

REMEMBERED = 8
"""Checkpoints kept per kind: a resume goes back by a few at most."""


class CheckpointHistory:
    """Keeps the newest checkpoints of each kind, and compares each one with its nearest lower step."""

    def __init__(self) -> None:
        self._known: dict[CheckpointKind, dict[int, CheckpointDigest]] = {}

    def before(self, digest: CheckpointDigest) -> CheckpointDigest | None:
        """The usable checkpoint of the same kind with the highest lower step, or None; remembers ``digest``.

        A checkpoint that repeats a step already known (a final save, a best-model copy, a replayed step after a
        resume, a run restarted in the same folder) replaces it and is never compared with it.
        """
        known = self._known.setdefault(digest.kind, {})
        known[digest.step] = digest
        for step in sorted(known)[:-REMEMBERED]:
            del known[step]
        lower = [step for step in known if step < digest.step]
        return known[max(lower)] if lower else None


def comparable(before: Mapping[str, TensorDigest], after: Mapping[str, TensorDigest]) -> list[str]:
    """Sorted names of the non-empty tensors that both hold in the same type and shape.

    A weight that is saved in another type (bf16, then merged in float32) or shape has other bytes without having moved;
    a file hashed as a whole may have another size.
    """
    same = (name for name in before.keys() & after.keys() if _form(before[name]) == _form(after[name]))
    return sorted(name for name in same if after[name].elements)


def _form(tensor: TensorDigest) -> tuple[str, tuple[int, ...]]:
    return tensor.dtype, () if tensor.dtype == WHOLE_FILE else tensor.shape


def changed(before: Mapping[str, TensorDigest], after: Mapping[str, TensorDigest], names: Collection[str]) -> list[str]:
    """Those of ``names`` whose exact bytes differ."""
    return [name for name in names if before[name].checksum != after[name].checksum]


def lora_b(digest: CheckpointDigest) -> list[str]:
    """Names of an adapter's matrices that start at zero; while they are zero, the adapter does nothing."""
    return [name for name in digest.tensors if "lora_B" in name or "lora_embedding_B" in name]


WHOLE_FILE = "FILE"
"""The data type of a file whose tensors can't be distinguished."""


def masks(name: str) -> bool:
    """Whether a tensor is an attention mask by its name; masks hold infinities on purpose (``mask_token`` is none)."""
    return name.partition("@")[0].endswith("mask")


def proves_nothing(digest: CheckpointDigest, moved: list[str]) -> bool:
    """Whether only files hashed as a whole differ: two saves of the same weights may differ in their bytes."""
    return bool(moved) and all(digest.tensors[name].dtype == WHOLE_FILE for name in moved)


def optimizer_between(before: CheckpointDigest, after: CheckpointDigest) -> dict[str, bool]:
    """Whether the optimizer's ``moments`` and ``masters`` changed between two checkpoints; only those both hold."""
    both = before.optimizer.keys() & after.optimizer.keys() & {"moments", "masters"}
    return {kind: before.optimizer[kind] != after.optimizer[kind] for kind in sorted(both)}


def trained_by_adapter(names: Collection[str], adapter: Mapping[str, Scalar]) -> frozenset[str] | None:
    """The tensors of a checkpoint with adapter and base that may change; None if it does not hold both.

    PEFT saves ``modules_to_save`` under their names in the base.
    """
    if not any("lora_" in name for name in names):
        return None
    saved = str(adapter.get("modules_to_save", "")).split(",")
    parts = (*TRAINED_BESIDE, *(f"{module}." for module in saved if module))
    trained = frozenset(name for name in names if any(part in name for part in parts))
    return trained if len(trained) < len(names) else None


def where_adapters_are(changed: Collection[str], names: Collection[str]) -> bool:
    """Whether all these tensors are weights of modules with an adapter, in a model without PEFT's wrappers."""
    adapted = {_module(name.partition(".lora_")[0]) for name in names if ".lora_" in name} - {()}
    wrapped = any(WRAPPED in name for name in names if ".lora_" not in name)
    return not wrapped and all(_within(_module(name), adapted) for name in changed)


def _module(name: str) -> tuple[str, ...]:
    """A name's parts without those of wrappers, whose order differs between memory and saved files."""
    return tuple(part for part in name.split(".") if part not in WRAPPERS)


def _within(parts: tuple[str, ...], modules: Collection[tuple[str, ...]]) -> bool:
    """Whether a tensor belongs to one of the modules; experts are saved one by one."""
    return any(parts[:length] in modules for length in range(1, len(parts)))
