"""Holds preflight against ms-swift's real argument class: the same text, or the same resolved generation batch."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from grpo_watch.engine.records import Setting
from grpo_watch.frameworks.launch_rules import batch_of, refusals
from grpo_watch.frameworks.launches import Launch, LaunchSettings
from tests.live_training.differential import Case, View, launches

ORACLE = Path(__file__).with_name("swift_oracle.py")
LIKE_TRL = "1.16.0"
"""The launches are drawn as for this version: the same settings exist."""


def compare_swift(python: str, count: int, seed: int) -> tuple[str, list[Case]]:
    """The version in that environment and every launch with both views; groups of one are refused elsewhere."""
    probe = [python, "-c", "import importlib.metadata as m; print(m.version('ms-swift'), m.version('trl'))"]
    version, trl = subprocess.run(probe, capture_output=True, text=True, check=True).stdout.split()
    asked = [each for each in launches(LIKE_TRL, count, seed) if each["settings"]["num_generations"] > 1]
    lines = "".join(f"{json.dumps(each)}\n" for each in asked)
    quiet = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([python, ORACLE], input=lines, capture_output=True, text=True, check=False, env=quiet)
    assert done.returncode == 0, done.stderr[-2000:]
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return f"ms-swift {version}, TRL {trl}", [
        Case(each, _their_view(theirs), _our_view(each, version)) for each, theirs in zip(asked, answers, strict=True)
    ]


def _their_view(answer: dict[str, Any]) -> View:
    return View("refused", answer["text"]) if "text" in answer else View("accepted", "", *answer["resolved"])


def _our_view(launch: dict[str, Any], version: str) -> View:
    # the command line's class turns evaluation off where there is nothing to evaluate; this one takes it as it is
    evaluation = {"val_dataset": "given"} if "eval_strategy" in launch["settings"] else {"eval_strategy": "no"}
    given = {name: Setting(value, "drawn") for name, value in {**launch["settings"], **evaluation}.items()}
    batch = batch_of(
        LaunchSettings(Launch("ms-swift", version, settings=given, world_size=Setting(launch["world_size"], "")))
    )
    assert batch is not None
    refused = refusals(batch)
    return View("refused", refused[0].text) if refused else View("accepted", "", batch.completions, batch.micro_batches)
