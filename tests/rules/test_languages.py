"""Texts in another language: none is missing or left over, and they name the same settings and commands."""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import yaml

import grpo_watch
from grpo_watch.advisories.entries import advisories
from grpo_watch.catalogue import catalogue
from grpo_watch.config.settings import load_settings
from grpo_watch.engine.metric_names import METRICS
from grpo_watch.engine.records import Severity
from grpo_watch.engine.rule import Rule
from grpo_watch.engine.sentences import LONGEST, sentences_of
from grpo_watch.engine.snapshot import NEVER_JUDGED, ROWS_COUNTED, SEE_FROZEN, SEEN_LATER, RuleStatus, RunVerdict
from grpo_watch.engine.trend import TrendSign
from grpo_watch.errors import ConfigError
from grpo_watch.report.blindness import LABELS
from grpo_watch.report.charts import KINDS
from grpo_watch.report.words import LABELS as WORDS
from grpo_watch.report.words import TIMES, evidence_words
from grpo_watch.rules.packs import advisory_in, load_rules, packs_folder, sentences, translations
from grpo_watch.sources.discovery.channels import ChannelContent

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
    texts = {
        SEE_FROZEN,
        SEEN_LATER,
        ROWS_COUNTED,
        *TIMES,
        *LABELS.values(),
        *(content.gives for content in ChannelContent),
        *KINDS,
    }
    texts |= {each.value.replace("-", " ") for each in (*Severity, *RunVerdict, *RuleStatus)}
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
    yield from re.findall(r'listed\("[^"]+", "([^"]+)"', script)
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


def test_headlines_begin_in_chinese() -> None:
    """They follow "第 3 步起" without a space."""
    words = translations("zh")["words"]
    of_detectors = {text for tree in detectors() for value in _keywords(tree, "headline") for text in _texts(value)}
    shown = [rule.headline for rule in CHINESE.values()] + [words[text] for text in of_detectors if text]
    assert [text for text in shown if not re.match("[一-鿿]", text)] == []


def test_no_word_is_missing_or_left_over() -> None:
    words = translations("zh")["words"]
    assert sorted(ours() - words.keys()) == []
    assert sorted(words.keys() - ours()) == []


PASSED_ON = re.compile(
    r"x(?:[:.] ?x)*\.?|--(?:set|listen|address) x|x \(see x --help\)|x: a web page can't be readx"
    r"|state x: use x"
)
"""Errors that say what somebody else says or have two ends, and those of the Python interface."""


def refused() -> Iterator[str]:
    """Every message of a ``UsageError`` and its kin for people at a terminal, each value of which is an x."""
    for module in sorted(PACKAGE.rglob("*.py")):
        if module.name in {"mcp_server.py", "series.py"} or "rules" in module.parts:
            continue  # for agents and callers; rule files are English
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
                continue
            if node.func.id in {"UsageError", "ConfigError", "StateInUseError"} and _sampled(node.args[0]) != "x":
                fix = [each.value for each in node.keywords if each.arg == "fix"] or node.args[2:3]
                yield _sampled(node.args[0]) + (f" ({_sampled(fix[0])})" if fix else "")


def _sampled(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_sampled, node.values))
    if isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.IfExp):
        return _sampled(node.value.orelse)
    if isinstance(node, ast.BinOp):
        return _sampled(node.left)
    return str(node.value) if isinstance(node, ast.Constant) else "x"


def test_every_error_is_known() -> None:
    known = sentences("zh", "errors")
    missing = [text for text in refused() if not PASSED_ON.fullmatch(text)]
    assert [text for text in missing if not re.search("[一-鿿]", known.said(text) or "")] == []


def test_no_error_is_left_over() -> None:
    """Each piece of it is in our code, or in that of what reads command lines."""
    code = " ".join(
        node.value
        for module in [*PACKAGE.rglob("*.py"), Path(argparse.__file__)]
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    pieces = {
        piece.strip(" :()") for entry in translations("zh")["errors"] for piece in re.split(r"\{\w+\}|[;()]", entry)
    }
    assert [piece for piece in pieces if piece not in code] == []


def test_no_advisory_is_missing_or_left_over() -> None:
    """Settings and options are those of the English."""
    said = translations("zh")["advisories"]
    assert said.keys() == {advisory.id for advisory in advisories()}
    for advisory in advisories():
        chinese = advisory_in("zh", advisory)
        for part in ("title", "wrong", "fix"):
            there, here = getattr(chinese, part), getattr(advisory, part)
            assert re.search("[一-鿿]", there), (advisory.id, part)
            assert set(NAMES.findall(there)) == set(NAMES.findall(here)), (advisory.id, part)
        assert sentences("zh").said(f"trl 0.15: {advisory.title} ({advisory.id})") == (
            f"trl 0.15：{chinese.title}（{advisory.id}）"
        )


NEVER_SAID = re.compile(
    r"""rule\ files|exactly\ 0|the\ backward\ pass|the\ optimizer
    |that\ generate|that\ reuse\ a\ batch|.* 7\ per\ 7\)|min\(.*|ceil\(.*|floor\(.*|7?\(7\ .*
    |whole\ generation\ batches|all\ completions|7\ accumulated|7\ 7\ from\ 7\ to\ 7
    |.*(?:of\ healthy\ runs\ with\ vLLM|FAQ:|guide:).*""",
    re.VERBOSE,
)
"""Texts of detectors that no person reads as a sentence: names, formulas, sources of thresholds."""


def said_by_detectors() -> Iterator[str]:
    """What detectors and likely causes may say, whole or in part; each value is a 7."""
    for cause in {cause.text for detector in catalogue().values() for cause in detector.likely_causes}:
        yield re.sub(r"\{\w+\}", "7", cause)
    for said in _prose([*detectors(), *modules("engine/trend.py")]):
        if not NEVER_SAID.fullmatch(said):
            yield said


def modules(*patterns: str) -> Iterator[ast.Module]:
    """The code of the package's files that fit one of the patterns."""
    for pattern in patterns:
        yield from (ast.parse(file.read_text(encoding="utf-8")) for file in PACKAGE.glob(pattern))


def _prose(trees: Iterable[ast.Module]) -> Iterator[str]:
    """Their texts of several words, each value of which is a 7."""
    for text in (text for tree in trees for text in _written(tree)):
        said = text.strip(" ,;:")
        if " " in said and re.search("[a-z]{2}", said):
            yield said


def _written(node: ast.AST) -> Iterator[str]:
    """Texts but for docstrings, patterns, the help of parameters, and headlines, which are words."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    if isinstance(node, ast.keyword) and node.arg == "headline":
        return
    if isinstance(node, ast.Call) and ast.unparse(node.func) in {"param", "re.compile", "LikelyCause"}:
        return
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "7" for part in node.values)
        yield re.sub("7+", "7", "".join(map(str, parts)))
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for child in ast.iter_child_nodes(node):
        if not (isinstance(node, ast.JoinedStr) and isinstance(child, ast.Constant)):
            yield from _written(child)


def _plain(text: str) -> str:
    return re.sub(r"\{\w+\}", "7", text)


def unknown(texts: Iterable[str], part: str) -> list[str]:
    """Those that the catalogue lacks as a whole, without what they may end in, and as a part of an entry."""
    known, entries = sentences("zh", part), [_plain(text) for text in translations("zh")[part]]
    return [
        said
        for said in texts
        if not any(said in entry for entry in entries)
        and all(known.said(each) is None for each in (said, re.sub(r"(?<=[^ (])7", "", said)))
    ]


def test_every_sentence_of_a_detector_is_known() -> None:
    assert unknown(said_by_detectors(), "sentences") == []


OF_PREFLIGHT = (
    "preflight/checks/*.py",
    "preflight/assess.py",
    "preflight/predict.py",
    "preflight/suggest.py",
    "preflight/text_report.py",
)
NEVER_SAID_OF_LAUNCHES = re.compile(
    r"bold \w+|7 on 7|train_batch_size.*|- ds.*|Please correct .*|We will change .*"  # styles, names, quotations
    r"|the version is not known.*|ZeRO-7 .*|7 on the version of 7: 7"  # entries hold what their values may be
)


def test_every_sentence_of_preflight_is_known() -> None:
    said = _prose(modules(*OF_PREFLIGHT))
    assert unknown([text for text in said if not NEVER_SAID_OF_LAUNCHES.fullmatch(text)], "launch") == []


def test_no_sentence_is_left_over() -> None:
    """Each is made of what the code says."""
    texts = {*said_by_detectors(), *(text for tree in detectors() for text in _written(tree)), *TrendSign, *TIMES}
    texts |= {NEVER_JUDGED, "not enough rows yet", "needs 7, or 7", "not every metric of `7` is logged"}
    assert left_over(texts, "sentences") == {}


def test_no_sentence_of_preflight_is_left_over() -> None:
    trees = modules(*OF_PREFLIGHT, "preflight/inputs/load_launch.py", "frameworks/launch*.py", "frameworks/*/launch.py")
    assert left_over({text for tree in trees for text in _written(tree)}, "launch") == {}


def left_over(texts: Iterable[str], part: str) -> dict[str, str]:
    """Entries of the catalogue that are not made of these texts, and what is left of each."""
    pieces = {piece.strip(" ,;:`()") for text in texts for piece in _plain(text).split("7")}
    longest = sorted((piece for piece in pieces if len(piece) > 1), key=len, reverse=True)
    left = {}
    for entry in translations("zh")[part]:
        rest = _plain(entry)
        for piece in longest:
            rest = rest.replace(piece, "7")
        if re.search("[A-Za-z]{3}", rest):
            left[entry] = rest
    return left


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        (
            "all 27 tensors of checkpoints 20 and 30 are byte-identical (27 of them had changed before)",
            "checkpoint 20 和 30 的全部 27 个张量逐字节相同（其中 27 个之前变过）",
        ),
        ("entropy fell from 1.2 to 0.3; reward fell, texts repeat", "熵从 1.2 降到 0.3；奖励下降，文本重复"),
        ("reward_mean is nan, loss is inf (on one row)", "reward_mean 为 nan，loss 为 inf（只有一行）"),
        ("the job died at step 5: ValueError: it is what it is", "任务在第 5 步崩溃：ValueError: it is what it is"),
        ("needs kl_reference, or checkpoints", "缺少 kl_reference，或 checkpoints"),
        ("rewards look odd: nobody knows why", None),
        ("reward_mean < 0.1 and step > 200", None),
    ],
)
def test_a_sentence_is_found_with_its_values(english: str, chinese: str | None) -> None:
    """What a run wrote stays as it is; a sentence of another's rule is not known."""
    assert sentences("zh").said(english) == chinese


@pytest.mark.parametrize(
    "error",
    [
        "ValueError: loss is NaN",
        "KeyError: reward (fn)",
        "KeyError: reward (fn), and 3 of 4",
        "RuntimeError: 权重 更新 失败 ， 请 重试 (rank 3)",
        "AssertionError: texts repeat; entropy fell",
        "loss: no longer logged, for 20 rows",
    ],
)
def test_what_a_run_wrote_is_copied_as_it_is(error: str) -> None:
    said = sentences("zh").said
    assert said(f"the job died at step 5: {error}") == f"任务在第 5 步崩溃：{error}"
    assert said(f"refused at start: {error}") == f"启动时报错：{error}"
    assert said(f"alerts do not reach hook: {error}") == f"告警发不到 hook：{error}"
    assert evidence_words({"error": error}, language="zh")[0].endswith(f" {error}")


def test_names_of_a_run_are_copied_as_they_are() -> None:
    said = sentences("zh").said
    assert said("reward: accuracy and format is nan") == "reward：accuracy and format 为 nan"
    assert said("reward: KeyError: reward (fn) is nan") is None
    assert said("accuracy (strict) fell from 1 to 0.2") is None
    for name in ("accuracy and format", "accuracy (strict)", "KL is high, x"):
        assert said(f"{name} has not returned a single score yet") == f"{name} 还没有给出过分数"
    assert said("又 高 has not returned a single score yet") == "又 高还没有给出过分数"


def test_spaces_go_from_the_texts_of_ours_alone() -> None:
    known = sentences_of({"{text} was last read by {a}": "读了 {text} 的是 {a}", "the watcher itself": "监视器"}, {})
    assert known.said("一 二 was last read by the watcher itself") == "读了一 二的是监视器"
    assert known.said("x was last read by y") == "读了 x 的是 y"


@pytest.mark.parametrize(
    "text",
    [
        "reward: " + ", ".join(f"f{number} is nan" for number in range(1_000)),
        "or " * 1_000 + "a b",
        "a: " * 1_000,
        "x is 0 of y to (" * 1_000,
    ],
)
def test_a_sentence_of_a_thousand_names_stays_english(text: str) -> None:
    """However deep its parts lie in each other."""
    assert sentences("zh").said(text) is None


@pytest.mark.parametrize("part", ["or ", "needs a or ", "a is ", "a of ", "a to ", "a (b) ", "a, ", "a and "])
def test_the_deepest_sentence_takes_half_of_the_stack_at_most(part: str) -> None:
    text, limit = (part * LONGEST)[: LONGEST - 3] + " it", sys.getrecursionlimit()
    sys.setrecursionlimit(500 + len(inspect.stack(0)))
    try:
        sentences("zh").said(text)
    finally:
        sys.setrecursionlimit(limit)


def test_findings_of_recorded_runs_have_chinese_sentences() -> None:
    found = {
        finding["summary"]
        for file in RUNS.glob("*/expected.json")
        for run in json.loads(file.read_text(encoding="utf-8"))
        for finding in run["findings"]
    }
    assert [text for text in sorted(found) if sentences("zh").said(text) is None] == []


def test_reasons_of_blind_rules_in_recorded_runs_have_chinese_sentences() -> None:
    blind = json.loads((RUNS / "blind.json").read_text(encoding="utf-8"))
    reasons = {reason for of_rule in blind.values() for reason in of_rule}
    assert [text for text in sorted(reasons) if sentences("zh").said(text) is None] == []


def test_words_have_the_same_places() -> None:
    words = translations("zh")
    for text, shown in [each for part in ("words", "sentences", "launch", "errors") for each in words[part].items()]:
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
    assert rule.says("KL to the reference is 0.5") == "参考模型 KL 为 0.5"
    assert rule.says("KL has been 0 for 9 steps") == f"{rule.summary} KL has been 0 for 9 steps"
    assert rule.says("") == rule.summary
    assert rule.advice("verl", "See duplicate-completions: equal texts get equal rewards.").startswith("见 ")
    assert rule.advice("verl", "Try zero2.") == f"{rule.hints['verl']} Try zero2."
    assert ENGLISH["kl-stuck-at-zero"].advice("verl", "Try zero2.") == "Try zero2."


def test_a_note_on_a_log_of_several_jobs_has_the_readers_language() -> None:
    how = "grep -F '(b, pid=' LOG | grpo-watch check -"
    note = f"skipped 2 not-a-row; first: not-a-row: several jobs write to this log, a is read; others: {how}"
    expected = f"跳过 2 处不是数据行；第一处：not-a-row：多个任务写在这份日志里，读的是 a；其余的：{how}"
    assert sentences("zh", "errors").said(note) == expected


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


def test_things_are_called_as_the_glossary_says() -> None:
    glossary = (
        Path("docs/glossary.md").read_text(encoding="utf-8").partition("## In Chinese")[2].partition("## Words")[0]
    )
    refused = {row.split("|")[3].strip() for row in glossary.splitlines() if row.count("|") == 4} - {"not", "---", ""}
    assert refused >= {"优化器步", "与参考模型的 KL"}
    pages = [packs_folder() / "languages" / "zh.yaml", Path("README.zh-CN.md"), *Path("docs/zh").glob("*.md")]
    assert [word for page in pages for word in refused if word in page.read_text(encoding="utf-8")] == []
