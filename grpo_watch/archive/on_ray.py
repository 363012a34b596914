"""Spreads pieces of work over a Ray cluster (``grpo-watch[ray]``); Ray retries a piece whose worker was lost."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from grpo_watch.children.pool import Answer, Work
from grpo_watch.errors import UsageError
from grpo_watch.extras import install

T = TypeVar("T")

RETRIES = 2
"""Retries of a piece of work whose worker is lost: a node that goes away takes several at once."""
CONNECT_SECONDS = 10.0
"""Seconds until connecting fails: a head node may be in another data centre."""
AHEAD = 2
"""Pieces handed out per processor of the cluster: one running, one waiting."""


def on_ray(work: Work[T], pieces: Sequence[T], address: str | None) -> Iterator[Answer]:
    """Do all pieces on the cluster at ``address`` (None: the one of ``RAY_ADDRESS``, or a local one for this command).

    Yields one answer per piece, in the order of completion. Workers need grpo-watch and the files under the same paths.

    Raises:
        UsageError: Ray is not installed, or there is no cluster at the address.
    """
    ray = _connected(address)
    try:
        task = ray.remote(max_retries=RETRIES)(work)
        handed_out = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
        waiting = iter(enumerate(pieces))
        running: dict[Any, int] = {}
        while True:
            while len(running) < handed_out and (piece := next(waiting, None)) is not None:
                running[task.remote(piece[1])] = piece[0]
            if not running:
                return
            (ready, *_), _ = ray.wait(list(running))
            yield _answer(ray, running.pop(ready), ready)
    finally:
        ray.shutdown()


def _connected(address: str | None) -> Any:
    try:
        import ray  # noqa: PLC0415  an extra
    except ImportError:
        raise UsageError(f"--engine ray needs Ray: {install('ray')}") from None
    _reach(address)
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UsageError(f"--address {address}: no Ray cluster: {str(error).splitlines()[0]}") from None
    return ray


def _reach(address: str | None) -> None:
    """Try to connect to the address once: Ray itself retries a wrong one for minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise UsageError(f"--address {address}: no Ray cluster: {error}") from None


def _answer(ray: Any, place: int, reference: Any) -> Answer:
    try:
        return Answer(place, ray.get(reference))
    except ray.exceptions.RayError as error:
        reason = str(getattr(error, "cause", None) or error).strip().splitlines()
        return Answer(place, error=f"{type(error).__name__}: {reason[0] if reason else 'lost'}")
