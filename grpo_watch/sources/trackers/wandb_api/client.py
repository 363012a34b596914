"""Queries a wandb server through ``wandb.Api`` in a separate process, and returns plain values.

A hung request, the client's memory and its hooks thus stay out of the watcher. wandb is imported only here. It changes
its process (environment, exit hooks, a second process for the network) and reads settings from the working directory;
``seclude`` therefore comes first.
"""

from __future__ import annotations

import base64
import importlib
import inspect
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from grpo_watch import lazy_re as re
from grpo_watch.credentials import HIDDEN, masked
from grpo_watch.frameworks.row_numbers import LONGEST_NUMBER, whole
from grpo_watch.sources.base import KeptTexts
from grpo_watch.sources.completions.completion_table import columns_of, summarised
from grpo_watch.sources.completions.summarise import Grouping
from grpo_watch.sources.rows.step_assembly import PROFILING, STEP_KEYS
from grpo_watch.sources.settings.config_files import logged_config
from grpo_watch.sources.trackers.tracker_source import iso_seconds
from grpo_watch.sources.trackers.wandb_api.remote import (
    LoggedCall,
    LoggedCalls,
    RemoteError,
    RemotePlace,
    RunDetails,
    RunInfo,
    RunNews,
    ServerTrouble,
    TableRef,
)

ONE_PER_PROMPT = ("log_unique_prompts", "wandb_log_unique_prompts")
"""TRL 0.17 and later: its wandb tables then keep one row of each prompt."""
OWN = frozenset({"_step", "_timestamp", "_runtime", "_wandb"})
NO_TABLE = Grouping((), "the table can not be read: it has no columns prompt and completion")


def logged_call(row: Mapping[str, object]) -> LoggedCall | None:
    """Return one row of the history; None for a lone measured duration, as in three of four of TRL's rows."""
    order, time = whole(row.get("_step")), row.get("_timestamp")
    if order is None or not any(
        name not in OWN and name not in STEP_KEYS and not name.startswith(PROFILING) for name in row
    ):
        return None
    # wandb's network process returns keys in random order; ours must not depend on it.
    plain = {name: row[name] for name in sorted(row) if name not in OWN and _may_be_number(row[name])}
    return LoggedCall(order, plain, float(time) if isinstance(time, (int, float)) else None, table_ref(row))


def _may_be_number(value: object) -> bool:
    """Whether a value is a number, null, or a text that can be one; others stay in this process."""
    return value is None or isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= LONGEST_NUMBER)


def table_ref(row: Mapping[str, object]) -> TableRef | None:
    """Return the table of completions in one logged call, if any.

    TRL (0.15 and later) and ms-swift log it under ``completions``. verl's ``val/generations`` and OpenRLHF's
    ``train/generated_samples`` hold samples, no groups, and are skipped. An incremental table (``log_mode``
    INCREMENTAL) is logged again as a whole at the end of a run.
    """
    for key, value in row.items():
        if not isinstance(value, Mapping) or key.rsplit("/", 1)[-1] != "completions":
            continue
        path, kind = value.get("path"), value.get("_type")
        if kind == "table-file" and isinstance(path, str) and path.startswith("media/table/") and ".." not in path:
            return TableRef(path, whole(value.get("size")) or 0)
    return None


NOT_FETCHED = "the table could not be fetched, again and again"
MOST_TABLES = 20
"""Completion tables fetched by one query."""
HTTP_SECONDS = 20
"""Time limit of one request; wandb's own default is 19."""
ANSWER_SECONDS = 60
"""Time limit of one response: wandb's network process retries after a server error or after ``Retry-After``."""
PAGE = 1_000
"""Counts per page: the client's own default, which the server is built for."""
LARGEST = 64 << 20
"""Most bytes of a fetched table; 512 completions of 8,000 tokens are about 16 MB."""
LONGEST = 10**9
"""Most counts of a history that is read: at 60 requests a minute this one takes weeks."""
STATUS = re.compile(r"HTTP (\d{3})")
LATE = re.compile(r"deadline exceeded|did not respond in time|[Tt]imed? ?out")
MISSING = re.compile(r"[Cc]ould not find|not found|does not exist")
NOT_LET_IN = re.compile(r"not logged in|[Pp]ermission denied|verify credentials|[Uu]nauthori[sz]ed|relogin|API key")


def seclude(folder: str, base_url: str | None) -> None:
    """Prepare this process: wandb uses only settings, folders and modes set here; the key stays in place.

    The server's address comes from ``base_url`` or ``WANDB_BASE_URL``, never from a settings file: one in a run's
    folder could send the key elsewhere. wandb's files go into ``folder``.
    """
    os.chdir(folder)
    address, key = base_url or os.environ.get("WANDB_BASE_URL"), os.environ.get("WANDB_API_KEY")
    for name in [name for name in os.environ if name.startswith("WANDB")]:
        del os.environ[name]
    kept = {"WANDB_BASE_URL": address, "WANDB_API_KEY": key}
    os.environ.update({name: value for name, value in kept.items() if value})
    for name in ("WANDB_DIR", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        os.environ[name] = folder
    os.environ["WANDB_SILENT"] = "true"
    os.environ["WANDB_ERROR_REPORTING"] = "false"
    os.environ["WANDB_HTTP_TIMEOUT"] = str(HTTP_SECONDS)


class WandbClient:
    """Queries through wandb's own client, over one connection opened at the first query.

    Every result comes with the number of requests spent; all may raise ``RemoteError``.
    """

    def __init__(self, http_seconds: float = HTTP_SECONDS, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._seconds = http_seconds, answer_seconds
        self._api: Any = None
        self._runs: dict[RemotePlace, Any] = {}

    def runs(self, place: RemotePlace, most: int) -> tuple[tuple[RunInfo, ...], int]:
        """Return the newest runs of a project, newest first."""
        per_page = min(most, 50)
        with self._asking():
            api = self._opened()
            api.flush()  # it would return its earlier list
            found = api.runs(f"{place.entity}/{place.project}", order="-created_at", per_page=per_page)
            listed = tuple(_info(run) for run in islice(found, most))
        return listed, 1 + len(listed) // per_page

    def details(self, place: RemotePlace) -> tuple[RunDetails, int]:
        """Return state and configuration of a run, fetched again."""
        with self._asking():
            self._forget(place)
            run = self._run(place)
            raw = dict(run.config)
            unique = any(raw.get(key) is True for key in ONE_PER_PROMPT)
            return RunDetails(_info(run), logged_config(raw, "wandb config", "", 0), unique), 1

    def pieces(self, place: RemotePlace, first: int, most: int) -> tuple[LoggedCalls, int]:
        """Return the calls logged from the counter ``first`` on, never sampled or filtered by keys."""
        with self._asking():
            run = self._run(place)
            last = int(run.lastHistoryStep)
            if last < first:
                return LoggedCalls((), last + 1 if last >= 0 else first, last), 1
            if last > LONGEST:
                raise RemoteError(ServerTrouble.TOO_MUCH, f"a history up to step {last}")
            cached = {"use_cache": False} if "use_cache" in inspect.signature(run.scan_history).parameters else {}
            scan = run.scan_history(page_size=min(PAGE, most), min_step=first, max_step=first + most, **cached)
            found = tuple(_asked_for(map(logged_call, scan), first, first + most))
        after = min(first + most, last + 1)
        return LoggedCalls(found, after, last), 3 + (after - first + PAGE - 1) // PAGE

    def news(
        self,
        place: RemotePlace,
        first: int,
        most: int,
        group_size: int | None,
        examples: KeptTexts,
        tables: bool,  # noqa: FBT001  by position
    ) -> tuple[RunNews, int]:
        """Return details and calls logged from the counter ``first`` on, with up to ``MOST_TABLES`` tables.

        ``group_size`` is G as the watcher knows it; None: as the run's configuration has it. Without ``tables`` none is
        fetched: they timed out before.
        """
        details, spent = self.details(place)
        found, more = self.pieces(place, first, most)
        wanted = [call for call in found.rows if isinstance(call.table, TableRef)]
        if details.one_per_prompt or not wanted:
            return RunNews(details, found), spent + more
        if wanted[MOST_TABLES:]:
            after = wanted[MOST_TABLES].order
            found = LoggedCalls(tuple(call for call in found.rows if call.order < after), after, found.last)
        own = details.config.settings.get("num_generations") if details.config is not None else None
        size = group_size or (own.value if own is not None and isinstance(own.value, int) else None)
        refs = [call.table for call in found.rows if isinstance(call.table, TableRef)]
        read, asked = self.tables(place, refs, size, examples) if tables else ((NOT_FETCHED,) * len(refs), 0)
        each = iter(read)
        rows = tuple(
            call._replace(table=next(each)) if isinstance(call.table, TableRef) else call for call in found.rows
        )
        return RunNews(details, found._replace(rows=rows)), spent + more + asked

    def tables(
        self,
        place: RemotePlace,
        refs: Sequence[TableRef],
        group_size: int | None,
        examples: KeptTexts,
    ) -> tuple[tuple[Grouping | str, ...], int]:
        """Fetch tables into a temporary folder, and reduce them; one request finds all their files.

        A text is the reason why a table can't be read.
        """
        with self._asking():
            names = [ref.path for ref in refs if ref.size <= LARGEST]
            files = {str(file.name): file for file in self._run(place).files(names=names)} if names else {}
        found = tuple(self._table(files.get(ref.path), ref, group_size, examples=examples) for ref in refs)
        return found, 1

    def _table(self, file: Any, ref: TableRef, group_size: int | None, *, examples: KeptTexts) -> Grouping | str:
        """Return one table; its download is not counted against the server's limit."""
        size = ref.size if file is None else max(int(file.size), ref.size)
        if size > LARGEST:
            return f"{ref.path}: {size >> 20} MiB, more than are read"
        if file is None:
            return f"{ref.path}: not on the server"
        try:
            with self._asking(), tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
                file.download(root=folder, replace=True).close()
                path = Path(folder, ref.path)
                if path.stat().st_size > LARGEST:
                    return f"{ref.path}: more than {LARGEST >> 20} MiB"
                with suppress(ValueError):
                    return summarised(columns_of(path.read_bytes()), group_size, examples) or NO_TABLE
                return NO_TABLE
        except RemoteError as error:
            return f"{ref.path}: {error}"

    def _run(self, place: RemotePlace) -> Any:
        run = self._runs.get(place)
        if run is None:
            run = self._opened().run(f"{place.entity}/{place.project}/{place.run}")
            self._runs[place] = run
        return run

    def _forget(self, place: RemotePlace) -> None:
        """Fetch the run again next time; an odd response may have spoilt wandb's copy."""
        self._runs.pop(place, None)
        if self._api is not None:
            self._api.flush()

    def _opened(self) -> Any:
        if self._api is None:
            wandb: Any = importlib.import_module("wandb")  # it takes a second and 70 MB, and is an extra

            http, answer = self._seconds
            options = {"x_graphql_retry_max": 1, "x_graphql_timeout_seconds": http}
            known = {name: value for name, value in options.items() if name in wandb.Settings.model_fields}
            wandb.setup(settings=wandb.Settings(silent=True, **known))
            # A default entity saves a request; every requested path names its own.
            self._api = wandb.Api(overrides={"entity": "-"}, timeout=int(answer))
        return self._api

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Turn wandb's exceptions into a ``RemoteError``, without the key."""
        try:
            yield
        except RemoteError:
            raise
        except ImportError:
            raise RemoteError(ServerTrouble.NO_CLIENT, requests=0) from None
        except MemoryError:
            raise RemoteError(ServerTrouble.TOO_MUCH, "no memory is left for the answer") from None
        except Exception as error:  # noqa: BLE001  wandb raises its own, requests', pydantic's and bare ones
            raise RemoteError(trouble_of(error), self._without_key(str(error))) from None

    def _without_key(self, text: str) -> str:
        """Remove the key from an error's text; a server may repeat it plainly or encoded as it was sent."""
        for key in filter(None, (os.environ.get("WANDB_API_KEY"), getattr(self._api, "api_key", None))):
            sent = base64.b64encode(f"api:{key}".encode()).decode()
            text = text.replace(key, HIDDEN).replace(sent, HIDDEN)
        return _shown(text)


def trouble_of(error: BaseException) -> ServerTrouble:
    """Classify an error of wandb's client, by its HTTP status if it has one, else by its text."""
    text = _shown(str(error))
    status = getattr(getattr(error, "response", None), "http_status", 0) or getattr(
        getattr(getattr(error, "exc", None), "response", None), "http_status", 0
    )
    if not status and (found := STATUS.search(text)) is not None:
        status = int(found[1])
    if type(error).__name__ == "UsageError":
        return ServerTrouble.NO_KEY
    table = {
        401: ServerTrouble.REFUSED,
        403: ServerTrouble.REFUSED,
        404: ServerTrouble.GONE,
        429: ServerTrouble.LIMITED,
        504: ServerTrouble.TIMEOUT,
    }
    if status:
        return table.get(status, ServerTrouble.FAILED)
    by_text: tuple[tuple[re.Pattern[str], ServerTrouble], ...] = (
        (LATE, ServerTrouble.TIMEOUT),
        (NOT_LET_IN, ServerTrouble.REFUSED),
        (MISSING, ServerTrouble.GONE),
    )
    return next((trouble for pattern, trouble in by_text if pattern.search(text)), ServerTrouble.FAILED)


def _asked_for(calls: Iterable[LoggedCall | None], first: int, stop: int) -> Iterator[LoggedCall]:
    """Yield the calls of these counts, each once, in their order: a server may repeat a page or send another."""
    for call in calls:
        if call is not None and first <= call.order < stop:
            first = call.order + 1
            yield call


def _shown(text: str) -> str:
    """Return one line of at most 200 characters, without likely credentials."""
    return masked(" ".join(text[:4096].split()))[:200]


def _info(run: Any) -> RunInfo:
    attributes: Mapping[str, Any] = getattr(run, "_attrs", {})
    return RunInfo(
        id=str(run.id),
        name=str(run.name or run.id)[:200],
        state=str(run.state),
        created=iso_seconds(attributes.get("createdAt")) or 0.0,
        heartbeat=iso_seconds(attributes.get("heartbeatAt")) or 0.0,
    )
