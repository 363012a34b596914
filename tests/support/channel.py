"""Reads a source in ways that must make no difference: at once, byte by byte, and restarted after every item."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from grpo_watch.engine.records import Cursor, Item, RawRow
from grpo_watch.sources.base import Source

Opens = Callable[[Cursor | None], Source]


def whole(opens: Opens) -> list[Item]:
    """All items of a source that has ended."""
    source = opens(None)
    items = [*source.poll(None), *source.finish()]
    source.close()
    return items


def restarted(opens: Opens) -> list[Item]:
    """The same, with a new source made from the cursor after every single item."""
    items: list[Item] = []
    cursor: Cursor | None = None
    while True:
        source = opens(cursor)
        item = next(_all(source), None)
        cursor = source.cursor()
        source.close()
        if item is None:
            return items
        items.append(item)


def grown(opens: Opens, path: Path, sizes: list[int]) -> list[Item]:
    """The same, polled while the file grows to each of ``sizes`` and at last to its full length."""
    data = path.read_bytes()
    path.write_bytes(b"")
    source = opens(None)
    items: list[Item] = []
    for size in [*sorted(sizes), len(data)]:
        with path.open("ab") as file:
            file.write(data[file.tell() : size])
        items += source.poll(None)
    items += source.finish()
    source.close()
    return items


def rows(items: Iterable[Item]) -> list[RawRow]:
    """The raw rows among the items."""
    return [item for item in items if isinstance(item, RawRow)]


def _all(source: Source) -> Iterator[Item]:
    yield from source.poll(None)
    yield from source.finish()
