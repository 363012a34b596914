"""Holds the code against the architecture: import directions, homes of libraries, a light start, house sizes."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from fnmatch import filter as matching
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

from grpo_watch.frameworks.framework_tables import frameworks

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "grpo_watch"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "_rules" not in path.parts)

HOMES = {
    "apprise": ("notify/*",),
    "certifi": ("notify/receivers/http_client.py",),
    "google_crc32c": ("sources/trackers/framing.py",),
    "h11": ("web/*",),
    "matplotlib": ("report/series.py", "report/check_document.py"),
    "mcp": ("cli/mcp_server.py",),
    "msgspec": (
        "advisories/*",
        "archive/*",
        "sources/*",
        "store/*",
        "cli/*",
        "frameworks/*",
        "preflight/*",
        "config/*",
        "rules/*",
    ),
    "fsspec": ("archive/remote_folder.py",),
    "mlflow": ("sources/trackers/mlflow_server.py",),
    "ray": ("archive/on_ray.py",),
    "pandas": ("report/series.py", "report/check_document.py"),
    "prometheus_client": ("metrics/*",),
    "pyarrow": ("sources/completions/parquet.py",),
    "sqlite3": ("store/*", "sources/trackers/database.py", "sources/trackers/mlflow_server.py"),
    "starlette": ("web/*",),
    "urllib3": ("notify/receivers/http_client.py",),
    "uvicorn": ("web/*",),
    "wandb": ("sources/trackers/*",),
    "xxhash": ("sources/*",),
    "yaml": ("config/*", "shipped_yaml.py", "sources/settings/documents.py"),
}
"""Where each library may be imported; one that is not listed here and not in the standard library is refused.

``example_blocks`` checks the YAML inside runbooks, ``config_files`` reads the YAML that launchers leave beside a run.
"""

EVERYWHERE = {"grpo_watch", *sys.stdlib_module_names} - {"sqlite3"}
HEAVY = {"numpy", "pandas", "pyarrow", "wandb", "starlette", "uvicorn", "prometheus_client"}
HEAVY |= {"urllib3", "apprise"}
PURE = {"__future__", "abc", "ast", "bisect", "collections", "dataclasses", "difflib", "enum", "fnmatch", "functools"}
PURE |= {"grpo_watch", "hashlib", "itertools", "math", "operator", "re", "shlex", "statistics", "types"}
PURE |= {"array", "copy", "typing", "warnings"}
"""What ``engine`` and ``detectors`` may import: nothing that reads a clock, draws a number or touches a file."""
EDGES = ("api.py", "cli/*", "probe/*", "web/app.py", "sources/checkpoints/weights.py")
"""Where a clock may be named: commands hand it down, a job's own callback stamps its lines, and a brake on reading
slows without changing what is read."""
CLOCKS = {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time"}
EMPTY = {"deque", "defaultdict", "Counter", "OrderedDict", "list", "dict", "set", "Lock", "RLock", "Event"}
"""Calls that make something to be filled, or a lock that guards it."""
MODULE_LINES = 400
FUNCTION_LINES = 60
KNOW_NO_FRAMEWORK = ("engine/", "sources/", "pipeline/", "daemon/")


@cache
def parsed(path: Path) -> ast.Module:
    """A file's syntax, parsed once for all tests."""
    return ast.parse(path.read_text())


def imports(tree: ast.AST) -> Iterator[str]:
    """Top-level names of everything that a module imports, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (each.value.partition(".")[0] for each in node.args[:1] if isinstance(each, ast.Constant))


def modules_in(path: Path) -> set[str]:
    """What a file imports."""
    return set(imports(parsed(path)))


def test_import_contracts_hold() -> None:
    """cli > runtime > sources > detectors > engine, as written in pyproject.toml."""
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def own_imports(tree: ast.AST, known: Collection[str]) -> set[str]:
    """Modules of ours that a module imports anywhere: at its top, inside functions, and for its types only."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & {*known}


def import_graph() -> dict[str, set[str]]:
    """Each module by its dotted name, with the modules that it imports."""
    paths = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in MODULES}
    return {name: own_imports(parsed(path), paths) for name, path in paths.items()}


def in_cycles(graph: Mapping[str, Collection[str]]) -> set[str]:
    """The modules that import each other in a circle, and those between two circles."""
    left = {name: {*targets} for name, targets in graph.items()}
    while True:
        imported = {target for targets in left.values() for target in targets & left.keys()}
        kept = {name: targets for name, targets in left.items() if name in imported and targets & left.keys()}
        if len(kept) == len(left):
            return {*kept}
        left = kept


def test_no_modules_import_each_other() -> None:
    """An import for types only counts too: neither of two such modules can be understood without the other."""
    assert in_cycles(import_graph()) == set()


def test_the_scan_sees_a_cycle_of_types() -> None:
    code = "if TYPE_CHECKING:\n    from p.a import A\ndef f():\n    import p.c\n    from p import d\n"
    assert own_imports(ast.parse(code), {"p.a", "p.b", "p.c", "p.d"}) == {"p.a", "p.c", "p.d"}
    assert in_cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == {"b", "c"}


def test_each_library_stays_in_its_home() -> None:
    strays: list[str] = []
    for path in MODULES:
        name = path.relative_to(PACKAGE).as_posix()
        for library in modules_in(path) - EVERYWHERE:
            at_home = any(fnmatch(name, home) for home in HOMES.get(library, ()))
            strays += [] if at_home else [f"{name} imports {library}"]
    assert strays == []


def test_each_home_is_lived_in() -> None:
    """A home that its library has left would let it come back unseen."""
    imported = {path.relative_to(PACKAGE).as_posix(): modules_in(path) for path in MODULES}
    users = {library: [name for name, each in imported.items() if library in each] for library in HOMES}
    left = [f"{library}: {home}" for library in HOMES for home in HOMES[library] if not matching(users[library], home)]
    assert left == []


def test_the_scan_sees_imports_in_functions() -> None:
    """The test above would pass on anything if this walk missed them."""
    code = "import a.b\ndef f():\n    from c.d import e\n    from . import g\n    h = importlib.import_module('i.j')\n"
    assert list(imports(ast.parse(code))) == ["a", "c", "i"]


def clocks(tree: ast.AST) -> Iterator[str]:
    """Every mention of a clock, called or only handed on: ``time.time``, ``datetime.now``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "time" and node.attr in CLOCKS:
                yield f"time.{node.attr}"
            elif node.value.id in {"datetime", "date"} and node.attr in {"now", "utcnow", "today"}:
                yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from (f"time.{alias.name}" for alias in node.names)


def test_the_core_imports_nothing_that_could_make_a_replay_differ() -> None:
    """A list of what is allowed: the import contract names the worst that is not, and can't name everything."""
    strays: list[str] = []
    for path in MODULES:
        name = path.relative_to(PACKAGE).as_posix()
        if name.startswith(("engine/", "detectors/")):
            others = modules_in(path) - PURE
            strays += [f"{name} imports {other}" for other in sorted(others)]
    assert strays == []


def test_the_core_opens_no_file() -> None:
    calls = [
        f"{path.relative_to(PACKAGE).as_posix()}:{node.lineno}: {node.func.id}"
        for folder in ("engine", "detectors")
        for path in sorted((PACKAGE / folder).rglob("*.py"))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id in {"open", "print", "input", "exec", "eval", "__import__"}
    ]
    assert calls == []


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def strings_in(tree: ast.Module, also: type = str) -> Iterator[tuple[int, str]]:
    """Line and value of every string (or bytes too) that is no docstring and no stored value of an enumeration."""
    passed_over = {
        id(inner)
        for node in ast.walk(tree)
        if _is_docstring(node) or (isinstance(node, ast.ClassDef) and "Enum" in map(ast.unparse, node.bases))
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, also)) and id(node) not in passed_over:
            yield node.lineno, node.value if isinstance(node.value, str) else node.value.decode("latin-1")


EXAMPLES = {
    "cli/commands.py": "examples in --help",
    "cli/demo.py": "the demo knows which findings it produces",
    "advisories/entries.py": "the rule that reports advisories is the name of their check",
    "preflight/checks/learning.py": "the advice names the rules to watch",
}
"""Where rules are named outside ``detectors/``, and why; none of these has to change when a detector is added."""


def test_nothing_but_its_detector_names_a_rule() -> None:
    """What is special about a rule is declared by its detector, so that adding one touches nothing else."""
    shipped = {re.sub("_", "-", path.stem) for path in (PACKAGE / "detectors").rglob("*.md")}
    assert len(shipped) > 40
    known = {
        name: f"{line}: {text}"
        for path in MODULES
        if not (name := path.relative_to(PACKAGE).as_posix()).startswith("detectors/")
        for line, text in strings_in(parsed(path))
        if shipped & set(re.findall("[a-z]+(?:-[a-z]+)+", text))
    }
    assert {name: where for name, where in known.items() if name not in EXAMPLES} == {}
    assert known.keys() == EXAMPLES.keys(), "an exception that is no longer needed"


def test_the_scan_sees_names_in_code_only() -> None:
    code = (
        'A = {"x": "run-crashed|b"}\nclass B(str, Enum):\n    C = "rule-broken"\ndef f():\n    """``run-crashed``"""\n'
        '    g("run-stalled")\n'
    )
    assert list(strings_in(ast.parse(code))) == [(1, "x"), (1, "run-crashed|b"), (6, "run-stalled")]


ENTRANCES = {
    "grpo_watch.engine.engine",  # takes records, gives transitions
    "grpo_watch.engine.snapshot",  # what readers get of a run: statuses, findings, verdict
}
"""Where the rest of the program enters the engine."""


def test_the_engine_holds_what_it_reaches_and_nothing_else() -> None:
    """What only a detector, a report or preflight needs lies with them."""
    graph = {name: found for name, found in import_graph().items() if name.startswith("grpo_watch.engine.")}
    reached, waiting = set[str](), {*ENTRANCES}
    while waiting:
        reached |= waiting
        waiting = set().union(*(graph[name] for name in waiting)) & graph.keys() - reached
    assert graph.keys() - {"grpo_watch.engine.__init__"} == reached


def test_no_class_name_twice() -> None:
    """Anyone who reads a name in a message or a traceback finds one class."""
    homes: dict[str, list[str]] = {}
    for path in MODULES:
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(path.relative_to(PACKAGE).as_posix())
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_time_is_passed_in() -> None:
    """Only the edges know a clock; everything else is given one, or the time itself."""
    found = {
        path.relative_to(PACKAGE).as_posix(): sorted(set(clocks(parsed(path))))
        for path in MODULES
        if not any(fnmatch(path.relative_to(PACKAGE).as_posix(), edge) for edge in EDGES)
    }
    assert {name: named for name, named in found.items() if named} == {}


def test_the_scan_sees_clocks_that_are_only_handed_on() -> None:
    code = "import time\nfrom time import perf_counter\ndef f(clock=time.monotonic): return datetime.now() - time.x\n"
    assert sorted(clocks(ast.parse(code))) == ["datetime.now", "time.monotonic", "time.perf_counter"]


def test_no_module_keeps_state() -> None:
    """Everything is constructed and passed down; what a module holds is a constant."""
    kept: list[str] = []
    for path in MODULES:
        tree = parsed(path)
        kept += [f"{path.name}:{n.lineno}: global" for n in ast.walk(tree) if isinstance(n, ast.Global)]
        for node in tree.body:
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            made = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in EMPTY
            bare = isinstance(value, ast.List | ast.Dict) and not ast.unparse(value).strip("[]{}")
            if (made or bare) and not (isinstance(target, ast.Name) and target.id == "__all__"):
                kept.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
    assert kept == []


def test_the_command_line_starts_without_anything_heavy() -> None:
    """``--help`` within 0.3 s: each command imports what it needs when it runs."""
    code = f"import sys, grpo_watch.cli.main; print(*sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_house_sizes() -> None:
    """One idea per module, and functions that fit on a screen."""
    large: list[str] = []
    for path in MODULES:
        name, lines = path.relative_to(PACKAGE).as_posix(), path.read_text().count("\n")
        large += [f"{name}: {lines} lines"] if lines > MODULE_LINES else []
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno
                large += [f"{name}: {node.name} {length} lines"] if length > FUNCTION_LINES else []
    assert large == []


def test_a_module_says_what_it_is() -> None:
    silent = [path.relative_to(PACKAGE).as_posix() for path in MODULES if not ast.get_docstring(parsed(path))]
    assert [name for name in silent if (PACKAGE / name).read_text()] == []


FRAMEWORK_NAME = re.compile(
    r"(?<![a-z])(?:trl|swift|verl|openrlhf|nemo[-_ ]?rl|skyrl|slime|prime[-_ ]?rl|areal|roll|unsloth"
    r"|open[-_ ]?instruct|open[-_ ]?r1|axolotl|tinker|torchforge|megatron|llama[-_ ]?factory"
    r"|rllm|easy[-_ ]?r1)s?(?![a-z])"
)
"""What trains. Libraries that several of them share are no frameworks: vLLM and DeepSpeed name canonical settings
(``engine/metric_names.py``), torch, DeepSpeed and Ray formats of files and lines."""


def framework_names(tree: ast.AST) -> Iterator[str]:
    """Names of GRPO frameworks in identifiers and literals; docstrings may give the source of a fact."""
    documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        words: list[object] = [
            getattr(node, field, None) for field in ("id", "attr", "name", "arg", "module", "asname")
        ]
        if isinstance(node, ast.Constant) and id(node) not in documented:
            value = node.value
            words.append(value.decode("latin-1") if isinstance(value, bytes) else value)
        for word in words:
            if isinstance(word, str):
                plain = word.replace("\\b", " ")
                for form in (plain, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", plain)):
                    yield from FRAMEWORK_NAME.findall(form.lower())


def test_what_knows_a_framework_lies_in_its_folder() -> None:
    """Adding a framework is one folder: nothing that reads, judges or drives may ask for one by name."""
    found: dict[str, set[str]] = {}
    for path in MODULES:
        name = path.relative_to(PACKAGE).as_posix()
        if name.startswith(KNOW_NO_FRAMEWORK) and (words := {*framework_names(parsed(path))}):
            found[name] = words
    assert found == {}


def keys_of_one_framework() -> set[str]:
    """Metric and step keys that one framework alone writes; a plain word (``loss``) may be anybody's."""
    tables = frameworks().values()
    counted = Counter(key for table in tables if table.based_on is None for key in table.exact if "/" in key)
    return {key for key, users in counted.items() if users == 1} | {table.traces.paired_step for table in tables} - {""}


def test_no_key_of_one_framework_is_named_outside_its_folder() -> None:
    keys = keys_of_one_framework()
    assert {"ppo_actor/update/actor_loss/avg", "global_step/max_steps"} <= keys
    named = re.compile("|".join(map(re.escape, keys)))
    found = [
        f"{name}:{line}: {match[0]}"
        for path in MODULES
        if (name := path.relative_to(PACKAGE).as_posix()).startswith(KNOW_NO_FRAMEWORK)
        for line, text in strings_in(parsed(path), bytes)
        if (match := named.search(text))
    ]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "x = 'ms-swift'",
        "def is_unsloths(): ...",
        "ofVerl = 1",
        "f'a {x} NeMo-RL'",
        "x = rb'\\bTRL\\b'",
        "from a.trl import b",
        "MEGATRON = 1",
        "x = 'LLaMA-Factory'",
    ],
)
def test_the_scan_sees_a_framework_in(code: str) -> None:
    assert [*framework_names(ast.parse(code))]


def test_the_scan_passes_over_rollouts_and_docstrings() -> None:
    code = '"""As verl writes it."""\nrollout = controlled = "a rollout, rolled out"\n"""TRL 0.14."""\n'
    assert [*framework_names(ast.parse(code))] == []


FROM_IMPORT = re.compile(r"^ *from (grpo_watch[\w.]*) import (\([^)]*\)|[^#;\n]*)", re.MULTILINE)


def named_in(module: str) -> set[str]:
    """What can be imported from a module or package: the names it binds anywhere, and the modules beside it."""
    path = ROOT / module.replace(".", "/")
    tree = ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text())
    names = {each.stem for each in path.iterdir()} if path.is_dir() else set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def test_scripts_and_benchmarks_import_what_there_is() -> None:
    """Types are checked in the package only, and not all of these run in CI: one that a move forgot would rot."""
    wanted: dict[str, dict[str, str]] = {}
    for folder in ("benchmarks", "scripts", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for found in FROM_IMPORT.finditer(path.read_text()):
                names = re.findall(r"(\w+)(?: as \w+)?", re.sub("#.*", "", found[2]))
                wanted.setdefault(found[1], {}).update(dict.fromkeys(names, path.name))
    missing = {f"{names[n]}: {module}.{n}" for module, names in wanted.items() for n in names.keys() - named_in(module)}
    assert missing == set()
