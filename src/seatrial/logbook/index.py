"""The logbook's index: an SQLite file in a local cache, made from the segments and never the truth.

    XDG_CACHE_HOME/seatrial/logbook-<hash of host and path>.sqlite

Deleting it costs one rebuild. It is brought up to date from the byte where the last look at each segment ended. One file
belongs to one host, because a home directory may be on NFS, where SQLite's locks cannot be trusted between machines. What
cannot be kept (no rights, no space, locked for long) is kept in memory; what does not make sense is thrown away and rebuilt.
"""
from __future__ import annotations

import hashlib
import json
import os
import socket
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from seatrial.errors import BadInput
from seatrial.logbook.records import (
    COLUMNS,
    REMARK,
    SCHEMA,
    Newer,
    Unreadable,
    clause_of,
    matches,
    order_by,
    row_of,
    storable,
    torn,
)

INDEX_VERSION = 4
"""Of the tables below; another number in a cache means that it is rebuilt."""

_CREATE = f"""
CREATE TABLE IF NOT EXISTS meta (version INTEGER);
CREATE TABLE IF NOT EXISTS segments (name TEXT PRIMARY KEY, inode INTEGER, mtime_ns INTEGER, size INTEGER,
                       offset INTEGER, lines INTEGER, tail BLOB);
CREATE TABLE IF NOT EXISTS problems (segment TEXT, line INTEGER, message TEXT);
CREATE TABLE IF NOT EXISTS lines (stamp TEXT, segment TEXT, record_id TEXT, deleted INTEGER,
                    current INTEGER, born TEXT, {", ".join(COLUMNS)}, json BLOB, crc INTEGER);
CREATE INDEX IF NOT EXISTS by_record ON lines (record_id);
CREATE INDEX IF NOT EXISTS by_segment ON lines (segment);
CREATE INDEX IF NOT EXISTS by_run ON lines (run_id, current, born);
CREATE INDEX IF NOT EXISTS by_birth ON lines (current, born);
CREATE INDEX IF NOT EXISTS by_remark ON lines (stamp) WHERE deleted = {REMARK};
INSERT INTO meta SELECT {INDEX_VERSION} WHERE NOT EXISTS (SELECT * FROM meta);
"""

_NONSENSE = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_MISMATCH)
"""Errors that a rebuild cures: missing tables, torn pages, another kind of file."""

_CHUNK_BYTES = 1 << 22
_TAIL_BYTES = 64

_LEFT_TO_PARENT: list[sqlite3.Connection | None] = []

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A line that could not be read. It is skipped, and it is never removed."""

    file: str
    line: int
    """1-based."""
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


class Index:
    """The segments of one folder, as a table."""

    def __init__(self, segments: Path):
        self.segments = segments
        self._path = _cache_path(segments)
        self._connection: sqlite3.Connection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def forget(self) -> None:
        """Leave the connection open and unused: it belongs to the process we were forked from, which may be using it."""
        _LEFT_TO_PARENT.append(self._connection)
        self._connection = None

    def select(
        self, where: Mapping[str, object], order: Sequence[str], predicate: Callable[[dict[str, Any]], bool] | None
    ) -> Iterator[dict[str, Any]]:
        """The records that match, decoded one at a time from what the index had at the time of the query."""
        clauses, values, checks = ["current = 1"], [], []
        for key, wanted in where.items():
            clause = clause_of(key, wanted)
            if clause is None:
                checks.append((key, wanted))
            else:
                clauses.append(clause[0])
                values += clause[1]
        query = f"SELECT json, crc FROM lines WHERE {' AND '.join(clauses)} ORDER BY {order_by(order)}"
        return _decoded(self._read(lambda connection: _intact(connection.execute(query, values))), checks, predicate)

    def place(self, record_id: str) -> tuple[str, int]:
        """The segment and the line that hold now for a record."""
        query = "SELECT segment, stamp FROM lines WHERE record_id = ? AND current = 1"
        name, stamp = self._read(lambda connection: connection.execute(query, [storable(record_id)]).fetchone() or ("", "0"))
        return str(self.segments / name), int(stamp.rpartition(" ")[2])

    def remarks(self) -> list[dict[str, Any]]:
        """In the order they were written."""
        query = f"SELECT json, crc FROM lines WHERE deleted = {REMARK} ORDER BY stamp"
        return list(_decoded(self._read(lambda connection: _intact(connection.execute(query))), (), None))

    def count(self) -> int:
        return self._read(lambda connection: connection.execute("SELECT count(*) FROM lines WHERE current = 1").fetchone()[0])

    def problems(self) -> list[Problem]:
        query = "SELECT segment, line, message FROM problems ORDER BY segment, line"
        rows = self._read(lambda connection: connection.execute(query).fetchall())
        return [Problem(file=str(self.segments / name), line=line, message=message) for name, line, message in rows]

    # ---- keeping it

    def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query over an index that is up to date, whatever state its file is in."""
        for _ in range(2):
            try:
                return query(self._refreshed())
            except sqlite3.Error as error:
                self.close()
                if getattr(error, "sqlite_errorcode", 0) & 0xFF in _NONSENSE and self._path is not None:
                    for suffix in ("", "-journal"):
                        _unlink(Path(f"{self._path}{suffix}"))
                else:
                    self._path = None
        self._path = None
        return query(self._refreshed())

    def _refreshed(self) -> sqlite3.Connection:
        connection = self._connection or self._open()
        self._connection = connection
        if self._changed(connection):
            try:
                connection.execute("BEGIN IMMEDIATE")
                # Another process may have done it while we waited for the lock.
                self._update(connection, self._changed(connection))
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        return connection

    def _open(self) -> sqlite3.Connection:
        target = ":memory:"
        if self._path is not None:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                target = str(self._path)
            except OSError:
                self._path = None
        # One connection is used by one thread at a time: the logbook holds a lock around every use.
        connection = sqlite3.connect(target, timeout=10, isolation_level=None, check_same_thread=False)
        try:
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
                connection.executescript(f"BEGIN IMMEDIATE; {_CREATE} COMMIT;")
            if connection.execute("SELECT version FROM meta").fetchall() != [(INDEX_VERSION,)]:
                raise _nonsense("the index has another version")
        except BaseException:
            connection.close()
            raise
        return connection

    def _changed(self, connection: sqlite3.Connection) -> dict[str, _Known | None]:
        """What `_update` has to look at: segment -> what is known of it (nothing: it is new), None for one that is gone."""
        known = {name: _Known(*rest) for name, *rest in connection.execute("SELECT * FROM segments")}
        changed: dict[str, _Known | None] = {name: None for name in known}
        with os.scandir(self.segments) as entries:
            for entry in entries:
                if entry.name.endswith(".jsonl") and entry.is_file():
                    stat, seen = entry.stat(), known.get(entry.name, _Known())
                    changed.pop(entry.name, None)
                    if (stat.st_ino, stat.st_mtime_ns, stat.st_size) != (seen.inode, seen.mtime_ns, seen.size):
                        changed[entry.name] = seen
        return changed

    def _update(self, connection: sqlite3.Connection, changed: Mapping[str, _Known | None]) -> None:
        connection.execute("CREATE TEMP TABLE IF NOT EXISTS touched (record_id TEXT PRIMARY KEY)")
        connection.execute("DELETE FROM touched")
        for name, known in changed.items():
            try:
                file = (self.segments / name).open("rb") if known is not None else None
            except FileNotFoundError:
                file = None
            stat = os.fstat(file.fileno()) if file is not None else None
            if file is None or stat is None or known is None or not _only_grew(file, stat, known):
                # New, gone or rewritten: whatever was known of it goes.
                known = _Known()
                connection.execute("INSERT OR IGNORE INTO touched SELECT record_id FROM lines WHERE segment = ?", (name,))
                for table, column in (("lines", "segment"), ("problems", "segment"), ("segments", "name")):
                    connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (name,))
            if file is not None and stat is not None:
                with file:
                    self._read_segment(connection, name, file, stat, known)
        self._settle(connection)

    def _read_segment(
        self, connection: sqlite3.Connection, name: str, file: BinaryIO, stat: os.stat_result, known: _Known
    ) -> None:
        """Everything after what is known. A last line without its newline is a problem for now and is read again next time."""
        offset, lines, tail = known.offset, known.lines, known.tail
        # The one line after the last whole one is the torn tail of an earlier look.
        connection.execute("DELETE FROM problems WHERE segment = ? AND line > ?", (name, lines))
        rows: list[tuple[object, ...]] = []
        problems: list[tuple[str, int, str]] = []
        for raw in _raw_lines(file, offset):
            if not raw.endswith(b"\n"):
                problems.append((name, lines + 1, torn(raw)))
                break
            lines, offset, tail = lines + 1, offset + len(raw), raw[-_TAIL_BYTES:]
            try:
                row = row_of(raw, name, lines)
            except Unreadable as reason:
                problems.append((name, lines, str(reason)))
            except Newer as newer:
                raise BadInput(
                    f"{self.segments / name}:{lines}: schema {newer} is newer than {SCHEMA}, the newest this seatrial reads:"
                    " upgrade seatrial to use this logbook"
                ) from None
            else:
                if row is not None:
                    rows.append(row)
        connection.executemany(f"INSERT INTO lines VALUES (?,?,?,?,0,'',{','.join('?' * len(COLUMNS))},?,?)", rows)
        connection.executemany("INSERT INTO problems VALUES (?,?,?)", problems)
        connection.executemany("INSERT OR IGNORE INTO touched VALUES (?)", ((row[2],) for row in rows))
        connection.execute(
            "INSERT OR REPLACE INTO segments VALUES (?,?,?,?,?,?,?)",
            (name, stat.st_ino, stat.st_mtime_ns, stat.st_size, offset, lines, tail),
        )

    def _settle(self, connection: sqlite3.Connection) -> None:
        """The last line of each touched record is what it now says; its first line is where it stands in the order."""
        connection.execute("UPDATE lines SET current = 0 WHERE current = 1 AND record_id IN touched")
        connection.execute(
            """UPDATE lines SET current = 1, born = last.born
               FROM (SELECT max(stamp) AS stamp, min(stamp) AS born, record_id AS id
                     FROM lines WHERE record_id IN touched GROUP BY record_id) AS last
               WHERE record_id = last.id AND lines.stamp = last.stamp AND NOT deleted"""
        )


class _Known(NamedTuple):
    """What the index holds of one segment."""

    inode: int = -1
    mtime_ns: int = 0
    size: int = 0
    offset: int = 0
    """Behind the last whole line that was read."""
    lines: int = 0
    tail: bytes = b""
    """The last bytes before the offset."""


def _only_grew(file: BinaryIO, stat: os.stat_result, known: _Known) -> bool:
    """Whether what was read of it is still so: the same file, longer, with the same bytes before the place we stopped at."""
    if stat.st_ino != known.inode or stat.st_size <= known.size:
        return False
    file.seek(known.offset - len(known.tail))
    return file.read(len(known.tail)) == known.tail


def _intact(rows: Iterable[tuple[bytes, int]]) -> list[bytes]:
    """The lines in the rows. SQLite does not notice a flipped byte inside a value, so each carries its checksum."""
    lines = []
    for raw, crc in rows:
        if not isinstance(raw, bytes) or zlib.crc32(raw) != crc:
            raise _nonsense("a line of the index does not match its checksum")
        lines.append(raw)
    return lines


def _decoded(
    lines: Iterable[bytes], checks: Sequence[tuple[str, object]], predicate: Callable[[dict[str, Any]], bool] | None
) -> Iterator[dict[str, Any]]:
    for raw in lines:
        record = json.loads(raw)
        del record["schema"]
        record.pop("crc32", None)
        if all(matches(record, key, wanted) for key, wanted in checks) and (predicate is None or predicate(record)):
            yield record


def _raw_lines(file: BinaryIO, offset: int) -> Iterator[bytes]:
    """Lines with their newline, the last one perhaps without."""
    file.seek(offset)
    rest = b""
    while chunk := file.read(_CHUNK_BYTES):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line + b"\n"
    if rest:
        yield rest


def _cache_path(segments: Path) -> Path | None:
    """Where the index is kept; None (in memory) where the only place is inside the logbook itself, or there is no home."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if home.startswith("~"):
        return None
    root = os.path.realpath(segments)
    folder = Path(os.path.realpath(home)) / "seatrial"
    if Path(root).parent in (folder, *folder.parents):
        return None
    key = hashlib.sha256(f"{socket.gethostname()}\0{root}".encode("utf-8", "surrogateescape")).hexdigest()[:24]
    return folder / f"logbook-{key}.sqlite"


def _nonsense(message: str) -> sqlite3.Error:
    error = sqlite3.DatabaseError(message)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def _unlink(path: Path) -> None:
    try:
        path.unlink()
    except OSError:
        pass
