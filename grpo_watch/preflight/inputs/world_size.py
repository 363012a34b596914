"""Finds in launchers, variables and device lists how many processes train."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path

from grpo_watch.engine.records import Setting
from grpo_watch.frameworks.launches import launch_facts
from grpo_watch.preflight.inputs.draft import Argument, LaunchDraft
from grpo_watch.preflight.inputs.program import Program

DEVICE_LISTS = ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
INCLUDED = re.compile(r"(?<![\w.-])[\w.-]+:(?P<slots>[\d,]+)")


def find_world(program: Program, draft: LaunchDraft) -> None:
    """Set the number of processes where the launch gives it; leave it open where it does not."""
    options, facts = program.options, launch_facts().get(program.kind)
    if facts is not None and facts.devices:
        _from_settings(facts.devices, draft)
    elif (
        facts is not None
        and facts.torchrun_by_variables
        and options.keys().isdisjoint({"torchrun", "accelerate", "deepspeed"})
    ):
        _swift(draft)
    elif "torchrun" in options:
        _torchrun(options["torchrun"], draft)
    elif "deepspeed" in options:
        _deepspeed(options["deepspeed"], draft)
    elif "accelerate" in options or (facts is not None and facts.program.accelerates):
        _accelerate(options.get("accelerate", {}), draft)
    elif "mpirun" in options:
        _set(draft, options["mpirun"].get("np") or options["mpirun"].get("n"))
    elif program.kind in {"script", "open-r1"}:
        draft.world_size = draft.world_size or _number(draft.variable("WORLD_SIZE"))
        if draft.world_size is None:
            draft.world_size = Setting(1, f"{program.name} without a launcher is one process")


def visible(draft: LaunchDraft) -> Setting | None:
    """How many devices the launch may see, where a variable says so."""
    for name in DEVICE_LISTS:
        listed = draft.variable(name)
        if listed is not None and isinstance(listed.value, str) and listed.value.strip(", -"):
            count = len([device for device in listed.value.split(",") if device.strip()])
            return Setting(count, f"{listed.origin}: {name}={listed.value}" if listed.origin[:1] != "$" else f"${name}")
    return None


def _set(draft: LaunchDraft, argument: Argument | None, nodes: Setting | None = None, what: str = "") -> bool:
    """Take a count given to a launcher; whether there was one."""
    if argument is None:
        return False
    nodes_value = nodes.value if nodes is not None else 1
    if argument.text in {"gpu", "auto"} and (devices := visible(draft)) is not None:
        argument = Argument(str(devices.value), devices.origin)
    if argument.unknown or not argument.text.isdecimal() or not isinstance(nodes_value, int):
        why = argument.unknown or argument.text
        draft.note(f"{argument.origin}: the number of processes is {why}: say --world-size")
        draft.world_size = None
    else:
        detail = f": {argument.text} x {nodes_value} nodes" if nodes_value != 1 else ""
        draft.world_size = Setting(int(argument.text) * nodes_value, f"{argument.origin}{what}{detail}")
    return True


def _swift(draft: LaunchDraft) -> None:
    """``swift rlhf`` starts torchrun only where NPROC_PER_NODE or NNODES is set; else it is one process."""
    each, nodes = draft.variable("NPROC_PER_NODE"), _number(draft.variable("NNODES"))
    if each is None and nodes is None:
        draft.world_size = Setting(1, "neither NPROC_PER_NODE nor NNODES is set: one process")
        return
    text = "1" if each is None else "" if each.value is None else str(each.value)
    unknown = "" if text else "$NPROC_PER_NODE, which is not known"
    origin = (each or nodes or Setting(1, "")).origin
    _set(draft, Argument(text, origin, unknown), nodes, ": NPROC_PER_NODE" if origin[:1] != "$" else "")


def _torchrun(options: Mapping[str, Argument], draft: LaunchDraft) -> None:
    nodes = options.get("nnodes")
    number = Setting(1, "")
    if nodes is not None:
        low, _, high = nodes.text.partition(":")
        same = low.isdecimal() and high in {"", low} and not nodes.unknown
        number = Setting(int(low) if same else None, nodes.origin)
        if not same:
            draft.note(f"{nodes.origin}: the number of nodes is {nodes.unknown or nodes.text}: say --world-size")
    origin = nodes.origin if nodes is not None else "torchrun without --nproc_per_node"
    _set(draft, options.get("nproc_per_node") or Argument("1", origin), number)


def _deepspeed(options: Mapping[str, Argument], draft: LaunchDraft) -> None:
    nodes = options.get("num_nodes")
    number = Setting(int(nodes.text), nodes.origin) if nodes is not None and nodes.text.isdecimal() else Setting(1, "")
    if _set(draft, options.get("num_gpus"), number):
        return
    include = options.get("include") or options.get("i")
    if include is not None and (groups := INCLUDED.findall(include.text)):
        draft.world_size = Setting(sum(len(group.split(",")) for group in groups), include.origin)
    else:
        draft.world_size = visible(draft)


def _accelerate(options: Mapping[str, Argument], draft: LaunchDraft) -> None:
    """The flag wins over accelerate's configuration, which has been read; then the visible devices count."""
    if _set(draft, options.get("num_processes")) or draft.world_size is not None:
        return
    if options.get("cpu"):
        draft.world_size = Setting(1, options["cpu"].origin)
        return
    draft.world_size = visible(draft)


def default_accelerate_config(draft: LaunchDraft) -> Path | None:
    """The file that ``accelerate config`` wrote, which ``accelerate launch`` takes by default."""
    home = draft.environ.get("HF_HOME") or (draft.environ.get("HOME") and f"{draft.environ['HOME']}/.cache/huggingface")
    path = Path(home or "/nonexistent") / "accelerate" / "default_config.yaml"
    return path if path.is_file() else None


def _from_settings(devices: Sequence[Sequence[str]], draft: LaunchDraft) -> None:
    factors: list[Setting] = []
    for names in devices:
        found = next((draft.settings[name] for name in names if name in draft.settings), None)
        factors += [found] if found is not None else []
    values = [factor.value for factor in factors]
    if (
        factors
        and factors[0].origin
        and all(isinstance(value, int) for value in values)
        and any(name in draft.settings for name in devices[0])
    ):
        draft.world_size = Setting(prod(int(str(value)) for value in values), factors[0].origin)


def _number(setting: Setting | None) -> Setting | None:
    if setting is None:
        return None
    text = str(setting.value)
    return Setting(int(text), setting.origin) if text.isdecimal() else Setting(None, setting.origin)
