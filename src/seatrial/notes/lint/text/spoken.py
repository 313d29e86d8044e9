"""Levels that sentences give to rows of a table: what one has, the best of a column, from where to where it goes, its bounds.

    check(sheet)          findings on figures that the rows do not give

    At 192 nodes a step takes 8.27 s.                   though the row of 192 nodes has 2.87
    The best run does 617 TFLOPs.                       though the best has 671
    MFU falls from 48.5 % to 29.3 %.                    from the first row on, to 39.3 in the last
    None of them needs more than 60 GiB.                though one has 71.2

A figure is fine that any row of any table gives, of one device or all, that two rows differ by, or that stands anywhere else.
Else it is denied by the one row that the sentence speaks of, or by all of them, where it speaks of all.
"""
from __future__ import annotations

import itertools
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from seatrial.notes.either import either
from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.models.devices import OF_DEVICES_SOLD, PEAKS_SOLD
from seatrial.notes.lint.phases.totals import is_aggregate
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.claims import MOST_ROWS, Scope, heading_words, named, scope_of, surely
from seatrial.notes.lint.text.columns_of import WORKED_OUT, Column, Columns
from seatrial.notes.lint.text.figures import Figure, figures
from seatrial.notes.lint.text.mentions import mentions, two_sides
from seatrial.notes.lint.text.sentences import Sentence
from seatrial.notes.lint.text.sides import apart, having_all
from seatrial.notes.lint.text.summed import ADDED, IN_ALL
from seatrial.tables.headings import NUMBER, decimal
from seatrial.tables.tongues import in_english, plain_letters

MOST_LINES = 4000
NEAR, VAGUE, FAR, FARTHEST, PLAIN_FAR = 0.03, 0.15, 25.0, 4000.0, 11.0
"""Within which a figure is that of a row, as means of other steps are; that is about it; beyond which factor it is of
something else."""
SAME = 0.045
GIB = 1.073741824
MISTAKEN = (24.0, 60.0, 1000.0, 3600.0)
"""Hours for days, minutes, thousands, seconds."""
CLEAR = ("the point moved", "two digits exchanged", "a digit too many")
KINDS = frozenset(("step seconds", "tokens a second", "device tokens a second", "node tokens a second", "samples a second",
                   "tflops", "pflops", "memory", "mfu", "hfu", "efficiency", "hours", "device hours", "node hours", "money",
                   "tokens", "energy", "price of tokens", "energy of a token", "price of a device hour"))
_RATES = frozenset(("tokens a second", "device tokens a second", "node tokens a second", "samples a second", "tflops", "pflops",
                    "mfu", "hfu", "efficiency"))  # fmt: skip
_COSTS = frozenset(("step seconds", "memory", "hours", "device hours", "node hours", "money", "energy", "price of tokens",
                    "energy of a token", "price of a device hour"))  # fmt: skip
_OTHERS = either(
    r"\b(?:papers?|report\w*|authors?|others|elsewhere|published|claims?|claimed|vendors?|they|their|theor\w+|targets?|goals?|"
    r"expect\w*|hope[sd]?|should|would|could|might|data ?sheets?|spec|specs|nominal|planned|plans?|budget\w*|quota|"
    r"last (?:year|week|month|time|autumn|spring)|previous\w*|yesterday|earlier|drafts?|ago|used to|"
    r"section|tables? (?:below|in)|contract\w*|not in (?:the|this) table|if|unless|until|assum\w+|"
    r"sollte\w*|wurde[n]?|konnte\w*|erwart\w*|geplant\w*|hersteller\w*|laut|wenn|fruher\w*|zuvor|vorher|angenommen|"
    r"selon|prevu\w*|objectif|devrait|pourrait|avant|auparavant|suppos\w*|"
    r"deberia\w*|podria\w*|esper\w+|objetivo|segun|antes|previst\w+|dovrebbe|potrebbe|obiettivo|"
    r"zou(?:den)?|verwacht\w*|volgens|eerder|"
    r"план\w*|цель|ожида\w*|если|раньше|ранее|согласно)\b|論文|论文|目標|目标|予定|预计|計画|计划|以前|前回|之前|如果|もし|"
    r"논문|목표|예상|이전")  # fmt: skip
"""Figures of somebody else, of another day, and of what is not yet."""
_VARIED = re.compile(
    r"\b(?:without|disabl\w*|turned off|switched off|instead|after|first (?:step|iteration|epoch)s?|(?:each|every) (?:\d|"
    r"other|epoch|hour|day|few|time)|"
    r"warm-?up|"
    r"compil\w*|checkpoints?|sav(?:es?|ing)|load\w*|start\w*|restart\w*|hangs?|timeout|wait\w*|queue|eval\w*|validation|"
    r"generat\w*|optimizer|gradients?|weights|activations?|buffers?|logits|states?|all-?reduce|bubble|comm\w*|overhead|left|"
    r"free|headroom|spare|reserved|fragment\w*|cach\w*|limit\w*|capacity|usable|capped|host|cpu|disk|download\w*|of which|"
    r"cards|gewichte|gradienten|aktivierung\w*|peak of|peak is|roofline|bandwidth|NVLink|HBM\w*|ohne|sans|sin|senza|sem|"
    r"zonder|bez|без|なし|"
    r"per (?:day|week|month|hour)|a (?:day|week|month|year)|save[sd]?|fewer|alone|"
    r"idle|lost|loses?|spent on|wasted?|steps? \d+)\b|检查点|チェックポイント|체크포인트", re.IGNORECASE)  # fmt: skip
"""Of a part of what the table has, or of a run with something else on: only a slip of the hand tells."""
_COMPARES = re.compile(r"\b(?:than|against|compared|versus|vs|over|gegen(?:uber)?|contre|instead|not|without|from|to|between|"
                       r"more|less|up|down|until|als|que|niz|чем|also|other|others|both|und|and|et)\b|より|比|→|"
                       r"->", re.IGNORECASE)  # fmt: skip
_BEST = re.compile(r"\b(?:best|fastest|highest|peaks?(?: at)?|maximum|top|winner|record|sweet spot|beste[rn]?|schnellste\w*|"
                   r"hochste\w*|meilleure?s?|plus (?:rapide|elevee?|haute?)|mejor|mas (?:rapid[oa]|alt[oa])|migliore|"
                   r"piu (?:veloce|alt[oa])|melhor|mais (?:rapid[oa]|alt[oa])|snelste|hoogste|najszybsz\w*|najlepsz\w*|"
                   r"najwyzsz\w*|лучш\w*|максим\w*|быстрее всего)\b|最速|最快|最好|最高|最佳|최고|"
                   r"가장 빠른", re.IGNORECASE)  # fmt: skip
_OF_THE_DEVICE = re.compile(r"\b(?:peak|spitze|pico|crete|picco|piek|szczyt|пик)\w*[ :=(]{1,3}"
                            r"(?:\d[\d.,]{0,8} (?:and|und|et|y|e|и) )?$|峰值 ?$|ピーク ?$|피크 ?$",
                            re.IGNORECASE)  # fmt: skip
"""`Peak 918 TFLOP/s`, which is none of a run."""
_WORST = re.compile(r"\b(?:worst|slowest|lowest|minimum|langsamste\w*|niedrigste\w*|schlechteste\w*|plus lente?|plus basse?|"
                    r"mas (?:lent[oa]|baj[oa])|peor|piu (?:lent[oa]|bass[oa])|peggiore|mais (?:lent[oa]|baix[oa])|pior|"
                    r"traagste|laagste|najwolniejsz\w*|медленнее всего|худш\w*)\b|最遅|最慢|最低|가장 느린|"
                    r"최저", re.IGNORECASE)  # fmt: skip
_MOST_OF = re.compile(r"\b(?:most|peaks? at|largest|highest|maximum|max|dearest|meisten?|hochste\w*|teuerste\w*|"
                      r"plus (?:de|cher\w*)|"
                      r"mas (?:car[oa]|memoria)|piu car[oa]|mais car[oa]|longest|langste\w*|meeste|duurste)\b|最大|最多|最贵|"
                      r"가장 많", re.IGNORECASE)  # fmt: skip
_LEAST_OF = re.compile(r"\b(?:least|smallest|lowest|minimum|cheapest|shortest|wenigsten?|gunstigste\w*|billigste\w*|"
                       r"kleinste\w*|"
                       r"moins (?:de|cher\w*)|mas barat[oa]|menos|piu economic[oa]|meno|mais barat[oa]|minste|goedkoopste)\b|"
                       r"最小|最少|最便宜|最安|가장 적", re.IGNORECASE)  # fmt: skip
_LARGEST = re.compile(r"\b(?:largest|biggest|grosste\w*|plus grande?|mayor|mas grande|piu grande|maior|grootste|"
                      r"najwieksz\w*|крупнейш\w*) (?:run|job|scale|config\w*|setup|size|cluster|lauf|essai|machine|"
                      r"setting)", re.I)
_SMALLEST = re.compile(r"\b(?:smallest|kleinste\w*|plus petite?|mas pequen\w+|piu piccol\w+|menor|kleinste) "
                       r"(?:run|job|scale|config\w*|setup|size|cluster|lauf|essai|machine|setting)", re.IGNORECASE)  # fmt: skip
_EVERY = re.compile(r"\b(?:all|every|each|any|alle|jede[rsn]?|tous|toutes|chaque|todos|todas|tutti|tutte|ogni|alles|"
                    r"каждый|все)\b|"
                    r"全て|すべて|所有|全部|모두", re.IGNORECASE)  # fmt: skip
_NONE = re.compile(r"\b(?:no (?:run|row|config\w*|setting|setup|layout|point|job|phase)|none|nothing|never|keine[rsn]?|"
                   r"kein lauf|"
                   r"aucun\w*|ningun\w*|nessun\w*|nenhum\w*|geen)\b", re.IGNORECASE)  # fmt: skip
_DIFFERS = re.compile(r"\b(?:differ\w*|gap|spread|sav(?:es?|ed|ing)|fewer|less|more|between|shorter|longer|extra|another|"
                      r"unterschied\w*|differenz|spart|sparen|weniger|mehr|kurzer|langer|difference|ecart|economise|moins|"
                      r"diferencia|ahorra|menos|mas|differenza|risparmia|meno|piu|diferenca|economiza|mais|verschil|"
                      r"minder|meer|"
                      r"roznica|mniej|wiecej|разниц\w*|меньше|больше)\b|差|节省|短|少", re.IGNORECASE)  # fmt: skip
_SAVES = re.compile(r"differ|gap|sav|fewer|shorter|longer|extra|another|unterschied|spar|kurzer|langer|ecart|econom|difer|"
                    r"ahorra|"
                    r"rispar|verschil|разниц|差|节省|短|少", re.IGNORECASE)  # fmt: skip
_OF_ANOTHER = re.compile(r"\b(?:old(?:er)?|new(?:er)?|another|different|other|driver|patch\w*|versions?|releases?|after|"
                         r"tun(?:ed|ing)|"
                         r"p9\d|percentile|var(?:y|ies)|jitter|first (?:\w+ )?(?:steps?|iterations?|day|hour)s?|spot|"
                         r"removed|once|"
                         r"worst case|nightly|ever|alte[nrs]?|neue[nrs]?|andere[nrs]?|ancien\w*|nouve\w+|autres?|nuev[oa]s?|"
                         r"viej[oa]s?|otr[oa]s?|nuov[oa]|vecchi[oa]|altr[oa]|nov[oa]s?|velh[oa]s?|outr[oa]s?)\b|旧|"
                         r"新", re.IGNORECASE)
_NUMBERED = re.compile(r"[A-Za-z-]*\d[\w.,-]*\w|[A-Za-z]*\d")
_WORD = re.compile(r"\w+(?:[.,]\d+)*")
_WITH = re.compile(r"\b(?:with|using|under|mit|avec|con|com|met|via)(?: (?:the|a|an|our|its|der|dem|den|einem|la|le|les|"
                   r"un|una|el|o))?"
                   r" ((?:[A-Za-z][\w-]*)(?: [A-Za-z][\w-]*)?)", re.IGNORECASE)  # fmt: skip
_COMMON = frozenset("all only just the and for more than most least nearly about almost which that this these its only one two "
                    "both each every them they their half twice hours steps nodes gpus cards knoten karten noeuds nodos "
                    "only nur seulement solo about etwa rund environ mfu tflops tokens gib memory".split())
_STEPPED = re.compile(r"step|iter|schritt|\bpas\b|\bpaso|\bpasso|\bpass[io]\b|etape|\bstap|krok|шаг|итерац|ステップ|步|"
                      r"迭代|스텝|"
                      r"s/it|반복", re.IGNORECASE)  # fmt: skip
_GOES = re.compile(r"\b(?:from|von|vom|de|du|des|desde|da|dal|dalla|van|z|od|с|от)\b|から|从|에서|→|->|"
                   r"\bdown to\b", re.IGNORECASE)

_ARROW = re.compile(r"[^\d.,;]{0,12}(?:->|→|=>)\s*")
_MEAN = either(r"\b(?:mean|average[ds]?|averages? out|avg\.?|on average|im (?:Mittel|Schnitt)|Mittelwert|durchschnittlich|"
               r"en moyenne|moyenne|en promedio|promedio|media|in media|em media|media|gemiddeld|srednio|srednia)\b|"
               r"平均|среднем|среднее|평균")  # fmt: skip
_USUAL = re.compile(r"\b(?:typical\w*|usual\w*|mostly|mean|median|average|around|roughly|ublich\w*|meist\w*|normal\w*|"
                    r"habituel\w*)\b",
                    re.IGNORECASE)  # fmt: skip
_OF_STEPS = re.compile(r"\b(?:mean|average|median|averaged)s?\b.{0,30}?\b(?:steps?|iterations?|its?|minutes|batches|"
                       r"updates|runs|"
                       r"windows?|seeds|repeats|hours|days of)\b", re.IGNORECASE)  # fmt: skip
_COUNTS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "zwei": 2,
           "drei": 3, "vier": 4, "funf": 5, "sechs": 6, "deux": 2, "trois": 3, "quatre": 4, "cinq": 5, "dos": 2, "tres": 3,
           "cuatro": 4, "cinco": 5, "due": 2, "tre": 3, "quattro": 4, "cinque": 5}  # fmt: skip
_COUNTED = re.compile(rf"\b(?:all|the|der|des|die|les|los|las|delle|dei|i|le|of|over|aller) "
                      rf"(\d{{1,2}}|{'|'.join(_COUNTS)}) (?!s\b|%|slow|fast|last|first)[a-zA-Z]{{3,}}",
                      re.IGNORECASE)  # fmt: skip
_ALL_ROWS = re.compile(r"\b(?:all|the) (?:rows|runs|settings|table)\b|\b(?:table|rows) above\b|\bof the column\b",
                       re.IGNORECASE)  # fmt: skip


_A_RUN = re.compile(r"\b(?:an?|per|each|one|the|pro|ein|je|par|un|une|por|una|cada|ogni|per|een) (?:run|job|row|line|lauf|"
                    r"zeile|essai|"
                    r"ligne|ensayo|prueba|fila|prova|riga|ejecucion|linha|execucao|regel)\b", re.IGNORECASE)  # fmt: skip


def stands_in(heading: str, text: str) -> bool:
    """Whether a word of a heading stands in a text."""
    return any(len(word) > 3 and word in text.casefold() for word in heading_words(heading).split())


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for file, text in sheet.prose.items():
        tables = [rows for rows in sheet.tables_of(file) if rows[0].tabular]
        if not tables or len(text.lines) > MOST_LINES:
            continue
        spoken = _Spoken(file, text.lines, tables)
        for sentence in text.sentences:
            found += spoken.judged(sentence)
    return found


_PEAK_OF = re.compile(r"\b(?:dense )?(?:b?fp?\d{1,2}|tf32) (?:tensor )?(?:peak|spitze)", re.IGNORECASE)


_POINTS = re.compile(rf"(?<![\w.,])({NUMBER.pattern})[ -]?(?:%-?|percentage |percent |prozent-?)?(?:points?|pts?\b|pp\b|"
                     rf"punkte?n?\b|"
                     rf"puntos?\b|punti\b|pontos?\b|punten\b|пункт\w*|ポイント|百分点)", re.IGNORECASE)  # fmt: skip
_OF_SHARES = (("mfu", re.compile(r"\bmfu\b|utili|auslastung|利用率", re.IGNORECASE)),
              ("hfu", re.compile(r"\bhfu\b", re.IGNORECASE)),
              ("efficiency", re.compile(r"effi[czk]|eficien|効率|效率|эффект", re.IGNORECASE)))  # fmt: skip


@dataclass
class _Spoken:
    """A file and what is known of its tables."""

    file: str
    lines: tuple[str, ...]
    tables: list[list[Row]]
    columns: dict[int, Columns] = field(default_factory=dict)
    cells: frozenset[str] | None = None
    words: Counter[str] | None = None

    def of(self, rows: tuple[Row, ...] | list[Row]) -> Columns:
        key = id(rows[0])
        if key not in self.columns:
            self.columns[key] = Columns(tuple(row for row in rows[:MOST_ROWS] if not is_aggregate(row)) or tuple(rows[:1]))
        return self.columns[key]

    def judged(self, sentence: Sentence) -> Iterator[Finding]:
        mean = _MEAN.has(sentence.text)
        its = [one for one in figures(sentence.text) if one.kind in KINDS or mean and one.kind in ("factor", "percent")]
        if not its and _POINTS.search(sentence.text) is None or _OTHERS.has(sentence.text):
            return
        scope = scope_of(self.tables, self.lines, sentence.line)
        near = list(scope.last) if scope.near else []
        if not near:
            return
        if any(one.kind == "tokens" for one in its):  # how long those take is reckoned elsewhere
            its = [one for one in its if one.kind not in ("hours", "device hours")]
        its = list(self._of_tokens(sentence.text, its, near))
        about = _About(self, sentence, its, near, scope)
        if "p" in sentence.text or not sentence.text.isascii():
            yield from about.points()
        exchanged = about.exchanged()
        if exchanged is not None:
            yield exchanged
            return
        for one in its:
            yield from about.told(one)


    def _of_tokens(self, text: str, its: list[Figure], near: list[Row]) -> Iterator[Figure]:
        """The figures, those of money and energy as the price of a token where the sentence says of how many they are."""
        tokens = [one.value for one in its if one.kind == "tokens"]
        if (many := _SO_MANY_TOKENS.search(text)) is not None and not tokens:
            tokens = [1e6 if re.match(r"million|mio|mln|млн|m$", many[1], re.IGNORECASE) else 1e9]
        if not tokens and _DEVICE_HOUR.search(text) and self.of(near).of("price of a device hour"):
            its = [replace(one, kind="price of a device hour") if one.kind == "money" else one for one in its]
        for one in its:
            kind = {"money": "price of tokens", "energy": "energy of a token"}.get(one.kind, "")
            if not kind or not tokens or not self.of(near).of(kind) and not self.of(near).of("tokens"):
                yield one
            elif len(tokens) == 1 and self.of(near).of(kind):
                values = tuple(value / tokens[0] for value in one.values)
                yield replace(one, kind=kind, values=values, scale=one.scale / tokens[0])


_DEVICE_HOUR = re.compile(r"\b(?:an?|per|each|eine?|je|pro|une?|par|una?|por|cada|ogni|per|een|na|за) (?:GPU|chip|card|"
                          r"device|TPU|karten|[AHB]\d00)[- ]?(?:hour|h|stunde|uur)\b|\b(?:heure|hora|ora)[- ](?:de )?GPU\b",
                          re.IGNORECASE)  # fmt: skip
_SO_MANY_TOKENS = re.compile(r"\b(?:per|pro|je|par|por|le|the|el|il|o|der|die|das|each|a|al|na|za|za|за|na|1)\s?(?:1 ?)?"
                             r"(milliard\w*|billion\w*|mrd\.?|mld\.?|miliard\w*|млрд\.?|million\w*|mio\.?|mln\.?|млн\.?|b|"
                             r"m|bn) ?"
                             r"(?:de |di |of )?(?:tok|jet|ток)", re.IGNORECASE)  # fmt: skip


@dataclass
class _About:
    """A sentence, its figures and the rows that it may speak of."""

    spoken: _Spoken
    sentence: Sentence
    figures: list[Figure]
    near: list[Row]
    scope: Scope
    _named: list[Row] | None = None

    @property
    def text(self) -> str:
        return self.sentence.text

    @property
    def named(self) -> list[Row]:
        if self._named is None:
            numbers = {one.text for one in self.figures}
            text = _PEAK_OF.sub(lambda match: " " * len(match[0]), self.sentence.text)
            some = [(row, by - numbers) for row, by in named(text, self.scope, []) if row in self.near]
            some = surely([(row, by) for row, by in some if by])
            rows = [row for row, _ in some]
            if len(rows) > 1:  # those that other figures of the sentence are of
                hits = {row: sum(self._has(row, one) for one in self.figures) for row in rows}
                most = max(hits.values())
                few = [row for row in rows if hits[row] == most]
                same = len({by for _, by in some}) == 1
                rows = few if same and most and len(few) == 1 else rows
            self._named = rows if len(rows) < len(self.near) or len(rows) == 1 else []
        return self._named

    def _has(self, row: Row, one: Figure) -> bool:
        return any((value := column.values.get(row)) and one.near(value, 0.002)
                   for column in self.spoken.of(self.near).of(one.kind))  # fmt: skip

    def exchanged(self) -> Finding | None:
        """Two figures of one kind, each of which is that of the other one's row: `66 on A and 93 on B`."""
        if len(self.figures) != 2 or self.figures[0].kind != self.figures[1].kind or any(one.bound for one in self.figures):
            return None
        first, second = sorted(self.figures, key=lambda one: one.start)
        some = [one for one in mentions(self.text, self.near) if all(
            one.end <= its.start or its.end <= one.start for its in self.figures)]  # fmt: skip
        ends = {True: (first.end, second.start, second.end, len(self.text)), False: (0, first.start, first.end, second.start)}
        for start, end, other, last in ends.values():
            rows = [having_all([one for one in some if begin <= one.start < stop], self.near)
                    for begin, stop in ((start, end), (other, last))]  # fmt: skip
            if any(len(its) != 1 for its in rows) or rows[0] == rows[1]:
                continue
            for column in self.spoken.of(self.near).of(first.kind):
                one, two = (column.values.get(its[0]) for its in rows)
                if one and two and abs(one / two - 1) > 2 * NEAR and first.near(two, 0.01) and second.near(one, 0.01) and not (
                        first.near(one, NEAR) or second.near(two, NEAR)):  # fmt: skip
                    right = first.like(one)
                    where = f"{rows[0][0].where} has {right}, and {rows[1][0].where} {second.like(two)}"
                    return self._finding(first, column, right, f"exchanged with {second.text}: {where}", "error")
        return None

    def points(self) -> Iterator[Finding]:
        """By how many points a share differs between the two rows that are named, or over all of the column."""
        match = _POINTS.search(self.text)
        if match is None or len(list(_POINTS.finditer(self.text))) > 1:
            return
        kind = next((kind for kind, pattern in _OF_SHARES if pattern.search(self.text)), "")
        columns = self.spoken.of(self.near).of(kind) if kind else []
        if len(columns) != 1 or len(columns[0].values) < 2:
            return
        column, both = columns[0], two_sides(mentions(self.text, self.near), self.near)
        if both is None or any(len(side) != 1 for side in both):
            return
        one, two = (column.values.get(side[0]) for side in both)
        if one is None or two is None:
            return
        said, off, half = float(decimal(match[1])), abs(one - two), 0.5 * 10.0 ** -digits.places(match[1])
        if abs(said - off) <= half + max(0.2, 0.06 * off):
            return
        right = f"{off:.{digits.places(match[1])}f}".replace(".", "," if "," in match[1] else ".")
        figure = Figure("points", match[1], match.start(1), match.end(1), (said,), 1.0)
        why = f"so much {both[0][0].where} and {both[1][0].where} differ by"
        yield self._finding(figure, column, right, why, "error")

    def told(self, one: Figure) -> Iterator[Finding]:
        if _MEAN.search(self.text):
            yield from self._mean(one) if len(self.figures) == 1 and not _OF_STEPS.search(self.text) else ()
            return
        columns = [column for column in self.spoken.of(self.near).of(one.kind) if len(column.values) > 1 or len(self.near) == 1]
        if not columns or one.kind == "memory" and one.value in OF_DEVICES_SOLD:
            return
        if one.kind == "tflops" and (one.value in PEAKS_SOLD or _OF_THE_DEVICE.search(self.text[: one.start])):
            return
        if one.bound:
            yield from self._bounded(one, columns)
            return
        if self._is_given(one, VAGUE if one.about else 0.006):
            yield from self._of_another(one, columns)
            return
        if one.kind in ADDED and IN_ALL.search(self.text) and self._is_added(one, columns):
            return
        if any(not self._is_given(other, NEAR) and _ARROW.fullmatch(self.text[a.end : b.start]) for other in self.figures
               if other.kind == one.kind for a, b in ((one, other), (other, one))):  # fmt: skip
            return  # `34 -> 37 tok/s`, of which no row has either: of an earlier version
        loosely = self._is_given(one, NEAR)
        meant = self._meant(one, columns)
        if meant is not None:
            column, value, why, sure = meant
            off = one.closest(value) / value
            right = one.like(value)
            slips = digits.slips(one.text.replace(" ", ""), (0.985 * value / one.scale, 1.015 * value / one.scale))
            typed = next((slip for slip in slips if slip.how in CLEAR), None)
            if loosely and typed is None and (not sure or abs(off - 1) < SAME) or abs(off - 1) < self._least(one):
                return
            mistaken = sure and any(abs(abs(math.log(off)) - math.log(times)) < 0.02 for times in MISTAKEN)
            far = FARTHEST if mistaken else FAR if typed is not None else 2.0 if one.kind == "memory" else PLAIN_FAR
            varied = _VARIED.search(self.text[: one.start] + self.text[one.end :]) is not None  # `a day` is of its unit
            varied = varied and not self._beside_another(one)
            if not 1 / far < off < far or (not sure and not self.named or varied) and typed is None:
                return
            plainly = sure and (one.explicit or _STEPPED.search(self.text) is not None or typed is not None)
            level: Level = "error" if plainly else "warning"
            if self._foreign and typed is None:
                return
            level = "warning" if self._foreign else level
            how = f" ({typed.how})" if typed is not None else ""
            yield self._finding(one, column, right, f"no row has it, and {why}{right}{how}", level)

    def _beside_another(self, one: Figure) -> bool:
        """Whether another figure of its kind is that of a row: `12.3 s instead of 13.1`."""
        return any(other is not one and other.kind == one.kind and self._has(row, other)
                   for other in self.figures for row in self.near)  # fmt: skip

    def _is_added(self, one: Figure, columns: list[Column]) -> bool:
        """Whether it is what two or three rows below each other have together."""
        each = [[column.values.get(row, math.nan) for row in self.near] for column in columns]
        return any(one.near(math.fsum(values[at : at + few]), 0.002) for values in each for few in (2, 3)
                   for at in range(len(values) - few + 1))  # fmt: skip

    def _least(self, one: Figure) -> float:
        """From which share on a figure is another one."""
        return VAGUE if one.about else 0.01 + one.half / max(one.value, 1e-9)

    @cached_property
    def _foreign(self) -> bool:
        """Whether it is of a run that no row of the file is: with something, or by a number, that nothing else names."""
        if _OF_ANOTHER.search(self.text):
            return True
        spoken = self.spoken
        if spoken.words is None:
            spoken.words = Counter(word for line in spoken.lines for word in {*_WORD.findall(plain_letters(line).casefold())})
        own = Counter(word for line in spoken.lines[self.sentence.first - 1 : self.sentence.last]
                      for word in {*_WORD.findall(plain_letters(line).casefold())})  # fmt: skip
        its = [(one.start, one.end) for one in figures(self.text)
               if one.kind in KINDS or one.kind in ("percent", "factor") or (one.kind, one.text) == ("steps", "1")]  # fmt: skip
        for match in _NUMBERED.finditer(self.text):
            if not any(start < match.end() and match.start() < end for start, end in its):
                words = _WORD.findall(match[0].casefold())
                if any(spoken.words[word] <= own[word] for word in words if any(map(str.isdigit, word))):
                    return True
        return any(spoken.words[word] <= own[word] for match in _WITH.finditer(self.text)
                   for word in _WORD.findall(match[1].casefold()) if len(word) > 2 and word not in _COMMON)  # fmt: skip

    # -- what gives it

    def _is_given(self, one: Figure, share: float) -> bool:
        """Whether any row has it, of one device or all, two differ by it, or it stands anywhere else."""
        if one.kind in WORKED_OUT and self._is_of_some(one, *WORKED_OUT[one.kind]):
            return True
        for rows in self.spoken.tables:
            for column in self.spoken.of(rows).of(one.kind):
                values = list(column.values.values())
                for row, value in column.values.items():
                    if any(one.near(value * times, share if times == 1.0 else min(share, 0.01)) for times in _shares(row, one)):
                        return True
                added = [math.fsum(values)]
                added += [statistics.fmean(values), statistics.median(values)] if one.about or _USUAL.search(self.text) else []
                if any(one.near(value, share) for value in added):
                    return True
                of_named = [value for row, value in column.values.items() if row in self.named]
                if len(of_named) > 1 and one.near(math.fsum(of_named), share):
                    return True
                if self._differ and len(values) <= MOST_ROWS and any(
                        one.near(abs(a - b), 0.002) for a, b in itertools.combinations(values, 2)):  # fmt: skip
                    return True
        return self._is_printed(one)

    def _is_of_some(self, one: Figure, over: str, under: str, times: float) -> bool:
        """Whether it is what all rows that have a word of the sentence give together, one column over another."""
        columns = self.spoken.of(self.near)
        above, below = ([column for column in columns.of(kind) if column.kind == kind] for kind in (over, under))
        groups = [[self.near[at] for at in mention.rows] for mention in mentions(self.text, self.near)]
        for rows in (self.near, *groups):
            for its, others in itertools.product(above, below):
                total = math.fsum(others.values.get(row, 0.0) for row in rows)
                if total and one.near(times * math.fsum(its.values.get(row, 0.0) for row in rows) / total, NEAR):
                    return True
        return False

    @cached_property
    def _differ(self) -> bool:
        """Whether the sentence may tell how much rows differ, or what one has more than another."""
        return _DIFFERS.search(self.text) is not None or _COMPARES.search(self.text) is not None and not _GOES.search(self.text)

    def _is_printed(self, one: Figure) -> bool:
        """In a cell of any column, or in another line."""
        if self.spoken.cells is None:
            self.spoken.cells = frozenset(digits.plain(cell) for rows in self.spoken.tables for row in rows[:MOST_ROWS]
                                          for cell in row.record.printed.values())  # fmt: skip
        shown = digits.plain(one.text.replace(" ", ""))
        if shown in self.spoken.cells:
            return True
        form = re.compile(rf"(?<![\d.,]){re.escape(one.text)}(?![.,]?\d)")
        return any(form.search(line) for at, line in enumerate(self.spoken.lines, 1)
                   if one.text in line and not self.sentence.first <= at <= self.sentence.last)  # fmt: skip

    def _of_another(self, one: Figure, columns: list[Column]) -> Iterator[Finding]:
        """What another row of the table has than the one that the sentence names."""
        kin = [other for other in self.figures if other.kind == one.kind]
        if len(self.named) != 1 or len(kin) > 1 or one.about or one.fine < 2 or self._compares or self._foreign:
            return
        row = self.named[0]
        if _VARIED.search(self.text) or not all(row in column.values for column in columns) or len(columns) != 1:
            return
        column = columns[0]
        own = column.values[row]
        ways = _shares(row, one)
        if any(one.near(own * times, SAME) for times in ways) or not any(
                one.near(value * times, 0.003) for mate, value in column.values.items() if mate is not row
                for times in _shares(mate, one)):  # fmt: skip
            return
        if any(row.get(name) == one.value for name in ("sec_per_it", "tflops")):
            return
        right = one.like(min((own * times for times in ways), key=lambda value: abs(math.log(one.closest(value) / value))))
        yield self._finding(one, column, right, f"another row has it, and {row.where} has {right}", "warning")

    # -- what it should be

    def _meant(self, one: Figure, columns: list[Column]) -> tuple[Column, float, str, bool] | None:
        kin = [other for other in self.figures if other is not one and other.kind == one.kind]

        def nearest(row: Row) -> tuple[Column, float] | None:
            each = one.each or one.kind == "node tokens a second"
            each = each or one.kind == "tokens a second" and all(its.kind == "device tokens a second" for its in columns)
            its = [(column, value * times) for column in columns if (value := column.values.get(row))
                   for times in (_shares(row, one) if each else (1.0,))]  # fmt: skip

            def off(pair: tuple[Column, float]) -> float:
                return min(abs(math.log(value / pair[1])) for value in one.values)

            own = [pair for pair in its if pair[0].kind == one.kind]
            close = [pair for pair in its if off(pair) < math.log(3)]
            return min(close or own or its, key=off, default=None)  # what is far off is of its own kind, if of any

        if (word := _DIFFERS.search(self.text)) is not None:
            apart = self._difference(one, kin, columns)
            if apart is not None or _SAVES.match(word[0]):
                return apart
        ends = self._ends(one, kin, columns)
        if ends is not None:
            return ends
        rows = self.named
        if rows:
            values = {row: its for row in rows if (its := nearest(row)) is not None}
            left = {row: its for row, its in values.items() if not any(other.near(its[1], NEAR) for other in kin)}
            kinds = {round(its[1], 9) for its in left.values()}
            if len(kinds) == 1 and (len(values) == 1 or len(left) == len(rows) - len(kin)):
                row, (column, value) = next(iter(left.items()))
                return column, value, f"{row.where} has ", len(values) == 1 or len(values) == len(kin) + 1
            if len(kinds) > 1:
                return self._by_slip(one, list(left.values()), 2) or self._denied(one, list(left.values()), bool(kin))
        best = self._extreme(one, columns)
        if best is not None:
            return best
        every = [(column, value) for column in columns for value in column.values.values()]
        return self._by_slip(one, every, 3)

    def _difference(self, one: Figure, kin: list[Figure], columns: list[Column]) -> tuple[Column, float, str, bool] | None:
        """Between the two rows that are named, or the two that are furthest apart."""
        if kin or len(columns) != 1 or one.kind not in _COSTS | {"tflops", "device tokens a second"}:
            return None
        column, rows = columns[0], self.named
        if len(rows) == 1 and (twin := self._twin(rows[0])) is not None:
            rows = [rows[0], twin]
        values = [column.values[row] for row in rows if row in column.values]
        furthest = not rows and _BEST.search(self.text) and _WORST.search(self.text)
        values = list(column.values.values()) if furthest else values
        if len(values) < 2 or not furthest and len(values) != 2:
            return None
        off = max(values) - min(values)
        return (column, off, "the rows differ by ", True) if off > 2 * one.half else None

    def _twin(self, row: Row) -> Row | None:
        """The one row that differs from it in what is named, and in nothing else that is chosen."""
        some = mentions(self.text, self.near)
        mates = [mate for mate in self.near if mate is not row and len(apart(row, mate)) == 1]
        at = self.near.index(row)
        named = {one.heading for one in some if at in one.rows}
        mates = [mate for mate in mates if apart(row, mate) <= named or len(mates) == 1]
        return mates[0] if len(mates) == 1 else None

    def _by_slip(self, one: Figure, values: list[tuple[Column, float]], fine: int) -> tuple[Column, float, str, bool] | None:
        """The one value from which a slip of the hand leads."""
        text = one.text.replace(" ", "")
        meant = {value: column for column, value in values if one.fine >= fine for slip in digits.slips(
            text, (value / one.scale - one.half / one.scale, value / one.scale + one.half / one.scale)) if slip.how in CLEAR}
        if len(meant) != 1:
            return None
        value, column = next(iter(meant.items()))
        return column, value, "one of the rows has ", False

    def _denied(self, one: Figure, values: list[tuple[Column, float]], several: bool
                ) -> tuple[Column, float, str, bool] | None:  # fmt: skip
        """By all of a few rows that it may be of."""
        if len(values) > 3 or several and len(values) > 2 or self._compares or not one.explicit:
            return None
        column, value = min(values, key=lambda pair: abs(math.log(one.closest(pair[1]) / pair[1])))
        off = abs(math.log(one.closest(value) / value))
        spread = max(its for _, its in values) / min(its for _, its in values)
        return (column, value, "the nearest of the rows has ", False) if 0.1 < off < math.log(3) and spread < 1.5 else None

    @property
    def _compares(self) -> bool:
        return _COMPARES.search(self.text) is not None

    def _ends(self, one: Figure, kin: list[Figure], columns: list[Column]) -> tuple[Column, float, str, bool] | None:
        """From the first row to the last, or from the most to the least: where the one end is given, the other."""
        if len(kin) != 1 or self.named or not _GOES.search(self.text):
            return None
        for column in columns:
            values = list(column.values.values())
            ends = ((values[0], values[-1]), (min(values), max(values)))
            for a, b in (*ends, *((b, a) for a, b in ends)):
                if kin[0].near(a, 0.005) and a != b and sum(kin[0].near(value, 0.005) for value in values) == 1:
                    return column, b, "the other end of the column is ", 1 / 3 < one.value / b < 3
        return None

    def _extreme(self, one: Figure, columns: list[Column]) -> tuple[Column, float, str, bool] | None:
        text = self.text
        column = min(columns, key=lambda its: min(abs(math.log(one.value / value)) for value in its.values.values()))
        rates, costs = one.kind in _RATES, one.kind in _COSTS
        if (large := _LARGEST.search(text)) or _SMALLEST.search(text):
            sizes = {row: size for row in column.values if (size := row.world or row.record.nodes)}
            end = (max if large else min)(sizes.values(), default=None)
            rows = [row for row, size in sizes.items() if size == end]
            only = len(rows) == 1 < len(sizes)
            return (column, column.values[rows[0]], f"{rows[0].where} has ", True) if only else None
        best, worst = _BEST.search(text), _WORST.search(text)
        if bool(best) == bool(worst) and not costs:
            return None
        more, less = _MOST_OF.search(text), _LEAST_OF.search(text)
        values = column.values.values()
        if one.kind == "memory" or one.kind in ("money", "hours", "device hours"):
            if bool(more) == bool(less):
                return None
            value = max(values) if more else min(values)
        elif rates:
            value = max(values) if best else min(values)
        elif one.kind == "step seconds" and bool(best) != bool(worst):
            value = min(values) if best else max(values)
        else:
            return None
        return column, value, "the best of the rows has " if best or less else "the utmost of the rows has ", True

    # -- means

    def _mean(self, one: Figure) -> Iterator[Finding]:
        """Of the rows above, where the sentence counts as many; else it lies between the least and the most of all."""
        near = [column for column in self.spoken.of(self.near).of(one.kind) if len(column.values) > 1]
        if one.kind == "percent":  # of the one column of percentages whose heading it repeats, or that there is
            near = [column for column in near if stands_in(column.heading, self.text)] or near
            near = near if len(near) == 1 else []
        every = [value for rows in self.spoken.tables for column in self.spoken.of(rows).of(one.kind)
                 for value in column.values.values()]  # fmt: skip
        counted = _COUNTED.search(in_english(self.text))
        many = (_COUNTS.get(counted[1].casefold()) or (int(counted[1]) if counted[1].isdecimal() else 0)) if counted else 0
        open_ = NEAR + one.half / one.value
        of_all = _ALL_ROWS.search(self.text) or _A_RUN.search(self.text) or one.kind == "percent" and not self.named
        if near and (many == len(near[0].values) or of_all and (not many or many > len(near[0].values))):
            values = [*near[0].values.values()]
            ways = [statistics.fmean(values), statistics.median(values), statistics.harmonic_mean(values)]
            if all(abs(one.closest(way) / way - 1) > open_ + 0.02 for way in ways):
                right = one.like(ways[0])
                why = f"the mean of the {len(values)} rows above is {right}"
                yield self._finding(one, near[0], right, why, "error")
        elif len(every) > 1 and not self._is_given(one, NEAR):
            low, high = min(every), max(every)
            value = one.closest(high)
            if not low * (1 - open_) <= value <= high * (1 + open_) and low / 4 < value < high * 4 and near:
                why = f"a mean lies between {one.like(low)} and {one.like(high)}, as the rows have it"
                yield self._finding(one, near[0], None, why, "error")

    # -- bounds

    def _bounded(self, one: Figure, columns: list[Column]) -> Iterator[Finding]:
        """`No run is below 39 %`, `all fit into 72 GiB`."""
        none, every = _NONE.search(self.text), _EVERY.search(self.text)
        if one.bound == "any" or not none and not every or len(columns) != 1 or len(self.figures) > 1:
            return
        rows, column = self.named or self.near, columns[0]
        if self.named and not none or _VARIED.search(self.text):
            return
        values = [column.values[row] for row in rows if row in column.values]
        least = (one.bound == "least") != bool(none)
        if len(values) < max(2, len(rows)) or _is_wide(values):
            return
        end = min(values) if least else max(values)
        broken = one.value > end * 1.02 + one.half if least else one.value < end * 0.98 - one.half
        if broken and 1 / FAR < one.value / end < FAR:
            right = one.like(end)
            why = f"not all rows keep to it: {'the least' if least else 'the most'} is {right}"
            yield self._finding(one, column, None, why, "warning")

    def _finding(self, one: Figure, column: Column, right: str | None, why: str, level: Level) -> Finding:
        message = f"{one.text}{f' -> {right}' if right else ''}: {why}"
        return Finding(file=self.spoken.file, line=self.sentence.line_at(one.start), code="aggregate", level=level,
                       message=message, column=column.heading, printed=one.text, proposed=right)  # fmt: skip


def _is_wide(values: list[float]) -> bool:
    return max(values) > FAR * min(values)


def _shares(row: Row, one: Figure) -> tuple[float, ...]:
    """By what a cell of the row is to be multiplied to be what a sentence may give of it."""
    if one.kind == "memory":
        return 1.0, GIB, 1 / GIB
    if one.kind not in ("tokens a second", "device tokens a second", "node tokens a second", "samples a second", "tflops",
                        "pflops"):  # fmt: skip
        return (1.0,)
    sizes = {float(size) for size in (row.world, row.record.nodes, row.procs) if size and size > 1}
    if row.world and row.record.nodes and row.record.nodes > 1:
        sizes.add(row.world / row.record.nodes)
    thousand = (1e-3,) if one.kind == "pflops" else ()
    return 1.0, *sizes, *(1 / size for size in sizes), *(size * times for size in sizes for times in thousand)
