"""Merges flags, ``GRPO_WATCH_*`` variables, ``grpo-watch.yaml`` and defaults into settings with their origin."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from inspect import cleandoc
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import msgspec
from msgspec import Struct

from grpo_watch.config.document import Document, first_problem, nearest, read_document
from grpo_watch.config.fields import converted, wrong_value
from grpo_watch.config.schema import SINKS, BaseSink, Mute, Privacy, Retention, RunEntry, Settings, WandbServer, Web
from grpo_watch.engine.metric_names import SETTINGS
from grpo_watch.engine.records import Scalar
from grpo_watch.errors import ConfigError, FilePlace, UsageError

FILE = "grpo-watch.yaml"
DEFAULT = "default"

VARIABLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "GRPO_WATCH_LISTEN": ("listen",),
        "GRPO_WATCH_STATE_DIR": ("state_dir",),
        "GRPO_WATCH_RULES": ("rules",),
        "GRPO_WATCH_NOTIFY_BACKLOG": ("notify_backlog",),
        "GRPO_WATCH_ALLOW_ROOTS": ("allow_roots",),
        "GRPO_WATCH_IO_LIMIT": ("io_limit",),
        "GRPO_WATCH_LANGUAGE": ("language",),
        "GRPO_WATCH_RETENTION_DAYS": ("retention", "days"),
        "GRPO_WATCH_RETENTION_MAX_MB": ("retention", "max_mb"),
        "GRPO_WATCH_PRIVACY_EXAMPLES": ("privacy", "examples"),
        "GRPO_WATCH_PRIVACY_COMPLETIONS": ("privacy", "completions"),
        "GRPO_WATCH_PRIVACY_MESSAGES": ("privacy", "messages"),
    }
)
"""The environment variables read; lists are separated as in PATH. Others are ignored on purpose: Kubernetes puts
``GRPO_WATCH_PORT`` and ``GRPO_WATCH_SERVICE_*`` into every pod next to a service called grpo-watch."""

_IN_FILE = "url_file: the path of a file that contains the address"
_APPRISE = "use `type: apprise` with url_file; docs/notifications.md lists the addresses"
_RECEIVERS = tuple(str(model.__struct_config__.tag) for model in SINKS)
INSTEAD: Mapping[str, str] = MappingProxyType(
    {
        "runs": "write `runs: [{path: my-run}]`",
        "sinks": "write `sinks: [{type: slack, webhook_url_file: …}]`",
        "rules": "write `rules: [my-rules.yaml]`",
        "allow_roots": "write `allow_roots: [/path]`",
        "mute": "write `mute: [{run: my-run, rule: RULE, until: 2027-01-31}]`",
        "listen": "write `listen: 127.0.0.1:9853`",
        **dict.fromkeys(_RECEIVERS, "receivers stand under `sinks:`, as `- {type: …}`"),
        **{f"{kind}.url": f"use {_IN_FILE}" for kind in ("apprise", "heartbeat")},
        **{
            f"{kind}.{key}": f"use webhook_{_IN_FILE}"
            for kind in ("slack", "feishu", "dingtalk", "wecom")
            for key in ("url", "webhook_url")
        },
        "lark": "use `type: feishu`, whose robots take the same",
        **dict.fromkeys(("wechat", "weixin"), "use `type: wecom`, a group robot of WeCom"),
        **dict.fromkeys(("discord", "email", "teams", "telegram"), _APPRISE),
    }
)
"""Replacements for keys and kinds of receivers that people expect."""

_LOCALE = ("LC_ALL", "LC_MESSAGES", "LANG")
"""POSIX: the first one set wins."""
_LISTS = frozenset({("rules",), ("allow_roots",)})
_SECTIONS = frozenset({"retention", "web", "privacy", "wandb"})
_MODELS: tuple[type[msgspec.Struct], ...] = (
    Settings,
    RunEntry,
    Retention,
    Mute,
    Web,
    Privacy,
    WandbServer,
    *SINKS,
)


class LoadedSettings(Struct, frozen=True):
    """Settings in force; ``origins`` names the source of each given key (``retention.days`` for nested ones)."""

    settings: Settings
    origins: Mapping[str, str]
    file: Path | None


class EffectiveSetting(Struct, frozen=True):
    """One setting as ``grpo-watch config`` shows it: JSON values, secrets masked."""

    name: str
    value: Any
    origin: str


def load_settings(
    flags: Mapping[str, Any] | None = None,
    *,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> LoadedSettings:
    """The settings in force.

    Args:
        flags: settings given on the command line (``listen``, ``privacy.examples``, …); None or empty: not given.
        config: the file named by ``--config``; else ``$GRPO_WATCH_CONFIG``, else ``grpo-watch.yaml`` in ``folder``.
        environ: the environment, by default the process's.
        folder: where ``grpo-watch.yaml`` is looked for, by default the working directory.

    Raises:
        ConfigError: naming the file and line, the variable or the flag that can't be used.
    """
    environment = os.environ if environ is None else environ
    file = _file(config, environment, folder or Path())
    settings, origins = (Settings(), {}) if file is None else _from_file(file)
    locale = _locale(environment)
    if locale and "language" not in origins and environment[locale].startswith("zh"):
        settings, origins["language"] = msgspec.structs.replace(settings, language="zh"), locale
    given = {name: value for name, value in (flags or {}).items() if value not in (None, [], ())}
    layers = (
        *((variable, path, environment[variable]) for variable, path in VARIABLES.items() if environment.get(variable)),
        *((_flag(name, value), tuple(name.split(".")), value) for name, value in given.items()),
    )
    for origin, path, value in layers:
        split = value.split(os.pathsep) if isinstance(value, str) and path in _LISTS else value
        settings = _changed(settings, path, split, origin)
        origins[".".join(path)] = origin
    return LoadedSettings(settings, MappingProxyType(origins), file)


def reader_language() -> Literal["en", "zh"]:
    """The language in this folder's settings; that of the environment if they can't be used."""
    try:
        return load_settings().settings.language
    except ConfigError:
        named = os.environ.get("GRPO_WATCH_LANGUAGE") or os.environ.get(_locale(os.environ), "")
        return "zh" if named.startswith("zh") else "en"


def _locale(environ: Mapping[str, str]) -> str:
    """The first set locale variable that determines the terminal's language; empty if none is set."""
    return next((name for name in _LOCALE if environ.get(name)), "")


def _flag(name: str, value: object) -> str:
    """A key's flag on the command line: a switch that turns something off is called ``--no-…``."""
    return f"--{'no-' if value is False else ''}{name.rpartition('.')[2].replace('_', '-')}"


def effective(loaded: LoadedSettings, environ: Mapping[str, str]) -> tuple[EffectiveSetting, ...]:
    """Every setting with its value and origin, in the order of the interface; secrets are masked."""
    pattern = str(state_home(environ) / "<host>-<hash of the paths>")
    return tuple(
        EffectiveSetting(
            name,
            pattern if name == "state_dir" and value is None else _shown(value),
            loaded.origins.get(name, DEFAULT),
        )
        for name, value in _flat(loaded.settings)
    )


def json_schema() -> dict[str, Any]:
    """The JSON schema of ``grpo-watch.yaml``, for editors; paths, addresses and files of secrets are texts."""
    _, models = msgspec.json.schema_components(
        [Settings], ref_template="#/$defs/{name}", schema_hook=lambda _: {"type": "string"}
    )
    for model in models.values():
        model["description"] = cleandoc(model["description"])
    return {**models.pop("Settings"), "$defs": models}


def parse_assignments(texts: Sequence[str]) -> dict[str, Scalar]:
    """Parse ``--set`` arguments such as ``beta=0.04`` into canonical settings; values are read as JSON, else as text.

    Raises:
        UsageError: ``=`` is missing, the name is unknown (suggests the nearest), or the value is of the wrong kind.
    """
    found: dict[str, Scalar] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--set {text!r}: use KEY=VALUE, e.g. beta=0.04")
        if name not in SETTINGS and name not in {"framework", "framework_version"}:
            raise UsageError(f"--set {text!r}: unknown setting ({nearest(name, SETTINGS) or 'e.g. beta=0.04'})")
        found[name] = _scalar(value)
        if wrong := wrong_value(name, found[name]):
            raise UsageError(f"--set {wrong}")
    return found


def default_state_dir(paths: Sequence[str], host: str, environ: Mapping[str, str]) -> Path:
    """``$XDG_STATE_HOME/grpo-watch/<host>-<hash of the paths>``, which differs between sidecars of one user."""
    named = sorted({path if path == "-" or "://" in path else str(Path(path).absolute()) for path in paths})
    digest = hashlib.blake2s("\0".join(named).encode(), digest_size=6).hexdigest()
    return state_home(environ) / f"{host}-{digest}"


def state_home(environ: Mapping[str, str]) -> Path:
    """``$XDG_STATE_HOME/grpo-watch``, the parent of the default state directories."""
    home = Path(environ.get("HOME") or "~").expanduser()
    return Path(environ.get("XDG_STATE_HOME") or home / ".local" / "state") / "grpo-watch"


def _file(config: Path | None, environ: Mapping[str, str], folder: Path) -> Path | None:
    if config is not None:
        return config
    if environ.get("GRPO_WATCH_CONFIG"):
        return Path(environ["GRPO_WATCH_CONFIG"]).expanduser()
    found = folder / FILE
    return found if found.exists() else None


def _from_file(file: Path) -> tuple[Settings, dict[str, str]]:
    document = read_document(file, ConfigError)
    value = {} if document.value is None else document.value
    if not isinstance(value, dict):
        raise ConfigError("a settings file must contain `key: value` lines", document.place_of(()))
    try:
        settings = converted(Settings, value, file.parent)
    except msgspec.ValidationError as invalid:
        raise first_problem(invalid, document, ConfigError, _MODELS, instead=INSTEAD) from None
    return settings, dict(_file_origins(value, document))


def _file_origins(value: Mapping[str, Any], document: Document) -> Iterator[tuple[str, str]]:
    for key, inner in value.items():
        paths = [(key, name) for name in inner] if key in _SECTIONS else [(key,)]
        for path in paths:
            place = document.place_of(path, key=True)
            yield ".".join(path), f"{place.file}:{place.line}"


def _changed(settings: Settings, path: tuple[str, ...], value: Any, origin: str) -> Settings:
    """The settings with one key replaced, checked as if it stood alone in a file."""
    nested: Any = value
    for key in reversed(path):
        nested = {key: nested}
    try:
        alone = converted(Settings, nested, strict=False)
    except msgspec.ValidationError as invalid:
        message = first_problem(invalid, Document(origin, nested, {}, {}), ConfigError, _MODELS).message
        message = message.removeprefix(f"{'.'.join(path)}: ").partition(", not a text")[0]
        raise ConfigError(message, FilePlace(origin)) from None
    top = path[0]
    changed = getattr(alone, top)
    if len(path) > 1:
        changed = msgspec.structs.replace(getattr(settings, top), **{path[1]: getattr(changed, path[1])})
    return msgspec.structs.replace(settings, **{top: changed})


def _flat(settings: Settings) -> Iterator[tuple[str, Any]]:
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        if name not in _SECTIONS:
            yield name, value
            continue
        for inner in value.__struct_fields__:
            yield f"{name}.{inner}", getattr(value, inner)


def _shown(value: Any) -> Any:
    """A value in JSON; types that mask themselves are shown by their ``str()``."""
    if isinstance(value, msgspec.Struct):
        kind = {"type": value.type} if isinstance(value, BaseSink) else {}
        return kind | {name: _shown(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, (tuple, list)):
        return [_shown(item) for item in value]
    if isinstance(value, dict):
        return {key: _shown(item) for key, item in value.items()}
    return value if value is None or isinstance(value, (bool, int, float)) else str(getattr(value, "value", value))


def _scalar(text: str) -> Scalar:
    try:
        value = json.loads(text.lower() if text.lower() in {"true", "false", "null"} else text)
    except ValueError:
        return text
    return value if value is None or isinstance(value, (bool, int, float, str)) else text
