"""A logbook as the live page shows it, made anew when it has changed.

    source = Source(Path("book"), title="Round one")
    version, made = source.current()

The first page of a large logbook shows its rows at once. What takes longer than a reader waits, lint of imported rows and the
forecasts of thousands, is worked out beside it and comes with a later look; after that, each new row costs its own forecast.
"""
from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from seatrial.logbook import Logbook
from seatrial.record import Record
from seatrial.report import data, forecasts
from seatrial.report.data import Linted, Made
from seatrial.report.forecasts import Clusters, Forecast
from seatrial.report.read import Known, from_book
from seatrial.report.whatif import choices, fit_of

POLL_EVERY_S = 0.25
"""How often the logbook is checked for changes, however many pages poll."""
REBUILD_SHARE = 0.5
"""Of one core that rebuilding the page may take while a sweep writes row after row."""
FORECAST_AT_ONCE = 500
"""Rows whose forecasts a reader waits for: a third of a second."""

NO_LINT = Linted(skipped="no imported rows")


class Source:
    def __init__(self, book: Path, *, title: str, clusters: Clusters = Clusters(), tokens: float | None = None,
                 price: float | None = None):
        self.book, self.title, self.clusters, self.tokens, self.price = book, title, clusters, tokens, price
        self._log = Logbook(book)
        self._lock = threading.Lock()
        self._built_from: object = None
        """State of the segments that `made` was built from."""
        self._linted: tuple[object, Linted] = ((), NO_LINT)
        """Ids of the imported rows, and the findings about them."""
        self._forecasts: dict[str, Forecast | None] = {}
        """By the record's id and date: a line of a logbook never changes."""
        self._working = False
        """On what the first page does not wait for."""
        self._next = 0.0
        self._known: Known = {}
        self._fits: tuple[int, dict[str, Any]] | None = None
        self.version = 0
        self.made: Made | None = None
        self.row_by_id: dict[str, int] = {}

    def current(self) -> tuple[int, Made]:
        with self._lock:
            began = time.monotonic()
            if self.made is None or began >= self._next:
                rebuilt_s = time.monotonic() - began if self._refresh() else 0.0
                self._next = time.monotonic() + max(POLL_EVERY_S, rebuilt_s / REBUILD_SHARE)
            assert self.made is not None
            return self.version, self.made

    def _refresh(self) -> bool:
        state = self._state()
        if self.made is not None and state == self._built_from:
            return False
        with uncollected():
            records, _ = from_book(self._log, self._known)
            imported = tuple(r.record_id for r in records if r.source_file)
            unlinted = self._linted[0] != imported
            unforecast = [record for record in records if _key(record) not in self._forecasts]
            if len(unforecast) <= FORECAST_AT_ONCE:
                self._forecast(unforecast)
                unforecast = []
            self.made = data.build(
                records, title=self.title, clusters=self.clusters, book=self.book, tokens=self.tokens, price=self.price,
                linted=Linted(skipped="being checked") if unlinted else self._linted[1], remarks=self._log.remarks(),
                forecast={row: found for row, record in enumerate(records)
                          if (found := self._forecasts.get(_key(record))) is not None})  # fmt: skip
            self.made.view["waiting"] = len(unforecast)
            self.row_by_id = {record.record_id: row for row, record in enumerate(records)}
        self.version += 1
        self._built_from = state
        if (unlinted or unforecast) and not self._working:
            self._working = True
            threading.Thread(target=self._work, args=(imported if unlinted else None, records, unforecast), name="later",
                             daemon=True).start()
        return True

    def _work(self, imported: tuple[str, ...] | None, records: Sequence[Record], unforecast: Sequence[Record]) -> None:
        """What no reader waits for."""
        for first in range(0, len(unforecast), FORECAST_AT_ONCE):
            self._forecast(unforecast[first : first + FORECAST_AT_ONCE])
        found = self._linted if imported is None else (imported, data.run_lint(records))
        with self._lock:
            self._linted, self._working, self._built_from = found, False, None

    def _forecast(self, records: Sequence[Record]) -> None:
        made = forecasts.of(records, self.clusters)
        self._forecasts |= {_key(record): made.get(place) for place, record in enumerate(records)}

    def _state(self) -> object:
        """Changes with every record that is written."""
        try:
            return tuple(sorted((p.name, s.st_size, s.st_mtime_ns) for p in (self.book / "segments").iterdir()
                                for s in (p.stat(),)))
        except OSError:
            return None

    def fit(self, cluster: str) -> Any:
        """What this logbook's rows teach about a cluster, worked out once per version."""
        version, made = self.current()
        if cluster not in choices()["clusters"]:
            return None
        if self._fits is None or self._fits[0] != version:
            self._fits = (version, {})
        if cluster not in self._fits[1]:
            self._fits[1][cluster] = fit_of(made, cluster)
        return self._fits[1][cluster]

    def remark(self, record_id: str, text: str, tags: list[str]) -> list[dict[str, Any]]:
        """Added to the logbook; all that was said about the record is returned."""
        self._log.remark(record_id, text, tags)
        with self._lock:
            self._next = 0.0
        return self._log.remarks()[record_id]

    def close(self) -> None:
        self._log.close()


def _key(record: Record) -> str:
    return f"{record.record_id} {record.written_at}"


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Thousands of records hold no cycles: looking for them over and over takes as long as reading."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
