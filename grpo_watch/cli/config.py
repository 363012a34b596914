"""``grpo-watch config``: the settings in force and where each comes from, secrets masked."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from typing import Any

from grpo_watch.cli.settings_in_force import rules_to_send
from grpo_watch.cli.terminal import print_json
from grpo_watch.config.settings import DEFAULT, EffectiveSetting, effective, json_schema, load_settings


def config_command(given: Namespace) -> int:
    """Print every setting as ``name = value  (origin)`` or as JSON, or the JSON schema of grpo-watch.yaml; returns 0.

    Raises:
        ConfigError, RuleError: the settings, or a file of rules that they name, can't be used.
    """
    if given.what == "schema":
        print_json({"$schema": "https://json-schema.org/draft/2020-12/schema", **json_schema()})
        return 0
    loaded = load_settings({"rules": given.rules}, config=given.config)
    rules_to_send(loaded.settings, loaded.file)
    settings = effective(loaded, os.environ)
    if given.format == "json":
        values = {item.name: {"value": item.value, "origin": item.origin} for item in settings}
        print_json({"schema": "grpo-watch/config/1", "settings": values})
        return 0
    width = max(len(item.name) for item in settings)
    for item in settings:
        sys.stdout.write(_lines(item, width, color=given.color))
    return 0


def _lines(item: EffectiveSetting, width: int, *, color: bool) -> str:
    dim, reset = ("\033[2m", "\033[0m") if color and item.origin == DEFAULT else ("", "")
    if isinstance(item.value, list) and item.value and isinstance(item.value[0], dict):
        rows = "".join(f"{'':{width}}   - {_text(row)}\n" for row in item.value)
        return f"{dim}{item.name:{width}} =  ({item.origin}){reset}\n{rows}"
    return f"{dim}{item.name:{width}} = {_text(item.value)}  ({item.origin}){reset}\n"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
