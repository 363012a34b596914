"""Holds the code against the architecture: import directions, homes of libraries, a light start, house sizes."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "grpo_watch"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "_rules" not in path.parts)

HOMES = {
    "anyio": ("web/access.py", "web/events.py"),
    "apprise": ("sinks/*",),
    "certifi": ("sinks/client.py",),
    "google_crc32c": ("sources/tfrecord.py",),
    "h11": ("web/*",),
    "httpx": ("sinks/*",),
    "markdown_it": ("web/runbooks.py",),
    "msgspec": ("sources/*", "store/*", "report/*", "cli/*", "extract/*", "runtime/delivery/packing.py"),
    "pandas": ("report/*", "extract/parquet.py"),
    "prometheus_client": ("sinks/*",),
    "pyarrow": ("report/*", "extract/parquet.py", "preflight/inputs/datasets.py"),
    "pydantic": ("config.py", "config/*", "runtime/example_blocks.py"),
    "rich": ("cli/*", "report/*", "preflight/text.py"),
    "sqlite3": ("store/*", "sources/trackio_runs.py"),
    "starlette": ("web/*",),
    "typer": ("cli/*",),
    "uvicorn": ("web/*",),
    "wandb": ("sources/wandb_*",),
    "watchdog": ("runtime/waker.py",),
    "xxhash": ("extract/*", "sources/*"),
    "yaml": (
        "config.py",
        "config/*",
        "normalise/*",
        "runtime/example_blocks.py",
        "sources/config_files.py",
        "preflight/*",
    ),
}
"""Where each library may be imported; one that is not listed here and not in the standard library is refused.

``example_blocks`` reads the YAML inside runbooks, ``config_files`` the YAML that launchers leave beside a run.
"""

EVERYWHERE = {"numpy", "grpo_watch", *sys.stdlib_module_names} - {"sqlite3"}
HEAVY = {"numpy", "pandas", "pyarrow", "wandb", "rich", "starlette", "uvicorn", "pydantic", "prometheus_client"}
HEAVY |= {"httpx", "apprise"}
MODULE_LINES = 400
FUNCTION_LINES = 60


def imports(tree: ast.AST) -> Iterator[str]:
    """Top-level names of everything that a module imports, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0]


def test_import_contracts_hold() -> None:
    """cli > runtime > sources > detectors > core, as written in pyproject.toml."""
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_each_library_stays_in_its_home() -> None:
    strays: list[str] = []
    for path in MODULES:
        name = path.relative_to(PACKAGE).as_posix()
        for library in set(imports(ast.parse(path.read_text()))) - EVERYWHERE:
            at_home = any(fnmatch(name, home) for home in HOMES.get(library, ()))
            strays += [] if at_home else [f"{name} imports {library}"]
    assert strays == []


def test_the_scan_sees_imports_in_functions() -> None:
    """The test above would pass on anything if this walk missed them."""
    code = "import a.b\ndef f():\n    from c.d import e\n    from . import g\n"
    assert list(imports(ast.parse(code))) == ["a", "c"]


def test_the_command_line_starts_without_anything_heavy() -> None:
    """``--help`` within 0.3 s: each command imports what it needs when it runs."""
    code = f"import sys, grpo_watch.cli.main; print(*sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_house_sizes(path: Path) -> None:
    """One idea per module, and functions that fit on a screen."""
    text = path.read_text()
    assert text.count("\n") <= MODULE_LINES
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert {f.name: f.end_lineno - f.lineno for f in functions if f.end_lineno - f.lineno > FUNCTION_LINES} == {}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_module_says_what_it_is(path: Path) -> None:
    assert path.read_text() == "" or ast.get_docstring(ast.parse(path.read_text()))
