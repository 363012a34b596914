"""verl's metric lines (``step:34 - actor/pg_loss:0.042 - critic/score/mean:np.float64(-0.018) - …``) as rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grpo_watch import lazy_re as re
from grpo_watch.engine.records import Stream
from grpo_watch.frameworks.line_reader import LineReader, MetricLine

BEGIN = re.compile(rb"(?:^|[^\w/:.])step:(\d{1,12}) - ")
"""Anywhere in the line: a progress bar may be glued before it."""
NUMBER = r"(?:np\.\w{1,20}\()?([-+]?(?:\d{1,400}(?:\.\d{0,40})?(?:[eE][-+]?\d{1,5})?|nan|inf)|True|False)\)?"
"""``0.5``, ``1e-06``, ``np.float64(0.5)`` (NumPy 2), ``nan``, ``-inf``, ``True``; from verl 0.5 any Python number."""
PAIR = re.compile(rf"(.{{1,400}}):{NUMBER}")
"""Split at the last colon: keys contain dataset names, which may hold colons."""
GLUED = re.compile(rf"([^\s:]{{1,400}}):{NUMBER}(?![\d.%+\-_:/@]|[eE](?:[-+\d]|$))[^\s/]{{0,80}}(?:\s|$)")
"""A pair followed by a bar or another process' text (``…/kl_coef:0.001Training Progress: 12%|…``), but not by the rest
of a number (``1e-``) or of a dataset's name (``7b/acc``)."""
ROUNDED = re.compile(r"[-+]?(?:\d{1,30}\.\d{3}|nan|inf)")
"""Up to 0.4.1 every value is printed with three decimals, whole numbers too (``training/global_step:1.000``)."""
HALF = 0.0005
"""Smaller values print as 0.000."""
VALIDATION = ("val-core/", "val-aux/", "val/")
LONGEST = 256 << 10
"""Most bytes of a row; one takes 3 to 6 KB."""


class VerlLines(LineReader):
    """verl 0.1 to 0.10, and frameworks built on it.

    A row is one line, but copies of logs break it: a line that ends inside a key (``… - critic``, the next begins with
    ``/rewards/min:0.1 - …``) is held, and loses the broken key if the next line does not continue it.
    """

    framework = "verl"
    marks: Sequence[bytes] = (b"step:",)

    def __init__(self) -> None:
        self._row = ""

    @property
    def held(self) -> bool:
        """Whether a line ended inside a key."""
        return bool(self._row)

    def read_line(self, line: bytes) -> Sequence[MetricLine]:
        """The row of this line, and before it the held one."""
        found = BEGIN.search(line)
        if found is not None:
            row = line[found.start(1) :].decode("utf-8", "replace").rstrip()
            return [*self.flush(), *self._rows_of(row)]
        if not self._row:
            return ()
        joined = _joined(self._row, line.decode("utf-8", "replace").strip("\r\n"))
        if joined is None:
            return self.flush()
        self._row = ""
        return self._rows_of(joined)

    def flush(self) -> Sequence[MetricLine]:
        """The held row without its broken key."""
        row, self._row = self._row, ""
        return _read(row)

    def _rows_of(self, row: str) -> Sequence[MetricLine]:
        read = _read(row)
        if read and len(row) < LONGEST and (row.endswith(" -") or _pair(row.rsplit(" - ", 1)[-1]) is None):
            self._row = row
            return ()
        return read


READER = VerlLines


def _joined(row: str, line: str) -> str | None:
    """Both parts of a broken row joined; None if the line does not continue it."""
    if row.endswith(" -"):
        joined, broken = f"{row} {line}", line
    else:
        joined, broken = row + line, row.rsplit(" - ", 1)[-1] + line
    first = PAIR.fullmatch(broken.split(" - ", 1)[0].rstrip())
    return joined if first is not None and " " not in first[1] else None


def _read(row: str) -> Sequence[MetricLine]:
    """The row in ``34 - key:value - …``; empty if no key is one of verl's (they all have a slash)."""
    step, _, rest = row.partition(" - ")
    texts = dict(_pairs(rest))
    lost = 1 if texts.pop("", None) else 0
    if not any("/" in key and " " not in key.split("/", 1)[0] for key in texts):
        return ()
    values = {key: float(text == "True") if text[0] in "TF" else float(text) for key, text in texts.items()}
    rounded = all(ROUNDED.fullmatch(text) for text in texts.values())
    stream = Stream.EVAL if all(key.startswith(VALIDATION) for key in values) else None
    return (MetricLine(int(step), values, stream, resolution=HALF if rounded else None, lost=lost),)


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Keys and the texts of their numbers; at the end any rest that is no pair, without a key.

    A part without a number belongs to the next key (a dataset ``a - b``).
    """
    key = ""
    for part in text.removesuffix(" -").split(" - "):
        found = _pair(part)
        if found is None:
            key = f"{key}{part} - " if len(key) + len(part) < 400 else ""  # noqa: PLR2004  the longest key
        else:
            yield key + found[1], found[2]
            key = ""
    if key:
        yield "", key


def _pair(part: str) -> re.Match[str] | None:
    return PAIR.fullmatch(part.rstrip()) or GLUED.match(part)
