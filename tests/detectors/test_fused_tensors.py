"""A trainer's parts of an engine's fused tensor have its checksum, by arithmetic alone."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from grpo_watch.detectors.rollouts.stale_rollout_weights import MODULUS, RADIX, side_by_side
from grpo_watch.engine.records import TensorDigest


def unlike(trainer: Mapping[str, TensorDigest], engine: Mapping[str, TensorDigest]) -> tuple[list[str], int]:
    """The names that differ, and how many were compared."""
    found = side_by_side(trainer, engine)
    return [name for name, (own, theirs) in found.items() if own != theirs], len(found)


def digest(*rows: list[float]) -> TensorDigest:
    """Of a float32 matrix: the sum over its words."""
    words = struct.unpack(f"<{sum(map(len, rows))}i", b"".join(struct.pack(f"<{len(row)}f", *row) for row in rows))
    value = sum(word * pow(RADIX, k, MODULUS) for k, word in enumerate(words))
    return TensorDigest("float32", (len(rows), len(rows[0])), f"{value % MODULUS:016x}")


Q, K, V = [[1.0, 2.0], [3.0, -4.0]], [[5.0, 6.0]], [[-7.0, 8.5]]
PARTS = {"l.q_proj.weight": digest(*Q), "l.k_proj.weight": digest(*K), "l.v_proj.weight": digest(*V)}


def test_one_behind_the_other() -> None:
    assert unlike(PARTS, {"l.qkv_proj.weight": digest(*Q, *K, *V)}) == ([], 1)
    assert unlike(PARTS, {"l.qkv_proj.weight": digest(*Q, *V, *K)}) == (["l.qkv_proj.weight"], 1)


def test_what_can_not_be_compared_is_passed_over() -> None:
    """A part is missing, another type, another shape, an unknown name."""
    assert unlike({"l.q_proj.weight": digest(*Q)}, {"l.qkv_proj.weight": digest(*Q)}) == ([], 0)
    other = TensorDigest("bfloat16", (2, 2), "0")
    assert unlike({"a": digest(*Q), "b": digest(*Q)}, {"a": other, "b": digest(*K), "c": digest(*Q)}) == ([], 0)


def test_plain_tensors_by_name() -> None:
    assert unlike({"a": digest(*Q), "b": digest(*K)}, {"a": digest(*Q), "b": digest(*V)}) == (["b"], 2)
