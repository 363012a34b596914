"""Copies a run's logs from a server (``s3://``, ``hdfs://``, ``https://``) so that they can be read."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct, field

from grpo_watch import lazy_re as re
from grpo_watch.errors import SourceError, UsageError
from grpo_watch.extras import install
from grpo_watch.sources.trackers.mlflow_server import is_server

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".distcp", ".gguf", ".npz", ".onnx", ".h5")
"""Files that are not copied: gigabytes each. Rules about weights then lack evidence."""
MOST_BYTES = 4 << 30
"""Most bytes copied of one run: more than any real run's logs, and not enough to fill the disk by mistake."""
SERVER = "://"
_PAGE = re.compile(
    r"https?://(?:www\.)?(?:wandb\.ai/(?P<run>[^/?#]+/[^/?#]+(?:/runs/[^/?#]+)?)|(?:huggingface\.co|modelscope\.cn|swanlab\.cn)/(?!.*/resolve/))"
)
"""Addresses of web pages of trackers, copied from a browser; files of a hub have ``/resolve/`` in their address."""


class RemoteFile(Struct, frozen=True):
    """A file listed by its server; ``mark`` changes with its content (an ETag, a time, or only its size)."""

    path: str
    size: int
    mark: str


class RemoteFolder(Struct, frozen=True):
    """A run's folder on a server; ``files`` are paths there."""

    address: str
    root: str
    files: tuple[RemoteFile, ...] = field(default=())

    @property
    def name(self) -> str:
        """The last part of its address, which names the run."""
        return PurePosixPath(self.root).name or "run"


def is_remote(path: str) -> bool:
    """Whether a path is on a file server; trackers' addresses are not, as they are read by their own clients."""
    return SERVER in path and not is_server(path) and not path.startswith(("wandb://", "file://"))


def remote_folders(address: str) -> list[RemoteFolder]:
    """The folder at an address, or all that match its wildcards.

    Raises:
        UsageError: nothing is there, or fsspec or its client for this kind of server is not installed.
        SourceError: the server can't be read.
    """
    system, path = _system(address)
    try:
        roots = sorted(system.glob(path)) if any(char in path for char in "*?[") else [path]
        found = [RemoteFolder(address, root.rstrip("/"), _listed(system, root)) for root in roots]
    except Exception as error:  # noqa: BLE001  each client has errors of its own
        raise SourceError(f"{address}: {type(error).__name__}: {error}") from None
    if not any(folder.files for folder in found):
        raise UsageError(f"{address}: no such file or folder")
    return found


def copy(folder: RemoteFolder, to: Path) -> Path:
    """Copy the folder's files, without weights, below ``to``; returns the copy, named like the folder.

    Raises:
        SourceError: the folder can't be read, or is too large.
    """
    wanted = [file for file in folder.files if not file.path.endswith(WEIGHTS)]
    total = sum(file.size for file in wanted)
    if total > MOST_BYTES:
        raise SourceError(f"{folder.address}: {total / 2**30:.1f} GiB of logs; at most {MOST_BYTES >> 30} are copied")
    system, _ = _system(folder.address)
    copied = to / folder.name
    copied.mkdir()
    for file in wanted:
        target = copied / _below(folder.root, file.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            system.get_file(file.path, str(target))
        except Exception as error:  # noqa: BLE001  each client has errors of its own
            raise SourceError(f"{file.path}: {type(error).__name__}: {error}") from None
    return copied


def _below(root: str, path: str) -> PurePosixPath:
    """The path of a file relative to its folder; a lone file keeps its name. ``..`` from a server is dropped."""
    parts = PurePosixPath(path.removeprefix(root).lstrip("/") or PurePosixPath(path).name).parts
    if ".." in parts:
        raise SourceError(f"{path}: refused: leads out of its folder")
    return PurePosixPath(*parts)


def _listed(system: Any, root: str) -> tuple[RemoteFile, ...]:
    listing = system.find(root, detail=True)
    marks = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "created")
    return tuple(
        RemoteFile(path, int(info.get("size") or 0), str(next((info[key] for key in marks if info.get(key)), "")))
        for path, info in sorted(listing.items())
        if info.get("type") == "file"
    )


def refuse_page(address: str) -> None:
    """Raise ``UsageError`` for a tracker's web page; the message says how to read its run."""
    if page := _PAGE.match(address):
        run = (
            f"; for its run use wandb://{page['run'].replace('/runs/', '/')}"
            if page["run"]
            else "; download the run's files"
        )
        raise UsageError(f"{address}: a web page can't be read{run}")


def _system(address: str) -> tuple[Any, str]:
    refuse_page(address)
    try:
        core = import_module("fsspec.core")
    except ImportError:
        raise UsageError(f"{address}: needs fsspec: {install('remote')}") from None
    try:
        system, path = core.url_to_fs(address)
    except (ImportError, ValueError) as error:
        raise UsageError(f"{address}: {error}") from None
    return system, str(path)
