"""YAML files of the package hold no key twice: of two, the last one would count without a word."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

FILES = sorted(path for root in ("grpo_watch", "rules") for path in Path(root).rglob("*.yaml"))


def keys_twice(node: yaml.Node) -> list[str]:
    """Where keys stand that their mapping has already."""
    found = []
    if isinstance(node, yaml.MappingNode):
        keys = [(type(key), key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        found += [
            f"{key.value}: line {key.start_mark.line + 1}"
            for at, (key, _) in enumerate(node.value)
            if isinstance(key, yaml.ScalarNode) and (type(key), key.value) in keys[:at]
        ]
    children = (each for pair in node.value for each in pair) if isinstance(node, yaml.MappingNode) else node.value
    return found + [twice for child in children if isinstance(child, yaml.Node) for twice in keys_twice(child)]


@pytest.mark.parametrize("file", FILES, ids=str)
def test_no_key_stands_twice(file: Path) -> None:
    assert [twice for node in yaml.compose_all(file.read_text(encoding="utf-8")) for twice in keys_twice(node)] == []


def test_a_key_that_stands_twice_is_found() -> None:
    (node,) = yaml.compose_all("a: {x: 1, y: 2}\nb: 1\na: 3\n")
    assert keys_twice(node) == ["a: line 3"]
