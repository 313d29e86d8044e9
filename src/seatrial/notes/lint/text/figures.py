"""The quantities of a sentence, in the tongues that notes are written in: what each counts, of what, and how surely.

    for one in figures("A step takes 2.87 s on 192 nodes, i.e. 1.1 Mio. Token/s."):
        one.kind, one.text, one.values            step seconds 2.87, nodes 192, tokens a second 1.1 (1.1e6)

Kinds are those of the ledger (see `quantities`), and besides them `tflops`, `memory`, `mfu`, `hfu`, `efficiency`, `percent` and
`factor`. A number without a unit has that of the one it is joined to: `from 1762 to 1427 tokens/s`.
"""
from __future__ import annotations

import functools
import re
import unicodedata
from dataclasses import dataclass, replace

from seatrial.notes.either import small
from seatrial.notes.lint import digits
from seatrial.tables.headings import NUMBER, decimal
from seatrial.tables.tongues import lowered, plain_letters

MOST = 24
"""Figures of a sentence; beyond them it is a list."""
_SPACED = r"\d{1,3}(?: \d{3})+(?![\d.,]*\d)(?:,\d+)?"
_NUMBER = re.compile(rf"(?<![A-Za-z0-9_.^])(?<!\d[/,-])(?P<money>(?:US)?[$€£¥]\s?)?(?P<number>{_SPACED}|{NUMBER.pattern})")
_SCALE = re.compile(
    r"\s?(?:(?P<k>k(?!Wh|W|EUR|USD|g|m\b)|K|tausend|Tsd\.?|thousand|mil(?! mil| mln)(?= )|mila|тыс\.?|千)|"
    r"(?P<m>M(?!i?B|Wh|W\b|FU|i)|Mio\.?|millions?(?: de| of)?|millionen|millones(?: de)?|milion\w*(?: di)?|milhoes(?: de)?|"
    r"miljo(?:en|n)\w*|milyon|mln\.?|млн\.?|миллион\w*)|"
    r"(?P<b>B(?!F)|bn|G(?=tok)|Mrd\.?|mil(?:l?i|[jy])j?ar(?:d\w*)?(?: d[ei])?|billions?(?: of)?|"
    r"mil (?:millones|milhoes|mln)(?: de)?|miles de millones(?: de)?|bi(?:lhoes)?(?: de)?|"
    r"mld\.?|mlrd\.?|млрд\.?|миллиард\w*)|(?P<t>T(?![FPBi])|trillions?|trilhoes|billones|Bio\.?|трлн\.?|兆|万亿|萬億|조)|"
    r"(?P<wan>万|萬|만)|(?P<yi>億|亿|억))(?:(?![a-z])|(?=tok))", re.IGNORECASE)  # fmt: skip
FACTOR = re.compile(rf"(?:\b(?:times|mal|fois|por|per|veces|volte|keer|razy|на)|[x×*·÷/]) ?({NUMBER.pattern})(?![\d.,]*\d)")
"""What a product says that it has: `262 h, times 256 GCDs times 0.5`."""
_CASED = {"m": "M", "b": "B", "t": "T"}
"""Letters that stand for many only as capitals."""
_TIMES = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12, "wan": 1e4, "yi": 1e8}
_DEVICE = (r"(?:GPU'?s?|[HN]PUs?|TPUs?|devices?|accelerators?|cards?|chips?|GCDs?|ranks?|processes|karten|cartes|tarjetas|"
           r"placas|schede|kaarten|kart[ay]?|ускорител\w*|карт\w*|(?:[AHVBLP]|GH|GB|MI)\d{2,3}[A-Zs]{0,2}|[张块枚]?卡|枚|장)")
_NODE = (r"(?:nodes?|hosts?|box(?:es)?|servers?|knoten|knopen|n(?:oe)?uds?|nodos?|nodi|knooppunt(?:en)?|wezl\w*|wezel|"
         r"uzl\w*|noder|nos|"
         r"узл\w*|узел|нод\w*|ノード|个?节点|節点|노드|台|대|机(?!器|型))")  # fmt: skip
_STEP = (r"(?:steps?|iterations?|iters?|its?|updates?|schritte?n?|pas(?:os?|si|so)?|etapes?|iteracion(?:es)?|iterazion[ei]|"
         r"stap(?:pen)?|krok\w*|шаг\w*|итераци\w*|ステップ|イテレーション|步|迭代|스텝|step)")  # fmt: skip
_SECOND = r"(?:s(?:ec(?:ond)?s?)?|sekunden?|sekund\w*|secondes?|segundos?|second[oi]|seg|сек\w*|с|秒|초)"
_HOUR = r"(?:h(?:ou)?rs?|h|stunden?|std\.?|heures?|horas?|or[ae]|uur|uren|godzin\w*|час\w*|ч|小时|時間|시간)"
_DAY = r"(?:days?|d|tage?n?|jours?|dias?|giorn[oi]|dag(?:ar|en?|er)?|dni|gun(?:de)?|дн\w*|день|сут\w*|日間?|天|일)"
_END = r"(?![a-zа-я0-9_])"
_STEPS = _STEP.replace("its?|", "")
_UNITS: tuple[tuple[str, str], ...] = (
    ("device hours", rf"{_DEVICE}[ ·-]?(?:{_HOUR}|时(?!每))|(?:{_HOUR})[ -](?:de |di |von )?{_DEVICE}|卡(?:时(?!每)|小时)"),
    ("node hours", rf"{_NODE}[ ·-](?:{_HOUR})|(?:ノード|个?节点|節点|노드)[ ·・]?(?:時間?|时(?!每)|小时|시간)|knotenstunden|"
                   rf"(?:{_HOUR})[ -](?:de |di |von )?{_NODE}"),
    ("ms", r"ms|millisekunden?|millisecondes?|milliseconds?|milisegundos?|millisecondi|мс|ミリ秒|毫秒|밀리초"),
    ("s", _SECOND), ("minutes", r"min(?:s|uten?|utes?|utos?|uti)?|мин\w*|分(?:钟|間)?|분"),
    ("hours", rf"{_HOUR}(?![ -]\*?(?:core|coeur|kern|cpu))"), ("days", _DAY),
    ("weeks", r"weeks?|wochen?|semaines?|semanas?|settiman[ae]|недел\w*|週間?|周"),
    ("tokens", r"(?:token|jeton)s?|tok|toks|tokenow|токен\w*|トークン|令牌|词元|토큰"),
    ("tps", r"tps"),
    ("samples", r"samples?|sequences?|seqs?|examples?|beispiele|sequenzen|echantillons|muestras|secuencias|campioni|"
                r"サンプル|样本|샘플"),
    ("tflops", r"(?:model )?T(?:era)?FLOP(?:S|s)?(?:/s)?"), ("pflops", r"P(?:eta)?FLOP(?:S|s)?(?:/s)?"),
    ("percent", r"%|percent(?:age)?|prozent|pour cent|por ciento|por cento|per cento|procent|процент\w*|パーセント|퍼센트"),
    ("GiB", r"GiB|Gio|ГиБ"), ("GB", r"GB|Go|Gbyte|ГБ"), ("MiB", r"MiB|MB|Mo"),
    ("MWh", r"MWh"), ("kWh", r"kWh"), ("kW", r"kW"), ("W", r"W(?:atts?)?"),
    ("kmoney", r"k\s?(?:EUR|USD|[$€£])"), ("Mmoney", r"M\s?(?:EUR|USD|[$€£])"),
    ("money", r"[$€£₽]|EUR|USD|CHF|GBP|PLN|SEK|NOK|DKK|CZK|KRW|JPY|CNY|RMB|INR|euros?|dollars?|dolares|dollari|reais|"
              r"zl(?:otych)?|"
              r"kronor|kroner|francs?|franken|pounds?|yen|won|евро|руб\w*|元|美元|円|ドル|원|유로"),
    ("devices", _DEVICE), ("nodes", _NODE), ("steps", _STEPS),
    ("factor", r"[x×](?!\s?(?:\d|[AHVB]\d00|GPU|[TPDCE]P))|-?fach\w*|mal|fois|veces|volte|vezes|keer|раза?|倍|배|times"),
)  # fmt: skip
_UNIT = small(r"[\s-]?(?:" + "|".join(
    rf"(?P<u{at}>{pattern}){_END if re.search('[a-z]', pattern) and name != 'percent' else ''}"
    for at, (name, pattern) in enumerate(_UNITS)) + ")")  # fmt: skip
_NAMES = {f"u{at}": name for at, (name, _) in enumerate(_UNITS)}
_PER = re.compile(rf"\s?(?:/|,? (?:and|per|pro|par|por|je|a|an|each|every|on each|al|alla|all'|a la|na|za|за|на|в|of each) |"
                  rf" of (?:a|one|each) |(?<=\d)\b|[·⋅])\s?(?:(?P<step>{_STEP})|(?P<device>{_DEVICE})|(?P<node>{_NODE})|"
                  rf"(?P<second>{_SECOND})|(?P<hour>{_HOUR})|(?P<day>{_DAY})|(?P<kwh>kWh)|(?P<token>tok(?:ens?)?))"
                  rf"(?![a-z0-9_])", re.IGNORECASE)  # fmt: skip
_CJK_PER = re.compile(r"\s?(?:(?P<day>/日|/天|一天|每天|一日)|(?P<second>/秒|每秒|毎秒|/초)|(?P<device>/卡|/枚|/GPU))")
_BEFORE_EACH = re.compile(rf"(?:per|pro|par|por|je|a|each|every) {_DEVICE}\W{{0,3}}$|(?:每[张块]?卡|单卡|"
                          rf"毎?GPU ?(?:あたり|当たり|당)|"
                          rf"1 ?(?:GPU|カード) ?あたり|каждо\w+ {_DEVICE}|на {_DEVICE})\D{{0,8}}$", re.IGNORECASE)  # fmt: skip
_ABOUT = re.compile(r"(?:\b(?:about|some|around|roughly|approx(?:imately)?\.?|nearly|almost|close to|well|good|circa|ca\.?|"
                    r"etwa|rund|knapp|gut|ungefahr|fast|environ|pres de|presque|quelque|unos|unas|casi|cerca de|alrededor de|"
                    r"quasi|quase|circa|ongeveer|bijna|okolo|prawie|почти|около|примерно)|[~≈∼]|约|約|大约|およそ|ほぼ|약)"
                    r"\s?(?:of |de |the )?(?:US)?[$€£]?\s?$", re.IGNORECASE)  # fmt: skip
_LEAST = re.compile(r"(?:\b(?:more than|over|above|at least|beyond|exceeds?|uber|mehr als|mindestens|oberhalb (?:von)?|plus de|"
                    r"au moins|au-dessus de|mas de|al menos|por encima de(?:l)?|piu di|oltre|almeno|sopra|mais de|acima de|"
                    r"pelo menos|meer dan|boven|minstens|ponad|powyzej|более|больше|выше|свыше|не менее)|[>≥]|超过|超過|以上)"
                    r"\s?(?:the |de |of )?$", re.IGNORECASE)  # fmt: skip
_MOST = re.compile(r"(?:\b(?:less than|under|below|at most|(?<!adds )(?<!add )(?<!sum )(?<!sums )up to|within|"
                   r"no more than|unter|weniger als|hochstens|maximal|"
                   r"bis zu|"
                   r"unterhalb (?:von)?|moins de|au plus|jusqu'a|en dessous de|menos de|como maximo|hasta|por debajo de(?:l)?|"
                   r"meno di|al massimo|fino a|sotto|abaixo de|no maximo|ate|minder dan|onder|hoogstens|ponizej|менее|меньше|"
                   r"ниже|не более|до|dans|in die|into|fits? in(?:to)?)|[<≤]|不到|未満|低于|以内)\s?(?:the |de |of )?$",
                   re.IGNORECASE)  # fmt: skip
_AFTER_BOUND = re.compile(r"\s?(?:or|and|oder|ou|o|und|y) (?:more|above|better|less|fewer|mehr|plus|mas|weniger|moins|menos)\b|"
                          r"\s?(?:以上|以下|未満|以内)|\+")  # fmt: skip
_JOINED = re.compile(r"\s?(?:to|auf|bis|a|au|al|na|до|til|naar|para|and|und|et|y|e|og|en|i|и|vs\.?|versus|against|"
                     r"instead of|rather than|statt|au lieu de|en vez de|invece di|gegen|contre|"
                     r"contra|contro|tegen|or|oder|ou|->|→|–|—|-|~|/|,|から|到|至|降到|에서|と|で)"
                     r"(?: (?:only|just|nur|bare|about|rund|solo|the|nearly|almost|now|"
                     r"as much as))?\s?", re.IGNORECASE)  # fmt: skip
_SHARES = {"mfu": re.compile(r"\bmfu\b|auslastung|utili[sz]a|of (?:the |its )?(?:\w+ )?peak|der spitze|利用率|"
                             r"使用率", re.IGNORECASE),
           "hfu": re.compile(r"\bhfu\b", re.IGNORECASE),
           "efficiency": re.compile(r"effi[czk]|eficien|wydajnosc|эффективн|efektywn|効率|效率|효율|rendement\b|verimlilik|"
                                    r"of (?:perfect|ideal|linear)|scaling of", re.IGNORECASE)}  # fmt: skip
_POINTED = re.compile(r"\d{1,3}\.\d{3}|\d{1,3},\d{3}")
_AN_HOUR = 3600.0


@dataclass(frozen=True)
class Figure:
    """A number of a sentence and what it counts."""

    kind: str
    text: str
    start: int
    end: int
    values: tuple[float, ...]
    """In units of its kind; two, where a point may part decimals or thousands."""
    scale: float
    """One of what is printed, in units of the kind."""
    each: bool = False
    """Of one device, as the words before it say."""
    about: bool = False
    bound: str = ""
    """`least` or `most`, where it is one."""
    explicit: bool = True
    """Whether its unit says which kind it is: `2.87 s` may be any time."""

    @property
    def value(self) -> float:
        return self.values[0]

    @property
    def half(self) -> float:
        """Half of the last digit, in units of the kind."""
        return 0.5 * 10.0 ** -digits.places(self.text.replace(" ", "")) * self.scale

    @property
    def fine(self) -> int:
        """How many digits tell it."""
        return len(re.sub(r"\D", "", self.text).strip("0"))

    def closest(self, value: float) -> float:
        """Of what it may be the nearest."""
        return min(self.values, key=lambda one: abs(one - value))

    def near(self, value: float, share: float) -> bool:
        return any(abs(one - value) <= self.half + share * abs(value) for one in self.values)

    def like(self, value: float) -> str:
        """Another value of the kind as this one is printed."""
        shown = value / self.scale * (1 + 1e-12)  # 34.05 is 34.1
        bare = self.text.replace(" ", "")
        comma = re.fullmatch(r"\d+,\d{1,2}|\d+,\d{4,}|\d{1,3}(?:\.\d{3})+,\d+|0,\d+", bare) is not None
        pointed = re.fullmatch(r"\d{1,3}(?:\.\d{3})+(?:,\d+)?", bare) and (bare.count(".") > 1 or len(self.values) > 1)
        pointed = pointed and abs(shown - 1000 * float(decimal(bare))) < abs(shown - float(decimal(bare))) * 5
        places = 0 if pointed and not comma else digits.places(bare)
        text = f"{shown:,.{places}f}"
        if " " in self.text:
            return text.replace(",", " ").replace(".", ",")
        if pointed:
            return text.replace(",", ";").replace(".", ",").replace(";", ".")
        if comma:
            return text.replace(",", "").replace(".", ",")
        return text if re.search(r"\d,\d{3}", bare) else text.replace(",", "")


_ONE = re.compile(r"\b(?:an?|one|une?|uno|eine?|einer)(?= (?:(?:tr|b|m)ill?ion|Mill?i))", re.IGNORECASE)
"""`a trillion`"""


def plain(sentence: str) -> str:
    """Without accents and with one kind of space; as long as no letter is made of two."""
    if "illion" in sentence or "illiard" in sentence:
        sentence = _ONE.sub(lambda match: "1".ljust(len(match[0])), sentence)
    if sentence.isascii():
        return sentence
    return unicodedata.normalize("NFC", plain_letters(sentence)).replace("\u2212", "-").replace("\u00a0", " ")


@functools.lru_cache(maxsize=16384)
def figures(sentence: str) -> tuple[Figure, ...]:
    """Of a sentence in plain letters."""
    found: list[Figure] = []
    bare: list[tuple[int, int, re.Match[str]]] = []
    letters = lowered(sentence)
    for match in _NUMBER.finditer(sentence) if len(letters) == len(sentence) else ():
        if len(found) > MOST:
            return ()
        if match.start("number") and sentence[match.start() - 1] == "-" and found and found[-1].end < match.start() - 1:
            continue  # the number of a name
        one = _figure(sentence, letters, match)
        if one is not None:
            found.append(one)
        else:
            bare.append((match.start("number"), match.end(), match))
    for start, end, match in bare:  # what is joined to a figure with a unit
        after = next((one for one in found if one.start > end), None)
        if after is not None and after.kind not in ("factor", "money") and _JOINED.fullmatch(sentence[end : after.start]):
            text = match["number"]
            scale = after.scale
            found.append(replace(after, text=text, start=start, end=end, values=_values(text, scale),
                                 about=_ABOUT.search(sentence[:start]) is not None, bound=""))  # fmt: skip
        before = [one for one in found if one.end <= start]
        if after is None and before and before[-1].kind in _TOLD_AGAIN and _AND.search(sentence, before[-1].end, start) and (
                _ON.match(sentence, end)):  # fmt: skip
            found.append(replace(before[-1], text=match["number"], start=start, end=end, bound="",
                                 values=_values(match["number"], before[-1].scale)))  # fmt: skip
            found.sort(key=lambda one: one.start)
    return tuple(sorted(found, key=lambda one: one.start))


_TOLD_AGAIN = frozenset(("tokens a second", "device tokens a second", "samples a second", "step seconds", "tflops", "memory",
                         "mfu"))  # fmt: skip
_AND = re.compile(r"[^.;:()]{0,40}?(?: (?:and|und|et|y|e|en|i|и|but|och|og|against|instead of|rather than|versus|vs\.?|statt|"
                  r"gegen(?:uber)?|contre|au lieu de|frente a|en vez de|contro|invece di|tegen|in plaats van|вместо|"
                  r"против|not)|,) "
                  r"(?:only |just |nur |the |with )?$")  # fmt: skip
_ON = re.compile(r" (?:on|at|with|for|in|auf|mit|bei|sur|avec|con|su|met|op|com|em|en|na|на) \w|[.;)](?!\d)|\s*$")
"""`3,817 tokens/s on one node and 3,647 on eight`"""


def _values(text: str, scale: float) -> tuple[float, ...]:
    bare = text.replace(" ", "")
    value = float(decimal(bare)) * scale
    if scale < 1e3 and _POINTED.fullmatch(bare) and not bare.startswith("0"):
        other = float(bare.replace(",", ".")) * scale if "," in bare else 1000 * value
        return value, other
    return (value,)


def _figure(sentence: str, letters: str, match: re.Match[str]) -> Figure | None:
    end, times = match.end(), 1.0
    many = _SCALE.match(sentence, end)
    if many is not None and not many[0].isspace():
        name = next(name for name, group in many.groupdict().items() if group)
        letter = many[name]
        if len(letter) > 1 or name not in _CASED or letter in (_CASED[name], "G"):
            end, times = many.end(), _TIMES[name]
    unit = _UNIT.match(letters, end)
    if unit is None and times > 1.0 and not match["money"]:  # `48 GPU` is no 4.8e4
        unit, end, times = _UNIT.match(letters, match.end()), match.end(), 1.0
    name = _NAMES[unit.lastgroup or ""] if unit is not None else ""
    if match["money"]:
        name, after = "money", end
    else:
        after = unit.end() if unit is not None else end
    if not name:
        return None
    text, start = match["number"].rstrip("."), match.start("number")
    if name in ("GB", "GiB") and _OF_A_NAME.search(sentence[:start]):
        return None  # `A100 80GB`
    per: set[str] = set()
    while len(per) < 3 and (more := _PER.match(sentence, after) or _CJK_PER.match(sentence, after)) is not None:
        new = next(key for key, group in more.groupdict().items() if group)
        if new in per:
            break
        per.add(new)
        after = more.end()
    if times > 1.0 and name in _COUNTS and sentence[match.end()] != " " and _THE.search(sentence[max(0, start - 6) : start]):
        return None  # `the 13B steps in 10 s`
    kind, scale, explicit = _kind(name, per, sentence, start, after)
    scale *= times
    before = sentence[max(0, match.start() - 40) : match.start()]
    values = _values(text, scale)
    if not kind or not 0 < values[0] < digits.MOST_WORKED_OUT:
        return None
    least, most = _LEAST.search(before), _MOST.search(before) or kind == "memory" and _INTO.search(before)
    if least and _CONCERNS.search(before[: least.end()]):
        least = None
    bound = "least" if least else "most" if most else "any" if _AFTER_BOUND.match(sentence, after) else ""
    return Figure(kind, text, start, after, values, scale, each=_BEFORE_EACH.search(before) is not None,
                  about=_ABOUT.search(before) is not None, bound=bound, explicit=explicit)  # fmt: skip


_COUNTS = frozenset(("steps", "s", "ms", "devices", "nodes", "samples", "hours", "days"))
_THE = re.compile(r"\b(?:the|our|der|die|das|den|le|la|les|el|il|lo|o) $", re.IGNORECASE)
_OF_A_NAME = re.compile(r"(?:\b(?:[AHVBLP]|GH|GB|MI)\d{2,4}[A-Zs]{0,3}|SXM\d?|PCIe|Gaudi ?\d)[ (-]{1,2}$")
_CONCERNS = re.compile(r"[A-Z][a-z]{2,} uber\s?$")
"""`ein Antrag über 50 Mrd. Token`, behind a noun."""
_INTO = re.compile(r"\b(?:into|in|within|passt in|tient dans|cabe en|entra in)\s?$", re.IGNORECASE)


def _kind(name: str, per: set[str], sentence: str, start: int, end: int) -> tuple[str, float, bool]:
    """The kind, one of the unit in units of the kind, and whether the unit alone tells it."""
    if name == "tokens":
        if "day" in per or "hour" in per:
            kind = "device tokens a second" if "device" in per else "tokens a second"
            return kind, 1 / (24 * _AN_HOUR if "day" in per else _AN_HOUR), True
        if "device" in per and "step" not in per:
            return "device tokens a second", 1.0, True
        if "node" in per:
            return "node tokens a second", 1.0, True
        kind = "tokens a second" if "second" in per else "tokens of a step" if "step" in per else "tokens"
        return kind, 1.0, True
    if name == "tps":
        return ("device tokens a second" if "device" in per else "tokens a second"), 1.0, True
    if name == "samples":
        if "device" in per or "node" in per:
            return "", 1.0, False
        return ("samples a second" if "second" in per else "" if per - {"step"} else "samples"), 1.0, True
    if name in ("s", "ms"):
        if per - {"step"}:
            return "", 1.0, False
        return "step seconds", 1e-3 if name == "ms" else 1.0, "step" in per
    if name in ("minutes", "hours", "days", "weeks"):
        return ("" if per else "hours"), {"minutes": 1 / 60, "hours": 1.0, "days": 24.0, "weeks": 168.0}[name], False
    if name in ("tflops", "pflops"):
        of_many = "node" in per
        return ("" if of_many else name), 1.0, True
    if name == "percent":
        return _share_of(sentence, start, end), 1.0, True
    if name in ("GiB", "GB", "MiB"):
        return ("" if per - {"device"} else "memory"), 1 / 1024 if name == "MiB" else 1.0, False
    if name in ("money", "kmoney", "Mmoney"):
        scale = {"money": 1.0, "kmoney": 1e3, "Mmoney": 1e6}[name]
        if per:
            kind = {"device": "price of a device hour", "node": "price of a node hour", "hour": "price of a device hour",
                    "kwh": "price of energy"}.get(next(iter(sorted(per))), "")  # fmt: skip
            return kind, scale, True
        return "money", scale, True
    if name in ("kWh", "MWh"):
        return ("" if per else "energy"), 1e3 if name == "MWh" else 1.0, True
    if name in ("W", "kW"):
        return ("power of a device" if "device" in per else "" if per else "power"), 1e-3 if name == "W" else 1.0, False
    if name in ("devices", "nodes", "steps", "device hours", "node hours"):
        return ("" if per else name), 1.0, True
    return name, 1.0, True


def _share_of(sentence: str, start: int, end: int) -> str:
    """Of what a percentage is, by the nearest word before it in its clause, else the nearest one behind."""
    before = re.split(r"[;.] |, (?!\d)| while | und | et ", sentence[:start])[-1]
    after = re.split(r"[;:.,] ?|\)| while | and | und | et ", sentence[end : end + 48])[0]
    places = [(before_.end(), name) for name, pattern in _SHARES.items() for before_ in pattern.finditer(before)]
    nexts = [(-match.start(), name) for name, pattern in _SHARES.items() for match in pattern.finditer(after)]
    first = max(nexts, default=None)
    if first is not None and first[0] > -14:
        return first[1]
    if places:
        return max(places)[1]
    if first is not None:
        return first[1]
    return "percent"


_HOURS_AND_DAYS = (("hours", "days"), ("hour", "days"), ("h", "days"), ("stunden", "Tage"), ("std", "Tage"),
                   ("heures", "jours"), ("horas", "dias"), ("ore", "giorni"), ("uur", "dagen"), ("uren", "dagen"),
                   ("godzin", "dni"), ("часов", "дней"), ("часа", "дней"), ("小时", "天"), ("時間", "日"), ("시간", "일"),
                   ("timmar", "dagar"), ("timer", "dager"))  # fmt: skip
_A_WORD = re.compile(r"\s?-?([^\W\d_]+)")
LONG, CLOSE = 48.0, 0.05
"""From how many hours on one speaks of days."""


def in_another_unit(number: str, rest: str, hours: float) -> str:
    """A number with days for hours or hours for days, where that is what is wrong: `19.6 days` for 19.6 hours that are 470.

    A writer tells in days what is long, in hours what is short: where the unit is that, the number is wrong. `rest`: what
    stands behind it."""
    match = _A_WORD.match(rest)
    unit = match[1].casefold() if match is not None else ""
    value = float(decimal(number.replace(" ", "")))
    days = next((name for name, other in _HOURS_AND_DAYS if other.casefold() == unit), "")
    other = days or next((other for name, other in _HOURS_AND_DAYS if name == unit), "")
    right = value if days else 24 * value
    if match is None or not other or abs(right / hours - 1) > CLOSE or (hours < LONG) != bool(days):
        return ""
    return f"{number}{match[0][: len(match[0]) - len(match[1])]}{other}"
