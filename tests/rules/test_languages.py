"""Rules in another language: none is missing or left over, and their hints name the same settings and commands."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import grpo_watch
from grpo_watch.catalogue import catalogue
from grpo_watch.config.settings import load_settings
from grpo_watch.engine.metric_names import METRICS
from grpo_watch.engine.records import Severity
from grpo_watch.engine.rule import Rule
from grpo_watch.engine.snapshot import SEE_FROZEN, SEEN_LATER, RuleStatus, RunVerdict
from grpo_watch.errors import ConfigError
from grpo_watch.report.blindness import LABELS
from grpo_watch.report.charts import KINDS
from grpo_watch.report.words import LABELS as WORDS
from grpo_watch.report.words import TIMES
from grpo_watch.rules.packs import load_rules, packs_folder, translations

PACKAGE = Path(grpo_watch.__file__).parent
RUNS = Path(__file__).parents[1] / "runs"

ENGLISH = {rule.name: rule for rule in load_rules()}
CHINESE = {rule.name: rule for rule in load_rules(language="zh")}
NAMES = re.compile(r"--\w+|\{\w+\}|`[^`]+`|\b\w+(?:\.\w+)+\b|\b[a-z]+(?:_[a-z0-9]+)+\b|\b[A-Z]+(?:_[A-Z0-9]+)+\b")
"""Options, places for evidence, commands, dotted names, settings and variables."""


def hints(rule: Rule) -> dict[str, str]:
    return {"": rule.hint, **rule.hints}


def test_no_entry_is_left_over() -> None:
    entries = yaml.safe_load((packs_folder() / "languages" / "zh.yaml").read_text(encoding="utf-8"))
    assert entries["rules"].keys() == ENGLISH.keys()


@pytest.mark.parametrize("name", ENGLISH)
def test_it_is_translated_with_the_same_names(name: str) -> None:
    chinese, english = CHINESE[name], ENGLISH[name]
    assert chinese.translated
    assert re.search(r"[一-鿿]", chinese.summary)
    assert re.search(r"[一-鿿]", chinese.headline)
    assert english.headline
    assert "," not in english.headline  # "since step 20" follows
    assert chinese.headline.count("{step}") == english.headline.count("{step}")
    assert chinese.hints.keys() == english.hints.keys()
    for framework, hint in hints(english).items():
        said = hints(chinese)[framework]
        assert re.search(r"[一-鿿]", said)
        assert set(NAMES.findall(said)) == set(NAMES.findall(hint)), framework


def ours() -> set[str]:
    """Every text of ours that is shown in the reader's language: arguments of ``say`` and ``t``, labels, causes."""
    texts = {SEE_FROZEN, SEEN_LATER, *TIMES, *LABELS.values(), *(kind.title for kind in KINDS)}
    texts |= {each.value.replace("-", " ") for each in (*Severity, *RunVerdict, *RuleStatus)}
    texts |= {cause.text for detector in catalogue().values() for cause in detector.likely_causes}
    for module in PACKAGE.rglob("*.py"):
        texts |= set(_given(ast.parse(module.read_text(encoding="utf-8"))))
    for tree in detectors():
        texts |= {text for value in _keywords(tree, "headline") for text in _texts(value) if text}
    texts |= set(re.findall(r"data-words>([^<]+)<", (PACKAGE / "web/static/index.html").read_text(encoding="utf-8")))
    for script in (PACKAGE / "web/static/js").glob("*.js"):
        texts |= set(_shown_by(script.read_text(encoding="utf-8")))
    return texts


def detectors() -> Iterator[ast.Module]:
    """The code of all detectors and their helpers."""
    for module in (PACKAGE / "detectors").rglob("*.py"):
        yield ast.parse(module.read_text(encoding="utf-8"))


def _keywords(tree: ast.AST, name: str) -> Iterator[ast.expr]:
    yield from (node.value for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == name)


def _texts(value: ast.expr) -> Iterator[str]:
    """A text, or the two of a choice."""
    for each in [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]:
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value


def _evidence(tree: ast.AST) -> Iterator[str]:
    """The names that a detector gives values of its evidence, as far as they are written out."""
    given = list(_keywords(tree, "evidence"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value is not None:
            for place in node.targets if isinstance(node, ast.Assign) else [node.target]:
                at = place.value if isinstance(place, ast.Subscript) else place
                if isinstance(at, ast.Name) and at.id == "evidence":
                    given.append(node.value)
                    yield from _texts(place.slice) if isinstance(place, ast.Subscript) else ()
        elif isinstance(node, ast.FunctionDef) and node.returns is not None and "Scalar]" in ast.unparse(node.returns):
            given.append(ast.Tuple(elts=[each.value for each in ast.walk(node) if isinstance(each, ast.Return)]))
    for written in (each for value in given if value is not None for each in ast.walk(value)):
        if isinstance(written, ast.Dict):
            yield from (text for key in written.keys if key is not None for text in _texts(key))


def _shown_by(script: str) -> Iterator[str]:
    """What a script gives to ``t`` itself, in its tables of texts, as heads of tables, and to ``count``."""
    for table in re.findall(r"(?s)const (?:PARTS|SPARKS|KEYS|LINKS) = \[\n(.*?)\n\];", script):
        for row in table.splitlines():
            yield from re.findall(r'"([^"]+)"', row)[1:]
    for table in re.findall(r"const ORDERS = \{(.*?)\}", script):
        yield from re.findall(r': "([^"]+)"', table)
    for heads in re.findall(r"table\(\s*\[([^\]]*)\]", script):
        yield from re.findall(r'"([^"]+)"', heads)
    for text in re.findall(r'\bt\(\s*"((?:[^"\\]|\\.)*)"', script):
        yield text.encode("latin-1", "backslashreplace").decode("unicode_escape")
    yield from re.findall(r'select\(\s*"([^"]+)"', script)
    yield from re.findall(r'listed\("[^"]+", "([^"]+)"\)', script)
    counted = re.findall(r'count\([\w.]+, "([^"]+)"(?:, "([^"]+)")?\)', script)
    counted += [(f"more {noun}", "") for noun in re.findall(r'folded\(.*, "([^"]+)", "more-', script)]
    counted += re.findall(r'\["(rules? [^"]+)", "(rules? [^"]+)"\]', script)
    for one, several in counted:
        yield from (f"1 {one}", f"{{n}} {several or one + 's'}")


def _given(tree: ast.AST) -> Iterator[str]:
    """Constants that ``say`` and its partial ``say_so`` are given, also by way of a variable called ``words``."""
    for node in ast.walk(tree):
        given: ast.AST | None = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            place = {"say": 1, "say_so": 0}.get(node.func.id)
            given = node.args[place] if place is not None and len(node.args) > place else None
        elif isinstance(node, ast.Assign) and any(
            isinstance(name, ast.Name) and name.id == "words" for name in node.targets
        ):
            given = node.value
        choices = [given.body, given.orelse] if isinstance(given, ast.IfExp) else [given]
        yield from (each.value for each in choices if isinstance(each, ast.Constant) and isinstance(each.value, str))


def test_no_word_is_missing_or_left_over() -> None:
    words = translations("zh")["words"]
    assert sorted(ours() - words.keys()) == []
    assert sorted(words.keys() - ours()) == []


def test_words_have_the_same_places() -> None:
    for text, shown in translations("zh")["words"].items():
        places = [sorted(re.findall(r"\{(\w+)\}", each)) for each in (text, shown)]
        assert places[0] == places[1], text


def test_values_of_the_evidence_have_names() -> None:
    """Those of all metrics, of the labels, of detectors and of recorded runs; none is left over that nothing gives."""
    names = translations("zh")["evidence"].keys()
    recorded = set()
    for file in RUNS.glob("*/expected.json"):
        for run in json.loads(file.read_text(encoding="utf-8")):
            recorded |= {name.partition("[")[0] for found in run["findings"] for name in found["evidence"]}
    sources = "".join(file.read_text(encoding="utf-8") for file in PACKAGE.glob("*e*/**/*.py"))
    given = {
        name for name in recorded if name.isidentifier() and f'"{name}"' in sources
    }  # others are names of the run's own
    given |= {name for tree in detectors() for name in _evidence(tree)}
    given |= {name for one in catalogue().values() for name in getattr(one, "evidence", ())}
    assert sorted(({*METRICS, *WORDS} | given) - names) == []
    assert [name for name in names - METRICS.keys() - given if not re.search(rf"\b{name}\b", sources)] == []


def test_lines_are_joined_without_spaces() -> None:
    for rule in CHINESE.values():
        for text in (rule.summary, *hints(rule).values()):
            assert not re.search(r"[\u4e00-\u9fff] [\u4e00-\u9fff]|[\u3000-\u303f\uff00-\uff60] ", text), text


def test_a_finding_begins_in_the_readers_language() -> None:
    rule = CHINESE["kl-stuck-at-zero"]
    assert rule.says("KL has been 0 for 9 steps") == f"{rule.summary} KL has been 0 for 9 steps"
    assert rule.says("") == rule.summary
    assert rule.advice("verl", "Try zero2.") == f"{rule.hints['verl']} Try zero2."
    assert ENGLISH["kl-stuck-at-zero"].advice("verl", "Try zero2.") == "Try zero2."


@pytest.mark.parametrize(
    ("environ", "language"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C.UTF-8"}, "en"),
        ({"LANG": "zh_TW.UTF-8", "GRPO_WATCH_LANGUAGE": "en"}, "en"),
        ({"LANG": "de_DE.UTF-8", "GRPO_WATCH_LANGUAGE": "zh"}, "zh"),
    ],
)
def test_the_setting_decides_else_the_locale(environ: dict[str, str], language: str, tmp_path: object) -> None:
    assert load_settings(environ=environ, folder=tmp_path).settings.language == language  # type: ignore[arg-type]


def test_another_language_is_refused() -> None:
    with pytest.raises(ConfigError, match="GRPO_WATCH_LANGUAGE"):
        load_settings(environ={"GRPO_WATCH_LANGUAGE": "fr"})
