"""Runs on file servers: fsspec's own in-memory file system plays the server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from msgspec.structs import replace

from grpo_watch.archive.checks import Execution, check_all
from grpo_watch.archive.remote_folder import RemoteFile, copy, is_remote, remote_folders
from grpo_watch.errors import SourceError, UsageError
from grpo_watch.report.check_document import document
from tests.archive.test_checks import SETUP
from tests.support.bundles import unpack

RUN = "trl-1.16.0-04-healthy-lora"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Any]:
    """A server with one run, and a checkpoint's weights in it."""
    system = fsspec.filesystem("memory")
    run = unpack(RUN, tmp_path)
    for file in filter(Path.is_file, run.rglob("*")):
        system.pipe(f"/bucket/runs/{RUN}/{file.relative_to(run)}", file.read_bytes())
    system.pipe(f"/bucket/runs/{RUN}/output/checkpoint-9/model.safetensors", b"\0" * 64)
    yield system
    system.rm("/bucket", recursive=True)


@pytest.mark.parametrize("address", [f"memory://bucket/runs/{RUN}", "memory://bucket/runs/*"])
def test_a_run_on_a_server_gets_the_verdict_of_its_copy(server: Any, address: str, tmp_path: Path) -> None:
    del server
    folders = remote_folders(address)
    (there,) = document(check_all(SETUP, folders, Execution(results=tmp_path / "results.db")))["runs"]
    assert (there["run"], there["verdict"], there["steps"]) == (RUN, "healthy", 100)
    (again,) = document(check_all(SETUP, folders, Execution(results=tmp_path / "results.db")))["runs"]
    assert json.dumps(again) == json.dumps(there)


def test_weights_are_not_copied(server: Any, tmp_path: Path) -> None:
    del server
    (tmp_path / "copies").mkdir()
    copied = copy(remote_folders("memory://bucket/runs/*")[0], tmp_path / "copies")
    assert list(copied.rglob("*.json"))
    assert not list(copied.rglob("*.safetensors"))


def test_a_name_that_leads_out_of_the_folder_is_refused(server: Any, tmp_path: Path) -> None:
    del server
    (folder,) = remote_folders("memory://bucket/runs/*")
    (tmp_path / "copies").mkdir()
    hostile = replace(folder, files=(RemoteFile(f"{folder.root}/../../escaped", 1, ""),))
    with pytest.raises(SourceError, match="leads out of its folder"):
        copy(hostile, tmp_path / "copies")


def test_what_is_too_large_is_not_copied(server: Any, tmp_path: Path) -> None:
    del server
    (folder,) = remote_folders("memory://bucket/runs/*")
    with pytest.raises(SourceError, match=r"5\.0 GiB of logs; at most 4 are copied"):
        copy(replace(folder, files=(RemoteFile(f"{folder.root}/train.log", 5 << 30, ""),)), tmp_path)


@pytest.mark.parametrize("address", ["memory://bucket/nothing", "nosuch://bucket/run"])
def test_a_wrong_address_is_a_usage_error(address: str) -> None:
    with pytest.raises(UsageError, match=r"no such file or folder|Protocol not known"):
        remote_folders(address)


def test_what_is_an_address_of_a_file_server() -> None:
    assert [is_remote(path) for path in ("s3://b/run", "run", "wandb://e/p", "a*b")] == [True, False, False, False]


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("https://wandb.ai/me/math/runs/abc1?nw=x", "for its run use wandb://me/math/abc1"),
        ("https://wandb.ai/me/math", "for its run use wandb://me/math"),
        ("https://huggingface.co/me/model", "download the run's files"),
        ("https://swanlab.cn/@me/math/runs/1/chart", "download the run's files"),
    ],
)
def test_the_address_of_a_web_page_says_what_to_give_instead(address: str, said: str) -> None:
    with pytest.raises(UsageError, match="a web page can't be read") as refused:
        remote_folders(address)
    assert said in str(refused.value)
