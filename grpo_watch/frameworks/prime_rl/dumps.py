"""prime-rl's episodes: ``rollouts/step_<N>/train/effective/traces.jsonl``, one episode of verifiers 0.4 per line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from grpo_watch import lazy_re as re
from grpo_watch.frameworks.dump_formats import DumpRow, RolloutDumps


def _rows(row: Mapping[str, object]) -> Iterable[DumpRow]:
    """The traces of trained agents; those of one group are attempts at one task.

    A prompt is everything before the first message that the model wrote, a completion all that it wrote itself.
    """
    group = _held(row, "group").get("id")
    traces = row["traces"]
    for trace in traces if isinstance(traces, list) else []:
        agent = _held(trace, "agent")
        nodes = [node for node in trace.get("nodes") or [] if isinstance(node, dict)]
        first = next((at for at, node in enumerate(nodes) if node.get("sampled") is True), None)
        if agent.get("trainable") is False or first is None:
            continue
        prompt = [_held(node, "message") for node in nodes[:first]]
        written = [_text(_held(node, "message")) for node in nodes[first:] if node.get("sampled") is True]
        rewards = {name: _value(reward) for name, reward in _held(trace, "rewards").items()}
        total = sum(value for value in rewards.values() if value is not None) if rewards else None
        name = agent.get("name") or ""
        yield DumpRow(prompt, "\n".join(written), {"reward": total, **rewards}, f"{group}/{name}" if group else None)


def _failed(row: Mapping[str, Any]) -> Iterable[bool]:
    """Whether each trace failed for good; an episode that ended without a trace counts as an attempt, too."""
    traces = row["traces"] if isinstance(row["traces"], list) else []
    return [trace.get("ok") is False for trace in traces if isinstance(trace, dict)] or [row.get("ok") is False]


def _held(holder: object, key: str) -> Mapping[str, Any]:
    found = holder.get(key) if isinstance(holder, dict) else None
    return found if isinstance(found, dict) else {}


def _text(message: Mapping[str, Any]) -> str:
    """The model's text in a turn: its reasoning, its answer, and calls of tools."""
    calls = [f"{call.get('name')}({call.get('arguments')})" for call in message.get("tool_calls") or [] if call]
    parts = (message.get("reasoning_content"), message.get("content"), *calls)
    return "\n".join(part for part in parts if isinstance(part, str) and part)


def _value(reward: object) -> float | None:
    """The weighted score; None if scoring did not run."""
    score = reward.get("score") if isinstance(reward, dict) else None
    weight = reward.get("weight", 1.0) if isinstance(reward, dict) else None
    return score * weight if isinstance(score, (int, float)) and isinstance(weight, (int, float)) else None


DUMPS = RolloutDumps(
    framework="prime-rl",
    file=re.compile(r"step_(\d{1,12})"),
    keys=frozenset({"traces", "task"}),
    read=_rows,
    inner="train/effective/traces.jsonl",
    attempts="all",
    failed=_failed,
)
