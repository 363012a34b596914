"""Set-up on machines that lack something (ensurepip, pip, network, Python), and the stamp that makes it instant."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
import venv
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.process import PATIENCE
from tests.support.sandbox import unprivileged

ROOT = Path(__file__).parent.parent
SCRIPTS = ROOT / "scripts"
SHELL_SCRIPTS = sorted(path for path in SCRIPTS.iterdir() if path.suffix == "" and path.is_file())

FAKE_PIP = """
import sys, sysconfig, zipfile
if sys.argv[1] == "install":
    zipfile.ZipFile(sys.argv[-1]).extractall(sysconfig.get_path("purelib"))
elif sys.argv[1] != "--version":
    sys.exit(2)
"""
WITHOUT_ENSUREPIP = """#!/bin/sh
case "$*" in "-m venv --clear --without-pip "*) ;; "-m venv "*) echo "ensurepip is not available" >&2; exit 1 ;; esac
exec {python} "$@"
"""


def script(path: Path, text: str) -> Path:
    """An executable file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def run(*command: Path | str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run with this environment less pip's own settings, plus ``variables``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "PYTHON"))}
    env = kept | {"PIP_CONFIG_FILE": os.devnull} | variables
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A wheel that does what scripts/venv asks of pip, and no more."""
    path = tmp_path / "index" / "files" / "pip-26.1-py3-none-any.whl"
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("pip/__init__.py", "")
        archive.writestr("pip/__main__.py", FAKE_PIP)
    return path


@pytest.fixture
def index(wheel: Path) -> Iterator[str]:
    """A package index on this machine that offers ``wheel``, among things that are not to be taken."""
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    links = [
        f'<a href="../files/{wheel.name}#sha256={digest}" data-requires-python="&gt;=3.9">{wheel.name}</a>',
        f'<a href="../files/pip-9.0-py3-none-any.whl#sha256={"0" * 64}">older, though it sorts later as text</a>',
        f'<a href="../files/pip-99.0-py3-none-any.whl#sha256={"0" * 64}" data-requires-python="&gt;=3.99">newer</a>',
        f'<a href="../files/pip-27.0b1-py3-none-any.whl#sha256={"0" * 64}">a beta</a>',
        f'<a href="../files/pip-28.0.tar.gz#sha256={"0" * 64}">source</a>',
    ]
    page = wheel.parent.parent / "pip" / "index.html"
    page.parent.mkdir()
    page.write_text("<!DOCTYPE html><html><body>" + "<br/>".join(links))
    handler = partial(QuietHandler, directory=str(wheel.parent.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files without a word."""

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python as on Debian without python3-venv and python3-pip: it has venv, but neither ensurepip nor pip."""
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    return script(tmp_path / "python-bare", WITHOUT_ENSUREPIP.format(python=tmp_path / "bare" / "bin" / "python"))


def test_without_ensurepip_and_pip_the_wheel_comes_from_the_index(
    tmp_path: Path, bare_python: Path, index: str
) -> None:
    """The newest final wheel for this Python is taken, and the environment has a pip that answers."""
    made = tmp_path / "made"
    done = run(SCRIPTS / "venv", made, PYTHON=str(bare_python), PIP_INDEX_URL=index)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert run(made / "bin" / "python", "-m", "pip", "--version").returncode == 0
    assert not (made / "pip-wheel").exists()


def test_a_wheel_that_differs_from_the_index_hash_is_refused(
    tmp_path: Path, bare_python: Path, index: str, wheel: Path
) -> None:
    with wheel.open("ab") as file:
        file.write(b"one byte more than the index knows")
    done = run(bare_python, SCRIPTS / "fetch_pip.py", tmp_path / "got", PIP_INDEX_URL=index)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("content differs from the index's sha256")
    assert list((tmp_path / "got").iterdir()) == []


def test_without_network_one_line_says_what_to_install(tmp_path: Path, bare_python: Path) -> None:
    """Port 9 on this machine refuses; no half-made environment is left."""
    tools = path_with(tmp_path, "sh", "dirname", "rm", "uname")
    done = run(
        SCRIPTS / "venv",
        tmp_path / "made",
        PYTHON=str(bare_python),
        PIP_INDEX_URL="http://127.0.0.1:9",
        PATH=str(tools),
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "apt install python3-venv" in done.stderr
    assert not (tmp_path / "made").exists()
    assert "refused" in (tmp_path / "made.log").read_text()


def test_uv_is_asked_where_venv_fails(tmp_path: Path) -> None:
    """The same Python, and pip with it."""
    tools = path_with(tmp_path, "sh", "dirname", "rm", "mkdir", "chmod")
    (tools / "python3").symlink_to(script(tmp_path / "no-venv", '#!/bin/sh\ncase "$1" in -m) exit 1 ;; esac\n'))
    answer = (
        'echo "$*" >>"$0.calls"\nfor last; do :; done\nmkdir -p "$last/bin"\n'
        'echo "#!/bin/sh" >"$last/bin/python"\nchmod +x "$last/bin/python"\n'
    )
    script(tools / "uv", "#!/bin/sh\n" + answer)
    done = run(SCRIPTS / "venv", tmp_path / "made", PATH=str(tools))
    assert (done.returncode, done.stderr) == (0, "")
    assert (tools / "uv.calls").read_text() == f"venv --quiet --seed --python python3 {tmp_path / 'made'}\n"


def test_without_any_python_one_line_says_what_to_install(tmp_path: Path) -> None:
    done = run(SCRIPTS / "venv", tmp_path / "made", PATH=str(path_with(tmp_path, "sh", "dirname", "rm")))
    assert done.returncode == 1
    assert done.stderr.startswith("setup: needs Python 3.10 or newer")
    assert len(done.stderr.splitlines()) == 1


def test_a_python_that_does_not_run_is_passed_over(tmp_path: Path, bare_python: Path, index: str) -> None:
    """python3.13 is a shim that fails, python3 is the real one: as with version managers."""
    tools = path_with(tmp_path, "sh", "dirname", "rm")
    script(tools / "python3.13", "#!/bin/sh\nexit 127\n")
    (tools / "python3").symlink_to(bare_python)
    done = run(SCRIPTS / "venv", tmp_path / "made", PATH=str(tools), PIP_INDEX_URL=index)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "made" / "bin" / "python").exists()


def path_with(folder: Path, *programs: str) -> Path:
    """A folder for PATH that holds these programs only."""
    tools = folder / "tools"
    tools.mkdir()
    for name in programs:
        (tools / name).symlink_to(str(shutil.which(name)))
    return tools


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose .venv has a Python that writes down what it is asked and fails as often as ``fails`` says."""
    copy = tmp_path / "check out"  # with a blank, as people have
    shutil.copytree(SCRIPTS, copy / "scripts")
    shutil.copy(ROOT / "pyproject.toml", copy)
    answer = (
        '#!/bin/sh\necho "$*" >>"$0.calls"\ncase "$*" in *"pip install"*)\n'
        'if [ -s "$0.fails" ]; then sed -i 1d "$0.fails"; echo "Connection reset by peer" >&2; exit 1; fi;; esac\n'
    )
    script(copy / ".venv" / "bin" / "python", answer)
    return copy


def calls(checkout: Path) -> list[str]:
    """What was installed since the last call of this function."""
    log = checkout / ".venv" / "bin" / "python.calls"
    lines = log.read_text().splitlines()
    log.unlink()
    return [line.removeprefix("-m pip install --quiet --no-compile ") for line in lines if "pip install" in line]


def test_setup_installs_once(checkout: Path) -> None:
    """A second call installs nothing, a changed pyproject.toml does, and `dev` includes `run`."""
    setup = checkout / "scripts" / "setup"
    assert run(setup).returncode == 0
    assert calls(checkout) == ["-e .[parquet]"]
    assert run(setup, "dev").returncode == 0
    assert calls(checkout) == ["pip>=25.1", "-e .[parquet] --group dev"]
    assert (run(setup).returncode, run(setup, "dev").stderr, calls(checkout)) == (0, "", [])
    with (checkout / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    assert run(setup).returncode == 0
    assert calls(checkout) == ["-e .[parquet]"]


def test_setup_tries_the_network_twice(checkout: Path) -> None:
    fails = checkout / ".venv" / "bin" / "python.fails"
    fails.write_text("once\n")
    done = run(checkout / "scripts" / "setup")
    assert done.returncode == 0
    assert calls(checkout) == ["-e .[parquet]", "-e .[parquet]"]


def test_setup_gives_up_with_the_reason(checkout: Path) -> None:
    """No stamp is left, so that the next call tries again."""
    (checkout / ".venv" / "bin" / "python.fails").write_text("once\ntwice\n")
    done = run(checkout / "scripts" / "setup")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-2:] == [
        "Connection reset by peer",
        "setup: pip install failed (above: the end of .venv/setup.log)",
    ]
    assert run(checkout / "scripts" / "setup").returncode == 0


@pytest.fixture
def shared() -> Iterator[Path]:
    """A checkout that everybody may read and only its owner may change."""
    with tempfile.TemporaryDirectory(prefix="grpo-watch-") as folder:
        place = Path(folder)
        shutil.copytree(SCRIPTS, place / "scripts")
        shutil.copy(ROOT / "pyproject.toml", place)
        script(place / ".venv" / "bin" / "python", "#!/bin/sh\n")
        yield place


def as_somebody_else(place: Path, *command: Path | str) -> subprocess.CompletedProcess[str]:
    """Run where nothing in ``place`` may be written: as nobody, or, without root's rights, as ourselves."""
    folders = [place, *(path for path in place.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        return run(*(unprivileged() if os.geteuid() == 0 else ()), *command)
    finally:
        for folder in folders:
            folder.chmod(0o755)


@pytest.mark.parametrize("runs", [True, False], ids=["its Python runs", "its Python is root's"])
def test_a_venv_of_somebody_else_is_no_place_to_install(shared: Path, runs: bool) -> None:  # noqa: FBT001
    """One line with the way out, before anything is tried; and none where that environment is ready to be used."""
    python = shared / ".venv" / "bin" / "python"
    python.chmod(0o755 if runs else 0o600)
    done = as_somebody_else(shared, shared / "scripts" / "test-one", "tests")
    assert (done.returncode, done.stderr.splitlines()[1:]) == (1, [])
    assert done.stderr.startswith(f"setup: {shared}/.venv belongs to ")
    assert "clone of your own" in done.stderr
    python.chmod(0o755)
    assert run(shared / "scripts" / "setup", "dev").returncode == 0
    assert as_somebody_else(shared, shared / "scripts" / "setup", "dev").stderr == ""


def test_a_checkout_of_somebody_else_gets_no_venv(shared: Path) -> None:
    shutil.rmtree(shared / ".venv")
    done = as_somebody_else(shared, shared / "scripts" / "setup")
    assert done.returncode == 1
    assert done.stderr.startswith(f"setup: {shared} belongs to ")


def test_system_deps_says_what_is_missing_to_those_who_cannot_install(tmp_path: Path) -> None:
    tools = path_with(tmp_path, "sh")
    script(tools / "id", "#!/bin/sh\necho 1000\n")
    for name in (
        "prometheus",
        "prometheus-alertmanager",
        "pushgateway",
        "google-chrome",
        "xxh128sum",
        "systemd-analyze",
    ):
        script(tools / name, "#!/bin/sh\n")
    done = run(SCRIPTS / "system-deps", PATH=str(tools))
    assert done.returncode == 1
    assert done.stderr == "system-deps: not installed here: curl (Debian/Ubuntu, as root: apt-get install curl)\n"
    script(tools / "curl", "#!/bin/sh\n")
    done = run(SCRIPTS / "system-deps", PATH=str(tools))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_without_uv_the_oldest_versions_are_skipped_by_hand_only(tmp_path: Path, ci: str, code: int) -> None:
    """What CI has not run is not green."""
    here = script(tmp_path / "scripts" / "test-lowest", (SCRIPTS / "test-lowest").read_text())
    script(here.parent / "venv", '#!/bin/sh\nmkdir -p "$1/bin"\nln -s "$(command -v false)" "$1/bin/python"\n')
    done = run(here, CI=ci)
    assert (done.returncode, "not run: uv can't be installed" in done.stderr) == (code, True)


@pytest.mark.parametrize("path", SHELL_SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_executable_posix_shell(path: Path) -> None:
    text = path.read_text()
    assert text.startswith("#!/bin/sh\n")
    assert os.access(path, os.X_OK)
    assert subprocess.run(["sh", "-n", path], check=False).returncode == 0
    code = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    assert "sudo" not in code
    assert "break-system-packages" not in code


def test_make_targets_are_scripts() -> None:
    """The README shows the scripts for machines without make; both ways have to be the same."""
    lines = (ROOT / "Makefile").read_text().splitlines()
    recipes = [line.removeprefix("\t@").split()[0] for line in lines if line.startswith("\t@scripts/")]
    assert {Path(recipe).name for recipe in recipes} == {path.name for path in SHELL_SCRIPTS} - {"venv"}
