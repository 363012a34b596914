"""Reads the settings, configuration files and number of processes of a recognised training program."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path

from grpo_watch import lazy_re as re
from grpo_watch.engine.records import Setting
from grpo_watch.errors import UsageError
from grpo_watch.frameworks.launches import ProgramFacts, launch_facts
from grpo_watch.preflight.inputs.configurations import put_named_deepspeed, put_overrides, read_beside, read_document
from grpo_watch.preflight.inputs.draft import KEPT_VARIABLES, Argument, LaunchDraft
from grpo_watch.preflight.inputs.program import Flag, Flags, Program, parse_flags, put_flags
from grpo_watch.preflight.inputs.python_file import read_python
from grpo_watch.sources.settings.documents import Leaf

DEVICE_LISTS = ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
LAUNCHERS = frozenset({"torchrun", "accelerate", "deepspeed"})
LONGEST_NUMBER = 9
"""Most digits of a number of processes."""
INCLUDED = re.compile(r"(?<![\w.-])[\w.-]+:(?P<slots>[\d,]+)")


def find_world(program: Program, draft: LaunchDraft) -> None:
    """Set the number of processes if the launch determines it."""
    options, facts = program.options, launch_facts().get(program.kind)
    if facts is not None and facts.devices:
        _from_settings(facts.devices, draft)
    elif facts is not None and facts.torchrun_by_variables and LAUNCHERS.isdisjoint(options):
        _from_variables(draft)
    elif "torchrun" in options:
        given = options["torchrun"]
        alone = Argument("1", "torchrun without --nproc_per_node")
        _count(draft, given.get("nproc_per_node", alone), given.get("nnodes"))
    elif "deepspeed" in options:
        _from_deepspeed(options["deepspeed"], draft)
    elif "accelerate" in options or (facts is not None and facts.program.accelerates):
        given = options.get("accelerate", {})  # its configuration has been read; a flag wins
        if not _count(draft, given.get("num_processes")) and draft.world_size is None:
            draft.world_size = Setting(1, given["cpu"].origin) if "cpu" in given else visible_devices(draft)
    elif "mpirun" in options:
        _count(draft, options["mpirun"].get("np") or options["mpirun"].get("n"))
    elif program.kind in {"script", "open-r1"} and draft.world_size is None:
        alone = Argument("1", f"{program.name} without a launcher is one process")
        _count(draft, _variable("WORLD_SIZE", draft) or alone)


def _from_deepspeed(options: Mapping[str, Argument], draft: LaunchDraft) -> None:
    if _count(draft, options.get("num_gpus"), options.get("num_nodes")):
        return
    include = options.get("include") or options.get("i")
    if include is not None and (slots := INCLUDED.findall(include.text)):
        draft.world_size = Setting(sum(len(group.split(",")) for group in slots), include.origin)
    else:
        draft.world_size = visible_devices(draft)


def visible_devices(draft: LaunchDraft) -> Setting | None:
    """The number of devices visible to the launch, if a variable sets it."""
    for name in DEVICE_LISTS:
        listed = draft.variable(name)
        if listed is not None and isinstance(listed.value, str) and listed.value.strip(", -"):
            count = len([device for device in listed.value.split(",") if device.strip()])
            return Setting(count, f"{listed.origin}: {name}={listed.value}" if listed.origin[:1] != "$" else f"${name}")
    return None


def _count(draft: LaunchDraft, each: Argument | None, nodes: Argument | None = None) -> bool:
    """Set the number of processes per node and of nodes (``2:2`` is elastic); returns whether one was given."""
    if each is None:
        return False
    if each.text in {"gpu", "auto"} and (devices := visible_devices(draft)) is not None:
        each = Argument(str(devices.value), devices.origin)
    numbers = {"nodes": nodes or Argument("1", ""), "processes": each}
    for what, given in numbers.items():
        least, _, most = given.text.partition(":")
        if given.unknown or not least.isdecimal() or most not in {"", least} or len(least) > LONGEST_NUMBER:
            draft.note(f"{given.origin}: the number of {what} is {given.unknown or given.text}: say --world-size")
            draft.world_size = None
            return True
    counts = [int(given.text.partition(":")[0]) for given in numbers.values()]
    detail = f": {counts[1]} x {counts[0]} nodes" if counts[0] > 1 else ""
    draft.world_size = Setting(prod(counts), each.origin + detail)
    return True


def _from_variables(draft: LaunchDraft) -> None:
    """Without NPROC_PER_NODE and NNODES ``swift rlhf`` does not start torchrun: it is one process."""
    each, nodes = _variable("NPROC_PER_NODE", draft), _variable("NNODES", draft)
    alone = "neither NPROC_PER_NODE nor NNODES is set: one process" if nodes is None else nodes.origin
    _count(draft, each or Argument("1", alone), nodes)


def _variable(name: str, draft: LaunchDraft) -> Argument | None:
    """The number in an environment variable of the launch."""
    found = draft.variable(name)
    if found is None:
        return None
    origin = found.origin if found.origin[:1] == "$" else f"{found.origin}: {name}"
    return Argument(str(found.value), origin, "" if found.value is not None else f"${name}, which is not known")


def default_accelerate_config(draft: LaunchDraft) -> Path | None:
    """The file written by ``accelerate config``, the default of ``accelerate launch``; None if it is missing."""
    home = draft.environ.get("HF_HOME") or (draft.environ.get("HOME") and f"{draft.environ['HOME']}/.cache/huggingface")
    path = Path(home or "/nonexistent") / "accelerate" / "default_config.yaml"
    return path if path.is_file() else None


def _from_settings(devices: Sequence[Sequence[str]], draft: LaunchDraft) -> None:
    """Multiply the framework's settings (GPUs per node, nodes); the first must be given."""
    found = [next((draft.settings[name] for name in names if name in draft.settings), None) for names in devices]
    values = [setting.value for setting in found if setting is not None]
    if found[0] is not None and found[0].origin and all(isinstance(value, int) for value in values):
        draft.world_size = Setting(prod(int(str(value)) for value in values), found[0].origin)


YAML = (".yaml", ".yml", ".json")
SHIPPED = re.compile(r"ppo(?:_(?P<engine>megatron))?_trainer\.yaml")
ACCELERATE_VALUES = frozenset(
    {"num_processes", "num_machines", "machine_rank", "main_process_port", "main_process_ip", "config_file"}
    | {"launcher", "mixed_precision", "gpu_ids", "deepspeed_config_file", "zero_stage", "dynamo_backend"}
)


def read_program(program: Program, draft: LaunchDraft) -> None:
    """Read a program's command line and the files it names.

    Raises:
        UsageError: a configuration it names can't be read.
    """
    for word in program.variables:
        name, _, value = word.text.partition("=")
        if name in KEPT_VARIABLES:
            draft.environment[name] = Setting(None if word.unknown else value, word.origin)
    draft.name_input(" ".join([*(name for name in program.options if name != "python"), program.name]))
    _launchers(program, draft)
    draft.framework = draft.framework or (program.kind if program.kind not in {"script", "shell"} else None)
    facts = launch_facts().get(program.kind)
    if facts is None:
        _script(program, draft)
    elif facts.program.overrides:
        _overrides(program, facts.program, draft)
    else:
        _flags(program, facts.program, draft)
    find_world(program, draft)


def _launchers(program: Program, draft: LaunchDraft) -> None:
    """Read accelerate's configuration and the DeepSpeed options of its command line."""
    facts = launch_facts().get(program.kind)
    if "accelerate" not in program.options and not (facts is not None and facts.program.accelerates):
        return
    options = program.options.get("accelerate", {})
    given = options.get("config_file")
    default = default_accelerate_config(draft)
    if given is not None and given.unknown:
        draft.note(f"{given.origin}: accelerate's configuration is {given.unknown}")
    elif given is not None:
        read_beside(given.text, given.origin, "accelerate", draft)
    elif default is not None:
        read_beside(str(default), "accelerate's default", "accelerate", draft)
    if (deepspeed := options.get("deepspeed_config_file")) is not None:
        read_beside(deepspeed.text, deepspeed.origin, "DeepSpeed", draft)
    if (stage := options.get("zero_stage")) is not None and stage.text.isdecimal():
        draft.deepspeed["zero_optimization.stage"] = Setting(int(stage.text), stage.origin)


def _flags(program: Program, facts: ProgramFacts, draft: LaunchDraft) -> None:
    """Flags, and configurations named by ``--config``, as the first word, or as ``@ rl.toml``; later ones win.

    If the program starts accelerate, flags of both are mixed, in the configuration as well.
    """
    words: Sequence[Argument] = program.arguments
    if facts.toml:
        for argument in words:
            if argument.text.endswith(".toml"):
                _document(argument._replace(text=argument.text.removeprefix("@")), draft)
        words = [word for word in words if not word.text.endswith(".toml") and word.text != "@"]
    flags = parse_flags(words)
    _configs(flags, draft)
    _put(flags, draft)
    if not facts.accelerates:
        return
    profile = draft.settings.pop("accelerate_config", None)
    if profile is not None and isinstance(profile.value, str):
        _profile(profile.value, profile.origin, facts, draft)
    processes = draft.settings.pop("num_processes", None)
    if processes is not None and isinstance(processes.value, int):
        draft.world_size = processes
    for name in ACCELERATE_VALUES:
        draft.settings.pop(name, None)


def _configs(flags: Flags, draft: LaunchDraft) -> None:
    named = [value for flag in flags.flags if flag.name == "config" for value in flag.values]
    for argument in [*named, *flags.words]:
        if argument.text.endswith(YAML) and "=" not in argument.text and not argument.unknown:
            _document(argument, draft)


def _document(argument: Argument, draft: LaunchDraft) -> None:
    path = draft.path_of(argument.text)
    if path is None:
        raise UsageError(f"{argument.origin}: {argument.text}: no such file")
    read_document(path, draft)


def _put(flags: Flags, draft: LaunchDraft) -> None:
    put_flags(flags, draft, frozenset({"config"}))
    given = next((flag for flag in flags.flags if flag.name == "deepspeed" and flag.values and not flag.unknown), None)
    if given is not None and given.text.lstrip()[:1] != "{":
        put_named_deepspeed("deepspeed", Leaf(given.text, given.origin), draft)


def _profile(name: str, origin: str, facts: ProgramFacts, draft: LaunchDraft) -> None:
    if name not in facts.profiles:
        read_beside(name, origin, "accelerate", draft)
        return
    processes, *stage = facts.profiles[name]
    draft.world_size = Setting(processes, f"{origin}: TRL's own configuration {name}")
    if stage:
        draft.deepspeed["zero_optimization.stage"] = Setting(stage[0], origin)


def _overrides(program: Program, facts: ProgramFacts, draft: LaunchDraft) -> None:
    """Configurations named by ``--config`` or Hydra's ``--config-path`` and ``--config-name``, then the overrides."""
    flags = parse_flags(_only_flags(program.arguments))
    named = {flag.name: flag.values[0] for flag in flags.flags if flag.values}
    _configs(flags, draft)
    if facts.needs_config and "config" not in named:
        draft.note(f"{program.name}: no --config, so the values of its example configuration are not known")
    if "config_name" in named:
        _hydra(named["config_name"], named.get("config_path"), Path(program.name).parent, draft)
    put_overrides((word for word in program.arguments if not word.text.startswith("--")), draft)


def _hydra(name: Argument, given: Argument | None, beside: Path, draft: LaunchDraft) -> None:
    """Read the configuration of that name, if the file exists."""
    folder, file = "config" if given is None else given.text, f"{name.text.removesuffix('.yaml')}.yaml"
    places = [Path(folder), beside / folder]
    path = next((found for place in places if (found := draft.path_of(str(place / file))) is not None), None)
    if path is not None:
        _document(Argument(str(path), name.origin), draft)
    elif (shipped := SHIPPED.fullmatch(file)) is None:  # verl's shipped configurations are known as its defaults
        draft.note(f"{name.origin}: the configuration {name.text} was not found, so its values are not known")
        draft.settings["config_name"] = Setting(None, name.origin)
    elif shipped["engine"]:
        draft.put("model_engine", shipped["engine"], name.origin)


def _only_flags(arguments: Sequence[Argument]) -> list[Argument]:
    """Hydra's own options with their values, without the overrides between them."""
    kept: list[Argument] = []
    for argument in arguments:
        after = bool(kept) and kept[-1].text.startswith("--") and "=" not in kept[-1].text
        if argument.text.startswith("--") or (after and "=" not in argument.text):
            kept.append(argument)
    return kept


def _script(program: Program, draft: LaunchDraft) -> None:
    """Read the user's own Python file: its own configuration wins; without one, its flags are the framework's."""
    flags = parse_flags(program.arguments)
    path = draft.path_of(program.name)
    own = False
    if path is not None:
        draft.folders.append(Path(os.path.abspath(path)).parent)  # noqa: PTH100  a link's own folder, not its target's
        before = dict(draft.settings)
        try:
            own = read_python(path, draft, flags.flags)
        except UsageError as error:
            draft.note(str(error))
        in_file = {name: setting for name, setting in draft.settings.items() if before.get(name) != setting}
    else:
        in_file = {}
    if not own:
        _configs(flags, draft)
        _put(flags, draft)
    draft.settings.update(in_file)
    _guess(program, flags.flags, draft, found=path is not None)


def _guess(program: Program, flags: Sequence[Flag], draft: LaunchDraft, *, found: bool) -> None:
    """Guess the framework from settings that only it has, if the file names none; note the guess."""
    names = {flag.name for flag in flags} | draft.settings.keys()
    fitting = [kind for kind, facts in launch_facts().items() if not facts.program.revealing.isdisjoint(names)]
    guess = fitting[-1] if fitting else None  # the last in rank has the rarer flags
    if not found:
        draft.leave_open(f"{program.name} is not here, so what it sets itself is not known")
    if draft.framework is None and guess is not None:
        draft.framework = guess
        draft.note(f"taken for {guess} by its settings' names: say --framework if it is another")
