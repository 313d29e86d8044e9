"""Counts of rows in sentences, in digits or in words: how many failed or fitted, on how many nodes and devices they ran.

    check(sheet)          findings on counts that the rows do not give

    6 of the 13 tries went out of memory.                      three rows did
    Three models on one, two and eight nodes of eight GPUs.    the rows have 8, 16 and 32 devices: four

A tally is held against the table above it, where it counts as many rows as that has, or all of them stand there; a list of
sizes against the table right below it, or above.
"""
from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from seatrial.notes.either import either
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.phases.totals import is_aggregate
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text import words
from seatrial.notes.lint.text.claims import scope_of
from seatrial.notes.lint.text.figures import figures
from seatrial.notes.lint.text.mentions import mentions
from seatrial.notes.lint.text.sentences import Sentence
from seatrial.notes.read.statements import read_status

MOST_LINES, MOST_ROWS, FEWEST, NEXT = 4000, 200, 3, 8
_OF = r"(?:of|out of|from|von|der|aus|sur|des?|di|su|dos?|van|z|из|/)"
_ALL = r"(?:the |all |our |these |those |den |allen |diesen |les |los |las |delle |dei |i |le |os |as |de )?"
_TRIES = (r"(?:runs?|tries|trials?|attempts?|config\w*|layouts?|settings?|setups?|rows?|lines?|jobs?|points?|combinations?|"
          r"experiments?|variants?|laufe?n?|versuche?n?|konfigurationen|zeilen|einstellungen|varianten|essais?|lignes?|"
          r"tentatives?|pruebas?|intentos?|ensayos?|filas?|configuraciones|prove|tentativi|righe|configurazioni|testes|"
          r"tentativas|execucoes|linhas|configuracoes|pogingen|regels|configuraties|prob|prob[ay]|uruchomien\w*|запуск\w*|"
          r"строк\w*|попыт\w*|конфигурац\w*|korningar|forsok)")  # fmt: skip
_OOM = (r"oom\w*|out of memory|memory errors?|did(?: not|n't) fit|do(?:es)?(?: not|n't) fit|too big|too large|"
        r"speicherfehler\w*|speichermangel|zu wenig speicher|pass(?:en|ten|te|t) nicht|nicht gepasst|ohne speicher|"
        r"ne tien\w+ pas|ne tenai\w+ pas|manqu\w+ de memoire|depass\w+ la memoire|"
        r"sin memoria|no cab\w+|no cup\w+|senza memoria|fuori memoria|memoria esaurita|non entra\w*|non sta\w+|sem memoria|"
        r"nao cab\w*|nao coube\w*|geheugen\w* (?:tekort|vol)|past\w* niet|brak\w* pamieci|nie zmiesc\w*|не хватил\w*|"
        r"не поместил\w*|не влез\w*|minnesbrist|slut pa minne")  # fmt: skip
_FAILED = (r"failed|crashed|died|hung|scheiter\w+|abgesturzt|fehlgeschlagen|gestorben|ont echoue|echou\w+|plante\w*|fall\w+on|"
           r"fallit[ei]|fallirono|falharam|mislukt\w*|nie powiod\w*|упал\w*|не удал\w*")  # fmt: skip
_BETWEEN = r"[^.;:,\d]{0,32}?"
_TALLY = either(rf"(?<![\w.,#=-])(?P<n>{words.WORD}) (?:(?:{_OF}) {_ALL}(?P<m>{words.WORD})(?: (?:\w+ )?{_TRIES})?|"
                rf"(?:\w+ )?{_TRIES})\b{_BETWEEN}\b(?:(?P<oom>{_OOM})|(?P<failed>{_FAILED}))(?!\w)")  # fmt: skip
_CJK_TALLY = re.compile(r"(?P<m>\d{1,3}) ?(?:组|个|次|行|例|件|回|条)[^。,，\d]{0,8}?(?:中|里|有)[^。,，\d]{0,6}?"
                        r"(?P<n>\d{1,3}) ?(?:组|个|次|行|例|件|回|条)?[^。,，\d]{0,8}?(?P<oom>OOM|显存不足|爆显存|溢出|"
                        r"メモリ不足|メモリ.{0,4}足り|메모리 부족)", re.IGNORECASE)  # fmt: skip
_OTHER_ROWS = either(r"\b(?:more|other|another|further|first|last|later|earlier|weitere|andere|autres?|otr[oa]s|altr[ei]|"
                     r"not shown|not in (?:the|this) table|nicht in (?:der|dieser) tabelle|per|each|every)\b")  # fmt: skip
_MAY = either(rf"{_OOM}|{_FAILED}|oom|显存|爆|溢出|メモリ|메모리")
_NODE = r"(?:nodes?|hosts?|knoten|n(?:oe)?uds?|nodos?|nodi|nos|knooppunten|wezl\w+|узл\w+|noder)"
_DEVICE = r"(?:gpus?|chips?|cards?|devices?|accelerators?|karten|cartes|tarjetas|schede|placas|kaarten|карт\w*|gcds?)"
_LIST = either(rf"(?<![\w.,])(?P<list>{words.WORD}(?:, {words.WORD}){{0,8}},? (?:and|und|et|y|e|en|i|и|och) {words.WORD}) "
               rf"(?:(?P<nodes>{_NODE})|(?:[A-Z]+\d+\w* |[A-Za-z]+ )?(?P<devices>{_DEVICE}))\b")  # fmt: skip
_EACH = re.compile(rf"\b{_NODE} (?:of|with|mit|a|de|con|met|zu je|med|по) (?P<each>{words.WORD})\b", re.IGNORECASE)
_WORD = re.compile(rf"(?<![^\W_]){words.WORD}(?![^\W_])", re.IGNORECASE)


_STEMS = ("oom", "memor", "fit", "too ", "speicher", "pass", "tien", "tena", "manqu", "depass", "cab", "cup",
          "entra", "sta", "coube", "past", "pamieci", "zmiesc", "памят", "поместил", "влез", "minne", "fail",
          "crash", "died", "hung", "scheiter", "sturz", "fehl", "gestorb", "echou", "plant", "fall", "mislukt",
          "powiod", "упал", "удал", "显存", "爆", "溢出", "メモリ", "메모리")  # fmt: skip
_COUNTED = ("node", "host", "knoten", "noeud", "nodo", "nodi", " nos", "knoop", "wez", "узл", "gpu", "chip",
            "card", "device", "accelerator", "karte", "cart", "tarjet", "sched", "placa", "kaart", "карт", "gcd",
            "all", "tous", "tout", "tod", "tutt", "все", "run", "phase", "job", "config", "layout", "lauf",
            "essai", "prueb", "prov")  # fmt: skip
"""Without one of which nothing is counted: cheaper than the patterns."""


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for file, text in sheet.prose.items():
        tables = [rows for rows in sheet.tables_of(file) if rows[0].tabular and len(rows) >= FEWEST]
        for sentence in text.sentences if tables and len(text.lines) <= MOST_LINES else ():
            letters = sentence.text.casefold()
            if any([stem in letters for stem in _STEMS]) and _MAY.has(sentence.text):
                found += _tally(file, sentence, tables, text.lines)
            if any([stem in letters for stem in _COUNTED]):
                found += (list(_listed(file, sentence, tables, text.lines)) or _ends(file, sentence, tables, text.lines)
                          or _every(file, sentence, tables, text.lines) or _having(file, sentence, tables, text.lines))
    return found


# ---- how many failed


def _tally(file: str, sentence: Sentence, tables: list[list[Row]], lines: Sequence[str]) -> Iterator[Finding]:
    match = _TALLY.search(sentence.text) or _CJK_TALLY.search(sentence.text)
    if match is None or _OTHER_ROWS.search(sentence.text):
        return
    many, of = words.value(match["n"]), words.value(match["m"]) if match["m"] else None
    scope = scope_of(tables, lines, sentence.line)
    last = next((rows for rows in tables if scope.last and rows[0].key == scope.last[0].key), [])
    rows = [row for row in last if not is_aggregate(row)] if scope.near else []
    if many is None or not FEWEST <= len(rows) <= MOST_ROWS or of is not None and of != len(rows):
        return
    first, end = (row.record.source_line or 0 for row in (rows[0], rows[-1]))
    if of is None and end - first + 1 > len(rows) + sum(not any(map(str.isalnum, line)) for line in lines[first - 1 : end]):
        return  # rows that nobody could read
    all_failed = match.groupdict().get("failed") is not None
    failed = [row for row in rows if _failed(row, all_failed)]
    surely = [row for row in failed if row.get("sec_per_it") is None and row.get("tokens_per_s") is None]
    if not surely or many in (len(failed), len(surely)) or any(
            many == sum(_failed(row, all_failed) for row in other) for other in tables):  # fmt: skip
        return
    right = words.like(match["n"], len(surely))
    message = f"{match['n']} -> {right}: so many of the {len(rows)} rows above did"
    yield Finding(file=file, line=sentence.line_at(match.start("n")), code="aggregate", level="error", message=message,
                  printed=match["n"], proposed=right)  # fmt: skip


def _failed(row: Row, in_any_way: bool) -> bool:
    ways = {read_status(cell).failed for cell in row.cells.values() if cell and len(cell) < 80}
    return "oom" in ways or in_any_way and ways != {""}


# ---- how many have a setting

_SO_MANY = re.compile(rf"(?:^|[.;:] )\W*(?P<n>{words.WORD}) (?P<what>[^\W\d_]{{3,}}) ", re.IGNORECASE)


def _having(file: str, sentence: Sentence, tables: list[list[Row]], lines: Sequence[str]) -> list[Finding]:
    """`Three phases used 256 GPUs`, where all that is named is one value of one column."""
    match = _SO_MANY.match(sentence.text)
    many = words.value(match["n"]) if match is not None else None
    if match is None or many is None or _OTHER_ROWS.search(sentence.text) or _NOT_ALL.search(sentence.text):
        return []
    scope = scope_of(tables, lines, sentence.line)
    rows = [row for row in scope.last if not is_aggregate(row)] if scope.near else []
    counted = re.fullmatch(rf"{_TRIES}|phase[ns]?|fas[ei]s?", match["what"], re.IGNORECASE) is not None
    if len(rows) < FEWEST or many > len(rows) or not counted:
        return []
    some = [one for one in mentions(sentence.text, rows) if one.start > match.end("n")]
    shown = [one for one in figures(sentence.text) if one.kind not in ("devices", "nodes")]
    if len({(one.heading, one.value) for one in some}) != 1 or shown or many == len(some[0].rows) or len(some[0].rows) < 2:
        return []
    right = words.like(match["n"], len(some[0].rows))
    message = f"{match['n']} -> {right}: so many of the {len(rows)} rows above have {some[0].value}"
    return [Finding(file=file, line=sentence.line_at(match.start("n")), code="aggregate", level="warning", message=message,
                    printed=match["n"], proposed=right)]  # fmt: skip


_NOT_ALL = either(r"\b(?:than|not|at least|at most|up to|about|nearly|almost|if|would|same|together|faster|slower|als|"
                  r"nicht|"
                  r"que|non|no|mehr|weniger|repeat\w*|again|crash\w*|died|fail\w*|lost|hung|was|after|before|"
                  r"during|while)\b")  # fmt: skip


# ---- on how many nodes


_RANGE = either(rf"(?<![\w.,])(?P<one>{words.WORD}) (?:to|through|bis|zu|a|a|al|tot|do|до|till|until|up to|"
                rf"bis zu) (?P<other>{words.WORD}) "
                rf"(?:(?P<nodes>{_NODE})|(?:[A-Z]+\d+\w* )?(?P<devices>{_DEVICE}))\b")  # fmt: skip
_UTMOST = either(rf"\b(?:(?P<most>largest|biggest|grosste[rn]?|plus grande?|mayor|mas grande|maggiore|piu grande|"
                 rf"maior|grootste|"
                 rf"najwieksz\w*|крупнейш\w*)|smallest|kleinste[rn]?|plus petite?|menor|minore|kleinste|najmniejsz\w*|"
                 rf"наименьш\w*) "
                 rf"(?:\w+ )?(?:run|job|setup|config\w*|test|lauf|auftrag|essai|tache|ejecucion|trabajo|prova|corsa|"
                 rf"execucao|taak)\b"
                 rf"[^.;:\d]{{0,24}}? (?P<one>{words.WORD}) "
                 rf"(?:(?P<nodes>{_NODE})|(?:[A-Z]+\d+\w* )?(?P<devices>{_DEVICE}))\b")  # fmt: skip
_ALL_ROWS = either(rf"\b(?:all|alle|aller|tous les|toutes les|todos los|todas las|tutti e|tutte e|tutte le|todos os|"
                   rf"todas as|alle|все)"
                   rf"(?: of)?(?: the| these| those| diese| der)? (?P<n>{words.WORD}) {_TRIES}\b")  # fmt: skip


def _ends(file: str, sentence: Sentence, tables: list[list[Row]], lines: Sequence[str]) -> list[Finding]:
    """`from one to sixteen nodes`, `the largest job used 128 GPUs`: the ends of what the rows have."""
    text = sentence.text
    match = _RANGE.search(text) or _UTMOST.search(text)
    if match is None or _OTHER_ROWS.search(text):
        return []
    rows = _beside(tables, lines, sentence)
    its = {(row.record.nodes if match["nodes"] else row.record.gpus or row.world) or 0 for row in rows}
    said = [(match.start(name), match[name], words.value(match[name])) for name in ("one", "other")
            if match.groupdict().get(name)]  # fmt: skip
    wrong = [one for one in said if one[2] not in its]
    if len(its) < FEWEST or 0 in its or len(wrong) != 1 or any(one[2] is None for one in said):
        return []
    low, high = min(its), max(its)
    if len(said) == 2:
        kept = next(one[2] for one in said if one is not wrong[0])
        meant = high if kept == low and (wrong[0][2] or 0) > low else 0
    else:
        meant = high if match.groupdict().get("most") else low
    if not meant:
        return []
    start, printed, _ = wrong[0]
    right = words.like(printed, meant)
    unit = "nodes" if match["nodes"] else "devices"
    message = f"{printed} -> {right}: the rows go from {low:g} to {high:g} {unit}"
    return [Finding(file=file, line=sentence.line_at(start), code="world-size", level="warning", message=message,
                    printed=printed, proposed=right)]  # fmt: skip


def _every(file: str, sentence: Sentence, tables: list[list[Row]], lines: Sequence[str]) -> list[Finding]:
    """`all six runs`, of which five stand in the table."""
    match = _ALL_ROWS.search(sentence.text)
    many = words.value(match["n"]) if match is not None else None
    rows = _beside(tables, lines, sentence) if many is not None else []
    counts = {len(its) for its in tables} | {sum(not is_aggregate(row) for row in its) for its in tables}
    lines_ = [row.record.source_line or 0 for row in rows]
    if match is None or many is None or len(rows) < FEWEST or many in counts or many == sum(map(len, tables)) or not (
            len(rows) - 3 < many < len(rows) + 3) or lines_[-1] - lines_[0] + 1 != len(rows):  # fmt: skip
        return []
    right = words.like(match["n"], len(rows))
    message = f"{match['n']} -> {right}: so many rows stand in the table"
    return [Finding(file=file, line=sentence.line_at(match.start("n")), code="aggregate", level="warning", message=message,
                    printed=match["n"], proposed=right)]  # fmt: skip


def _listed(file: str, sentence: Sentence, tables: list[list[Row]], lines: Sequence[str]) -> Iterator[Finding]:
    match = _LIST.search(sentence.text)
    if match is None:
        return
    said = [(one, words.value(one[0])) for one in _WORD.finditer(match["list"])]
    sizes = [int(size) for _, size in said if size and size == int(size)]
    rows = _beside(tables, lines, sentence)
    each_said = _EACH.search(sentence.text)
    each = words.value(each_said["each"]) if each_said else None
    if match["nodes"]:
        its = {row.record.nodes or (row.world / each if row.world and each else 0) for row in rows}
    else:
        its = {row.record.gpus or row.world or 0 for row in rows}
    wrong, left = {*sizes} - its, its - {*sizes}
    if 0 in its or len(sizes) != len({*sizes}) or len(wrong) != 1 or len(left) != 1 or len(sizes) < 2:
        return
    (odd,), (meant,) = wrong, left
    one = next(one for one, size in said if size == odd)
    if meant != int(meant):
        return
    right = words.like(one[0], meant)
    unit = "nodes" if match["nodes"] else "devices"
    level: Level = "error" if len(sizes) > 2 else "warning"
    message = f"{one[0]} -> {right}: the rows have {', '.join(f'{size:g}' for size in sorted(its))} {unit}"
    yield Finding(file=file, line=sentence.line_at(match.start("list") + one.start()), code="world-size", level=level,
                  message=message, printed=one[0], proposed=right)  # fmt: skip


def _beside(tables: list[list[Row]], lines: Sequence[str], sentence: Sentence) -> list[Row]:
    """The rows of the table right below a sentence, with no heading between, else those of the one above."""
    for rows in tables:
        first = rows[0].record.source_line or 0
        if first > sentence.last:
            if first <= sentence.last + NEXT and not any(line.startswith("#") for line in lines[sentence.last : first - 1]):
                return rows
            break
    scope = scope_of(tables, lines, sentence.line)
    return list(scope.last) if scope.near else []
