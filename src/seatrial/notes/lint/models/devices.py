"""The device that a text names: one of the presets, or one of which lint knows no more than its data sheet.

    device_named("8x MI250X a node").memory_gib             128.0
"""
from __future__ import annotations

import re
from functools import cache, lru_cache

from seatrial import fields, presets
from seatrial.notes.either import either
from seatrial.spec import Device

DATA_SHEETS: dict[str, tuple[float, float | None, float | None]] = {
    # Name: GiB, TFLOPs dense of 16 bits where there is one figure, and the most of 8 bits or of any: MI250X is counted by the
    # card and by its half, and the cards of games with either accumulator.
    "p100": (16, 21.2, None), "a10": (24, 125, None), "a30": (24, 165, None), "a40": (48, 149.7, None), "l40": (48, 181, 362),
    "l40s": (48, 362, 733), "a800": (80, 312, None), "h800": (80, 989, 1979), "h20": (141, 148, 296), "gh200": (144, 989, 1979),
    "b100": (192, 1750, 3500), "b300": (288, 2250, 4500), "gb300": (288, 2500, 5000), "mi100": (32, 184.6, None),
    "mi210": (64, 181, None), "mi250": (128, None, 362.1), "mi250x": (128, None, 383), "mi300a": (128, 980.6, 1961.2),
    "mi325x": (256, 1307.4, 2614.9), "mi350x": (288, 2306.9, 4613.7), "mi355x": (288, 2516.6, 5033.2), "gaudi2": (96, 432, 865),
    "gaudi3": (128, 1835, 1835), "rtx4090": (24, None, 660), "rtx3090": (24, None, 142), "rtx5090": (32, None, 838),
    "l4": (24, 121, 242), "t4": (16, 65, 130), "a6000": (48, None, 310),
    "tpuv3": (32, 123, None),
    "tpuv4": (32, 275, None), "tpuv5e": (16, 197, 394), "tpuv5p": (95, 459, 918), "tpuv6e": (32, 918, 1836),
}  # fmt: skip
OF_DEVICES_SOLD = frozenset({8, 10, 11, 12, 16, 20, 24, 28, 32, 40, 48, 64, 80, 94, 95, 96, 128, 141, 144, 180, 186, 192, 256,
                             288})
"""GB that a device has: what a sentence without its name calls the memory of one may as well be a part of it."""
PEAKS = (125.0, 148.0, 197.0, 275.0, 312.0, 362.0, 383.0, 459.0, 756.0, 918.0, 989.0, 1307.0, 1979.0, 2250.0, 2614.0, 4500.0)
"""Dense TFLOPs of the devices that most trainings run on, of 16 bits and of 8."""
PEAKS_SOLD = frozenset({peak for _, *peaks in DATA_SHEETS.values() for peak in peaks if peak}
                       | {*PEAKS, 191.5, 624.0, 989.4, 990.0})
"""TFLOPs that a device may do by its data sheet: a sentence that has one speaks of the device."""
_SHEETS = DATA_SHEETS.keys() | {f"{name}s" for name in DATA_SHEETS}
_WORD = re.compile(r"(?:(?<!\w)\d{1,5}[x×])?(\w+)")
"""A word, without how many there are of it: `8xH100`."""
_TPU = re.compile(r"(?<![\w.])(v[56][ep])(?![\w.])|^(v[2-6][ep]?)(?=-\d+$|$)")
"""A chip of Google's where nobody says whose it is."""
_OF_A_TPU = re.compile("v[2-6]")
_HALF = re.compile(r"^\W*mi250x?\W+gcd\b")
"""`MI250X-GCD`: half a card."""
_APART = re.compile(r"\b(gaudi|rtx|tpu)[ -]?(?=v?\d)")
_CARD = re.compile(r"(?<![\w.])(\d{1,5}) ?[x×] ?(?=[345]090\b)")
"""`8x 4090`: cards of games without their family."""
KINDS = (r"\b(?:[AHBL]20|[AL]4|T4|A[13]0|[AL]40S?|V100S?|A[456]000|P40|P100|[AH][18]00|H200|B[123]00|G[BH][23]00)\b|"
         r"\bMI\d{3}X?\b|(?:\bRTX ?|\b\d{1,5} ?[x×] ?)[345]090\b|"
         r"\bTPU ?v\d\w?|\bv[56][ep]\b|^v[2-6][ep]?$|\bGaudi ?\d?|\bA64FX\b")
_KINDS = either(KINDS)
_COUNTED = re.compile(r"^(?:rtx ?|\d{1,5} ?[x×] ?)(?=\d)")
_NAMED = either(rf"{KINDS}|\b(?:mx|nv)?fp(?:4|8|16|32)\b|\bbf16\b|\bint8\b")
"""A device, or a kind of number, by which figures differ."""


_OF_A_RUN = re.compile(r"(?<![\w.])[tl]4(?!\w)")
"""The fourth of several runs: of the cards nobody writes the letter small."""


def presets_in(text: str) -> set[str]:
    """The presets whose device a text in small letters names."""
    return _presets(set(_WORD.findall(text))) if any(base in text for base in _bases()) else set()


def _presets(words: set[str]) -> set[str]:
    return {name for base, names in _bases().items() if base in words or f"{base}s" in words for name in names}


@cache
def _bases() -> dict[str, list[str]]:
    """How texts name the device -> its presets."""
    found: dict[str, list[str]] = {}
    for name in presets.names("devices"):
        found.setdefault(name.split("-")[0], []).append(name)
    return found


@cache
def _stems() -> tuple[str, ...]:
    """Letters of which a text that names a device has some, once all that it may be written as is written out."""
    all_ = {*_bases(), *DATA_SHEETS, "gaudi", "rtx", "tpu", "fugaku"}
    return tuple(stem for stem in all_ if not any(other in stem for other in all_ - {stem}))


@cache
def device_cues() -> tuple[str, ...]:
    """The same of a text as it stands, in small letters: `v5e`, and `8x 4090`."""
    return (*_stems(), *(f"v{number}" for number in range(2, 7)), "090")


@cache
def preset_cues() -> tuple[str, ...]:
    """Of a text in small letters that names a device with a preset."""
    return tuple(_bases())


def is_preset(device: Device) -> bool:
    return device.name.lower() not in DATA_SHEETS


@lru_cache(maxsize=1024)
def device_named(text: str) -> Device | None:
    """The one device that a text names; of its forms the one that is named too, else the largest and fastest."""
    text = (_OF_A_RUN.sub(" ", text) if "t4" in text or "l4" in text else text).lower()
    text = _TPU.sub(lambda match: f"tpu{match[0]}", text) if _OF_A_TPU.search(text) else text
    text = _CARD.sub(r"\1 rtx", text) if "090" in text else text
    if not any(stem in text for stem in _stems()):
        return None
    words = set(_WORD.findall(_APART.sub(r"\1", text) if any(word in text for word in ("gaudi", "rtx", "tpu")) else text))
    found = _presets(words)
    if "fugaku" in text or "富岳" in text:
        found.add("a64fx")
    others = {word if word in DATA_SHEETS else word[:-1] for word in words & _SHEETS}
    if len({name.split("-")[0] for name in found} | others) != 1:
        return None
    if others:
        name = others.pop()
        memory, half, eighth = DATA_SHEETS[name]
        if name.startswith("mi250") and _HALF.search(text) and eighth:
            memory, half, eighth = memory / 2, eighth / 2, None
        peaks = {kind: peak for kind, peak in (("bf16", half), ("fp8", eighth)) if peak}
        return Device(name=name.upper(), kind="gpu", peak_tflops=peaks, memory_gib=memory, memory_gb_s=1.0)
    form = [name for name in sorted(found) if name.endswith("pcie") == ("pcie" in text)]
    devices = [presets.resolve("devices", name, presets.shipped()) for name in form or sorted(found)]
    sized = [device for device in devices if re.search(rf"\b{device['memory_gib']:g} ?-?g", text)]
    most = max(sized or devices, key=lambda device: (device["memory_gib"], device["peak_tflops"].get("bf16", 0.0)))
    return fields.build(Device, most, where="device")


@lru_cache(maxsize=4096)
def devices_in(words: str) -> frozenset[str]:
    """The kinds of device and number that words name, known or not."""
    return frozenset(_COUNTED.sub("rtx ", name[0].lower()) for name in _NAMED.finditer(_OF_A_RUN.sub(" ", words)))


@lru_cache(maxsize=4096)
def of_devices(section: str) -> str:
    """The headings above a row from the innermost that names a device on: `Gaudi 2 and 3 / Gaudi 2 (96 GB)` is of one."""
    titles = section.split(" / ")
    at = next((at for at in range(len(titles) - 1, 0, -1) if devices_in(titles[at])), 0)
    return " / ".join(titles[at:])


@lru_cache(maxsize=16384)
def names_device(cell: str) -> bool:
    return _NAMED.search(_OF_A_RUN.sub(" ", cell)) is not None


@lru_cache(maxsize=4096)
def device_of(own: str, section: str) -> tuple[Device | None, bool]:
    """What the words of a row name, else the headings above it; and whether they speak of one that nobody knows."""
    own = _OF_A_RUN.sub(" ", own)
    named = device_named(own) or (None if _KINDS.search(own) else device_named(section))
    return named, named is None and _KINDS.search(f"{own} {section}") is not None
