"""Settings of a sentence in the one way that patterns know: numbers in digits, one setting behind its name.

    spelt("eight A100s")                     8 A100s
    spelt("micro/global batch 2/512")        micro batch 2, global batch 512
    spelt("TP = PP = 2, 16-way data")        TP 2, PP 2, DP 16
    spelt("no pipeline, 2^10 sequences")     PP 1, 1024 sequences
"""
from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from seatrial.tables.tongues import lowered

_ENGLISH = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen".split()
_TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}
_FOREIGN = """
2: zwei, deux, dos, dois, duas, due, twee, dwa, dwie, dwoma, dve, два, две, двух, двумя, дві, iki, tva
3: drei, trois, tres, tre, drie, trzy, tri, три, трех, uc
4: vier, quatre, cuatro, quatro, quattro, cztery, czterema, ctyri, четыре, четырех, чотири, dort, fyra
5: funf, fuenf, cinq, cinco, cinque, vijf, piec, pet, пять, п'ять, bes, fem
6: sechs, seis, sei, zes, szesc, sest, шесть, шість, alti, sex
8: acht, huit, ocho, oito, otto, osiem, osm, восемь, восьми, вісім, sekiz, atta
10: zehn, dix, diez, dez, dieci, tien, dziesiec, deset, десять, tio
12: zwolf, zwoelf, douze, doce, doze, dodici, twaalf, dwanascie, dvanact, двенадцать, дванадцять, tolv
16: sechzehn, seize, dieciseis, dezesseis, sedici, zestien, szesnascie, sestnact, шестнадцать, шістнадцять, sexton
"""
NUMBERS = {word: n for n, word in enumerate(_ENGLISH, 1)} | _TENS | {"sixty-four": 64, "thirty-two": 32, "forty-eight": 48}
NUMBERS |= {word.strip(): int(number) for number, _, words in (line.partition(":") for line in _FOREIGN.strip().splitlines())
            for word in words.split(",")}  # fmt: skip
_WORD = re.compile(rf"(?<![\w-])(?:{'|'.join(sorted(map(re.escape, NUMBERS), key=len, reverse=True))})(?![\w']|-\w*ly)",
                   re.IGNORECASE)  # fmt: skip
_UNTIL_TEN = {sign: n for n, sign in enumerate("一二三四五六七八九十", 1)} | {"两": 2, "兩": 2}
_SIGNS = re.compile(r"([一二三四五六七八九]?十[一二三四五六七八九]?|[一二两兩三四五六七八九])"
                    r"(?=\s?(?:张|張|块|個|个|台|卡|层|層|节点|機|机|头|級|级|基|枚))")
_MACHINES = re.compile(r"([单單双雙])机 ?(?=\d)")
"""`单机 8 卡`: one machine of eight."""
_KOREAN = {"한": 1, "두": 2, "세": 3, "네": 4, "여섯": 6, "여덟": 8, "열": 10}
_COUNTED = re.compile(rf"(?<![\uac00-\ud7af])({'|'.join(_KOREAN)}) (?=(?:장|대|개|노드))")
_POWER = re.compile(r"(?<![\w.])2\s?(?:\^|\*\*)\s?\{?(\d{1,2})\}?(?![\w.])")
_BINARY = re.compile(r"(?<![\w.])(\d{1,4}) ?Ki(?![\w])")

_SIDES = {"tensor": "TP", "tp": "TP", "pipeline": "PP", "pp": "PP", "data": "DP", "dp": "DP", "context": "CP", "cp": "CP",
          "expert": "EP", "ep": "EP", "micro": "micro batch", "global": "global batch"}  # fmt: skip
_SIDE = r"(?:tensor|pipeline|data|context|expert|TP|PP|DP|CP|EP)"
_PARALLEL = r"(?:[ -]?parallel(?:ism)?)?"
_N = r"(\d{1,4})"
_AS_MANY = re.compile(rf"\b({_SIDE}(?:\s*=\s*{_SIDE})+)\s*=\s*{_N}(?![\d.])", re.IGNORECASE)
_LISTED = re.compile(rf"\b((?:{_SIDE}|micro|global)(?:(?:\s?[/×·]\s?|\s+x\s+)(?:{_SIDE}|micro|global))+){_PARALLEL}"
                     r"(?: (?:mini)?batch(?:es)?)?"
                     r"(?: size)?\s*(?:[=:]|is|of)?\s*(\d[\d,]*(?:\s?[/×x·]\s?\d[\d,]*)+)(?![\w.])", re.IGNORECASE)
_WAYS = re.compile(rf"\b{_N}[ -]way[ -]({_SIDE}){_PARALLEL}\b|\b({_SIDE}){_PARALLEL} {_N}[ -]way\b", re.IGNORECASE)
_OF_SIDE = re.compile(r"\bparallelism (?:of |in )?(?:the )?(tensor|pipeline|data|context|expert)s?(?: (?:of|is|=))? ?"
                      rf"{_N}(?![\d.])|"
                      rf"\b(tensor|pipeline|data|context|expert)s?[ -]?parallel(?:ism)?(?:[ -](?:degree|size))?"
                      rf"(?: (?:of|is|=|at|to))* ?{_N}(?![\d.])", re.IGNORECASE)  # fmt: skip
_NONE = re.compile(rf"\b(?:no|without|w/o)(?: any)? (?:(pipeline|TP|PP|DP|CP|EP)(?![\w-])(?! (?:bubble|stage|flush|parallel))|"
                   rf"({_SIDE})s?[ -]parallel(?:ism)?\b)|"
                   rf"\b({_SIDE}){_PARALLEL} (?:is )?(?:off|disabled|none|unused|not used)\b|"
                   rf"\bparallelism (?:of )?({_SIDE})s? (?:off|none)\b", re.IGNORECASE)  # fmt: skip
_STAGES = re.compile(rf"\bpipeline (?:depth|of|with|has|had|in|into)? ?{_N} ?(?:stages|pieces|parts)?\b(?! ?(?:bubble|%))|"
                     rf"\b{_N}[ -](?:pipeline[ -]stages?|stage pipeline)\b", re.IGNORECASE)  # fmt: skip
_MAY = re.compile(r"[/=^]|\bway|pipeline|parallel|tensor|ki\b|\*\*", re.IGNORECASE)


def _many(match: re.Match[str]) -> str:
    return ", ".join(f"{_SIDES[lowered(side.strip())]} {match[2]}" for side in match[1].split("="))


def _in_turn(match: re.Match[str]) -> str:
    sides, counts = re.split(r"\s?[/×·]\s?|\s+x\s+", match[1]), re.split(r"\s?[/×x·]\s?", match[2])
    if len(sides) != len(counts):
        return match[0]
    return ", ".join(f"{_SIDES[lowered(side)]} {count}" for side, count in zip(sides, counts))


def _of_one(match: re.Match[str]) -> str:
    said = [part for part in match.groups() if part]
    side, count = (said[1], said[0]) if said[0].isdigit() else (said[0], said[1])
    return f"{_SIDES[lowered(side)]} {count}"


_REWRITTEN: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (_POWER, lambda match: str(2 ** int(match[1])) if int(match[1]) < 40 else match[0]),
    (_BINARY, lambda match: str(1024 * int(match[1]))),
    (_AS_MANY, _many), (_LISTED, _in_turn), (_WAYS, _of_one), (_OF_SIDE, _of_one),
    (_NONE, lambda match: f"{_SIDES[lowered(next(part for part in match.groups() if part))]} 1"),
    (_STAGES, lambda match: f"PP {match[1] or match[2]}"),
)  # fmt: skip


def has_numbers(text: str) -> bool:
    """Whether a number may be spelled out, or stand in the signs of Chinese: asked of every line."""
    return not NUMBERS.keys().isdisjoint(text.lower().split()) or not text.isascii() and _SIGNS.search(text) is not None


@lru_cache(maxsize=4096)
def spelt(text: str) -> str:
    """Of a line in English, or in the words that `in_english` leaves."""
    if has_numbers(text):
        text = _WORD.sub(lambda match: str(NUMBERS[lowered(match[0])]), text)
    if _MAY.search(text):
        for pattern, write in _REWRITTEN:
            text = pattern.sub(write, text)
    return text


def in_digits(text: str) -> str:
    """The numbers that Chinese, Japanese and Korean count with, where something is counted."""
    def number(match: re.Match[str]) -> str:
        tens, ten, ones = match[1].rpartition("十") if "十" in match[1] else ("", "", match[1])
        return str((10 * _UNTIL_TEN.get(tens, 1) if ten else 0) + _UNTIL_TEN.get(ones, 0))

    text = _MACHINES.sub(lambda match: f"{1 if match[1] in '单單' else 2} nodes ", _SIGNS.sub(number, text))
    return _COUNTED.sub(lambda match: f"{_KOREAN[match[1]]} ", text)
