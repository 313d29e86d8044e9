"""Small numbers in words, also with a half, in the tongues that notes are written in; and others as such words.

    value("dreieinhalb")            3.5
    like("dreieinhalb", 5.5)        fünfeinhalb
    WORD                            a pattern of them, and of small numbers in digits
"""
from __future__ import annotations

import re

from seatrial.tables.tongues import plain_letters

_TONGUES = (
    ("one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen", " and a half"),
    ("ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn", "einhalb"),
    ("un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize", " et demi"),
    ("un dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciséis", " y medio"),
    ("uno due tre quattro cinque sei sette otto nove dieci undici dodici tredici quattordici quindici sedici", " e mezzo"),
    ("um dois três quatro cinco seis sete oito nove dez onze doze treze catorze quinze dezesseis", " e meio"),
    ("een twee drie vier vijf zes zeven acht negen tien elf twaalf dertien veertien vijftien zestien", "ënhalf"),
    ("jeden dwa trzy cztery pięć sześć siedem osiem dziewięć dziesięć", " i pół"),
    ("один два три четыре пять шесть семь восемь девять десять", " с половиной"),
    ("en två tre fyra fem sex sju åtta nio tio elva tolv", " och en halv"),
)  # fmt: skip
_ALSO = {"a": 1, "an": 1, "eine": 1, "einen": 1, "einem": 1, "einer": 1, "une": 1, "una": 1, "uma": 1, "duas": 2, "две": 2,
         "две трети": 0}  # fmt: skip
_TENS = {"twenty": 20, "twenty-four": 24, "thirty-two": 32, "forty-eight": 48, "sixty-four": 64, "zwanzig": 20,
         "zweiunddreissig": 32, "zweiunddreißig": 32, "achtundvierzig": 48, "vierundsechzig": 64, "trente-deux": 32,
         "soixante-quatre": 64, "treinta y dos": 32, "sesenta y cuatro": 64, "trentadue": 32,
         "sessantaquattro": 64}  # fmt: skip
_HALVES = {"anderthalb": 1.5, "eineinhalb": 1.5, "anderhalf": 1.5, "anderhalve": 1.5, "полтора": 1.5, "half a": 0.5}
_NAMES: dict[str, tuple[int, int]] = {}
"""Word in plain letters -> its number and its tongue, of several the first."""
for _tongue, (_words, _) in enumerate(_TONGUES):
    for _count, _name in enumerate(_words.split(), 1):
        _NAMES.setdefault(plain_letters(_name), (_count, _tongue))
_PLAIN = "|".join(sorted({*_NAMES, *(one for one in _ALSO if " " not in one)}, key=len, reverse=True))
_HALF = "|".join(plain_letters(half).replace(" ", r"\s") for _, half in _TONGUES)
WORD = rf"(?:\d{{1,3}}(?:[.,]\d)?|{'|'.join((*_HALVES, *_TENS))}|(?:{_PLAIN})(?:{_HALF})?)"
"""In plain letters."""
SPELLED = re.compile(rf"\b(?:{'|'.join(name for name, (count, _) in _NAMES.items() if count > 1)})\b", re.IGNORECASE)
"""From two on: what is one may be an article."""
_WHOLE = re.compile(rf"({_PLAIN})({_HALF})?", re.IGNORECASE)


def value(text: str) -> float | None:
    """Of a number in digits or in words."""
    word = plain_letters(text).casefold().strip()
    if word[:1].isdigit():
        return float(word.replace(",", "."))
    if word in _HALVES or word in _TENS:
        return float(_HALVES.get(word) or _TENS[word])
    match = _WHOLE.fullmatch(word)
    if match is None:
        return None
    count = _NAMES[match[1]][0] if match[1] in _NAMES else _ALSO[match[1]]
    return count + (0.5 if match[2] else 0.0)


def like(text: str, number: float) -> str:
    """Another number as this one is written; in digits where there is no word for it."""
    shown = f"{number:g}".replace(".", "," if "," in text else ".")
    word = plain_letters(text).casefold().strip()
    match = _WHOLE.fullmatch(word)
    if word[:1].isdigit() or match is None and word not in _HALVES or number * 2 != int(number * 2):
        return shown
    half = match[2] if match is not None else None
    tongue = next((at for at, (_, ends) in enumerate(_TONGUES) if half and plain_letters(ends) == half),
                  _NAMES.get(match[1], (0, 0))[1] if match is not None else 1 if word.endswith("halb") else 6)  # fmt: skip
    names, ends = _TONGUES[tongue]
    words = names.split()
    if not 1 <= int(number) <= len(words):
        return shown
    made = words[int(number) - 1] + (ends if number != int(number) else "")
    return made.capitalize() if text[:1].isupper() else made
