"""Sentences that contradict themselves: a size beside a shape, a batch beside its tokens, a product, a sum.

    check(sheet)          findings, each of one line of text

    ## 13B (80 layers, hidden 5120, 40 heads)           that are 26B
    GBS 256 sequences (1.05M tokens) of 8192            that are 2.1M
    512 x 8192 = 2.1M tokens                            that are 4.2M
"""
from __future__ import annotations

import math
import re
from collections.abc import Iterator

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.models.known import VERY_WIDE, is_published
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.usual import round_number
from seatrial.notes.read.listed import is_row_of_commas
from seatrial.notes.read.sentences import read_sentence
from seatrial.notes.read.sound import MOST_COUNTED
from seatrial.tables.headings import NUMBER, decimal
from seatrial.tables.tongues import in_english

MOST_LINES, LONGEST = 4000, 1500
_NUMBER = rf"(?:{NUMBER.pattern})"
_N = rf"(?<![\w.,/^-])({_NUMBER})"
_SCALES = {"k": (1e3, 1024.0), "K": (1e3, 1024.0), "M": (1e6, 2.0**20), "B": (1e9, 2.0**30), "G": (1e9, 2.0**30),
           "T": (1e12, 2.0**40), "P": (1e15, 2.0**50)}
_SENTENCES = re.compile(r"(?<=[^\d][.;!?])\s|(?<=\d[.;])\s(?=[A-Z])")
OFF = 0.06
"""From which share on the two sides of an equation are not the same."""


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for file, text in sheet.prose.items():
        for number, line in text.said if len(text.lines) <= MOST_LINES else ():
            said = 10 < len(line) <= LONGEST and line.lstrip()[:1] not in ("|", "<") and not is_row_of_commas(line)
            if said and sum(map(str.isdigit, line)) > 2:
                found += _line(file, number, line)
    return found


def _line(file: str, number: int, line: str) -> Iterator[Finding]:
    if "=" in line or "≈" in line:
        yield from _equations(file, number, _SPACED.sub(lambda match: match[1] + re.sub(r"\s", "", match[2]), line))
    if "tok" in line.casefold():
        yield from _batch(file, number, in_english(line))
        yield from _packed(file, number, in_english(line))
    for sentence in _SENTENCES.split(in_english(line)) if _LABEL.search(line) or _LISTED.search(line) else ():
        yield from _shape(file, number, sentence)


def _finding(file: str, number: int, code: str, printed: str, proposed: str | None, message: str) -> Finding:
    return Finding(file=file, line=number, code=code, level="error", message=message, printed=printed, proposed=proposed)


# ---- `512 x 8192 = 4.2M tokens`

_WORDS = r"(?: (?!and\b|or\b|und\b|et\b|to\b)[A-Za-z][A-Za-z-]*){0,2}"
_TERM = rf"(?:(?:TP|PP|DP|CP|EP)[ =]?)?{_NUMBER}(?:\s?[kKMBT](?!\w))?{_WORDS}"
_PRODUCT = re.compile(rf"(?<![\w.,/^+×x*·()=-])(?<![+×x*·(/=^-] )({_TERM}(?:\s?[x×*·]\s?{_TERM})+)\s?(=|≈)\s?"
                      rf"({_NUMBER})\s?([kKMBT])?(?!\w|[.,]?\d| ?[x×*·+/^(-] ?[\d(]|%)")  # fmt: skip
_SUM = re.compile(rf"(?<![\w.,/^+×x*·()=-])(?<![+×x*·(/=^-] )({_NUMBER}(?:\s?\+\s?{_NUMBER})+)\s?=\s?"
                  rf"({_NUMBER})(?!\w|[.,]?\d| ?[x×*·+/^(-] ?[\d(]|%)")  # fmt: skip
_IN = re.compile(rf"(?:TP|PP|DP|CP|EP)?[ =]?({_NUMBER})\s?([kKMBT](?!\w))?")


_SPACED = re.compile(r"([=≈]\s?\d{1,3})((?:[ \u00a0\u202f]\d{3})+)(?![\d.,])")
"""Between the thousands of a result: `192 x 24 x 90 = 414 720 hours`."""


def _equations(file: str, number: int, line: str) -> Iterator[Finding]:
    for match in _PRODUCT.finditer(line) if "=" in line or "≈" in line else ():
        factors = [_IN.search(part) for part in re.split(r"\s?[x×*·]\s?", match[1])]
        if None in factors or any(one is not None and not float(decimal(one[1])) for one in factors):
            continue
        low = high = 1.0
        # `4 B` are bytes where what comes of it is, and no billions.
        scales_of = {**_SCALES, "B": (1.0, 1.0)} if _IN_BYTES.match(line, match.end(3)) else _SCALES
        exact = not any(one and (one[2] or "." in one[1]) for one in factors) and match[2] == "="
        for one in factors:
            assert one is not None
            value, scales = float(decimal(one[1])), scales_of.get(one[2] or "", (1.0, 1.0))
            half = 0.5 * 10.0 ** -digits.places(one[1]) if "." in one[1] or one[2] and scales[0] > 1 else 0.0
            low, high = low * (value - half) * min(scales), high * (value + half) * max(scales)
        if _in_other_units(line[match.end() :], float(decimal(match[3])), low, high):
            continue
        unit = _UNITED.match(line, match.end()) if not match[4] else None
        letter = match[4] or (unit[1].upper() if unit is not None and unit[1].upper() in "KMGTP" else "")
        if unit is not None and any(its[1] == unit[1] for its in _PREFIXED.finditer(match[1])):
            letter = ""  # the factors have it too: `64 files x 1.5 GB = 96 GB`
        yield from _unequal(file, number, match[1], match[3], letter, low, high, exact=exact)
    for match in _SUM.finditer(line) if "+" in line else ():
        if _GOES_ON.search(line, 0, match.start()):
            continue  # `7 + 14 stages of 8 + 7 = 126`
        parts = [float(decimal(part)) for part in re.split(r"\s?\+\s?", match[1])]
        half = 0.5 * sum(10.0 ** -digits.places(part) for part in re.split(r"\s?\+\s?", match[1]) if "." in part)
        yield from _unequal(file, number, match[1], match[2], "", math.fsum(parts) - half, math.fsum(parts) + half)


_GOES_ON = re.compile(r"\+[^=;|]{1,40}$")
_IN_BYTES = re.compile(r" ?[KMGT]i?B\b")
_MEASURED = r"(?:i?(?:B|[bB]ytes?|bits?)|Wh?|J|Hz|V?A)"
_PREFIXED = re.compile(rf"\d ?([kKMGTP])(?={_MEASURED}(?!\w))")
_UNITED = re.compile(rf" ?((?:[kKMGTP](?=(?:b|{_MEASURED})?(?!\w)))|[MGT]o|[GTP]F\w*|Mio|Mrd|Mld|mld|mln|bn|"
                     r"million|billion|trillion|milli|млн|млрд|[万億亿])")


def _in_other_units(rest: str, value: float, low: float, high: float) -> bool:
    """Whether both sides are the same but for the unit behind them: `14 bytes x 70.55e9 = 988 GB`."""
    units = [one for power in (3, 4, 6, 8, 9, 12, 15) for one in (10.0**power, 2.0 ** (10 * power / 3))]
    return _UNITED.match(rest) is not None and any(low * (1 - OFF) <= value * one <= high * (1 + OFF) for one in units)


def _unequal(file: str, number: int, sides: str, shown: str, letter: str, low: float, high: float, *,
             exact: bool = False) -> Iterator[Finding]:  # fmt: skip
    """`exact`: all factors are whole, so that only the digits of the result leave anything open."""
    value, scales = float(decimal(shown)), _SCALES.get(letter, (1.0, 1.0))
    half, off = 0.5 * 10.0 ** -digits.places(shown), 0.005 if exact and len(shown.strip("0")) > 3 and letter else OFF
    ends = [((value - half) * one * (1 - off), (value + half) * one * (1 + off)) for one in scales]
    ends = ends if off < OFF else [(min(ends)[0], max(ends)[1])]
    if re.fullmatch(r"\d{1,3}\.\d{3}", shown) and 1000 * value * (1 + OFF) >= low and 1000 * value * (1 - OFF) <= high:
        return  # a point that parts thousands
    if not value or low <= 0 or any(most >= low and least <= high for least, most in ends):
        return
    typed = [(factor, slip.text) for factor in re.findall(NUMBER.pattern, sides) if exact and off < OFF
             for slip in digits.slips(factor, (value * scales[0] / low * float(decimal(factor)) * 0.99,
                                               value * scales[0] / low * float(decimal(factor)) * 1.01))
             if slip.how in ("the point moved", "two digits exchanged")]  # fmt: skip
    if len(typed) == 1:
        message = f"{typed[0][0]} -> {typed[0][1]}: with it {sides} are the {shown}{letter} that the sentence says"
        yield _finding(file, number, "aggregate", *typed[0], message)
        return
    meant = math.sqrt(low * high) / scales[0]
    text = f"{meant:,.{digits.places(shown)}f}" if "," in shown else f"{meant:.{digits.places(shown)}f}"
    message = f"{shown}{letter} -> {text}{letter}: {sides} are {meant:.6g}{letter}"
    yield _finding(file, number, "aggregate", shown, text, message)


# ---- `GBS 128 sequences (1.05M tokens)`

_OF_TOKENS = re.compile(rf"{_N}\s(?:sequences|seqs?|samples)(?: (?:a|per|each) (?:step|iteration|update|batch))?"
                        rf"(?:,? i\.e\.|,? or|,? so)?\s?(?:\(|=\s?|≈\s?|, )"
                        rf"(?:i\.e\. |about |~|≈|= ?)?({_NUMBER})\s?([kKM])? ?tok",
                        re.IGNORECASE)  # fmt: skip


_PACKED = re.compile(rf"{_N}\s(?!steps|iter|updates)(?:[A-Za-z-]+\s){{1,3}}(?:packed |padded |cut )?"
                     rf"(?:to|of|with|at|x|×) ({_NUMBER}) tokens(?: each)?\s?(?:\(|= ?|, |≈ ?)"
                     rf"(?:i\.e\. |about |~|≈|= ?|together |that is )?({_NUMBER})\s?([kKMBT])? ?tok",
                     re.IGNORECASE)  # fmt: skip


def _packed(file: str, number: int, line: str) -> Iterator[Finding]:
    """So many of so many tokens each, and how many that is."""
    for match in _PACKED.finditer(line):
        tokens, value = float(decimal(match[1])) * float(decimal(match[2])), float(decimal(match[3]))
        letter, half = match[4] or "", 0.5 * 10.0 ** -digits.places(match[3])
        scales = _SCALES.get(letter.upper().replace("K", "k"), (1.0, 1.0))
        least, most = (value - half) * min(scales) * (1 - OFF), (value + half) * max(scales) * (1 + OFF)
        if not tokens or not value or least <= tokens <= most:
            continue
        other = next((name for name, its in _SCALES.items() if name != letter and abs(value * its[0] / tokens - 1) < OFF), "")
        text = match[3] if other else f"{tokens / scales[0]:.{digits.places(match[3])}f}"
        shown, right = f"{match[3]}{letter}", f"{text}{other or letter}"
        message = f"{shown} -> {right}: {match[1]} of {match[2]} tokens are {tokens:.4g}"
        yield _finding(file, number, "aggregate", shown, right, message)


def _batch(file: str, number: int, line: str) -> Iterator[Finding]:
    for match in _OF_TOKENS.finditer(line):
        seq, batch = read_sentence(line).get("seq"), float(decimal(match[1]))
        if not isinstance(seq, int) or not seq or not batch:
            continue
        value, scales = float(decimal(match[2])), _SCALES.get(match[3] or "", (1.0, 1.0))
        half, tokens = 0.5 * 10.0 ** -digits.places(match[2]), seq * batch
        if (value - half) * min(scales) * (1 - OFF) <= tokens <= (value + half) * max(scales) * (1 + OFF):
            continue
        if not 0 < (meant := value * scales[0] / seq) < MOST_COUNTED:
            continue
        likely = (round(meant), 2 ** round(math.log2(max(1.0, meant))))
        near = next((n for n in likely if abs(n / meant - 1) < OFF and round_number(n)), 0)
        text = f"{tokens / scales[0]:.{digits.places(match[2])}f}"
        message = f"{match[1]} sequences of {seq} are {text}{match[3] or ''} tokens and not {match[2]}{match[3] or ''}"
        message += f": {near} sequences would be" if near else ""
        yield _finding(file, number, "header-vs-row", match[1] if near else match[2], str(near) if near else text, message)


# ---- `13B (40 layers, hidden 5120)`

_LABEL = re.compile(r"(?:(?<=[A-Za-z]-)|(?<=[A-Za-z]-\d-)|(?<=\d\.\d-)|(?<![\w.,/×x-]))(\d{1,4}(?:[.,]\d{1,2})?)[ -]?"
                    r"([BM]|billions?|millions?|milliards?|Milliarden|Mrd\.?|miliardi|млрд)(?!\w)"
                    r"(?!-?\s?(?:of )?(?:tok|sample|word|step|batch|image|seq|rows|total|activ|embedd|trainable|"
                    r"per\b|/|[·*]? ?s\b))")
_LISTED = re.compile(r",(?=\d{1,3}(?:\.\d{1,2})?[BM](?!\w))")
"""Nothing between a comma and the next item, as in Chinese."""
_WIDTH = r"(?:hidden|width|dim(?:ension)?|d_model|d|h|n_embd|emb(?:ed)?|hidden (?:size|dim(?:ension)?)|model dim(?:ension)?)"
_SIDES = re.compile(rf"(?<![\w.,])(\d{{1,3}})(?:[ -]?layers?|L\b)(?: (?:x|×|of|at)|,| ?/| x| ×)? ?"
                    rf"(?:{_WIDTH}[ =:]?)?(\d{{3,5}})"
                    r"(?:[ -](?:wide|hidden|dim))?(?!\d|[.,]\d|\w)")  # fmt: skip
_WIDE = re.compile(rf"\b{_WIDTH}[ =:]+(?:of )?(\d{{3,5}})\b|\b(\d{{3,5}}) wide\b")
_NO_DENSE = re.compile(r"expert|moe\b|mixt|\bA\d+B|encoder|vision|draft|\bactive\b|distill|prun|teacher|student|"
                       r"scaled|shrunk|reduced|truncated|\bcut\b|proxy",
                       re.IGNORECASE)  # fmt: skip
_GATED = re.compile(r"gated|glu\b|gemma", re.IGNORECASE)
_PLAIN = re.compile(r"\brelu|\bgelu|no gate|\bGPT", re.IGNORECASE)
LESS, MORE = 0.78, 1.18
"""By how much a name may be less and more than the least and the most that its shape can have."""


def _shape(file: str, number: int, line: str) -> Iterator[Finding]:
    """A name of one dense model beside its layers and width."""
    labels = list(_LABEL.finditer(line)) or list(_LABEL.finditer(_LISTED.sub(", ", line)))
    if len({label.groups() for label in labels}) != 1 or _NO_DENSE.search(line):
        return
    said, sides = read_sentence(line), _SIDES.search(line)
    layers, hidden = said.get("layers"), said.get("hidden")
    if sides is not None and (not isinstance(hidden, int) or layers is None):
        layers, hidden = layers or int(sides[1]), hidden or int(sides[2])
    elif hidden is None and len(wide := {int(one or other) for one, other in _WIDE.findall(line)}) == 1:
        hidden = wide.pop()
    if not isinstance(layers, int) or not isinstance(hidden, int) or layers < 2 or hidden < 256:
        return
    name, scale = float(labels[0][1].replace(",", ".")), 1e6 if labels[0][2] in ("M", "million", "millions") else 1e9
    whole = {key: value for key in ("ffn", "vocab", "heads", "kv_heads") if isinstance(value := said.get(key), int)}
    whole |= {"gated": int(bool(_GATED.search(line))), "plain": int(bool(_PLAIN.search(line)))}
    low, high = bounds(layers, hidden, whole)
    half = 0.5 * 10.0 ** -digits.places(labels[0][1]) * scale
    if not name or low * LESS - half <= name * scale <= high * MORE + half or is_published(layers, hidden, name * scale):
        if name and half < EXACT * name * scale:
            yield from _exactly(file, number, labels[0][0], name * scale, {**whole, "layers": layers, "hidden": hidden})
        return

    def fits(depth: int, width: int) -> bool:
        least, most = bounds(depth, width, whole)
        return least * 0.9 - half <= name * scale <= most * 1.1 + half

    meant = [("layers", n) for n in slipped(layers) if fits(n, hidden)]
    meant += [("hidden", n) for n in slipped(hidden) if n % 64 == 0 and fits(layers, n)]
    meant.sort(key=lambda one: far(name * scale, *(bounds(one[1], hidden, whole) if one[0] == "layers" else
                                                   bounds(layers, one[1], whole))))
    shape = {**whole, "layers": layers, "hidden": hidden}
    exact = bool(whole.get("vocab")) and not whole.get("ffn") and half < EXACT * name * scale
    if exact and not any(_usual({**shape, key: n}, name * scale) < EXACT for key, n in meant):
        # Parameters to their digits tell another width than a slip of the hand does.
        widths = [("hidden", n) for n in _WIDTHS if _usual({**shape, "hidden": n}, name * scale) < EXACT]
        meant = widths if len(widths) == 1 else meant
    printed = labels[0][0]
    letter = "B" if scale == 1e9 else "M"
    span = f"{low / scale:.3g}{letter} to {high / scale:.3g}{letter}"
    one = meant[0] if len({key for key, _ in meant}) == 1 else None
    change = "; " + " or ".join(f"{key} {value}" for key, value in meant) if meant else ""
    message = f'"{printed}", but {layers} layers of {hidden} are {span}{change}'
    if one is not None:
        printed = str(layers if one[0] == "layers" else hidden)
    yield _finding(file, number, "label-vs-params", printed, str(one[1]) if one is not None else None, message)


EXACT, COUNTED = 0.006, 0.03
"""Half a digit of parameters that tell a shape; from how far on a count is another one's."""
_VOCABULARIES = (32000, 32768, 50257, 50304, 51200, 64000, 100352, 128256, 151936)


_WIDTHS = (512, 768, 1024, 1280, 1536, 1600, 2048, 2560, 3072, 3584, 4096, 4608, 5120, 6144, 7168, 8192, 9216, 10240, 12288)


def _counts(shape: dict[str, int]) -> list[float]:
    """The parameters of a shape, in all ways that people count them and with what it does not say."""
    layers, hidden = shape["layers"], shape["hidden"]
    ffn = shape.get("ffn") or 256 * math.ceil(8 * hidden / 3 / 256)
    kv = [shape["kv_heads"] / shape["heads"]] if shape.get("kv_heads") and shape.get("heads") else [1.0, 0.25, 0.125]
    wide = [8 * hidden if shape.get("plain") or not shape.get("ffn") else 3 * ffn, (2 if ffn == 4 * hidden else 3) * ffn]
    vocabularies = [shape["vocab"]] if shape.get("vocab") else _VOCABULARIES
    return [layers * hidden * ((2 + 2 * share) * hidden + each) + times * vocab * hidden
            for share in kv for each in wide for vocab in vocabularies for times in (1, 2)]  # fmt: skip


def _usual(shape: dict[str, int], size: float) -> float:
    """How far it is from the parameters, where each head has its own keys unless it is said otherwise."""
    shared = {} if shape.get("kv_heads") else {"heads": 1, "kv_heads": 1}
    return min(abs(count / size - 1) for count in _counts({**shape, **shared}))


def _exactly(file: str, number: int, label: str, size: float, said: dict[str, int]) -> Iterator[Finding]:
    """A shape that no way to count gives the parameters to their digits for, and one slip of the hand away one that does."""
    if said.get("ffn") and min(abs(count / size - 1) for count in _counts(said)) < COUNTED:
        return
    names = ("ffn",) if said.get("ffn") else ("layers",)
    if not said.get("ffn") and _usual(said, size) < COUNTED:
        return
    meant = [(name, other) for name in names for other in slipped(said[name]) if (name != "ffn" or other % 64 == 0)
             and said[name] not in (2 * other, other // 2) and _usual({**said, name: other}, size) < EXACT]  # fmt: skip
    if len(meant) == 1:
        name, other = meant[0]
        message = f'{name} {said[name]} -> {other}: "{label}" are the parameters of {name} {other} to their digits'
        yield Finding(file=file, line=number, code="label-vs-params", level="error" if name == "ffn" else "warning",
                      message=message, column=name, printed=str(said[name]), proposed=str(other))  # fmt: skip


def far(size: float, low: float, high: float) -> float:
    return abs(math.log(size * size / (low * high))) if size and low and high else math.inf


def bounds(layers: int, hidden: int, said: dict[str, int]) -> tuple[float, float]:
    ffn, heads, kv = said.get("ffn", 0), said.get("heads", 0), said.get("kv_heads", 0)
    shared = kv / heads if heads and kv and kv <= heads else None
    attention = (2 + 2 * shared,) * 2 if shared is not None else (2.25, 4.0)
    wide = (8.0, 24.0 if (layers, hidden) in VERY_WIDE else 16.0 if said.get("gated") or shared not in (None, 1.0) else 10.6)
    if ffn and hidden:
        wide = (2 if ffn == 4 * hidden or said.get("plain") else 3) * ffn / hidden, 3 * ffn / hidden
    vocab = said.get("vocab", 0)
    return (layers * (attention[0] + wide[0]) * hidden**2,
            layers * (attention[1] * 1.05 + wide[1]) * hidden**2 + 2 * (vocab or 152_064) * hidden)


def slipped(count: int) -> list[int]:
    """What a count was before a slip of the hand: doubled, halved, with a point or two digits moved."""
    text = str(count)
    made = {2 * count, 10 * count, *([count // 2] if count % 2 == 0 else []), *([count // 10] if count % 10 == 0 else [])}
    made |= {int(text[:i] + text[i + 1] + text[i] + text[i + 2 :]) for i in range(len(text) - 1)}
    return sorted(made - {count, 0})
