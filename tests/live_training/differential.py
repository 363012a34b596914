"""Holds preflight against real TRL: random launches, our verdict and its own, side by side."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from grpo_watch.engine.records import Setting
from grpo_watch.frameworks.launch_rules import RefusalKind, batch_of, refusals
from grpo_watch.frameworks.launches import Launch, LaunchSettings, at_least

ORACLE = Path(__file__).with_name("trl_oracle.py")
TEXTS = (
    ("can not be both configured", RefusalKind.BOTH_SET),
    ("must be divisible by the global batch size", RefusalKind.GLOBAL_BATCH),
    ("eval batch size", RefusalKind.EVAL_GROUPS),
    ("train batch size", RefusalKind.GROUPS),
    ("must be divisible by num_generations", RefusalKind.GROUPS),
    ("at least 2 generations", RefusalKind.GROUP_SIZE),
    ("batch_size should be a positive integer value", RefusalKind.NO_BATCH),
    ("max_steps must be set to a positive value", RefusalKind.NO_STEPS),
)
"""Fragments of TRL's texts, the most telling first."""

BATCHES = (1, 2, 3, 4, 6, 8, 12, 16)
WORLDS = (1, 1, 2, 2, 3, 4, 6, 8)


def launches(version: str, count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Random launches for one version; about half of them have a group that fits."""
    draw = random.Random(seed)
    for _ in range(count):
        yield _launch(version, draw)


def _launch(version: str, draw: random.Random) -> dict[str, Any]:
    per_device, accumulated, world = draw.choice(BATCHES), draw.randint(1, 8), draw.choice(WORLDS)
    whole = per_device * world * (accumulated if at_least(version, "0.17") else 1)
    fitting = [group for group in range(1, 25) if whole % group == 0]
    settings: dict[str, Any] = {
        "per_device_train_batch_size": per_device,
        "gradient_accumulation_steps": accumulated,
        "num_generations": draw.choice(fitting if draw.random() < 0.7 else range(1, 17)),
        "num_train_epochs": draw.choice((0.5, 1, 1, 1.5, 2, 3)),
    }
    if at_least(version, "0.16"):
        settings["num_iterations"] = draw.choice((1, 1, 2, 3))
    if at_least(version, "0.18"):
        settings |= _generation(per_device * world, draw)
    if draw.random() < 0.3:
        settings |= {"eval_strategy": "steps", "eval_steps": 5, "per_device_eval_batch_size": draw.choice(BATCHES)}
        if at_least(version, "0.26") and draw.random() < 0.5:
            settings["num_generations_eval"] = draw.randint(1, 8)
    if draw.random() < 0.1:
        settings["max_steps"] = draw.randint(1, 50)
    if draw.random() < 0.15:
        settings["dataloader_drop_last"] = True
    return {"world_size": world, "rows": draw.randint(1, draw.choice((8, 60, 400))), "settings": settings}


def _generation(global_batch: int, draw: random.Random) -> dict[str, int]:
    """Neither, one or both of the settings of the generation batch."""
    chance, steps = draw.random(), draw.randint(1, 8)
    size = global_batch * steps + (draw.randint(1, global_batch) if draw.random() < 0.3 else 0)
    chosen: dict[str, int] = {}
    if chance < 0.3 or chance > 0.9:
        chosen["steps_per_generation"] = steps
    if 0.3 <= chance < 0.5 or chance > 0.9:
        chosen["generation_batch_size"] = size
    return chosen


class View(NamedTuple):
    """What happens to a launch: accepted or the kind of refusal, its whole text, max_steps and micro-steps drawn."""

    verdict: str
    text: str = ""
    max_steps: int | None = None
    drawn: int | None = None


@dataclass(frozen=True)
class Case:
    """One launch with what TRL and preflight make of it."""

    launch: dict[str, Any]
    theirs: View
    ours: View


def their_view(answer: dict[str, Any]) -> View:
    """TRL's."""
    if "stage" not in answer:
        verdict = "accepted" if answer["drawn"] else RefusalKind.NOTHING_DRAWN.name
        return View(verdict, "", answer["max_steps"], answer["drawn"])
    text = answer["text"].removeprefix("ValueError: ")
    known = next((kind.name for fragment, kind in TEXTS if fragment in text), "unknown")
    return View(f"{known} ({answer['stage']})", text)


def our_view(launch: dict[str, Any], version: str, transformers: str) -> View:
    """Preflight's."""
    given = {**launch["settings"], "transformers_version": transformers}
    settings = LaunchSettings(
        Launch(
            "trl",
            version,
            settings={name: Setting(value, "drawn") for name, value in given.items()},
            world_size=Setting(launch["world_size"], "drawn"),
            dataset_size=Setting(launch["rows"], "drawn"),
        )
    )
    batch = batch_of(settings)
    assert batch is not None
    for refusal in refusals(batch):
        if refusal.kind is RefusalKind.NOTHING_DRAWN:
            return View(refusal.kind.name, "", batch.steps_set or batch.max_steps, 0)
        return View(f"{refusal.kind.name} ({refusal.stage.name.lower()})", refusal.text)
    return View("accepted", "", batch.steps_set or batch.max_steps, batch.drawn)


def compare(python: str, count: int, seed: int) -> tuple[str, list[Case]]:
    """TRL's version in that environment and every launch with both views."""
    probe = [python, "-c", "import importlib.metadata as m; print(m.version('trl'), m.version('transformers'))"]
    version, transformers = subprocess.run(probe, capture_output=True, text=True, check=True).stdout.split()
    asked = list(launches(version, count, seed))
    lines = "".join(f"{json.dumps(launch)}\n" for launch in asked)
    quiet = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([python, ORACLE], input=lines, capture_output=True, text=True, check=False, env=quiet)
    assert done.returncode == 0, done.stderr[-2000:]
    answers = [json.loads(line) for line in done.stdout.splitlines()[1:]]
    assert len(answers) == count
    return f"TRL {version}, transformers {transformers}", [
        Case(launch, their_view(theirs), our_view(launch, version, transformers))
        for launch, theirs in zip(asked, answers, strict=True)
    ]
