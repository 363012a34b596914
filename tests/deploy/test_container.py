"""The image's recipe and its lock files: what pyproject.toml asks for is pinned, with hashes, and nothing else."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.image import DOCKERFILE, read_image

if sys.version_info >= (3, 11):
    import tomllib
else:
    pytest.skip("read with tomllib, of Python 3.11", allow_module_level=True)

LOCK = Path("deploy/container/requirements.txt")
BUILD_LOCK = Path("deploy/container/build-requirements.txt")
ENTRY = re.compile(
    r"(?P<requirement>[A-Za-z0-9._-]+==[^\s;]+(?: ; [^\\\n]+)?) \\\n"
    r"(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+"
)
BASE = re.compile(r"^FROM python:3\.\d+\.\d+-slim-[a-z]+@sha256:[0-9a-f]{64}\b", re.MULTILINE)
IMAGE_EXTRAS = ("apprise", "parquet")


def locked(path: Path) -> list[Requirement]:
    """The pinned packages; the whole file has to consist of such entries."""
    text = path.read_text()
    assert ENTRY.sub("", text) == "", "something that is no pinned package with its hashes"
    return [Requirement(entry["requirement"]) for entry in ENTRY.finditer(text)]


def pinned(path: Path) -> dict[str, str]:
    """Version by name, of what is for this Python."""
    here = [each for each in locked(path) if each.marker is None or each.marker.evaluate()]
    return {canonicalize_name(each.name): str(each.specifier).removeprefix("==") for each in here}


def needed(name: str, extras: frozenset[str], seen: set[str]) -> Iterator[Requirement]:
    """What an installed package needs, and what that needs."""
    if name in seen:
        return
    seen.add(name)
    for text in importlib.metadata.requires(name) or []:
        need = Requirement(text)
        environments = [{"extra": extra} for extra in extras] or [{"extra": ""}]
        if need.marker is None or any(need.marker.evaluate(environment) for environment in environments):
            yield need
            yield from needed(canonicalize_name(need.name), frozenset(need.extras), seen)


@pytest.mark.parametrize("lock", [LOCK, BUILD_LOCK], ids=lambda path: path.name)
def test_every_entry_is_pinned_once_with_hashes(lock: Path) -> None:
    """No address, no option, no comment, no package of a folder."""
    names = [(each.name, str(each.marker)) for each in locked(lock)]
    assert len(names) == len(set(names)) > 5


def test_the_lock_holds_what_the_project_asks_for() -> None:
    """``make lock`` when this fails: a dependency was added, or its oldest version raised."""
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(n for extra in IMAGE_EXTRAS for n in project["optional-dependencies"][extra])]
    versions = pinned(LOCK)
    for requirement in map(Requirement, wanted):
        version = versions.get(canonicalize_name(requirement.name))
        assert version is not None, requirement
        assert requirement.specifier.contains(version), (str(requirement), version)


def test_nothing_that_is_needed_is_missing() -> None:
    """pip installs the lock with --no-deps: what is installed here needs nothing that it lacks."""
    missing = {canonicalize_name(need.name) for need in needed("grpo-watch", frozenset(IMAGE_EXTRAS), set())} - pinned(
        LOCK
    ).keys()
    assert missing == set()


def test_nothing_that_is_not_needed_is_locked() -> None:
    """``make lock`` when this fails: a dependency went. Those of other systems and Pythons have markers."""
    wanted = {canonicalize_name(need.name) for need in needed("grpo-watch", frozenset(IMAGE_EXTRAS), set())}
    assert pinned(LOCK).keys() - wanted == set()


def test_the_build_backend_is_locked() -> None:
    (backend,) = tomllib.loads(Path("pyproject.toml").read_text())["build-system"]["requires"]
    assert Requirement(backend).specifier.contains(pinned(BUILD_LOCK)["hatchling"])
    assert backend in Path("scripts/lock").read_text()


@pytest.mark.system("hadolint")
def test_the_dockerfile_has_no_finding_of_its_linter(tmp_path: Path, program: Callable[[str], str]) -> None:
    done = subprocess.run([program("hadolint"), DOCKERFILE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    worse = tmp_path / "Dockerfile"
    worse.write_text(BASE.sub("FROM python:latest", DOCKERFILE.read_text()))
    assert subprocess.run([program("hadolint"), worse], capture_output=True, check=False).returncode == 1


def test_it_is_nobody_and_builds_from_the_lock() -> None:
    text = DOCKERFILE.read_text()
    image = read_image(text)
    assert image.user >= 10_000
    installs = re.findall(r"pip[^\n&]* (?:install|wheel) (?:\\\n|[^\n&])*", text.replace("\\\n", " "))
    assert len(installs) == 4
    assert all("--require-hashes" in each or "--no-index" in each for each in installs)


def test_both_stages_begin_with_one_image_by_its_digest() -> None:
    """A tag alone is rebuilt under the same name."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if line.startswith("FROM ")]
    assert len(lines) == 2
    assert len({found[0] for line in lines if (found := BASE.match(line))}) == 1
    assert all(BASE.match(line) for line in lines)
    (update,) = yaml.safe_load(Path(".github/dependabot.yml").read_text())["updates"]
    assert (update["package-ecosystem"], update["directory"]) == ("docker", f"/{DOCKERFILE.parent}")


def test_only_what_is_copied_is_sent_to_the_engine() -> None:
    """Every source of a COPY is let in by the ignore file, and nothing is let in that is not copied."""
    copied = {
        source
        for line in DOCKERFILE.read_text().splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
    }
    assert all(Path(source).exists() for source in copied)
    allowed = {
        line.removeprefix("!")
        for line in Path(f"{DOCKERFILE}.dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    expanded = {str(path) for pattern in allowed for path in Path().glob(pattern)}
    assert expanded == copied
