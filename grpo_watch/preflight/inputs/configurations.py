"""Turns YAML and JSON files of trainers, Hydra, accelerate, DeepSpeed and wandb into settings of a draft."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from grpo_watch import lazy_re as re
from grpo_watch.engine.records import Scalar, Setting
from grpo_watch.errors import UsageError
from grpo_watch.frameworks.launches import SHIPPED_ZERO, LaunchFacts, launch_facts
from grpo_watch.preflight.inputs.draft import KEPT_VARIABLES, Argument, LaunchDraft
from grpo_watch.sources.settings.config_files import ACCELERATE
from grpo_watch.sources.settings.documents import Leaf, json_leaves, toml_leaves, typed, yaml_leaves

OVERRIDE = re.compile(r"(?P<sign>\+\+|\+|~)?(?P<name>[\w./@-]+)(?:=(?P<value>.*))?", re.DOTALL)
REFERENCE = re.compile(r"\$\{\s*(?:oc\.select:\s*)?(?P<name>[\w.]+)\s*(?:,(?P<default>[^{}]*))?\}")
MAX_FILES = 30
SHIPPED = re.compile(r"ppo_\w+\.yaml|grpo_math_1B\.yaml")
"""The configurations of verl and NeMo-RL whose values are known as defaults."""


def put_overrides(arguments: Iterable[Argument], draft: LaunchDraft) -> None:
    """Store ``key=value`` words as settings; ``~key`` removes one."""
    for argument in arguments:
        found = OVERRIDE.fullmatch(argument.text)
        if found is None or (found["value"] is None and found["sign"] != "~"):
            if argument.unknown:
                draft.note(f"{argument.origin}: {argument.unknown}: arguments in it are not seen")
        elif found["sign"] == "~":
            draft.settings.pop(found["name"], None)
        elif argument.unknown:
            draft.put_unknown(found["name"], argument.origin, argument.unknown)
        else:
            draft.put(found["name"], override_value(found["value"]), argument.origin)


def override_value(text: str) -> Scalar | tuple[Scalar, ...]:
    """The value of an override: without quotes, ``[a,b]`` as a list."""
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        return tuple(_item(item) for item in text[1:-1].split(",") if item.strip())
    return _item(text)


def _item(text: str) -> Scalar:
    text = text.strip()
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if quoted else typed(text)


def _composed(path: Path, leaves: Mapping[str, Leaf], draft: LaunchDraft, chain: list[Path]) -> dict[str, Leaf]:
    """A configuration merged with the files in its ``defaults``; later ones and the file itself win.

    Raises:
        UsageError: one of them can't be read; a missing default is only noted.
    """
    chain.append(path)
    found: dict[str, Leaf] = {}
    for target, package, origin in _defaults(leaves):
        parent = path.parent / target
        if parent in chain or len(chain) > MAX_FILES:
            continue
        if not parent.is_file():
            draft.note(f"{origin}: the default {target} is not in the same folder, so its settings are unknown")
            if not SHIPPED.fullmatch(Path(target).name):
                draft.settings["defaults"] = Setting(None, origin)
            continue
        below = _composed(parent, yaml_leaves(draft.text_of(parent), draft.shown(parent)), draft, chain)
        found.update({f"{package}{name}": leaf for name, leaf in below.items()})
    own = {name: leaf for name, leaf in leaves.items() if name != "defaults" and not name.startswith("defaults.")}
    return found | own


def _defaults(leaves: Mapping[str, Leaf]) -> Iterable[tuple[str, str, str]]:
    """Files in ``defaults``, each with its package (ending in a dot) and the place that names it."""
    for name, leaf in leaves.items():
        if name == "defaults":
            named = leaf.value if isinstance(leaf.value, tuple) else (leaf.value,)
            yield from ((_file(str(item)), "", leaf.origin) for item in named if item not in {"_self_", None})
        elif name.startswith("defaults."):
            key = name.split(".", 2)[-1]
            if leaf.value in {"_self_", None} or key.startswith(("override ", "optional ")):
                continue
            if key.isdecimal():
                yield _file(str(leaf.value)), "", leaf.origin
            else:
                group, _, package = key.partition("@")
                where = package or group.replace("/", ".")
                yield _file(str(PurePosixPath(group) / str(leaf.value))), f"{where}.", leaf.origin


def _file(name: str) -> str:
    return name if name.endswith((".yaml", ".yml")) else f"{name}.yaml"


def resolve_references(draft: LaunchDraft) -> None:
    """Replace references such as ``${data.train_batch_size}`` by their values; report unresolved ones in one line."""
    unread: list[str] = []
    for name, setting in list(draft.settings.items()):
        value: Scalar = setting.value
        for _ in range(5):
            found = REFERENCE.fullmatch(value) if isinstance(value, str) else None
            if found is None:
                break
            target = draft.settings.get(found["name"])
            value = (
                target.value if target is not None else typed(found["default"].strip()) if found["default"] else None
            )
        if isinstance(value, str) and "${" in value:
            value = None
        if value is None and setting.value is not None:
            unread.append(f"{setting.origin}: {name} is {setting.value}")
        draft.settings[name] = Setting(value, setting.origin)
    if unread:
        more = f" (and {len(unread) - 1} more)" if len(unread) > 1 else ""
        draft.note(f"{unread[0]}, which refers to something that is not read{more}")


def read_document(path: Path, draft: LaunchDraft, kind: str = "") -> None:
    """Read one configuration file into the draft; without ``kind`` its content determines it.

    Raises:
        UsageError: it can't be read; the message names file, place and reason.
    """
    name = draft.shown(path)
    leaves = load(path, draft)
    if not leaves:
        raise UsageError(f"{name}: holds no settings")
    draft.name_input(name)
    kind = kind or kind_of(leaves, name)
    if kind == "accelerate":
        put_accelerate(leaves, draft)
    elif kind == "deepspeed":
        put_deepspeed(leaves, draft)
    else:
        put_trainer(leaves, kind, draft)


def load(path: Path, draft: LaunchDraft) -> dict[str, Leaf]:
    """The leaves of a YAML or JSON file, with the files in its ``defaults``.

    Raises:
        UsageError: it can't be read.
    """
    name, text = draft.shown(path), draft.text_of(path)
    if path.suffix == ".json" or text.lstrip().startswith("{"):
        return json_leaves(text, name)
    if path.suffix == ".toml":
        return toml_leaves(text, name)
    leaves = yaml_leaves(text, name)
    plain = _unwrapped(leaves)
    draft.recorded = draft.recorded or plain is not leaves
    return _composed(path, plain, draft, []) if any(key.startswith("defaults") for key in plain) else plain


def _unwrapped(leaves: dict[str, Leaf]) -> dict[str, Leaf]:
    """A wandb run's configuration without its ``desc``/``value`` layer."""
    if "_wandb.desc" not in leaves and not all(re.search(r"\.(?:value|desc)(?:\.|$)", name) for name in leaves):
        return leaves
    found = {name.replace(".value", "", 1): leaf for name, leaf in leaves.items() if ".value" in name}
    return {name: leaf for name, leaf in found.items() if not name.startswith("_wandb")}


def kind_of(leaves: Mapping[str, Leaf], name: str) -> str:
    """The kind of a configuration file: ``accelerate``, ``deepspeed`` or a framework; ``""`` if unknown."""
    tops = {key.split(".", 1)[0] for key in leaves}
    if tops & {"compute_environment", "distributed_type"} or {"num_processes", "num_machines"} <= tops:
        return "accelerate"
    if tops & {"zero_optimization", "train_micro_batch_size_per_gpu"}:
        return "deepspeed"
    return next((kind for kind, facts in launch_facts().items() if facts.configures(tops, name)), "")


def put_trainer(leaves: Mapping[str, Leaf], kind: str, draft: LaunchDraft) -> None:
    """Store the settings of a training configuration; overwrites earlier ones (a command line's)."""
    if kind:
        draft.framework = draft.framework or kind
    for name, leaf in leaves.items():
        if name.startswith("deepspeed.") or (name == "deepspeed" and isinstance(leaf.value, str)):
            put_named_deepspeed(name, leaf, draft)
        elif name.startswith("env."):
            if name.removeprefix("env.") in KEPT_VARIABLES:
                draft.environment[name.removeprefix("env.")] = Setting(_text(leaf), leaf.origin)
        elif leaf.value is not None:
            draft.put(name, leaf.value, leaf.origin)
    if kind:
        _put_recorded(launch_facts()[kind], leaves, draft)


def _put_recorded(facts: LaunchFacts, leaves: Mapping[str, Leaf], draft: LaunchDraft) -> None:
    """Store version and processes, if runs of the framework record them among their settings."""
    if (version := leaves.get(facts.version_setting)) is not None and isinstance(version.value, str):
        draft.version, draft.version_origin = draft.version or version.value, version.origin
    world = leaves.get(facts.world_setting)
    if world is not None and isinstance(world.value, int) and world.value > 0:
        draft.world_size = Setting(world.value, world.origin)


def put_named_deepspeed(name: str, leaf: Leaf, draft: LaunchDraft) -> None:
    """``deepspeed: ds.json``, ``deepspeed: zero2``, or a value of the configuration nested below ``deepspeed``."""
    if name != "deepspeed":
        put_deepspeed({name.removeprefix("deepspeed."): leaf}, draft)
        return
    draft.put("deepspeed", leaf.value, leaf.origin)
    if SHIPPED_ZERO.fullmatch(str(leaf.value)) is None:
        read_beside(str(leaf.value), leaf.origin, "DeepSpeed", draft)


def read_beside(name: str, origin: str, what: str, draft: LaunchDraft) -> None:
    """Read a configuration of accelerate or DeepSpeed that another one names; note the reason if that fails."""
    path = draft.path_of(name)
    if path is None or not path.is_file():
        draft.note(f"{origin}: the {what} configuration {name} was not found")
        return
    try:
        read_document(path, draft, what.lower())
    except UsageError as error:
        draft.note(str(error))


def put_deepspeed(leaves: Mapping[str, Leaf], draft: LaunchDraft) -> None:
    """Store a DeepSpeed configuration, names dotted."""
    for name, leaf in leaves.items():
        if leaf.value is not None:
            draft.deepspeed[name] = Setting(_text(leaf), leaf.origin)


def put_accelerate(leaves: Mapping[str, Leaf], draft: LaunchDraft) -> None:
    """Store an accelerate configuration: its processes and its DeepSpeed block."""
    processes = leaves.get("num_processes")
    if processes is not None and isinstance(processes.value, int):
        draft.world_size = Setting(processes.value, processes.origin)
    for name, leaf in leaves.items():
        key = name.removeprefix("deepspeed_config.")
        if key == name or leaf.value is None:
            continue
        if key == "deepspeed_config_file":
            read_beside(str(leaf.value), leaf.origin, "DeepSpeed", draft)
        elif key in ACCELERATE and str(leaf.value) != "none":
            draft.deepspeed[ACCELERATE[key]] = Setting(_text(leaf), leaf.origin)


def _text(leaf: Leaf) -> Scalar:
    return leaf.value if not isinstance(leaf.value, tuple) else " ".join(map(str, leaf.value))
