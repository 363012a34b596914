"""Compares and reports runs that the daemon keeps, as ``diff`` and ``check`` do with those that lie in files."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, TypeAlias

from grpo_watch import __version__
from grpo_watch.engine.records import MetricRow, Stream
from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.report.charts import ThinnedColumns

if TYPE_CHECKING:
    from grpo_watch.report.check_document import RunReport

KeptRun: TypeAlias = tuple[RunSnapshot, ThinnedColumns]


def compared(a: KeptRun, b: KeptRun) -> tuple[dict[str, Any], bool]:
    """The document of ``diff``, and whether it rests on all rows.

    A long run is kept thinned: of each stretch the extremes, which belong to no step in particular. Then its metrics
    are not compared.
    """
    from grpo_watch.report.compare import compare, document  # noqa: PLC0415  numpy: 10 MB that few daemons need

    whole = a[1].stride == b[1].stride == 1
    reports = [_report(snapshot, rows if whole else ThinnedColumns()) for snapshot, rows in (a, b)]
    return document(compare(*reports)), whole


def reported(run: KeptRun, form: str, now: float) -> str:
    """The report of ``check`` in this format (``markdown``, ``html``), as of now (Unix seconds)."""
    from grpo_watch.report.check_document import Provenance  # noqa: PLC0415
    from grpo_watch.report.markdown import markdown  # noqa: PLC0415
    from grpo_watch.report.page import page  # noqa: PLC0415

    provenance = Provenance(shlex.join(["grpo-watch", "check", run[0].run]), __version__, now)
    return (page if form == "html" else markdown)([_report(*run)], [], provenance)


def _report(snapshot: RunSnapshot, rows: ThinnedColumns) -> RunReport:
    from grpo_watch.report.check_document import RunReport  # noqa: PLC0415
    from grpo_watch.report.series import Series  # noqa: PLC0415

    series = Series()
    for at, (attempt, step) in enumerate(zip(rows.attempts, rows.steps, strict=True)):
        values = {name: column[at] for name, column in rows.columns.items()}
        series.take(MetricRow(snapshot.run, Stream.TRAIN, attempt, step, values))
    return RunReport(snapshot, series=series)
