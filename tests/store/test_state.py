"""The state file: restart, damage, full disk, two daemons, names, retention."""

from __future__ import annotations

import errno
import logging
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import msgspec
import pytest

from grpo_watch.engine.alerts import Alert
from grpo_watch.engine.records import AlertState, ChannelKind, Cursor, RawRow, Reading, Severity, Transition, Verdict
from grpo_watch.errors import StateInUseError, StateNotReadyError, UsageError
from grpo_watch.store import codec, database
from grpo_watch.store.deliveries import DeliveryChanges
from grpo_watch.store.lock import StateLock
from grpo_watch.store.messages import Message, MessageState
from grpo_watch.store.state import BLOCK_ITEMS, Store, StoredBatch, StoreError, slug
from tests.support.live import transitions_in
from tests.support.receiving import a_notification

DAY = 86_400.0


def row(step: int) -> RawRow:
    return RawRow("log", ChannelKind.JSONL, step, {"loss": step / 7, "kl": None})


def transition(number: int, state: AlertState = AlertState.FIRING) -> Transition:
    reading = Reading(Verdict.BREACH, evidence={"kl": 0.0})
    before = AlertState.PENDING if state is AlertState.FIRING else AlertState.FIRING
    return Transition(f"id{number}", "r", 1, "rule", "", 1, before, state, number, 2, Severity.CRITICAL, None, reading)


def batch(*steps: int, **rest: object) -> StoredBatch:
    made = StoredBatch("r", at=100.0, items=[codec.encode_item(row(step)) for step in steps])
    if steps:
        made.cursors = {"log": Cursor("log", "1:2:ab", steps[-1] * 10)}
    for name, value in rest.items():
        setattr(made, name, value)
    return made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "state", 0.0)
    opened.register("/runs/r", "r", 1.0)
    yield opened
    opened.close()


def blocks(store: Store) -> list[int]:
    """Number of items in each block."""
    return [count for (count,) in store._database.execute("SELECT count FROM items ORDER BY block")]


def reopened(store: Store) -> Store:
    store.close()
    return Store(store.folder, 50.0)


def test_a_restart_finds_everything(tmp_path: Path) -> None:
    store = Store(tmp_path, 0.0)
    assert store.register("/runs/r", "r", 1.0) == "r"
    alert = Alert(AlertState.FIRING, 3, fired_total=2, severity=Severity.CRITICAL)
    store.commit([batch(1, 2, transitions=[transition(7)], alerts={("rule", "k"): alert})])
    store.commit([batch(3, fingerprints={"rule": "f"}, transitions=[transition(8)], backlog=True)])
    store = reopened(store)
    assert [run.name for run in store.runs()] == ["r"]
    assert list(store.items("r")) == [row(1), row(2), row(3)]
    assert store.cursors("r") == {"log": Cursor("log", "1:2:ab", 30)}
    assert store.alerts("r") == {("rule", "k"): alert}
    assert store.fingerprints("r") == {"rule": "f"}
    assert transitions_in(store, "r") == [transition(7), transition(8)]
    assert transitions_in(store, "r", backlog=False) == [transition(7)]
    store.close()


def test_a_transition_is_kept_once(store: Store) -> None:
    store.commit([batch(transitions=[transition(7)]), batch(transitions=[transition(7)])])
    assert transitions_in(store, "r") == [transition(7)]


def test_blocks_seal(store: Store) -> None:
    """Each commit rewrites the open block only; order and count hold across sealing."""
    count = 2 * BLOCK_ITEMS + 10
    for start in range(1, count, 100):
        store.commit([batch(*range(start, min(start + 100, count + 1)))])
    before = blocks(store)
    store.commit([batch(count + 1)])
    assert [item.step for item in store.items("r")] == list(range(1, count + 2))  # type: ignore[union-attr]
    assert len(before) > 2
    assert blocks(store) == [*before[:-1], before[-1] + 1]


def test_the_open_block_goes_on_after_a_restart(tmp_path: Path) -> None:
    store = Store(tmp_path, 0.0)
    store.register("/runs/r", "r", 1.0)
    store.commit([batch(1, 2)])
    store = reopened(store)
    store.commit([batch(3)])
    assert blocks(store) == [3]
    assert list(store.items("r")) == [row(1), row(2), row(3)]
    store.close()


def test_two_batches_of_one_run_in_one_commit(store: Store) -> None:
    store.commit([batch(1), batch(2)])
    store.commit([batch(3)])
    assert list(store.items("r")) == [row(1), row(2), row(3)]


def test_a_batch_that_fails_leaves_nothing(store: Store) -> None:
    """Rows and cursors commit together or not at all, and the next commit goes on from there."""
    store.commit([batch(1)])
    broken = batch(2)
    broken.cursors = {"log": "not a cursor", "x": object()}  # type: ignore[dict-item]
    with pytest.raises((StoreError, TypeError)):
        store.commit([broken])
    store.commit([batch(3)])
    assert list(store.items("r")) == [row(1), row(3)]
    assert store.cursors("r")["log"].position == 30


def test_names_stay_and_collisions_get_parents(store: Store) -> None:
    assert store.register("/runs/r", "renamed", 9.0) == "r"
    assert store.register("/other/r", "r", 9.0) == "other/r"
    assert store.register("/third/other/r", "r", 9.0) == "third/other/r"
    assert store.register("/", "r", 9.0) == "r (2)"


def test_slugs_are_path_segments_and_differ() -> None:
    assert slug("exp-7.v2_x") == "exp-7.v2_x"
    assert slug("a/b").startswith("a-b-")
    assert slug("a/b") != slug("a b")
    assert all(
        c.isalnum() or c in "-_." for name in ("..", "a/../b", "ü\n", "\udc80") for c in slug(name) if c.isascii()
    )
    assert slug("..") != ".."


def test_the_oldest_ended_runs_are_archived(store: Store) -> None:
    """What was concluded stays, items and cursors go; a run that goes on is never touched."""
    store.register("/runs/live", "live", 1.0)
    live = batch(1)
    live.run = "live"
    store.commit([live, batch(1, 2, transitions=[transition(7)], ended=2 * DAY, history=b"thin")])
    assert store.prune(now=15 * DAY, days=14, max_bytes=1e9) == []
    assert store.prune(now=17 * DAY, days=14, max_bytes=1e9) == ["r"]
    assert list(store.items("r")) == []
    assert store.cursors("r") == {}
    assert transitions_in(store, "r") == [transition(7)]
    assert store.history("r") == b"thin"
    assert list(store.items("live")) == [row(1)]
    assert [run.archived for run in store.runs()] == [1, 0]
    assert store.prune(now=900 * DAY, days=14, max_bytes=1) == []


def test_size_counts_and_shrinks(store: Store) -> None:
    noise = [RawRow("c", ChannelKind.JSONL, 1, {os.urandom(1500).hex(): 1.0}) for _ in range(200)]
    store.commit([StoredBatch("r", 1.0, items=[codec.encode_item(item) for item in noise], ended=1.0)])
    before = store.size()
    assert before > 200_000
    assert store.prune(now=2.0, days=14, max_bytes=100_000) == ["r"]
    assert store.size() < 100_000


def test_a_run_that_goes_on_after_its_end(store: Store) -> None:
    store.commit([batch(1, ended=5.0)])
    assert (store.runs()[0].ended, store.runs()[0].noted) == (5.0, 100.0)
    store.reopen("r")
    assert store.runs()[0].ended is None


def test_forgetting_a_run_reads_it_again(store: Store) -> None:
    store.commit([batch(1, 2, transitions=[transition(7)])])
    store.forget("r")
    store.commit([batch(1)])
    assert list(store.items("r")) == [row(1)]
    assert transitions_in(store, "r") == [transition(7)]


def test_two_daemons_on_one_state(store: Store) -> None:
    with pytest.raises(StateInUseError, match=rf"in use by another grpo-watch \(pid {os.getpid()}\)"):
        Store(store.folder, 0.0)


def test_kill_minus_nine_frees_the_state(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from tests.support.receiving import a_notification
from grpo_watch.store.state import Store
store = Store(Path({str(tmp_path)!r}), 0.0)
store.register("/x", "x", 1.0)
print("held", flush=True)
sys.stdin.read()
"""
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(StateInUseError, match=f"pid {holder.pid}"):
        Store(tmp_path, 0.0)
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    store = Store(tmp_path, 0.0)
    assert [run.name for run in store.runs()] == ["x"]
    store.close()


@pytest.mark.parametrize("damage", [b"this is no database, it is a text file" * 200, b""])
def test_a_damaged_database_is_kept_aside(tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Loudly; an empty file is a new database."""
    (tmp_path / "state.db").write_bytes(damage)
    with caplog.at_level(logging.ERROR, "grpo_watch"):
        store = Store(tmp_path, 1234.5)
    assert store.runs() == []
    store.close()
    kept = tmp_path / "state.db.damaged-1234"
    assert (kept.read_bytes() == damage) if damage else not kept.exists()
    assert bool(caplog.records) is bool(damage)


def test_a_database_damaged_in_the_middle_is_kept_aside(tmp_path: Path) -> None:
    store = Store(tmp_path, 0.0)
    store.register("/runs/r", "r", 1.0)
    store.commit([batch(*range(3000))])
    store.close()
    data = bytearray((tmp_path / "state.db").read_bytes())
    data[4096:12288] = b"\xff" * 8192
    (tmp_path / "state.db").write_bytes(data)
    store = Store(tmp_path, 99.0)
    assert store.runs() == []
    store.close()
    assert (tmp_path / "state.db.damaged-99").exists()


def spoilt(whole: bytes, chance: random.Random) -> bytes:
    """The file with a cut, a hole, noise, bits that turned, two pages in each other's place, or another format."""
    data, at = bytearray(whole), chance.randrange(100, len(whole))
    kind = chance.choice(("cut", "hole", "noise", "schema", "bits", "swap", "format"))
    if kind == "cut":
        del data[at:]
    elif kind in {"hole", "noise", "schema"}:
        at = chance.randrange(100, 4096) if kind == "schema" else at
        size = min(chance.choice((1, 16, 512, 4096)), len(data) - at)
        data[at : at + size] = bytes(size) if kind == "hole" else chance.randbytes(size)
    elif kind == "bits":
        for _ in range(chance.choice((1, 5, 50))):
            data[chance.randrange(100, len(data))] ^= 1 << chance.randrange(8)
    elif kind == "swap":
        one, two = (4096 * chance.randrange(len(data) // 4096) for _ in range(2))
        data[one : one + 4096], data[two : two + 4096] = data[two : two + 4096], data[one : one + 4096]
    else:
        numbers = (bytes(4), b"\0\0\0\1", b"\0\0\0\3", b"\0\0\7\x02", b"\xff\0\0\0")  # from 0 to newer, and less than 0
        at = chance.choice((60, 60, 68))  # user_version, or the application's id
        data[at : at + 4] = chance.choice(numbers)
    return bytes(data)


def queued(name: str, number: int, run: str) -> Message:
    return Message("hook", a_notification(id=name, run=run), number=number, at=1.0)


def test_the_queue_of_a_former_version_is_taken_up(store: Store) -> None:
    """Rows as 0.1.0 wrote them: alone, found at the start, in a digest, done, damaged; and its open alerts."""
    rows = [("a", 1, "waiting", 3, 0, 0), ("b", 2, "waiting", 0, 0, 1), ("c", 3, "waiting", 0, 3, 1)]
    for name, number, outcome, tries, bundle, together in [*rows, ("d", 0, "delivered", 0, 0, 0)]:
        data = msgspec.msgpack.encode(asdict(a_notification(id=name))) if outcome == "waiting" else None
        values = (name, number, outcome, tries, bundle, together, data)
        store._database.execute("INSERT INTO deliveries VALUES ('hook', ?, ?, 'v0-run', ?, ?, ?, ?, 5.0, ?)", values)
    episodes = [("hook", "v0-run", rule, "", state) for rule, state in (("x", "told"), ("y", "muted"), ("z", "passed"))]
    for row in episodes:
        data = msgspec.msgpack.encode(asdict(a_notification(rule=row[2])))
        store._database.execute("INSERT INTO told VALUES (?, ?, ?, ?, ?, ?)", (*row, data))
    store._database.execute("INSERT INTO deliveries VALUES ('hook', 'e', 9, 'r', 'waiting', 0, 0, 0, 5.0, x'c1')")
    kept = store.messages()
    assert [(one.id, one.number, one.state.value, one.tries, one.bundle, one.at) for one in kept.queued] == [
        ("a", 1, "waiting", 3, 0, 5.0),
        ("b", 2, "gathering", 0, 0, 5.0),
        ("c", 3, "bundled", 0, 3, 5.0),
    ]
    assert [(one.notification.rule, one.state.value) for one in kept.episodes] == [
        ("x", "told"),
        ("y", "muted"),
        ("z", "passed"),
    ]
    assert (kept.finished, kept.damaged) == ((("hook", "d"),), (("hook", "e"),))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_damaged_the_watch_begins(tmp_path: Path, seed: int) -> None:
    """Also where only an index, the schema, the format's number or a name is; and what it then stores is there."""
    store = Store(tmp_path / "whole", 0.0)
    for number in range(3):
        store.register(f"/runs/{number}", f"r{number}", 1.0)
        news = [queued(f"{number}-{n}", n, f"r{number}") for n in range(30)]
        reported = {
            ("hook", ("r", "rule", one.id)): Message("hook", one.notification, MessageState.NOTIFIED) for one in news
        }
        made = StoredBatch(f"r{number}", 1.0, items=[codec.encode_item(row(step)) for step in range(50)])
        store.commit(
            [made],
            DeliveryChanges(news, episodes=reported, finished={("hook", f"{number}-1"): (MessageState.DELIVERED, 1.0)}),
        )
    store.close()
    whole, chance = (tmp_path / "whole" / "state.db").read_bytes(), random.Random(seed)
    for number in range(40):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "state.db").write_bytes(spoilt(whole, chance))
        store = Store(folder, 2.0)
        name = store.register("/runs/new", "new", 3.0)
        news = [queued("new", 999, name)]
        store.commit([StoredBatch(name, 3.0, items=[codec.encode_item(row(1))])], DeliveryChanges(queued=news))
        assert list(store.items(name)) == [row(1)]
        assert "new" in {kept.id for kept in store.messages().queued}
        store.close()


def test_a_large_state_that_turns_out_to_be_damaged_is_checked_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each start it would take too long; without it the same damage would be met for ever."""
    monkeypatch.setattr(database, "CHECKED_BYTES", 0)
    store = Store(tmp_path, 0.0)
    store.register("/runs/r", "r", 1.0)
    store.commit([batch(1, transitions=[transition(n) for n in range(2_000)])])
    (page,) = store._database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'transitions'").fetchone()
    store.close()
    with (tmp_path / "state.db").open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    store = Store(tmp_path, 1.0)
    with pytest.raises(StoreError, match="malformed"):
        store.commit([batch(transitions=[transition(9_999)])])
    store.close()
    store = Store(tmp_path, 2.0)
    assert store.runs() == []
    assert (tmp_path / "state.db.damaged-2").exists()
    store.close()
    Store(tmp_path, 3.0).close()
    assert not (tmp_path / "state.db.damaged-3").exists()


def test_a_damaged_block_is_reported(store: Store) -> None:
    store.commit([batch(1, 2)])
    store._database.execute("UPDATE items SET data = x'00112233'")
    with pytest.raises(StoreError, match="damaged record"):
        list(store.items("r"))


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    """Its number stands in two places of the header."""
    Store(tmp_path, 0.0).close()
    with closing(sqlite3.connect(tmp_path / "state.db")) as db:
        db.executescript(f"PRAGMA user_version = 99; PRAGMA application_id = {database.MARK + 99}")
    with pytest.raises(UsageError, match="newer grpo-watch"):
        Store(tmp_path, 0.0)


@pytest.mark.parametrize("number", [0, 1, 3, 99])
def test_a_damaged_number_of_the_format_is_no_other_version(tmp_path: Path, number: int) -> None:
    """Neither a newer one, which is refused, nor an older one, whose upgrade drops what was queued."""
    store = Store(tmp_path, 0.0)
    store.register("/runs/r", "r", 1.0)
    store.commit([batch(1)], DeliveryChanges(queued=[queued("waits", 1, "r")]))
    store.close()
    with closing(sqlite3.connect(tmp_path / "state.db")) as db:
        db.execute(f"PRAGMA user_version = {number}")
    store = Store(tmp_path, 7.0)
    assert (tmp_path / "state.db.damaged-7").exists()
    assert [kept.id for kept in store.messages().queued] == ["waits"]
    store.close()


def test_a_state_from_before_its_number_stood_twice(tmp_path: Path) -> None:
    store = Store(tmp_path, 0.0)
    store.register("/runs/r", "r", 1.0)
    store.close()
    for number in (0, database.MARK + database.VERSION):
        with closing(sqlite3.connect(tmp_path / "state.db")) as db:
            db.execute(f"PRAGMA application_id = {number}")
        store = Store(tmp_path, 1.0)
        assert [run.name for run in store.runs()] == ["r"]
        store.close()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"state can't be kept there.*--state-dir"):
        Store(tmp_path / "file" / "state", 0.0)


def test_only_its_owner_reads_the_state(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A directory that it makes, and the database in one that was there, as an older version left it."""
    made = Store(tmp_path / "deep" / "state", 0.0)
    made.register("/runs/r", "r", 1.0)
    modes = {file.name: file.stat().st_mode & 0o777 for file in made.folder.iterdir()}
    assert made.folder.stat().st_mode & 0o777 == 0o700
    assert {modes[name] for name in modes if name.startswith("state.db")} == {0o600}
    assert caplog.records == []
    made.close()
    made.folder.chmod(0o750)
    (made.folder / "state.db").chmod(0o644)
    Store(made.folder, 1.0).close()
    assert (made.folder / "state.db").stat().st_mode & 0o777 == 0o600
    (warning,) = caplog.records
    assert warning.fields["mode"] == "0750"  # type: ignore[attr-defined]
    assert warning.fields["fix"] == f"chmod 700 {made.folder}"  # type: ignore[attr-defined]


def test_on_a_full_disk_the_state_is_kept_in_memory_at_first(tmp_path: Path) -> None:
    """A file size limit of 0 is what a full disk looks like to a process; it would stay for good, hence a child."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        missing, kept = pool.apply(open_without_space, (tmp_path / "state",))
    assert missing.count("\n") == 0
    assert "state can't be kept there" in missing
    assert kept == ["r"]


def open_without_space(folder: Path) -> tuple[str, list[str]]:
    import resource  # noqa: PLC0415

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    opened = Store(folder, 0.0)
    opened.register("/runs/r", "r", 1.0)
    opened.commit([batch(1)])
    assert not opened.could_be_kept()
    return opened.missing, [run.name for run in opened.runs()]


def test_a_state_that_another_program_holds_is_opened_once_that_lets_go(tmp_path: Path) -> None:
    """Meanwhile it is in memory, and its folder is held: a second daemon is refused as ever."""
    before = Store(tmp_path, 0.0)
    before.register("/runs/r", "r", 1.0)
    before.close()
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        store = Store(tmp_path, 2.0)
        assert "is locked" in store.missing
        assert store.runs() == []
        store.register("/runs/new", "new", 2.0)
        store.commit([StoredBatch("new", 2.0, items=[codec.encode_item(row(1))])])
        assert list(store.items("new")) == [row(1)]
        assert not store.could_be_kept()
        with pytest.raises(StateInUseError):
            Store(tmp_path, 3.0)
    assert store.could_be_kept()
    store.close()
    after = Store(tmp_path, 5.0)
    assert (after.missing, [run.name for run in after.runs()]) == ("", ["r"])
    after.close()


def test_asking_whether_it_could_be_opened_moves_no_damaged_state_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon that takes it up does, and then knows where to look for what was sent."""

    def locked(*_: object) -> None:
        raise StateNotReadyError("database is locked")

    with monkeypatch.context() as patched:
        patched.setattr("grpo_watch.store.state.open_database", locked)
        store = Store(tmp_path, 1.0)
    (tmp_path / "state.db").write_bytes(b"no database" * 100)
    assert store.could_be_kept()
    assert list(tmp_path.glob("state.db.damaged-*")) == []
    store.close()
    after = Store(tmp_path, 5.0)
    assert [path.name for path in tmp_path.glob("state.db.damaged-*")] == ["state.db.damaged-5"]
    after.close()


def test_where_there_is_no_room_for_a_folder_a_second_daemon_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "mkdir", full)
    first = StateLock(tmp_path / "state")
    with pytest.raises(StateInUseError):
        StateLock(tmp_path / "state")
    first.release()
    StateLock(tmp_path / "state").release()


def test_a_disk_that_fills_up_is_a_store_error_and_heals(store: Store) -> None:
    pages = store._database.execute("PRAGMA page_count").fetchone()[0]
    store._database.execute(f"PRAGMA max_page_count = {pages}")
    big = [codec.encode_item(RawRow("c", ChannelKind.JSONL, 1, {os.urandom(9000).hex(): 1.0})) for _ in range(9)]
    with pytest.raises(StoreError, match="full"):
        store.commit([StoredBatch("r", 1.0, items=big)])
    store._database.execute(f"PRAGMA max_page_count = {pages + 1000}")
    store.commit([batch(1)])
    assert list(store.items("r")) == [row(1)]


def test_a_state_that_is_removed_meanwhile_is_reported(store: Store) -> None:
    """SQLite alone would go on to write a file that has no name any more."""
    for suffix in ("", "-wal", "-shm"):
        (store.folder / f"state.db{suffix}").unlink()
    with pytest.raises(StoreError, match="removed or replaced; restart grpo-watch"):
        store.commit([batch(1)])


@pytest.mark.parametrize(("kind", "journal"), [("ext4", "wal"), ("nfs4", "delete"), ("fuse.sshfs", "delete")])
def test_a_network_file_system_gets_a_rollback_journal(
    tmp_path: Path, kind: str, journal: str, caplog: pytest.LogCaptureFixture
) -> None:
    mounts = tmp_path / "mounts"
    folder = tmp_path / "state dir"
    escaped = str(tmp_path).replace(" ", "\\040")
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/x {escaped} {kind} rw 0 0\nserver:/y /elsewhere nfs4 rw 0 0\n")
    store = Store(folder, 0.0, mounts)
    assert store._database.execute("PRAGMA journal_mode").fetchone() == (journal,)
    assert bool(caplog.records) is (journal == "delete")
    store.close()


def test_a_state_folder_that_is_removed_still_has_its_holder(tmp_path: Path) -> None:
    """The lock's file went with it, and a second daemon began beside the first."""
    folder = tmp_path / "state"
    first = Store(folder, 0.0)
    other = Store(tmp_path / "other", 0.0)
    shutil.rmtree(folder)
    with pytest.raises(
        StateInUseError, match=rf"pid {os.getpid()}\), which goes on although the directory was removed"
    ):
        Store(folder, 0.0)
    first.close()
    Store(folder, 0.0).close()
    other.close()
