"""What receivers are made with: what they need of the daemon, and checked addresses, headers and secrets."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from grpo_watch.config.secrets import SecretFile, Url
from grpo_watch.config.sinks import HttpSink
from grpo_watch.errors import ConfigError, FilePlace
from grpo_watch.notify.receivers.http import HttpAccess


@dataclass(frozen=True, slots=True)
class ReceiverContext:
    """What receivers need of the daemon.

    Args:
        clock: Unix seconds.
        instance: names this watcher where several push to one place.
        late: by how many seconds the engine is late; None when it is not.
    """

    clock: Callable[[], float]
    instance: str = "grpo-watch"
    late: Callable[[], float | None] = lambda: None


def access_of(sink: HttpSink) -> HttpAccess:
    """The sink's headers and authorities, after a check that their files can be read.

    Raises:
        ConfigError: one can't.
    """
    for file in sink.header_files.values():
        readable(file)
    return HttpAccess(sink.header_files, authorities(sink.ca_file))


def authorities(file: Path | None) -> Path | None:
    """The file of certificates, after a check that it holds some.

    Raises:
        ConfigError: it holds none that can be read.
    """
    try:
        ssl.create_default_context(cafile=file) if file else None
    except OSError as problem:  # an SSLError is one
        raise ConfigError("ca_file holds no certificate that can be read", FilePlace(str(file))) from problem
    return file


def address(url: Url | None, file: SecretFile | None) -> Callable[[], str]:
    """Gives the address; one that is a secret is read each time, so that a new one counts at once.

    Raises:
        ConfigError: the file can't be read.
    """
    if url is not None:
        return url.reveal
    if file is None:
        raise ValueError("neither an address nor its file")

    file.read_url()
    return lambda: file.read_url().reveal()


def readable(file: SecretFile | None) -> SecretFile | None:
    """The file, after a check that it can be read: a mistake shows at the start, not when it matters.

    Raises:
        ConfigError: it can't.
    """
    if file is not None:
        file.read()
    return file
