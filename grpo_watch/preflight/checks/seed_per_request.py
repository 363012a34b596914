"""Every request to the engine carries the same seed: the completions of a group are copies."""

from __future__ import annotations

import re
from collections.abc import Iterator

from grpo_watch.engine.records import Severity
from grpo_watch.frameworks.launches import LaunchSettings
from grpo_watch.preflight.findings import LaunchProblem

NAME = "seed-per-request"
PLACES = ("generation_kwargs", "vllm_sampling_params", "sampling_params", "rollout.sampling_params")
SEED = re.compile(r"""(?:^|[\s{,'"])seed['"]?\s*[:=]\s*\d""")


def judge(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """One problem per sampling setting that holds a seed."""
    for name, setting in settings.launch.settings.items():
        place, _, last = name.rpartition(".")
        inside = any(place.endswith(each) for each in PLACES) and last == "seed" and setting.value is not None
        written = any(name.endswith(each) for each in PLACES) and SEED.search(str(setting.value)) is not None
        if inside or written:
            yield LaunchProblem(
                NAME,
                Severity.CRITICAL,
                f"{name} gives every request the same seed: the completions of a prompt will be equal",
                "remove the seed from the sampling parameters; the engine's own seed is enough",
                setting.origin,
            )
