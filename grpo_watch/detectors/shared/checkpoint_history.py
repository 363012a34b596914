"""The history of one run's checkpoints: which one to compare a new checkpoint with."""

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
"""Parts of names that an adapter run may train, the last ones read from a separate file next to the adapter; all
others are its frozen base."""
WRAPPED = ".base_layer."
"""Part of the names that PEFT gives to the weights of modules with an adapter, which alone merging changes."""

WRAPPERS = frozenset({"base_model", "model", "language_model", "base_layer"})
"""Parts of module names that say nothing about the place: PEFT's, and those that transformers 4.52 moved in multimodal
models (``language_model.model.layers`` is saved, ``model.language_model.layers`` is in memory)."""

REMEMBERED = 8
"""Checkpoints kept per kind: a resume goes back by a few at most."""


class CheckpointHistory:
    """Keeps the newest checkpoints of each kind, so that each is compared with its nearest lower step."""

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
    """Names of the tensors that both hold in the same type and shape with at least one element, sorted.

    A weight that is saved in another type (bf16, then merged in float32) or shape has other bytes without having moved;
    a whole file may have another size.
    """
    same = (name for name in before.keys() & after.keys() if _form(before[name]) == _form(after[name]))
    return sorted(name for name in same if after[name].elements)


def _form(tensor: TensorDigest) -> tuple[str, tuple[int, ...]]:
    return tensor.dtype, () if tensor.dtype == WHOLE_FILE else tensor.shape


def changed(before: Mapping[str, TensorDigest], after: Mapping[str, TensorDigest], names: Collection[str]) -> list[str]:
    """Which of ``names`` differ in their exact bytes."""
    return [name for name in names if before[name].checksum != after[name].checksum]


def lora_b(digest: CheckpointDigest) -> list[str]:
    """Names of an adapter's matrices that start at zero: while they are, the adapter does nothing."""
    return [name for name in digest.tensors if "lora_B" in name or "lora_embedding_B" in name]


WHOLE_FILE = "FILE"
"""The data type of a file whose tensors can't be distinguished."""


def masks(name: str) -> bool:
    """Whether a tensor is an attention mask by its name, which holds infinities on purpose; ``mask_token`` is none."""
    return name.partition("@")[0].endswith("mask")


def proves_nothing(digest: CheckpointDigest, moved: list[str]) -> bool:
    """Whether all that differs are files hashed as a whole: two saves of the same weights may differ in their bytes."""
    return bool(moved) and all(digest.tensors[name].dtype == WHOLE_FILE for name in moved)


def optimizer_between(before: CheckpointDigest, after: CheckpointDigest) -> dict[str, bool]:
    """Whether ``moments`` and ``masters`` of the optimizer changed between two checkpoints; only what both tell."""
    both = before.optimizer.keys() & after.optimizer.keys() & {"moments", "masters"}
    return {kind: before.optimizer[kind] != after.optimizer[kind] for kind in sorted(both)}


def trained_by_adapter(names: Collection[str], adapter: Mapping[str, Scalar]) -> frozenset[str] | None:
    """Which tensors of a checkpoint with an adapter and its base may change; None where there are no such two parts.

    PEFT saves what its configuration calls ``modules_to_save`` under the name that it has in the base.
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
    """The parts of a name without those of wrappers, which a model has in another order in memory than when saved."""
    return tuple(part for part in name.split(".") if part not in WRAPPERS)


def _within(parts: tuple[str, ...], modules: Collection[tuple[str, ...]]) -> bool:
    """Whether a tensor belongs to one of the modules: mixtures of experts are saved expert by expert."""
    return any(parts[:length] in modules for length in range(1, len(parts)))
