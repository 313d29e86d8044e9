"""What a whole run is told in: hours, devices, steps, tokens, money, energy; and what follows from what, by definition.

    meanings("GPU-h")            [("device hours", 1.0)]: what a heading may stand for, with its unit
    equations(kinds)             what columns of such kinds have to do with each other, whichever are there

    | phase | GPUs | steps  | s/step | hours | GPU-h  | tokens (B) | cost ($) |
    | main  |  256 | 20,000 |   5.40 |  30.0 |  7,680 |       83.9 |   16,896 |

Each law is a product that is 1 in units of hours, tokens, kilowatt hours and so on. What a table does not show (the hours
above, were there none) is eliminated between two laws; what it may have in common and nobody states (the price of an hour, the
tokens of a step) is left free, for the rows to agree on.
"""
from __future__ import annotations

import functools
import itertools
import math
import re
from dataclasses import dataclass

from seatrial.notes.lint.headings import field_of
from seatrial.tables.elsewhere import is_elsewhere
from seatrial.tables.headings import batch_of_tokens, normal, plainly, read_heading
from seatrial.tables.spelled import respelled
from seatrial.tables.worded import heading_in_english

SECONDS = math.log(3600.0)
LAWS: tuple[tuple[dict[str, int], float], ...] = (
    ({"device hours": 1, "devices": -1, "hours": -1}, 0.0),
    ({"node hours": 1, "nodes": -1, "hours": -1}, 0.0),
    ({"devices": 1, "nodes": -1, "devices of a node": -1}, 0.0),
    ({"hours": 1, "steps": -1, "step seconds": -1}, SECONDS),
    ({"hours": 1, "tokens": -1, "tokens a second": 1}, SECONDS),
    ({"hours": 1, "samples": -1, "samples a second": 1}, SECONDS),
    ({"tokens a second": 1, "device tokens a second": -1, "devices": -1}, 0.0),
    ({"tokens a second": 1, "tokens of a step": -1, "step seconds": 1}, 0.0),
    ({"samples a second": 1, "batch": -1, "step seconds": 1}, 0.0),
    ({"tokens": 1, "steps": -1, "tokens of a step": -1}, 0.0),
    ({"tokens": 1, "samples": -1, "sequence": -1}, 0.0),
    ({"tokens of a step": 1, "batch": -1, "sequence": -1}, 0.0),
    ({"samples": 1, "steps": -1, "batch": -1}, 0.0),
    ({"samples": 1, "epochs": -1, "samples of an epoch": -1}, 0.0),
    ({"tokens": 1, "epochs": -1, "tokens of an epoch": -1}, 0.0),
    ({"money": 1, "device hours": -1, "price of a device hour": -1}, 0.0),
    ({"money": 1, "node hours": -1, "price of a node hour": -1}, 0.0),
    ({"money": 1, "hours": -1, "price of an hour": -1}, 0.0),
    ({"money": 1, "energy": -1, "price of energy": -1}, 0.0),
    ({"money": 1, "tokens": -1, "price of tokens": -1}, 0.0),
    ({"money": 1, "samples": -1, "price of samples": -1}, 0.0),
    ({"energy": 1, "device hours": -1, "power of a device": -1}, 0.0),
    ({"energy": 1, "node hours": -1, "power of a node": -1}, 0.0),
    ({"energy": 1, "hours": -1, "power": -1}, 0.0),
    ({"power": 1, "power of a device": -1, "devices": -1}, 0.0),
    ({"energy of the site": 1, "energy": -1, "overhead of the site": -1}, 0.0),
    ({"carbon": 1, "energy": -1, "carbon of energy": -1}, 0.0),
    ({"carbon": 1, "energy of the site": -1, "carbon of energy": -1}, 0.0),
    ({"operations": 1, "device hours": -1, "utilisation": -1, "peak of a device": -1}, -math.log(3600 * 1e12)),
    ({"size of a file": 1, "trained parameters": -1, "bytes of a parameter": -1}, 0.0),
    ({"size of the state": 1, "trained parameters": -1, "bytes of a state": -1}, 0.0),
    ({"trained share": 1, "trained parameters": -1, "parameters of a model": 1}, 0.0),
    ({"hours of a token": 1, "tokens a second": 1}, SECONDS),
    ({"device hours of a token": 1, "hours of a token": -1, "devices": -1}, 0.0),
    ({"energy": 1, "tokens": -1, "energy of a token": -1}, 0.0),
)
FREE = ("price of a device hour", "price of a node hour", "price of energy", "power", "power of a device", "power of a node",
        "carbon of energy", "overhead of the site", "peak of a device", "bytes of a parameter",
        "bytes of a state", "parameters of a model", "tokens of a step", "samples of an epoch",
        "tokens of an epoch")  # fmt: skip
"""What rows may have in common without a column for it: those of one device, of one model, or all."""
OF_AS_MANY = (("device hours", "devices"), ("node hours", "nodes"))
"""Hours of all, and of what: of as many in all rows, where no column counts them."""
AMOUNTS = frozenset(("hours", "device hours", "node hours", "money", "energy", "energy of the site", "carbon", "tokens",
                     "samples", "price of tokens", "price of samples", "hours of a token", "device hours of a token",
                     "energy of a token", "operations", "trained parameters"))  # fmt: skip
"""Of whole runs: laws of nothing but steps, devices and batches are those that `relations` has."""
ON_THE_CLOCK = frozenset(("hours", "device hours", "node hours"))
WORKED = frozenset(("steps", "tokens", "samples"))
"""Hours that were read off a clock hold what steps, tokens and samples do not: restarts, checkpoints."""
CHOSEN = frozenset(("tokens of a step", "samples of an epoch", "tokens of an epoch"))
_DIRECT = frozenset((tuple(sorted(powers.items())), constant) for powers, constant in LAWS)
MOST_KINDS = 6
GAIN = "gain"
"""One column over another: `columns.ratios`."""


@dataclass(frozen=True)
class Equation:
    """Powers of kinds whose product, times e to the constant, is 1."""

    powers: tuple[tuple[str, int], ...]
    constant: float
    free: str = ""
    """The kind that rows are to agree on, where no column has it: then the product is the same in all of them."""
    past: bool = False
    """Whether a column that is there was left out: rows keep to it closely, or theirs was worked out from rounded figures."""

    @functools.cached_property
    def clocked(self) -> bool:
        """Whether time on a clock is held against what was done in it."""
        kinds = {kind for kind, _ in self.powers}
        return bool(kinds & ON_THE_CLOCK and kinds & WORKED) or "money" in kinds and bool(kinds & WORKED)


def _eliminated(forms: dict[tuple[tuple[str, int], ...], float], kind: str) -> dict[tuple[tuple[str, int], ...], float]:
    """Without a kind that no column has: each two forms that have it, divided by each other."""
    rest = {powers: constant for powers, constant in forms.items() if all(name != kind for name, _ in powers)}
    having = [(dict(powers), constant) for powers, constant in forms.items() if any(name == kind for name, _ in powers)]
    for (one, its), (other, theirs) in itertools.combinations(having, 2):
        sign = -1 if one[kind] == other[kind] else 1
        made = {name: one.get(name, 0) + sign * other.get(name, 0) for name in {**one, **other}}
        powers = tuple(sorted((name, power) for name, power in made.items() if power))
        if 1 < len(powers) <= MOST_KINDS and max(abs(power) for _, power in powers) == 1:
            rest.setdefault(powers, its + sign * theirs)
    return rest


@functools.lru_cache(maxsize=1024)
def equations(kinds: frozenset[str]) -> tuple[Equation, ...]:
    """Those with what is there alone, and those in which one kind more is free; the shortest first."""
    forms = {tuple(sorted(powers.items())): constant for powers, constant in LAWS}
    possible = {*kinds, *FREE}
    while True:  # what stands in one law only, and is neither there nor free, makes it useless
        count: dict[str, int] = {}
        for powers in forms:
            for name, _ in powers:
                count[name] = count.get(name, 0) + 1
        useless = [powers for powers in forms if any(name not in possible and count[name] == 1 for name, _ in powers)]
        if not useless:
            break
        for powers in useless:
            del forms[powers]
    for kind in sorted({name for powers in forms for name, _ in powers} - possible, key=lambda name: (count[name], name)):
        forms = _eliminated(forms, kind)
    direct = {*forms}
    for kind in ("hours", "device hours", "tokens"):
        forms |= _eliminated(forms, kind) if kind in kinds else {}
    found = []
    for powers, constant in sorted(forms.items(), key=lambda form: (len(form[0]), form[0])):
        missing = [name for name, _ in powers if name not in kinds]
        of_runs = any(name in AMOUNTS for name, _ in powers if name in kinds)
        # What may be chosen anew in every row is free in a law as it stands alone.
        of_runs = of_runs and not (missing and missing[0] in CHOSEN and (powers, constant) not in _DIRECT)
        # All devices together have one power where they are as many in all rows.
        of_runs = of_runs and not (missing == ["power"] and {"devices", "device hours"} & kinds)
        if of_runs and len(missing) <= 1 and len(powers) - len(missing) > 1:
            there = tuple((name, power) for name, power in powers if name in kinds)
            sign = 1 if there[0][1] > 0 else -1
            free = missing[0] if missing else ""
            signed = tuple((name, sign * power) for name, power in there)
            found.append(Equation(signed, sign * constant, free, powers not in direct))
    found += [Equation(((spent, 1), ("hours", -1)), 0.0, count) for spent, count in OF_AS_MANY if {spent, "hours"} <= kinds
              and not {"devices", "nodes"} & kinds]  # fmt: skip
    # What follows without anything free needs no more of it.
    told = {equation.powers for equation in found if not equation.free}
    found = [one for one in found if not one.free or one.powers not in told and not one.past]
    return tuple({(one.powers, one.free): one for one in found}.values())


# ---- what a heading stands for

FIELDS = {"gpus": "devices", "nodes": "nodes", "gbs": "batch", "seq": "sequence", "iteration": "steps",
           "sec_per_it": "step seconds", "tokens_per_s": "tokens a second", "samples_per_s": "samples a second",
           "tokens_per_s_per_process": "device tokens a second", "procs_per_node": "devices of a node",
           "mfu": "utilisation"}  # fmt: skip
DEVICE = r"(?:gpu|device|card|tpu|npu|hpu|chip|gcd|accelerator|core|[ahvbl]\d{2,3}s?|mi\d+x?|gh\d+|gb\d+|gaudi\d?)s?"
_CURRENCY = re.compile(r"\b(?:usd|eur|chf|gbp|jpy|yen|dollars?|euros?|k(?:usd|eur|chf)|rub|руб\w*|pln|zl|sek|nok|dkk|czk|"
                       r"rmb|cny|yuan|krw|inr)\b|[$€£¥₽元円원]")
_MONEY = re.compile(r"\b(?:costs?|price|kosten|cout|couts|coste|custo|costo|bill|charge|spend|spent|amount|betrag|koszt)\b")
_PRICE = re.compile(r"\b(?:rate|price|tariff|tarif|preis|prix|precio|prezzo|unit)\b")
_HOUR, _DAY = r"(?:hours?|hrs?|h)", r"(?:days?|d)"
_BESIDE_TIMES = r"(?: (?:net|total|wall|used|est|each))?(?: of)?(?: training| run)?(?: clock)?"
_TIMES = tuple((re.compile(rf"(?:.* )?{unit}{_BESIDE_TIMES}"), hours) for unit, hours in (
    (_HOUR, 1.0), (_DAY, 24.0), (r"(?:minutes?|mins?)", 1 / 60), (r"weeks?", 168.0)))  # fmt: skip
_SPENT = re.compile(rf"(?:(?P<k>k) )?(?:.* )?(?:(?P<device>{DEVICE})|(?P<node>node|vm|instance)s?) ?"
                    rf"(?P<unit>{_HOUR}|{_DAY}|min(?:ute)?s?)(?: (?P<m>k|m|thousands?|millions?|1e3|1e6))?"
                    r"(?: used| total| spent)?"
                    rf"|{_HOUR} (?:de |of )?(?:(?P<device2>{DEVICE})|(?P<node2>node|knoten|noeud))(?: .*)?")  # fmt: skip
_RUN_TIME = re.compile(r"(?:total |full |overall |net |end to end )?(?:(?:train(?:ing)?|run|job|pretraining|wall ?clock|wall|"
                       r"elapsed) ?(?:run ?)?(?:time|duration|length)|run ?time|walltime|duration|elapsed|time to train|"
                       r"train(?:ing)? runtime|t (?:train|wall|total|run)|"
                       r"(?:train(?:ing)?|run|wall ?clock)(?= s(?:ecs?|econds?)?$))"
                       r"(?: total| elapsed)?(?: (?P<unit>s|secs?|seconds?))?")
_TOKENS = re.compile(r"(?:(?:.* )?(?P<a>[kmbtg]|mio|mrd|bn|(?:b|m|tr)illions?|thousands?)(?: of)? ?|.* )?(?:tokens?|toks?)"
                     r"(?: (?:seen|trained|done|total|in|so far|sum|of|training|processed|number|num))*"
                     r"(?: (?P<b>[kmbtg]|mm|bn|mrd|mio|billions?|millions?|trillions?|1e\d+))?(?: (?:seen|trained|total))?"
                     r"|(?P<c>[kmbtg])tok(?:en)?s?")  # fmt: skip
_RATE = re.compile(r"(?P<k>[kmg]|mio)? ?(?:tok(?:en)?s?|tps|wps)(?: per)? (?:s|sec|second)(?P<each> (?:per )?.+)?|"
                   r"(?P<k2>[km])?tps")  # fmt: skip
_OF_SOME = re.compile(r"\b(?:nodes?|replicas?|groups?|stages?|pipelines?|experts?|layers?)\b")
"""Of more than a device and less than all."""
_OF_ONE_TOKEN = re.compile(r"(?:energy |per tok(?:en)? )?(?P<m>[mk])?(?P<unit>j|joules?|wh) per tok(?:en)?s?")
_OF_DAYS = re.compile(r"(?:duration|run ?time|wall ?time|time|laufzeit) (?:j|jrs?|g|gg|tg|sut)")
"""`durée (j)`, `durata (g)`."""
_OPERATIONS = re.compile(r"(?:c|total|train(?:ing)?|compute|model|budget|\W)*(?P<u>[pez])?flops?(?: (?P<m>1e\d+))?")
_MANY_OPERATIONS = {"p": 1e15, "e": 1e18, "z": 1e21}
_TRAINED = re.compile(r"(?:trainable|trained|(?:q?lora|dora|adapter) (?=p))(?: ?(?:params?|parameters|weights))?"
                      r"(?: (?P<m>[mkb]))?|"
                      r"(?:params?|parameters|parametres|parametros|parametri|parameter) (?:trainable|entrainables|entrenables|"
                      r"treinaveis|addestrabili|trainierbar)(?: (?P<m2>[mkb]))?")  # fmt: skip
_BYTES_OF = re.compile(r"(?:(?P<state>(?:optimizer |train(?:ing|ed)? )?states?)|(?:adapter |lora |ckpt |checkpoint )?"
                       r"(?:file(?: size)?|(?:size )?on disk|datei|fichier|archivo|safetensors|adapter size))"
                       r"(?: (?P<unit>[kmgt])i?[bo])?")  # fmt: skip
_SHARE = re.compile(r"(?:share|fraction|anteil|% of (?:the )?(?:model|base|total|all))(?: %)?")
_SAMPLES = re.compile(r"(?:.* )?(?P<k>k)? ?(?:samples?|examples?|sequences|seqs)(?: (?:seen|total|in|done))*(?: (?P<m>[km]))?")
_ENERGY = re.compile(r"(?:.* )?(?P<k>[kmg])?wh(?: .*)?|(?:.* )?energy (?:.* )?(?P<j>[kmg])?(?:j|joules?)")
_POWER = re.compile(rf"(?:.*\b(?P<before>(?:per )?(?:{DEVICE}|each)|(?:per )?node) )?(?:.* )?(?P<k>k|m)?(?:w|watts?)"
                    rf"(?: (?P<each>(?:per )?(?:{DEVICE}|each)|(?:per )?node))?(?: .*)?")  # fmt: skip
_CARBON = re.compile(r"(?:.* )?(?P<unit>kg|t|tons?|tonnes?)? ?co2(?:e|eq)?(?: (?P<unit2>kg|t|tons?|tonnes?))?(?: .*)?")
_OF_ENERGY = re.compile(r"(?P<k>k)?g(?: co2(?:e|eq)?)?(?: per)? kwh")
_MANY = {"k": 1e3, "m": 1e6, "mi": 1e6, "b": 1e9, "bi": 1e9, "bn": 1e9, "g": 1e9, "mr": 1e9, "mm": 1e9, "t": 1e12, "tr": 1e12,
         "ml": 1e9, "mln": 1e6, "mil": 1e3, "mila": 1e3}  # fmt: skip
_MILLIARD = re.compile(r"mil(?:l?i|[jy])j?ar|mil m|miles de m")
"""A thousand millions: `milliards`, `Milliarden`, `miliardi`, `miljard`, `milyar`, `mil millones`."""
_PER = re.compile(r"\bper\b|/")
OF_A_TOKEN = " of a token"
_SO_MANY = re.compile(r"(?P<of>.+?) (?:for|per|pour|fur|por|para|pro|je|to|to train|until)(?: the)? (?P<count>\d+(?: \d+)?)? ?"
                      r"(?P<many>k|m|b|t|bn|tn|mrd|mio|billions?|millions?|trillions?|milliards?|mld)?"
                      r"(?P<tokens> ?(?:de |di |of )?tok(?:en)?s?)?(?P<unit> (?:h|hours|d|days|tage|kwh|usd|eur))?")
"""`days for 2T tokens`, `GPU hours per B tokens`, `hours for 30B`: what so many tokens take."""


def many(letters: str | None) -> float:
    """What a letter or a word for many stands for."""
    word = (letters or "").casefold()
    if word.startswith("thous"):
        return 1e3
    if word[:2] == "1e":
        return float(word)
    if word[:3] == "mil" and _MILLIARD.match(word):
        return 1e9
    return _MANY.get(word) or _MANY.get(word[:2]) or _MANY.get(word[:1], 1.0)


Meaning = tuple[str, float]
MOST_UNIT = 1e24
"""What a heading may count in: `tok (1e400)` is nothing."""


@functools.lru_cache(maxsize=8192)
def meanings(heading: str) -> tuple[Meaning, ...]:
    """The kinds that a heading may stand for, each with how many of its units one of the column is; most likely first."""
    column = read_heading(heading)
    if (kind := FIELDS.get(column.field)) is not None:
        return ((kind, 1.0),)
    if column.field or len(heading) > 80:
        return ()
    if (unit := batch_of_tokens(heading)) is not None:
        return (("tokens of a step", many(unit)),)
    plain = plainly(heading)
    words = normal(heading_in_english(plain, surely=True)).strip().replace("co 2", "co2")
    if (trained := _TRAINED.fullmatch(words)) is not None:
        return (("trained parameters", many(trained["m"] or trained["m2"])),)
    if is_elsewhere(words):
        return ()
    others = (other for other in respelled(plain) if not read_heading(other).field)
    ways = [(words, plain), *((normal(heading_in_english(other, surely=True)), other) for other in others)]
    meant = next(filter(None, (_meant(said, f"{said} {text.casefold()}") for said, text in ways)), ())
    return tuple(one for one in meant if 1 / MOST_UNIT < one[1] < MOST_UNIT)


def _meant(words: str, both: str) -> list[Meaning]:
    """`both`: the words and the heading as it stands, with its signs."""
    if (so_many := _of_tokens(words, both)) is not None:
        return so_many
    currency = _CURRENCY.search(both) is not None
    spent = _SPENT.fullmatch(words)
    if currency or _MONEY.search(words):
        return _of_money(words, both, currency)
    if spent is not None:
        kind = "device hours" if spent["device"] or spent["device2"] else "node hours"
        times = {"d": 24.0, "m": 1 / 60}.get((spent["unit"] or "")[:1], 1.0)
        return [(kind, many(spent["k"] or spent["m"]) * times)]
    if (of := _OF_ENERGY.fullmatch(words)) is not None:
        return [("carbon of energy", 1.0 if of["k"] else 1e-3)]
    if "co2" in words and (carbon := _CARBON.fullmatch(words)) is not None:
        return [("carbon", 1e3 if (carbon["unit"] or carbon["unit2"] or "")[:1] == "t" else 1.0)]
    if (energy := _ENERGY.fullmatch(words)) is not None and not _PER.search(words):
        unit = {"k": 1.0, "m": 1e3, "g": 1e6}.get(energy["k"] or "", 1e-3)
        if words.endswith(("j", "joule", "joules")):
            unit = {"k": 1e3, "m": 1e6, "g": 1e9}.get(energy["j"] or "", 1.0) / 3.6e6
        return [("energy", unit), ("energy of the site", unit)]
    if re.fullmatch(r"(?:total |train(?:ing)? |run )*energy(?: (?:used|consumed|total|consumption))*", words):
        return [("energy", 1.0), ("energy of the site", 1.0)]
    if words == "pue":
        return [("overhead of the site", 1.0)]
    if (rate := _RATE.fullmatch(words)) is not None and not _OF_SOME.search(words):
        unit = many(rate["k"] or rate["k2"])
        each = rate["each"] is not None and re.search(rf"\b{DEVICE}\b", rate["each"])
        return [("device tokens a second", unit)] if each else [("tokens a second", unit), ("device tokens a second", unit)]
    if (size := _BYTES_OF.fullmatch(words)) is not None:
        return [("size of the state" if size["state"] else "size of a file", many(size["unit"]))]
    if _SHARE.fullmatch(words):
        return [("trained share", 1.0)]
    if (operations := _OPERATIONS.fullmatch(words)) is not None and not _PER.search(both):
        return [("operations", _MANY_OPERATIONS.get(operations["u"] or "", 1.0) * float(operations["m"] or 1.0))]
    if (one := _OF_ONE_TOKEN.fullmatch(words)) is not None:
        times = {"m": 1e-3, "k": 1e3}.get(one["m"] or "", 1.0)
        return [("energy" + OF_A_TOKEN, times * (1e-3 if one["unit"] == "wh" else 1 / 3.6e6))]
    if _PER.search(both):
        power = _POWER.fullmatch(words)
        return _of_power(power) if power is not None and (power["each"] or power["before"]) else []
    if words in ("epochs", "epoch", "epochen", "epoques", "epocas"):
        return [("epochs", 1.0)]
    if (tokens := _TOKENS.fullmatch(words)) is not None and "max" not in words and "seq" not in words:
        return [("tokens", many(tokens["a"] or tokens["b"] or tokens["c"]))]
    if (samples := _SAMPLES.fullmatch(words)) is not None:
        return [("samples", many(samples["k"] or samples["m"]))]
    if (power := _POWER.fullmatch(words)) is not None:
        return _of_power(power)
    if _OF_DAYS.fullmatch(words):
        return [("hours", 24.0)]
    if field_of(words) in ("", "iteration") and (hours := next((unit for form, unit in _TIMES if form.fullmatch(words)), None)):
        return [("hours", hours)]
    if (run := _RUN_TIME.fullmatch(words)) is not None:
        return [("hours", 1 / 3600 if run["unit"] else 1.0)]
    steps = re.fullmatch(r"(?:.* )?(?:steps?|iters?|iterations?|updates)(?: (?P<k>k|m|1e3|thousands?))?(?: .*)?", words)
    return [("steps", many(steps["k"]))] if steps is not None else []


def _of_tokens(words: str, both: str) -> list[Meaning] | None:
    """What a heading is by its count of tokens; None where it has none."""
    match = _SO_MANY.fullmatch(words)
    if match is None or not (match["many"] or match["tokens"] and match["count"]):
        return None
    tokens = min(float((match["count"] or "1").replace(" ", ".")) * many(match["many"]), MOST_UNIT)
    found: list[Meaning] = []
    of = (match["unit"] or match["of"]).strip()
    for kind, unit in _meant({"d": "days"}.get(of, of), both.replace(words, of)) if tokens else ():
        if kind in ("hours", "device hours", "energy") and (match["tokens"] or kind == "hours" and tokens >= 1e9):
            found.append((kind + OF_A_TOKEN, unit / tokens))
            # Of a run of that length the hours are the run's.
            found += [(kind, unit)] if match["count"] and kind == "hours" else []
        elif kind == "money" and match["tokens"]:
            found.append(("price of tokens", unit / tokens))
    return found or None


def _of_power(power: re.Match[str]) -> list[Meaning]:
    unit = {"k": 1.0, "m": 1e3}.get(power["k"] or "", 1e-3)
    if each := power["each"] or power["before"]:
        return [("power of a node" if "node" in each else "power of a device", unit)]
    return [("power", unit), ("power of a device", unit)]


_THOUSANDS = re.compile(r"\b(?:k|thousands?|tausend|miles|milliers|migliaia|mil|tsd)\b|\bk(?:usd|eur|chf|€|\$)|k[$€£]")


_PER_RUN = re.compile(r"\bper (?:training )?(?:run|job|training)\b")


_OF_AN_HOUR = re.compile(rf"(?:[a-z]{{3}}|[$€£]) (?P<of>{DEVICE}|node) ?(?P<unit>{_HOUR})")
"""`usd_gpuh`"""


def _of_money(words: str, both: str, currency: bool) -> list[Meaning]:
    times = 1e3 if _THOUSANDS.search(both) else 1.0
    each = re.search(rf"(?:\bper\b|/|\bof(?: of)? (?=hour))\s?(?:(?P<of>[a-z]\w*)[\s-]?(?:and |/ ?)?)??(?P<unit>{_HOUR})\b",
                     both)  # fmt: skip
    each = each or (_OF_AN_HOUR.fullmatch(words) if currency else None)
    if each is not None or _PRICE.search(words) and not _PER.search(words):
        of = each["of"] if each is not None else None
        if of and re.fullmatch(r"nodes?|vm|instance|machine", of):
            return [("price of a node hour", times)]
        return [("price of a device hour", times), ("price of a node hour", times), ("price of an hour", times)]
    if re.search(r"\bper\b.*\bkwh\b|/\s?kwh", both):
        return [("price of energy", times)]
    if re.search(r"\bper\b.*tok|/.*tok", both):
        count = re.search(r"(?:\bper|/) ?(\d+(?:\.\d+)?)? ?([kmbt]|bn|mrd|mio|[mb]illions?|trillions?)? ?tok", both)
        of = float(count[1] or 1) * many(count[2]) if count is not None else 1.0
        return [("price of tokens", times / (min(of, MOST_UNIT) or 1.0))]
    if re.search(r"\bper\b.*(?:samples?|examples?)\b", both):
        return [("price of samples", times)]
    return [("money", times)] if not _PER.search(_PER_RUN.sub(" ", words)) and (currency or words) else []


def clock(heading: str) -> float | None:
    """The hours of a unit of time on the clock that stands above a column; None where it is no such time."""
    return next((unit for kind, unit in meanings(heading) if kind == "hours"), None)
