"""Properties draw the same examples, no test inherits logging, and programs that are missing are reported."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, settings

from grpo_watch.sources.files.decompress import TextStream

ALSO_CALLED = {
    "alertmanager": ("prometheus-alertmanager",),
    "pushgateway": ("prometheus-pushgateway",),
    "chromium": ("chromium-browser", "google-chrome"),
}
NOT_RUN = "not run, not installed: "
LONG = 4.0
"""Seconds that a test which is not marked slow takes at most where CI runs."""

settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],  # how fast examples are drawn is a matter of the machine
)
settings.register_profile("fast", settings.get_profile("repeatable"), max_examples=20)  # scripts/test
settings.load_profile("repeatable")  # what draws at random, and much more of it, is make soak


for step in ("connect", "read", "write", "pool"):
    setattr(httpx._config.DEFAULT_TIMEOUT_CONFIG, step, 300.0)  # 5 s are short on a busy machine


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Commands that run in the tests' process set up logging for themselves: the next test begins without."""
    logger = logging.getLogger("grpo_watch")
    handlers, level, propagate = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.propagate = handlers, propagate
    logger.setLevel(level)


def find_program(name: str) -> str | None:
    """Path of a program under its upstream name or the one its Debian package gives it, or of one beside our Python."""
    folders = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    return next(filter(None, (shutil.which(each, path=folders) for each in (name, *ALSO_CALLED.get(name, ())))), None)


@pytest.fixture
def program() -> Callable[[str], str]:
    """Gives the path of a program that the test's ``@pytest.mark.system("prometheus", …)`` asked for."""

    def path_of(name: str) -> str:
        found = find_program(name)
        assert found, f"{name} is not installed; name it in @pytest.mark.system(...)"
        return found

    return path_of


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the texts that were unpacked, piece by piece."""
    sizes: list[int] = []
    unpack = TextStream.unpack

    def counted(stream: TextStream, data: bytes, most: int) -> bytes:
        text = unpack(stream, data, most)
        sizes.append(len(text))
        return text

    monkeypatch.setattr(TextStream, "unpack", counted)
    return sizes


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with many slow tests come first: at the end one of them would keep a single core busy."""
    slow = Counter(item.path for item in items if "slow" in item.keywords)
    items.sort(key=lambda item: -slow[item.path])


def pytest_runtest_setup(item: pytest.Item) -> None:
    wanted = [name for mark in item.iter_markers("system") for name in mark.args]
    missing = ", ".join(name for name in wanted if find_program(name) is None)
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"{NOT_RUN}{missing} (in CI a missing component is a failure)", pytrace=False)
    if missing:
        pytest.skip(f"{NOT_RUN}{missing}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", [])]
    missing = [reason.partition(NOT_RUN)[2] for reason in reasons if NOT_RUN in reason]
    if missing:
        names = ", ".join(sorted({name for each in missing for name in each.split(", ")}))
        terminalreporter.write_line(f"{len(missing)} tests not run: {names} not installed (make system-deps)")
    if os.environ.get("CI") == "true":
        for line in unmarked(terminalreporter.stats.get("passed", [])):
            terminalreporter.write_line(line)


def unmarked(reports: Iterable[pytest.TestReport]) -> Iterator[str]:
    """Tests that took long and lack the mark ``slow``, by which ``make test`` keeps to its time."""
    long = [report for report in reports if report.duration > LONG and "slow" not in report.keywords]
    for report in sorted(long, key=lambda report: -report.duration):
        yield f"not marked slow: {report.nodeid} took {report.duration:.1f} s"
