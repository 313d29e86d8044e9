"""Which quantity a ratio of a sentence is of, by the word that stands nearest, and what two rows have of it.

    kind_of("v6e is 59 % cheaper than v5p and 1.58 times as fast", claim, start, end)      money for the first, speed else
    ratios(kind, one, other)                                                              by heading, each as a logarithm
"""
from __future__ import annotations

import math
import re
from collections.abc import Iterator

from seatrial.notes.lint.phases.quantities import OF_A_TOKEN
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.text.claims import Claim
from seatrial.notes.lint.text.columns_of import Columns

SPEED = "speed"
_WORDS = {
    "money": r"cheap|dear(?:er)?\b|expensive|\bcosts?\b|\bkost\b|price[ys]?|\bbill\b|\bpay|money|dollar|\beuros?\b|[$€£]|"
             r"teuer|teurer|billig|"
             r"gunstig|kosten|kostet|\bprix\b|\bcher\b|\bcout|precio|barat|\bcar[oa]s?\b|coste|costo|custo|economic|"
             r"goedko|\bduur|"
             r"дешев|дорож|стоим|tansz|drozs|koszt|便宜|费用|費用|成本|安い|安く|コスト|비용|저렴",
    "energy": r"energ|\bk?wh\b|mwh|joule|\bstrom|electric|corrente|elektri|энерги|电量|能耗|電力量|전력량|\bcarbon|\bco2",
    "power": r"\bpower\b|\bwatts?\b|leistungsaufnahme|puissance|potencia|potenza|мощност|功耗|消費電力",
    "memory": r"memor|speicher|\bgi?b\b|\bgo\b|vram|памят|geheugen|pamiec|显存|内存|メモリ|메모리",
    "device hours": r"(?:gpu|chip|card|node|karten|knoten)[ -]?(?:hours?|stunden|uren|часов|h\b)|"
                    r"heures?[ -](?:gpu|carte|noeud)|horas[ -](?:de )?gpu|ore gpu|卡时|GPU ?時間",
    "hours": r"\bdays?\b|\bhours?\b|\bweeks?\b|\btage?n?\b|stunden|\bjours?\b|\bheures?\b|\bhoras\b|\bgiorni\b|\bdagen\b|"
             r"\buren\b|\bчас|дне[йи]|小时|時間|日数|天数",
    "speed": r"fast|quick|speed|throughput|\btok|\brate|slow|schnell|durchsatz|langsam|rapid|vite|veloc|debit|rendimiento|snel|"
             r"doorvoer|traag|szyb|woln|быстр|медлен|ускор|произв|快|慢|吞吐|速|スループット|처리량|빠르|빨라|tflop|mfu",
    "other": r"param|peak|spitze|batch|bubble|loss\b|perplex|large|bigg?(?:er)?\b|small|\bcomm|attention|flops per|bandwidth|"
             r"latenc|tokens? (?:per|a) (?:param|step)|\bdata\b",
}  # fmt: skip
_PATTERNS = {kind: re.compile(pattern, re.IGNORECASE) for kind, pattern in _WORDS.items()}
_CHANGED = re.compile(r"\s?(?:%|percent|Prozent|pour cent|por ciento)\s?(?:de |di |en )?(?:less|more|weniger|mehr|moins|"
                      r"plus|menos|mas|meno|piu|minder|meer|higher|lower|меньше|больше)", re.IGNORECASE)  # fmt: skip
AS_A_LOSS = re.compile(r"(?:costs?|kostet\w*|coute\w*|cuesta|costa|kost|kosztuje)\s(?:\w+\s){0,2}$", re.IGNORECASE)
"""`costs us 14 %`, which is no money."""
_SO_MANY = re.compile(r"\s?(?:x|×|times|mal|fois|veces|keer|volte|раза?)?\s?(?:as many|as much|zoveel|so viele?|autant d|"
                      r"tant[oaie]s? |больше|more)\s?(?!fast|quick)", re.IGNORECASE)  # fmt: skip
_KINDS = {"price": ("price of a device hour", "price of a node hour", "price of an hour"),
          "money": ("money", "price of tokens", "price of samples"), "energy": ("energy", "energy of a token", "carbon"),
          "power": ("power", "power of a device"), "memory": ("memory",), "device hours": ("device hours", "node hours"),
          "hours": ("hours", "hours of a token")}
_OF_THE_PRICE = re.compile(r"\s?(?:x|×|times|-?fach\w*|mal|fois|veces|keer|volte|%)?\s?(?:of |de |del |des )?(?:the |its |der |"
                           r"die |den |le |la |el |il |lo |o )?(?:list )?(?:price|preis|prix|precio|prezzo|preco|prijs|цен)",
                           re.IGNORECASE)  # fmt: skip
"""`1.96x the price`, of an hour of a device."""
_ASIDE = re.compile(r"\([^()]*(?:\)|$)")
_ENDS = re.compile(r"[,;:.()] | (?:and|und|et|y|e|en|и|but|while|for) ")
_BUT = re.compile(r"[,;] (?:but|pero|aber|doch|mais|ma|mas|maar|но|ale|men|while|whereas|though)\b")
"""What follows is of something else."""
NEAR = 48


def is_of(kind: str, text: str) -> bool:
    return _PATTERNS[kind].search(text) is not None


def bare(text: str, claim: Claim, start: int, end: int) -> str:
    """A clause without what stands in brackets, and without a verb of loss before the number."""
    before = text[start : claim.start]
    if claim.way != "times" and not _CHANGED.match(text, claim.start + len(claim.text)):
        before = AS_A_LOSS.sub("", before)
    return _ASIDE.sub(" ", before) + _ASIDE.sub(" ", text[claim.start : end]) if before.count("(") <= before.count(")") else (
        text[start:end])  # fmt: skip


def kind_of(text: str, claim: Claim, start: int, end: int) -> str:
    """By the nearest word of its clause, what is behind the number before what stands in front; empty where there is none."""
    stop = claim.start + len(claim.text)
    verb = claim.way != "times" and not _CHANGED.match(text, stop)
    loss = AS_A_LOSS.search(text[start : claim.start]) if verb else None
    text = _ASIDE.sub(lambda match: match[0] if match.start() < claim.start < match.end() else " " * len(match[0]), text)
    but = _BUT.search(text, stop, end)
    end = but.start() if but is not None else end
    start = max([start, *(match.end() for match in _BUT.finditer(text, start, claim.start))])
    nearest: list[tuple[float, str]] = []
    for kind, pattern in _PATTERNS.items():
        for match in pattern.finditer(text, start, end):
            if loss is not None and kind == "money" and loss.start() + start <= match.start() < claim.start:
                continue
            gap = match.start() - stop if match.start() >= stop else 1.5 * (claim.start - match.end()) + 4
            nearest.append((gap, kind))
    gap, kind = min(nearest, default=(0.0, ""))
    if kind == "money" and _OF_THE_PRICE.match(text, stop):
        return "price"
    so_many = _SO_MANY.match(text, stop)
    if so_many is not None and kind in ("money", "hours", "device hours") and not _PATTERNS[kind].match(text, so_many.end()):
        return "other"  # `1.5 times as many units`
    return kind if gap < NEAR else "other" if so_many is not None else ""


def kind_after(text: str, claim: Claim) -> str:
    """What the words right behind a number say that it is of: `8 % slower`."""
    behind = _ENDS.split(text[claim.start + len(claim.text) :][:32])[0]
    places = [(match.start(), kind) for kind, pattern in _PATTERNS.items() if (match := pattern.search(behind))]
    return min(places, default=(0, ""))[1]


def ratios(kind: str, one: Row, other: Row, *, of_a_token: bool = False) -> Iterator[tuple[float, str]]:
    """What the columns of a kind give, and of hours also where nothing else tells the speed."""
    columns = Columns((one, other))
    names = _KINDS["hours" if kind == SPEED else kind]
    each = [name for name in names if name in (f"energy{OF_A_TOKEN}", "price of tokens") and columns.of(name)]
    for name in each if of_a_token and each else names:
        for column in columns.of(name):
            if not column.printed and not of_a_token:
                continue  # which only follows from others
            a, b = column.values.get(one), column.values.get(other)
            if a and b and a > 0 and b > 0:
                yield (math.log(b / a) if kind == SPEED else math.log(a / b)), column.heading
