"""Converts the states that console readers stored in development versions, when each had a format of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from grpo_watch.engine.records import Scalar

MARKS = ("of_rank", "slots")
"""Keys that only older states have."""
BARS = ("_done", "_shown", "_given", "_first", "_offset", "_epoch")
BLOCK = ("values", "texts", "step", "total", "epoch", "led", "single", "sampled")
HELD = ("step", "values", "max_steps", "resolution")
"""Fields that were stored as lists."""


def older_state(state: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
    """Return a state in today's form; a damaged part is not converted, so its reader starts empty."""
    if not any(mark in state for mark in MARKS):
        return state
    converted = {key: value for key, value in state.items() if key not in MARKS}
    of_rows = {"steps": _steps, "own": _own, "columns": _columns, "bars": _bars} if "slots" in state else {}
    for name, convert in {"errors": _errors, **of_rows}.items():
        with suppress(KeyError, ValueError, TypeError, AttributeError):
            converted[name] = json.dumps(convert(state))
    return converted


def _errors(state: Mapping[str, Scalar]) -> dict[str, Any]:
    last = {"_last": state.get("last error") or "", "_since": state.get("since error") or 0}
    return {"_of_rank": json.loads(str(state["of_rank"])), "_watchdog": state.get("watchdog") or "", **last}


def _steps(state: Mapping[str, Scalar]) -> dict[str, Any]:
    printed, fine, bounds, first = str(state["epochs"]).split("|")
    pairs = {"_bounds": _pair(bounds), "_first": _pair(first)}
    epochs = {"printed": int(printed) if printed else None, "fine": bool(fine), **pairs}
    lengths = {total: int(length) for total, length in (pair.split(":") for pair in str(state["lengths"]).split())}
    return {**state, "lengths": lengths, "epochs": epochs, "slots": [int(slot) for slot in str(state["slots"]).split()]}


def _pair(text: str) -> list[float] | None:
    return [float(number) for number in text.split(":")] if text else None


def _own(state: Mapping[str, Scalar]) -> dict[str, Any]:
    own = json.loads(str(state["own"]))
    most, in_full = own.get("decimals", ({}, False))
    held = [dict(zip(HELD, row, strict=True)) for row in own.get("held", ())]
    block = dict(zip(BLOCK, own.get("block", ()), strict=False))
    return {**own, "_steps": own, "_held": held, "_block": block, "_decimals": {"most": most, "in_full": in_full}}


def _columns(state: Mapping[str, Scalar]) -> dict[str, Any]:
    return {"_header": json.loads(str(state["columns"]))}


def _bars(state: Mapping[str, Scalar]) -> dict[str, Any]:
    return dict(zip(BARS, json.loads(str(state["bars"])), strict=True))
