"""What only the store on SQLite has to do: durable, private, alone, and clear about why it cannot be used."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from pathlib import Path

import pytest

from ottla.ports import Create, Delete, SetData, StoreError, StoreUnavailable
from ottla.runtime.embedded_store import EmbeddedStore


def test_commits_are_durable(tmp_path: Path) -> None:
    store = EmbeddedStore.open(str(tmp_path / "m.db"))
    assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"
    store._connection.close()


def test_a_broker_that_starts_waits_once_for_all_its_commits(tmp_path: Path) -> None:
    async def run() -> None:
        store = EmbeddedStore.open(str(tmp_path / "m.db"), durable=False)
        assert store._connection.execute("PRAGMA synchronous").fetchone() == (1,), "NORMAL"
        await store.multi([Create("/a", b"1")])
        await store.multi([SetData("/a", b"2")])
        written = (tmp_path / "m.db-wal").stat().st_size
        await store.make_durable()
        assert (tmp_path / "m.db-wal").stat().st_size > written, "nothing written, so nothing waited for"
        assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"
        before = await store.get("/a")
        copy = _copy(tmp_path)
        await store.multi([Create("/b")])
        made = await store.get("/b")
        await store.close()
        again = EmbeddedStore.open(str(copy / "m.db"))
        assert await again.get("/a") == before
        await again.multi([Create("/c")])
        third = await again.get("/c")
        assert made is not None
        assert third is not None
        assert third.czxid == made.czxid
        await again.close()

    asyncio.run(run())


@pytest.mark.parametrize("remains", [b"", b"torn", bytes(8192)])
def test_what_a_crash_left_of_making_it_is_made_anew(tmp_path: Path, remains: bytes) -> None:
    (tmp_path / "m.db.new").write_bytes(remains)
    (tmp_path / "m.db.new-wal").write_bytes(remains)
    (tmp_path / "m.db").write_bytes(b"")
    store = EmbeddedStore.open(str(tmp_path / "m.db"))
    assert stat.S_IMODE((tmp_path / "m.db").stat().st_mode) == 0o600
    assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store._connection.close()
    assert [path.name for path in tmp_path.iterdir()] == ["m.db"]


def test_changes_of_a_file_that_was_removed_are_none_of_the_next_one(tmp_path: Path) -> None:
    async def run() -> None:
        store = EmbeddedStore.open(str(tmp_path / "m.db"))
        await store.multi([Create("/a")])
        killed = _copy(tmp_path)
        await store.close()
        assert (killed / "m.db-wal").stat().st_size
        (killed / "m.db").unlink()
        again = EmbeddedStore.open(str(killed / "m.db"))
        assert await again.get("/a") is None
        await again.close()

    asyncio.run(run())


def test_a_copy_of_the_files_taken_while_it_runs_holds_every_commit(tmp_path: Path) -> None:
    """As after kill -9: nothing was closed, and what multi acknowledged is there."""

    async def run() -> None:
        store = EmbeddedStore.open(str(tmp_path / "m.db"))
        for number in range(20):
            await store.multi([Create(f"/{number}", b"x" * number), Create(f"/{number}/e", ephemeral=True)])
        copy = _copy(tmp_path)
        await store.close()
        again = EmbeddedStore.open(str(copy / "m.db"))
        assert len(await again.children("/")) == 20
        assert await again.children("/7") == []
        await again.close()

    asyncio.run(run())


def _copy(directory: Path) -> Path:
    copy = directory / "copy"
    copy.mkdir()
    for file in directory.glob("m.db*"):
        (copy / file.name).write_bytes(file.read_bytes())
    return copy


def test_nobody_else_can_read_the_file(tmp_path: Path) -> None:
    store = EmbeddedStore.open(str(tmp_path / "m.db"))
    assert stat.S_IMODE((tmp_path / "m.db").stat().st_mode) == 0o600
    store._connection.close()


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    store = EmbeddedStore.open(str(tmp_path / "m.db"))
    with pytest.raises(StoreUnavailable, match="another process uses it"):
        EmbeddedStore.open(str(tmp_path / "m.db"))
    store._connection.close()


def test_what_is_no_database_is_refused_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    path.write_bytes(b"something else " * 100)
    with pytest.raises(StoreUnavailable, match=r"m\.db cannot be used: file is not a database"):
        EmbeddedStore.open(str(path))
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        EmbeddedStore.open(str(tmp_path / "missing" / "m.db"))


def test_a_format_of_the_future_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "m.db")
    connection.execute("PRAGMA user_version = 9")
    connection.close()
    with pytest.raises(StoreError, match="format 9"):
        EmbeddedStore.open(str(tmp_path / "m.db"))


def test_a_write_that_fails_changes_nothing_in_memory_or_on_disk(tmp_path: Path) -> None:
    async def run() -> None:
        path = str(tmp_path / "m.db")
        store = EmbeddedStore.open(path)
        await store.multi([Create("/a", b"0"), Create("/a/b")])
        store._connection.execute("PRAGMA query_only = ON")
        with pytest.raises(StoreUnavailable, match=r"metadata file .*m.db could not be written"):
            await store.multi([SetData("/a", b"1"), Delete("/a/b"), Create("/c")])
        node = await store.get("/a")
        assert node is not None
        assert (node.data, node.version) == (b"0", 0)
        assert await store.children("/a") == ["b"]
        assert await store.get("/c") is None
        store._connection.execute("PRAGMA query_only = OFF")
        await store.multi([SetData("/a", b"2", 0)])
        await store.close()
        again = EmbeddedStore.open(path)
        assert await again.children("/") == ["a"]
        await again.close()

    asyncio.run(run())


def test_a_reader_waits_until_a_change_is_durable(tmp_path: Path) -> None:
    async def run() -> None:
        store = EmbeddedStore.open(str(tmp_path / "m.db"))
        writing = asyncio.ensure_future(store.multi([Create("/a")]))
        await asyncio.sleep(0)
        assert not writing.done()
        node = await store.get("/a")
        assert writing.done()
        assert node is not None
        await store.close()

    asyncio.run(run())


def test_a_change_whose_caller_went_away_is_still_done_whole(tmp_path: Path) -> None:
    async def run() -> None:
        path = str(tmp_path / "m.db")
        store = EmbeddedStore.open(path)
        writing = asyncio.ensure_future(store.multi([Create("/a"), Create("/a/b")]))
        await asyncio.sleep(0)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        in_memory = await store.children("/a")
        await store.close()
        again = EmbeddedStore.open(path)
        assert await again.children("/a") == in_memory == ["b"]
        await again.close()

    asyncio.run(run())
