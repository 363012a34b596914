"""No address serves a file of a run, nor of anything else: random ones, asked as they are over a real connection."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from grpo_watch.cli.run import running
from grpo_watch.config.schema import Settings, Web
from grpo_watch.web.answers import FOLDER, Assets
from tests.support.bundles import unpack
from tests.support.process import PATIENCE, until

FROZEN = "ms-swift-4.6.0-04b-frozen-optnoop-full"
NESTED = f"a%2f..%2fb/{FROZEN}"
CANARY = b"canary-3c1f"
FILES = ("notes.txt", "static/notes.txt", "static/js/main.js", "api/v1/runs", ".env", "index.html", "output/notes.txt")
ALLOWED = {200, 400, 404, 405}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A real daemon over a run and its copy whose parent is called like a way out, each full of files with a canary."""
    folder = tmp_path_factory.mktemp("served")
    run = unpack(FROZEN, folder / "runs")
    shutil.copytree(run, folder / "runs" / NESTED)
    (folder / "outside.txt").write_bytes(CANARY)
    for place in (run, folder / "runs" / NESTED):
        for name in FILES:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(CANARY)
        (place / "linked.js").symlink_to(folder / "outside.txt")
        for log in (*place.rglob("train.log"), *place.rglob("args.json")):
            held = log.read_bytes()
            log.write_bytes(held.replace(b'"seed"', b'"x": "' + CANARY + b'", "seed"') + b"\n" + CANARY + b"\n")
    state = folder / "state"
    chosen = Settings(listen="127.0.0.1:0", state_dir=state, web=Web(open=True))
    with running([str(folder / "runs")], lambda: chosen, lines_of=lambda _: ()) as daemon:
        until(lambda: daemon.daemon.ready() and len(daemon.daemon.snapshot().runs) == 2)
        yield daemon.address, folder


def asked(place: str, target: str) -> tuple[int, bytes]:
    """Status and all of the answer to a target that no client tidies up."""
    connection = HTTPConnection(place, timeout=PATIENCE)
    try:
        connection.putrequest("GET", "/", skip_host=True)
        connection._buffer[0] = b"GET " + target.encode("latin-1") + b" HTTP/1.1"  # type: ignore[attr-defined]
        connection.putheader("Host", "localhost")
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def targets() -> st.SearchStrategy[str]:
    """Paths of the pieces that traversal is made of, and of what is really there."""
    words = [
        *("..", ".", "", "%2e%2e", "%2E.", "%252e%252e", "..%00", "%00", "..%5c", "..\\", "~", "file:", "%c0%ae%c0%ae"),
        *("static", "js", "main.js", "index.html", "api", "v1", "runs", "series", "runbooks", "alerts", "batches"),
        *(FROZEN, NESTED, "output", "args.json", "notes.txt", "train.log", "linked.js", "state", "state.db", ".env"),
        *("etc", "passwd", "proc", "self", "environ", "kl-stuck-at-zero", "kl_stuck_at_zero.md", "grpo_watch", "web"),
    ]
    between = st.sampled_from(["/", "/", "//", "%2f", "%2F", "%5c", "%252f", "?", "#", ";"])
    begin = st.sampled_from(["/", "/static/", "/api/v1/runs/", f"/api/v1/runs/{FROZEN}/", "/api/v1/runbooks/", "//"])
    piece = st.tuples(st.sampled_from(words), between).map("".join)
    return st.tuples(begin, st.lists(piece, max_size=7).map("".join), st.sampled_from(words)).map("".join)


@pytest.mark.slow
@given(target=targets())
@example(target="/static/../../../etc/passwd")
@example(target="/static/..%2f..%2f..%2fetc%2fpasswd")
@example(target="/static//etc/passwd")
@example(target="/static/%2fetc%2fpasswd")
@example(target=f"/api/v1/runs/{FROZEN}/notes.txt")
@example(target=f"/api/v1/runs/{FROZEN}/..%2f{FROZEN}%2fnotes.txt")
@example(target=f"/api/v1/runs/..%2f{FROZEN}")
@example(target=f"/{FROZEN}/notes.txt")
@example(target="http://localhost/static/js/main.js")
@settings(max_examples=300)
def test_no_address_serves_a_file(watched: tuple[str, Path], target: str) -> None:
    place, folder = watched
    status, text = asked(place, target)
    assert status in ALLOWED
    assert CANARY not in text
    assert b"root:" not in text
    assert str(folder).encode() not in text or status == 200  # problems of runs name their files
    if status == 200:
        assert text.startswith((b"<!doctype html>", b"{", b"//", b'"use strict"')) or b"/*" in text[:3]


@pytest.mark.slow
def test_absolute_paths_of_what_is_there(watched: tuple[str, Path]) -> None:
    """Each file of the runs and of the state by its whole path, its path in the run, and both encoded."""
    place, folder = watched
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 20
    for path in files:
        inside = path.relative_to(folder).as_posix().removeprefix("runs/").replace("%", "%25")
        whole = path.as_posix().replace("%", "%25")
        for target_path in (whole, whole.replace("/", "%2f"), inside, inside.replace("/", "%2f")):
            for begin in ("", "/", "/static/", "/static/../", "/api/v1/runs/", "/api/v1/runbooks/"):
                target = f"{begin}{target_path}" if begin.startswith("/") else f"/{target_path.lstrip('/')}"
                status, text = asked(place, target)
                assert (status in {400, 404}, CANARY in text) == (True, False), target


def test_a_run_whose_name_looks_like_a_way_out_is_answered_by_it(watched: tuple[str, Path]) -> None:
    """Names with slashes and percent signs stay names."""
    place, _ = watched
    runs = httpx.get(f"http://{place}/api/v1/runs").json()["runs"]
    assert {run["run"].rpartition("/")[2] for run in runs} == {FROZEN}
    for run in runs:
        assert re.fullmatch(r"[\w.-]+", run["slug"])
        assert httpx.get(f"http://{place}/api/v1/runs/{run['slug']}/series").json()["run"] == run["run"]


def test_the_page_s_own_files_are_no_links(tmp_path: Path) -> None:
    """What is served stands in memory under its own name since the start; a link beside it leads nowhere."""
    assert not [path for path in FOLDER.rglob("*") if path.is_symlink()]
    assets = Assets()
    assert all(assets.answer(path.relative_to(FOLDER).as_posix(), "") for path in FOLDER.rglob("*.js"))
    assert assets.answer("js/../../app.py", "") is None
