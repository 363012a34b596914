"""One launch as read: its settings as given, each with its place. Every reader produces it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from grpo_watch.engine.records import Setting

NO_SETTINGS: Mapping[str, Setting] = MappingProxyType({})
FRAMEWORKS = (
    "trl",
    "ms-swift",
    "ms-swift-megatron",
    "verl",
    "openrlhf",
    "nemo-rl",
    "unsloth",
    "axolotl",
    "open-r1",
)
"""The names ``Launch.framework`` and ``--framework`` take."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a training run, as far as it could be read without running anything.

    ``settings`` holds the framework's own flat names (dotted where it nests: verl, NeMo-RL, OpenRLHF, axolotl's
    ``trl.num_generations``), only what was given and never a default. A value is an int, float, bool or str. It is
    None where something was given that could not be read (``$BATCH`` that nothing sets): that is not the default, and
    what follows from it is unknown. A null in the input says "default" and is left out. Lists are written as their
    items joined by a space, as on a command line. ``Setting.origin`` is ``train.sh:14``, ``train.yaml:12:3`` or
    ``command line``. ``version`` is the framework's own, but TRL's for unsloth, axolotl and open-r1, whose batches TRL
    makes; ``version_origin`` says so. ``environment`` holds the variables that change batches or devices
    (``NPROC_PER_NODE``, ``MAX_PIXELS``, …), ``deepspeed`` a DeepSpeed configuration with dotted names
    (``zero_optimization.stage``; ``"auto"`` stays where the trainer gives no value). ``dataset_size``:
    rows before any split ratio among the settings is applied. ``packages`` are versions of
    other packages (``deepspeed``). ``peft`` is None where the input leaves it open. ``unresolved`` has a line for all
    that could not be read and why; ``text`` says in a few words what was read.
    """

    framework: str | None = None
    version: str | None = None
    version_origin: str = ""
    settings: Mapping[str, Setting] = field(default_factory=lambda: NO_SETTINGS)
    environment: Mapping[str, Setting] = field(default_factory=lambda: NO_SETTINGS)
    world_size: Setting | None = None
    dataset_size: Setting | None = None
    deepspeed: Mapping[str, Setting] = field(default_factory=lambda: NO_SETTINGS)
    packages: Mapping[str, Setting] = field(default_factory=lambda: NO_SETTINGS)
    peft: bool | None = None
    unresolved: tuple[str, ...] = ()
    text: str = ""
