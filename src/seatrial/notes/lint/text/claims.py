"""What a sentence says of the rows of a table: its ratios and shares, and the rows and columns that it names.

    for sentence in sentences(line):
        claims(sentence)                         39 % less, 1.48x, keeps 95 % of, 94 % of efficiency
        scope = scope_of(tables, lines, number)  the rows that it may be about
        named(sentence, scope, claims)           those that it names, each with the words that name it

A row is named by its number, by a word of a cell or of what stands above its table, by a count with its unit, by a figure that
the sentence repeats. `surely` keeps those that are named by more than others.
"""
from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seatrial.notes.either import either
from seatrial.notes.lint import digits
from seatrial.notes.lint.phases.totals import is_aggregate
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.text.figures import figures
from seatrial.tables.headings import NUMBER, clean, decimal, normal
from seatrial.tables.tongues import lowered, plain_letters
from seatrial.tables.worded import heading_in_english

MOST_ROWS, MOST_TABLES = 24, 6
FEWEST_DIGITS = 3
"""Of a figure that names the row that it stands in."""
N = rf"(?<![\w.,$€£-])({NUMBER.pattern})"
_CLOSING = rf"(?<![\w.,$€£-])(\d{{1,4}},\d{{1,2}}(?=[.,;:)]?(?:\s|$))|{NUMBER.pattern})"
"""With nothing behind it but the end of its clause: `multiplié par 3,15, ce qui`."""
LESS = (r"less|fewer|saved|savings?|cheaper|lower|smaller|shorter|off|reduction|moins|menos|meno|weniger|billiger|gunstiger|"
        r"niedriger|geringer|inferieur\w*|minder|behind|below|worse|mniej|меньше|дешевле|goedkoper|kurzer|gespart|taniej|"
        r"tansz\w*|barat\w*|gunstig\w*|economic\w*")
MORE = (r"more|faster|slower|higher|quicker|longer|larger|dearer|pricier|gain|extra|above|plus|mas|piu|mais|mehr|schneller|"
        r"langsamer|hoher|teurer|meer|sneller|trager|wiecej|szybciej|ahead|in front|better|devant|davanti|voraus|voor|"
        r"больше|быстрее|медленнее|дороже|speed-?up|rapid[eoa]s?|szybsz\w*|wolniejsz\w*|drozsz\w*|car[oa]s?|cher|lent\w*|"
        r"veloc[ei]\w*|duurder|langzamer|hurtigere|snabbare")
_P = r"(?:%|percent\b|per cent[oi]?\b|Prozent\b|pour cent\b|por cien(?:to)?\b|por cento\b|procent\w*|процент\w*)"
_PERCENT = re.compile(rf"{N}\s?{_P}\s(?:de |di |en |in )?(?:(?P<less>{LESS})|(?P<more>{MORE}))\b", re.IGNORECASE)
_BY = re.compile(rf"\b(?:by|um|de|del|di|por|на|o|met)\s(?:(?:an?|un|una|ein|about|rund|etwa|some) )?{N}\s?{_P}", re.IGNORECASE)
_CHANGES = re.compile(r"\b(?P<less>goes down|falls?|drops?|shrinks?|decreases?|reduces?|cuts?|shortens?|lowers?|slows?|"
                      r"sinkt|senkt|verkurzt|verringert|reduziert|"
                      r"fallt|baisse|diminue|reduit|raccourcit|ralentit|baja|cae|acorta|disminuye|accorcia|diminuisce|scende|"
                      r"reduz|diminui|encurta|verkort|verlaagt|daalt|skraca|zmniejsza|spada|сокращает\w*|"
                      r"reduce|cala|снижает\w*)\b|\b(?P<more>goes up|grows?|rises?|increases?|improves?|beats?|wins?|"
                      r"outperforms?|leads?|boosts?|raises?|speeds? up|accelerates?|lengthens?|steigt|steigert|erhoht|"
                      r"beschleunigt|accelere|rallonge|mejora|acelera|alarga|migliora|accelera|allunga|cresce|melhora|"
                      r"versnelt|verhoogt|stijgt|przyspiesza|rosnie|ускоряет\w*|повышает\w*|wachst|schlagt|gewinnt|gana|"
                      r"gagne|supera|vince|augmente|sube|aumenta|"
                      r"cresce|растет|вырос\w*)\b", re.IGNORECASE)  # fmt: skip
_BARELY = re.compile(rf"(?:\w{{4,}} (?:(?:un|um|ein|een|about|rund|etwa|some|around|roughly|"
                     rf"circa) )?)(?<!to )(?<!auf )(?<!nach ){N}\s?{_P}"
                     rf"(?=\s?(?:[.,;:)]|$))", re.IGNORECASE)  # fmt: skip
"""`el rendimiento sube un 63 %`, right behind a verb of change."""
_NOUNS = re.compile(r"\b(?P<less>drop|loss|losses|decrease|reduction|penalty|saving|savings|verlust|ruckgang|ersparnis|"
                    r"einbusse|"
                    r"perte|baisse|perdida|caida|perdita|calo|perda|queda|verlies|strata|потер\w*|снижение)\b|"
                    r"\b(?P<more>gain|speed-?up|improvement|increase|zuwachs|gewinn|steigerung|beschleunigung|hausse|ganancia|"
                    r"mejora|aumento|guadagno|ganho|winst|zysk|прирост|ускорение)\b", re.IGNORECASE)  # fmt: skip
_OF_TWO = re.compile(r"\b(?:from|between|against|over|versus|vs|von|zwischen|gegenuber|gegen|entre|sur|contre|desde|sobre|"
                     r"tra|su|"
                     r"rispetto|van|tussen|между|от)\b", re.IGNORECASE)  # fmt: skip
"""`The drop from 64 to 768 GPUs is 19 %`."""
_HEDGE = (r"(?:(?:about|around|roughly|some|nearly|almost|only|us|me|you|we|another|a good|wir|ich|man|nous|noi|wij|мы|rund|"
          r"etwa|nur|uns|mich|environ|unos|un|circa|около|еще|ongeveer|nog) |~ ?)*")  # fmt: skip
_DONE = re.compile(rf"\b(?:(?P<less>los(?:es?|t|ing)|sav(?:es?|ed|ing)|costs?|pay|paid|verlier\w*|verlor\w*|kostet\w*|spart\w*|"
                   rf"einspart|perd\w*|pierd\w*|perde|coute\w*|cuesta|costa|ahorra\w*|economis\w*|risparmi\w*|poupa\w*|"
                   rf"economiza|"
                   rf"kost|bespaart|scheelt|oszczedza|kosztuje|теря\w*|эконом\w*)|(?P<more>gains?|gained|brings?|brought|"
                   rf"gives?|"
                   rf"gave|buys?|bought|adds?|yields?|wins?|won|makes?|earns?|bringt|bringen|brachte|gibt|apporte\w*|gagne\w*|"
                   rf"aporta|porta|gana\w*|ganho\w*|rende|da|daje|levert|scheelde|дает|дал\w*)) "
                   rf"{_HEDGE}{N}\s?{_P}", re.IGNORECASE)  # fmt: skip
_GIVEN_UP = re.compile(rf"\b(?:costs?|los(?:es?|t|ing)|takes?|eats?|gives? up|kostet|verlier\w*|perd\w*|coute|cuesta|costa|"
                       rf"custa|sav(?:es?|ed|ing)) (?:\w+ ){{0,2}}?{_HEDGE}$", re.IGNORECASE)  # fmt: skip
_KEPT = re.compile(rf"\b(?:keeps?|kept|retains?|holds?|still (?:have|has|had|get|gets|do|does)|behalt\w*|halt|bleiben|"
                   rf"conserve|garde\w*|reste\w*|conserva\w*|mantien\w*|mantem|mantiene|zachowuje) {_HEDGE}{N}\s?{_P}\s"
                   rf"(?:of|der|des|de|del|della|von)\b|{N}\s?{_P} as (?:fast|much|many|long)\b|"
                   rf"{N}\s?{_P} (?:of|der|des|de|del|von) (?:(?:the|its|their|la|le|el) )?(?:\w+ )?"
                   rf"(?:speed|rate|throughput|ideal\w*|linear\w*|perfect|durchsatz\w*|debit|rendimiento)\b",
                   re.IGNORECASE)  # fmt: skip
_TIMES = re.compile(rf"{N}\s?(?:[x×](?=\s*(?:$|[.,;:)!?]|[a-z(]))(?!\s*(?:gpu|node|box|card|chip|[tpdce]p\b))|"
                    r"times(?! \d)|fois\b|veces\b|volte\b|vezes\b|keer\b|razy\b|mal\b|-?fach\w*|раза?\b|倍|배)",
                    re.IGNORECASE)  # fmt: skip
_MULTIPLIED = re.compile(rf"\bmultipli\w+ (?:.{{0,40}}? )?(?:par|por|per|by|mit)\s{_CLOSING}|"
                         rf"\b(?:factor|Faktor|facteur|fattore|fator|ratio|rapport|коэффициент|czynnik|speed-?up|"
                         rf"Beschleunigung|acceleration|"
                         rf"aceleracion|accelerazione|versnelling|przyspieszenie|ускорение) (?:(?:of|de|di|von|van|is|um|в) )?"
                         rf"(?:about |rund |environ |etwa )?{_CLOSING}(?!\d|:| ?(?:%|[kKMG]|TFLOP|GB|[x×] ?\d))",
                         re.IGNORECASE)  # fmt: skip
_SHARE = re.compile(rf"{N}\s?{_P}", re.IGNORECASE)
_OF_A_SHARE = re.compile(r"\b(?:effi\w+|[mh]fu|utili\w+)\b", re.IGNORECASE)
"""`gains a factor of 30, an efficiency of 94 %`: that is no change."""
_RANGE = re.compile(r"\d\s?%?\s?(?:to|bis|a|à|and|und|or|oder|et|ou|y|o|e|-|–|—|→|/|±)\s?$")
"""Before the second of two figures."""
_OPEN = re.compile(r"(?:more than|less than|over|under|above|below|up to|at least|at most|beyond|within|mehr als|weniger als|"
                   r"unter|uber|plus de|moins de|mas de|menos de|[<>≤≥]) ?$", re.IGNORECASE)  # fmt: skip
ATTRIBUTED = either(r"\b(?:papers?|others|elsewhere|published|claims?|claimed|vendors?|competitor\w*|theor\w+|data ?sheets?|"
                    r"last (?:year|week|month|time)|yesterday|earlier|drafts?|contract\w*)\b")  # fmt: skip
"""Of somebody else, or of another day."""
OTHERS = either(r"\b(?:papers?|others|elsewhere|published|claims?|claimed|vendors?|competitor\w*|theor\w+|targets?|goals?|"
                r"expect\w*|hope|hoped|should|would|could|data ?sheets?|spec|planned|last (?:year|week|month|time)|"
                r"previous\w*|yesterday|before|earlier|drafts?|ago|up to|bis zu|jusqu|hasta|if|wenn|"
                r"si(?! (?:va|ha|ottien|arriva|guadagna|perde|passa|scende|sale|corre))|section|budget|"
                r"tables? (?:above|below|in)|at least|contract|wenigstens|au moins)\b")  # fmt: skip
"""Ratios of somebody else, and of what stands in no table."""
CLAUSES = re.compile(r"[;:]\s|,\s| and | while | und | et | y ")
_CUES = re.compile(r"\d\s?(?:[%x×]|times|[Pp]er|[Pp]ro|pour|por|про|fois|vec|volte|vezes|keer|razy|mal|-?fach|倍|배|раз|"
                   r"days?|jours|d[ií]as|Tag|giorni|dni)|"
                   r"\b(?:par|por|by|mit|[Ff]a[ck]t\w+|[Ss]peed-?up|ratio|[Bb]eschleunigung|ускорение)(?: \w{1,5})? \d|"
                   r"(?:per|a|par|pro|por|al|/) ?(?:day|jour|Tag|d[ií]a|giorno)\b")  # fmt: skip


@dataclass(frozen=True)
class Claim:
    text: str
    start: int
    way: str
    """Of a percentage less, more, kept or a share; of a factor times."""
    alone: bool = True
    """Whether it is no end of a range and no bound."""

    @property
    def value(self) -> float:
        return float(decimal("".join(self.text.split())))  # with spaces between its thousands or without

    @property
    def half(self) -> float:
        return 0.5 * 10.0 ** -digits.places(self.text)


@functools.lru_cache(maxsize=16384)
def may_claim(line: str) -> bool:
    return _CUES.search(line) is not None


def claims(sentence: str) -> list[Claim]:
    """The ratios and shares of a sentence in plain letters, each once."""
    found: dict[int, Claim] = {}

    def add(match: re.Match[str], way: str) -> None:
        place = next(at for at, group in enumerate(match.groups(), 1) if group and NUMBER.fullmatch(group))
        before = sentence[: match.start(place)]
        if way == "kept" and _GIVEN_UP.search(before):
            way = "less"
        if way == "share" and not _OF_A_SHARE.search(sentence) and _OF_TWO.search(sentence) and (
                noun := _NOUNS.search(sentence)):
            way = "less" if noun["less"] else "more"
        way = "share" if way != "times" and _OF_A_SHARE.search(before[-24:]) else way
        alone = not _RANGE.search(before) and not _OPEN.search(before)
        found.setdefault(match.start(place), Claim(match[place], match.start(place), way, alone))

    for match in _KEPT.finditer(sentence):
        add(match, "kept")
    for match in (*_PERCENT.finditer(sentence), *_DONE.finditer(sentence)):
        add(match, "less" if match["less"] else "more")
    changes = _CHANGES.search(sentence)
    for match in _BY.finditer(sentence) if changes else ():
        add(match, "less" if changes and changes["less"] else "more")
    for match in _BARELY.finditer(sentence) if changes else ():
        add(match, "less" if changes and changes["less"] else "more")
    for match in (*_TIMES.finditer(sentence), *_MULTIPLIED.finditer(sentence)):
        add(match, "times")
    for match in _SHARE.finditer(sentence):
        add(match, "share")
    return [found[start] for start in sorted(found)]


# ---- the rows that a sentence may be about


@dataclass(frozen=True)
class Scope:
    """Tables above a sentence, the last one last; `near`: whether no heading stands between."""

    tables: tuple[tuple[Row, ...], ...]
    captions: tuple[str, ...]
    near: bool

    @property
    def rows(self) -> list[Row]:
        return [row for table in self.tables for row in table]

    @property
    def last(self) -> tuple[Row, ...]:
        return self.tables[-1] if self.tables else ()


_OF_THE_TABLE = re.compile(
    r"#+\s(?:.*\b)?(?:reading|conclusions?|results?|notes?|observations?|summary|take-?aways?|lessons?|findings?|verdict|"
    r"remarks?|"
    r"discussion|comments?|interpretation|what (?:it|this|that) means|what we (?:see|learn\w*)|in words|fazit|schl(?:u|"
    r"\u00fc)sse?|"
    r"hinweise|anmerkung\w*|befund\w*|auswertung|deutung|bemerkung\w*|erkenntnis\w*|lecture|remarques?|constats?|bilan|"
    r"lectura|conclusi\w+|comentarios?|observaci\w+|notas|resumen|osservazioni|note|commenti|lettura|conclus\w+|"
    r"observa\w+|wnioski|uwagi|opmerkingen|conclusie\w*|slutsats\w*|kommentar\w*)\b|"
    r"#+.*(?:結論|结论|考察|所見|备注|说明|小结|まとめ|결론|выводы|итоги|замечани\w+|заметки)", re.IGNORECASE)  # fmt: skip
"""Headings of what is said of the table above them."""


def scope_of(tables: list[list[Row]], lines: Sequence[str], number: int) -> Scope:
    ends = [(rows[-1].record.source_line or 0, rows) for rows in tables]
    above = sorted([one for one in ends if one[0] < number], key=lambda one: one[0])[-MOST_TABLES:]
    if not above:
        return Scope((), (), False)
    heads = [line for line in lines[above[-1][0] : number] if line.startswith("#") and not line.startswith("#+")]
    near = all(_OF_THE_TABLE.match(line) for line in heads)
    kept = tuple(tuple(row for row in rows[:MOST_ROWS] if not is_aggregate(row)) for _, rows in above)
    return Scope(kept, tuple(_caption(rows[0].record.source_line or 0, lines) for _, rows in above), near)


def _caption(first: int, lines: Sequence[str]) -> str:
    """What is said above a table: the line before it, its caption and the heading of its section."""
    found: list[str] = []
    for line in reversed(lines[max(0, first - 14) : max(0, first - 1)]):
        bare = line.strip()
        if bare[:1] in ("#", "=", "*") or bare.startswith("|+") or len(bare) < 120 and bare[:1] not in ("|", "!", "{", "-", ""):
            found.append(bare)
        if bare[:1] in ("#", "=") or len(found) > 2:
            break
    return plain_letters(" ".join(found)).casefold()


# ---- the rows that it names

_COUNTS = {"one": 1, "single": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
           "ten": 10, "twelve": 12, "sixteen": 16, "ein": 1, "einem": 1, "einen": 1, "eine": 1, "einer": 1, "zwei": 2,
           "drei": 3, "vier": 4, "sechs": 6, "acht": 8, "sechzehn": 16, "un": 1, "une": 1, "deux": 2, "trois": 3, "quatre": 4,
           "huit": 8, "seize": 16, "uno": 1, "una": 1, "dos": 2, "tres": 3, "cuatro": 4, "ocho": 8, "due": 2, "tre": 3,
           "quattro": 4, "otto": 8, "um": 1, "uma": 1, "dois": 2, "duas": 2, "quatro": 4, "oito": 8}  # fmt: skip
_UNITED = re.compile(rf"\b({'|'.join(_COUNTS)}) (?=(?:[A-Z]+\d+\w* )?(?:nodes?|gpus?|chips?|cards?|devices?|knoten|karten|"
                     r"n(?:oe)?uds?|nodos?|nodi|cartes|tarjetas|placas|hosts?|boxe?s?)\b)", re.IGNORECASE)  # fmt: skip
_SHARED = re.compile(r"(?<![\w.,])(\d+k?)(?=(?: and | to | or | und | bis | et | a | y | e | auf | vs\.? | against | over |"
                     r" gegen |, | ?- ?| ?– ?| ?→ ?)(?:the |les |die )?\d+k? ?-?((?:[A-Z]+\d+\w* )?[A-Za-z]{3,}))")  # fmt: skip
"""The first of two counts, which has the unit of the second."""
_ROW = re.compile(r"\b(?:rows?|lines?|runs?|tr(?:y|ies)|trials?|phases?|segments?|lignes?|filas?|zeilen?|lauf|righe|riga|"
                  r"linhas?|essais?|intentos?|versuche?n?|exercis?es?|ejercicios?|ejs?\.|pruebas?|ensayos?|experiment(?:s|"
                  r"e|os|i)?|experiencias?|prov[ae]|tests?|attempts?|konfigurationen|laufe|строк\w*|запуск\w*|опыт\w*|"
                  r"proby|proba|korningar?|#)\s?#?(\d{1,2})"
                  r"(?:\s?(?:and|or|to|,|und|et|y|e)\s?(\d{1,2})(?!\s?%|[.,]\d))?(?!\w|[.,]\d)", re.IGNORECASE)  # fmt: skip
_FIRST = re.compile(r"\b(?:first|top) (?:row|line|setup|run|one)\b|\bfrom the first\b", re.IGNORECASE)
_LAST = re.compile(r"\b(?:last|bottom) (?:row|line|setup|run|one|variant|layout)\b|\bto the last\b", re.IGNORECASE)
_COUNT = re.compile(r"(?<![\w.,])(\d{1,3}(?:,\d{3})+|\d+)(k)?(?![\d.,]*\d)(?:[ -](?:x )?(?:[A-Z]+\d+\w* )?([A-Za-z]{2,}))?")
Named = list[tuple[Row, frozenset[str]]]


def named(sentence: str, scope: Scope, found: list[Claim]) -> Named:
    """The rows that a sentence names, and by what; of tables behind a heading only those that more than a word names."""
    by: dict[Row, set[str]] = {}
    letters = plain_letters(sentence).casefold()
    in_cells = {word for row in scope.rows for cell in row.worded.values() for word in tokens(cell) if word[-1:] not in "bm"}
    said = [{word for word in tokens(caption) if stands(word, letters)} - in_cells for caption in scope.captions]
    everywhere = set.intersection(*said) if said else set()
    for table, words in zip(scope.tables, said):
        last = table is scope.tables[-1] and scope.near
        for at, its in enumerate(_in_table(sentence, list(table), found) if len(table) > 1 else ()):
            its |= words - everywhere if its else set()
            if its and (last or len(its) > 1):
                by[table[at]] = its
    return [(row, frozenset(its)) for row, its in by.items()]


def surely(some: Named) -> Named:
    """Those that are not named by less than another row is."""
    return [(row, by) for row, by in some if not any(by < other for _, other in some)]


def stands(word: str, letters: str) -> bool:
    return word in letters and re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", letters) is not None


def _in_table(sentence: str, rows: list[Row], found: list[Claim]) -> list[set[str]]:
    said: list[set[str]] = [set() for _ in rows]
    plain = _UNITED.sub(lambda match: f"{_COUNTS[lowered(match[1])]} ".rjust(len(match[0])), plain_letters(sentence))
    plain_ = unicodedata.normalize("NFC", plain)
    letters = plain.casefold()
    for match in _ROW.finditer(sentence):
        for place in filter(None, match.groups()):
            for at in _numbered(rows, int(place)):
                said[at].add(f"row {place}")
    for pattern, at in ((_FIRST, 0), (_LAST, len(rows) - 1)):
        if pattern.search(sentence):
            said[at].add("first" if not at else "last")
    words = Counter(word for row in rows for word in {word for cell in row.worded.values() for word in tokens(cell)})
    for at, row in enumerate(rows):
        said[at] |= {word for cell in row.worded.values() for word in tokens(cell)
                     if words[word] < len(rows) and stands(word, letters)}  # fmt: skip
    _by_counts(plain_, rows, said)
    _by_letters(sentence, rows, said)
    starts = {claim.start for claim in found}
    counts = [(match.start(1), match[1], match[2] or "", match[3] or "", match[0]) for match in _COUNT.finditer(plain)]
    counts += [(match.start(1), match[1].rstrip("k"), "k" * match[1].endswith("k"), match[2], match[0])
               for match in _SHARED.finditer(plain)]  # fmt: skip
    for start, shown, kilo, unit, text in counts:
        if start not in starts:
            for at, row in enumerate(rows):
                said[at] |= {text} if _has_count(row, float(shown.replace(",", "")), kilo, unit.casefold()) else set()
    for match in re.finditer(r"\b([A-Za-z]{3,}) (\d{1,4})(?![\w.,%-])", plain):
        for at, row in enumerate(rows):
            first = next(iter(row.record.printed), "")
            if match[1].casefold() in heading_words(first).split() and row.cells[first] == match[2]:
                said[at].add(match[0])
    for match in re.finditer(r"\b(TP|PP|DP|CP|EP|MBS|GBS) ?=?(\d{1,5})\b", plain):
        for at, row in enumerate(rows):
            size = row.beside(match[1].lower()) if match[1] in ("CP", "EP") else row.whole(match[1].lower())
            if size == int(match[2]):
                said[at].add(match[0])
    for match in re.finditer(rf"{N}(?![kKMBT]\b)", re.sub(r"[$€£]", " ", plain)):
        shown = decimal(match[1])
        if len(re.sub(r"\D", "", shown)) >= FEWEST_DIGITS and match.start(1) not in starts:
            for at, row in enumerate(rows):
                if any(digits.plain(cell) == shown for cell in row.record.printed.values()):
                    said[at].add(match[1])
    return said


_ALONE = re.compile(r"(?<![\w.,$€£/=-])(\d{1,3}(?:,\d{3})+|\d+)(?=\s*(?:$|[.;:)!?](?!\d)|, |(?:and|to|und|auf|bis|et|y|e|a|vs|"
                    r"against|than|as|is|are|it|we|the|te|до|и)\b))")  # fmt: skip
"""A count without its unit."""


def _by_counts(plain: str, rows: list[Row], said: list[set[str]]) -> None:
    """Devices and nodes, in any tongue; of a second count the unit may be left out: `from 16 nodes to 192`."""
    named = [one for one in figures(plain) if one.kind in ("devices", "nodes")]
    for kind in {one.kind for one in named}:
        counts = {at: row.record.gpus or row.world if kind == "devices" else row.record.nodes for at, row in enumerate(rows)}
        if len({*counts.values()} - {None}) < 2:
            continue
        texts = {one.text: one.value for one in named if one.kind == kind}
        texts |= {match[1]: float(match[1].replace(",", "")) for match in _ALONE.finditer(plain)}
        for text, value in texts.items():
            for at, count in counts.items():
                if count == value:
                    said[at].add(f"{text} {kind}")


_LABEL = re.compile(r"[A-Za-z]\d?")
_BEFORE_LETTER = re.compile(
    r"(?:^|\b(?:run|row|lauf|zeile|config\w*|setup|variant\w*|layout|case|exp\w*|job|test|ligne|corrida|ejecucion|von|of|"
    r"from|to|than|vs\.?|against|and|und|et|de|da|als|que|sur|with|mit|avec|in) |\((?:[A-Za-z], )*|as \w+ as |[^\x00-\x7f] ?)$",
    re.IGNORECASE)  # fmt: skip
_AFTER_LETTER = re.compile(r" (?:to|and|vs|against|und|is|has|does|needs|takes|runs|reaches|uses|gives|ist|hat|braucht|schafft|"
                           r"→|->|saves|makes|gets)\b|[)]|, [A-Za-z][,)]| ?[^\x00-\x7f]", re.IGNORECASE)  # fmt: skip


def _by_letters(sentence: str, rows: list[Row], said: list[set[str]]) -> None:
    for at, match in lettered(sentence, rows):
        said[at].add(match[0])


def lettered(sentence: str, rows: Sequence[Row]) -> Iterator[tuple[int, re.Match[str]]]:
    """The rows that have a letter for a name, and where it stands; one that may be a word needs one beside it that tells."""
    for at, row in enumerate(rows):
        name = next(iter(row.cells.values()), "").strip("*` ")
        if not _LABEL.fullmatch(name):
            return
        for match in re.finditer(rf"(?<![\w'’.-]){name}(?![\w'’-])", sentence) if name in sentence else ():
            before, after = sentence[: match.start()], sentence[match.end() :]
            if name[0] in _NO_WORDS or _BEFORE_LETTER.search(before) or _AFTER_LETTER.match(after):
                yield at, match


_NO_WORDS = frozenset("BCDFGHJKLMNPQRSTUVWXZ")


_DEVICES = re.compile(r"gpus?|devices?|chips?|cards?|tpus?|npus?|gcds?|accelerators?|karten|cartes|tarjetas|placas|schede")
_NODES = re.compile(r"nodes?|hosts?|box(?:es)?|knoten|n(?:oe)?uds?|nodos?|nodi|nos")


def _has_count(row: Row, value: float, kilo: str, unit: str) -> bool:
    if unit and not kilo and (_DEVICES.fullmatch(unit) or _NODES.fullmatch(unit)):
        its = row.record.gpus or row.world if _DEVICES.fullmatch(unit) else row.record.nodes
        if its == value:
            return True
    scales = (1024, 1000) if kilo else (1,)
    return any((unit and len(unit) > 2 and unit.rstrip("s") in heading_words(heading) or kilo)
               and row.figure(heading) in [scale * value for scale in scales] for heading in row.record.printed)  # fmt: skip


def _numbered(rows: list[Row], place: int) -> list[int]:
    """The row that has a number in its first cell, else the one at that place."""
    firsts = [next(iter(row.cells.values()), "").strip("#* ") for row in rows]
    first = [at for at, cell in enumerate(firsts) if cell.isdecimal() and len(cell) < 4 and int(cell) == place]
    return first[:1] or ([place - 1] if 0 < place <= len(rows) and not any(map(str.isdecimal, firsts)) else [])


_SIZE = re.compile(r"\d+(?:\.\d+)?[bm]")


@functools.lru_cache(maxsize=4096)
def tokens(cell: str) -> frozenset[str]:
    """A cell, the words of it and the parts of those, in small letters."""
    whole = plain_letters(clean(cell)).casefold().strip()
    words = set(re.findall(r"[^\W_][\w.+-]*[^\W_]", whole))
    words |= {part for word in words for part in word.split("-") if len(part) > 1}
    words |= {*_SO_MANY.findall(whole)}
    words = {word for word in words if (not word[0].isdigit() or _SIZE.fullmatch(word)) and word not in _COMMON}
    return frozenset(words | ({whole} if 1 < len(whole) < 40 and whole not in _COMMON and not whole[0].isdigit() else set()))


_SO_MANY = re.compile(r"\b\d{1,4} ?[x×*] ?([a-z]+\d\w*)(?![\w.])")
"""`1xT4`"""
_COMMON = frozenset(
    "ok oom the and with for on no yes of in as we to at by is it not row gpu gpus node nodes batch micro step steps same our "
    "all one tokens what had new up only best phase per from de la el en le un con avec mit und run tp pp dp cp ep".split())


@functools.lru_cache(maxsize=4096)
def heading_words(heading: str) -> str:
    return f"{normal(heading_in_english(clean(heading), surely=True))} {plain_letters(heading).casefold()}"


def each_sentence(said: Sequence[tuple[int, str]], longest: int) -> Iterator[tuple[int, str]]:
    """The lines that may hold a sentence, with their numbers."""
    return ((number, line) for number, line in said if line[0] != "#" and len(line) <= longest)
