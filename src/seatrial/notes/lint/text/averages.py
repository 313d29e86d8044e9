"""What an hour of a device, a token or a kilowatt hour costs or takes on average, by the totals of two columns.

    check(sheet)          findings on averages that the rows do not give

    On average we paid $2.60 per GPU hour.              311,144 over 119,440
    en moyenne 1,06 kWh par heure GPU                   264.7 MWh over 250,598

An average agrees with the totals, with the mean of the rows, and with what any row or a price of the table has.
"""
from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.phases.totals import is_aggregate
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.claims import OTHERS, scope_of
from seatrial.notes.lint.text.columns_of import Columns
from seatrial.notes.lint.text.figures import plain
from seatrial.notes.lint.text.sentences import Sentence, each
from seatrial.tables.headings import NUMBER, decimal
from seatrial.tables.tongues import in_english

MOST_LINES, MOST_ROWS, FEWEST, NEAR, OFF, FAR = 4000, 200, 2, 0.03, 0.06, 12.0
WORDS = ("average", "mean", "overall", "blended", "media", "medio", "mittel", "schnitt", "moyenne", "promedio", "gemiddeld",
         "средн", "srednio", "平均", "평균")  # fmt: skip
"""Without one of these, in small letters, a sentence has no average."""
_AVERAGE = re.compile(r"\b(?:on average|averag\w*|overall|blended|(?:in|di|en|de) media|(?:in|im|il|costo) medio|"
                      r"im (?:mittel|schnitt)|"
                      r"durchschnitt\w*|mittlere\w*|en moyenne|moyenne?|(?:en )?promedio|gemiddelde?|srednio)\b|средн|"
                      r"平均|평균",
                      re.IGNORECASE)  # fmt: skip
_DEVICE = (r"(?:GPU|chip|card|device|TPU|NPU|accelerator|A100|H100|H200|Karten)[ -]?(?:hours?|h\b|stunden?|uur|часа?)|"
           r"(?:heures?|horas?|ore|ora)[ -](?:de )?(?:GPU|carte)|GPU時間|卡时|GPU ?시간")  # fmt: skip
_RATE = re.compile(
    rf"(?P<sign>[$€£])?\s?(?P<number>{NUMBER.pattern})\s?(?P<unit>[$€£]|(?:EUR|USD|euros?|dollars?|kWh|MWh|Wh|元|円|"
    rf"руб\w*)\b|)\s?"
    rf"(?:/|(?:per|a|an|each|every|je|pro|par|por|al|alla|all'|la|за|на) )\s?"
    rf"(?:(?P<device>{_DEVICE})|(?P<node>node[ -]?hours?|Knotenstunde)|(?P<kwh>kWh)\b|"
    rf"(?P<many>million|billion|milliard|Milliarde|Mio|Mrd|M|B)(?: (?:de |of )?)?(?P<tokens>tok(?:en)?s?|jetons?)?\b)",
    re.IGNORECASE)  # fmt: skip
_CLAUSES = re.compile(r"[;；。]\s?|, (?!\d)")
_SCALES = {"wh": ("energy", 1e-3), "kwh": ("energy", 1.0), "mwh": ("energy", 1e3)}
_UNITS = {1e-3: "Wh", 1.0: "kWh", 1e3: "MWh"}


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for file, text in sheet.prose.items():
        tables = [rows for rows in sheet.tables_of(file) if len(rows) >= FEWEST] if text.has(*WORDS) else []
        apart = str(file).endswith((".csv", ".tsv"))
        for sentence in each(text.sentences, lines=apart) if tables and len(text.lines) <= MOST_LINES else ():
            words = plain(sentence.text)
            if _AVERAGE.search(words) and not OTHERS.search(in_english(words)):
                scope = scope_of(tables, text.lines, sentence.line)
                rows = [row for row in scope.last if not is_aggregate(row)][:MOST_ROWS]
                if scope.near and len(rows) >= FEWEST:
                    found += _sentence(file, sentence, words, rows)
    return found


def _sentence(file: str, sentence: Sentence, words: str, rows: list[Row]) -> Iterator[Finding]:
    said = _AVERAGE.search(words)
    clauses = [0, *(match.end() for match in _CLAUSES.finditer(words)), len(words)]
    matches = [match for match in _RATE.finditer(words) if said and not any(
        min(match.start(), said.start()) < cut <= max(match.start(), said.start()) for cut in clauses)]  # fmt: skip
    if len(matches) != 1:
        return
    match = matches[0]
    unit = match["unit"].casefold()
    what, scale = _SCALES.get(unit, ("money", 1.0))
    if what == "money" and not (match["sign"] or unit):
        return
    of = "device hours" if match["device"] else "node hours" if match["node"] else "energy" if match["kwh"] else "tokens"
    many = 1.0
    if match["many"]:
        many = 1e9 if match["many"].casefold().startswith(("b", "milliard", "mrd")) else 1e6
    columns = Columns(tuple(rows))
    value = float(decimal(match["number"])) * scale / many
    every: list[float] = []
    meant: list[tuple[float, str]] = []
    for above in columns.of(what) + (columns.of("energy of the site") if what == "energy" else []):
        for below in columns.of(of):
            if above.kind == below.kind:
                continue
            for one, other in ((above.values, below.values), (above.printed, below.printed)):
                both = [row for row in rows if one.get(row) and other.get(row)]
                if len(both) < FEWEST:
                    continue
                ratios = [one[row] / other[row] for row in both]
                total = math.fsum(one[row] for row in both) / math.fsum(other[row] for row in both)
                every += [*ratios, statistics.fmean(ratios), total]
                meant += [(total, above.heading)] if one is above.values else []
    if not meant or value <= 0 or any(abs(value / one - 1) < NEAR for one in every if one > 0):
        return
    total, heading = min(meant, key=lambda one: abs(math.log(value / one[0])))
    if any(abs(one / total - 1) > OFF for one, _ in meant) and abs(math.log(value / total) - math.log(1000)) > 2 * OFF:
        return
    yield from _off(file, sentence, match, value, total, scale / many, heading)


def _off(file: str, sentence: Sentence, match: re.Match[str], value: float, total: float, scale: float, heading: str
         ) -> Iterator[Finding]:  # fmt: skip
    shown, off = match["number"], abs(math.log(value / total))
    message = "so much the totals of the columns give"
    units = {one: unit for one, unit in _UNITS.items() if abs(value / scale * one / total - 1) < NEAR}
    if match["unit"].casefold() in _SCALES and len(units) == 1:
        printed, proposed = f"{shown} {match['unit']}", f"{shown} {next(iter(units.values()))}"
    elif off > OFF and (off < math.log(FAR) or digits.slips(decimal(shown), (0.97 * total / scale, 1.03 * total / scale))):
        text = f"{total / scale:.{digits.places(shown)}f}"
        printed, proposed = shown, text.replace(".", ",") if "," in shown else text
    else:
        return
    yield Finding(file=file, line=sentence.line_at(match.start("number")), code="aggregate", level="error", column=heading,
                  message=f"{printed} -> {proposed}: {message}", printed=printed, proposed=proposed)  # fmt: skip
