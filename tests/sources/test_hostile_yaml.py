"""YAML in a run's folder: what could exhaust the reader is refused before it is built, in one line that says so."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from grpo_watch.engine.records import Scalar
from grpo_watch.errors import UsageError
from grpo_watch.sources.settings import documents
from grpo_watch.sources.settings.documents import (
    MAX_DEPTH,
    MAX_LEAVES,
    RefusedYamlError,
    plain_yaml,
    typed,
    yaml_leaves,
)
from grpo_watch.sources.settings.run_config import MAX_YAML_BYTES, RunConfigSource

LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))
"""9^29 elements, were they built."""
HOSTILE = {
    "a billion laughs": (LAUGHS, "line 2: aliases"),
    "a merge": ("a: &a {b: 1}\nc:\n  <<: *a\n", "line 3: aliases"),
    "an anchor in itself": ("&a [*a]", "line 1: aliases"),
    "depth": ("[" * 200_000, f"line 1: more than {MAX_DEPTH} levels"),
    "depth in blocks": ("\n".join(" " * n + "a:" for n in range(400)), f"line {MAX_DEPTH + 1}: more than"),
    "a number of base 60": ("a: 1" + ":1" * 300_000, "line 1: a number without end"),
    "a float of base 60": ("a: 1" + ":1" * 300_000 + ".5", "line 1: a number without end"),
    "a long number": ("a: " + "9" * 5_000, "line 1: a number without end"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_it_is_refused(name: str) -> None:
    text, said = HOSTILE[name]
    with pytest.raises(RefusedYamlError, match=said):
        plain_yaml(text)


def test_nothing_is_built_before_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*_: object, **__: object) -> None:
        raise AssertionError("built")

    monkeypatch.setattr(yaml, "load", build)
    for text, _ in HOSTILE.values():
        with pytest.raises(RefusedYamlError):
            plain_yaml(text)


@pytest.mark.parametrize("text", ["a: 1:1:1:1" + ":1" * 195 + ".5", "a: 2026-02-31", "a: !!python/object:os.x {}"])
def test_what_python_can_not_hold_is_no_yaml(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        plain_yaml(text)


@pytest.mark.parametrize(
    "name", ["launch.yaml", ".hydra/config.yaml", ".hydra/overrides.yaml", "accelerate_config.yaml"]
)
@pytest.mark.parametrize("content", ["laughs", "large", "fifteen levels"])
def test_one_line_names_the_file(name: str, content: str, tmp_path: Path) -> None:
    """In every file of a run that is read as YAML; what is only deep for a person is read."""
    text = {"laughs": LAUGHS, "large": "a: " + "x" * MAX_YAML_BYTES, "fifteen levels": "[" * 15 + "]" * 15}[content]
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    source = RunConfigSource("run-config", tmp_path, (tmp_path,))
    assert list(source.poll(None)) == []
    reported = {"laughs": "aliases", "large": "more than the limit of 1048576", "fifteen levels": ""}[content]
    if not reported:
        assert source.stats.first_bad == ""
        return
    assert str(tmp_path / name) in source.stats.first_bad
    assert "\n" not in source.stats.first_bad
    assert reported in source.stats.first_bad


@pytest.mark.parametrize("innermost", ["{}", "[]", "[{}]", "x", "[x, x]", "{b: 1}"])
@pytest.mark.parametrize("element", ["[{}]", "{{<<: [{}]}}"])
def test_leaves_of_repeated_aliases_are_bounded(innermost: str, element: str) -> None:
    """9^29 places, most of them without a value of their own; a launch may have aliases, so they are not refused."""
    text = f"a0: &a0 {innermost}\n"
    for number in range(1, 30):
        text += f"a{number}: &a{number} {element.format(', '.join([f'*a{number - 1}'] * 9))}\n"
    with pytest.raises(UsageError, match=f"train.yaml: more than {MAX_LEAVES} values"):
        yaml_leaves(text, "train.yaml")


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words that are typed from now on."""
    words: list[str] = []

    def noted(text: str) -> Scalar:
        words.append(text)
        return typed(text)

    monkeypatch.setattr(documents, "typed", noted)
    return words


def test_an_alias_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    words = counted(monkeypatch)
    leaves = yaml_leaves("a: &a [1, x]\nb: *a\nc: &c 2\nd: *c\ne: {f: *a}\n", "train.yaml")
    values = {name: leaf.value for name, leaf in leaves.items()}
    assert values == {"a": (1, "x"), "b": (1, "x"), "c": 2, "d": 2, "e.f": (1, "x")}
    assert words == ["1", "x", "2"]
    assert (leaves["b"].origin, leaves["e.f"].origin) == ("train.yaml:2:1", "train.yaml:5:5")


@pytest.mark.parametrize("name", ["b{}", "<<"])
def test_items_of_a_list_that_aliases_repeat_are_counted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of 10,000 items and 5,000 aliases, 70 KB, stood for 50,000,000 values."""
    words = counted(monkeypatch)
    repeated = "".join(f"{name.format(number)}: *a\n" for number in range(5_000))
    with pytest.raises(UsageError, match=f"train.yaml: more than {MAX_LEAVES} values"):
        yaml_leaves(f"a: &a [{','.join(['1'] * 10_000)}]\n{repeated}", "train.yaml")
    assert len(words) <= MAX_LEAVES


def test_only_the_safe_loader_is_used() -> None:
    assert issubclass(documents.SAFE_LOADER, yaml.constructor.SafeConstructor)
