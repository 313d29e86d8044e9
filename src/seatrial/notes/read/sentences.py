"""What sentences say of the rows around them: hyperparameters, layouts, devices.

    Hints(lines).near(line=31, label="8B")        {"layers": 32, "hidden": 4096, ...}
    Hints(lines).enriched(record)                 the record with what it leaves open, marked as inferred

`outline` takes settings from lines that are little else; what a sentence says is marked as inferred. A sentence holds where
those statements do (see `Tree`): the innermost section wins, in it the text nearest above; two values between the same two
tables give none.
"""
from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise

from seatrial.notes.labels import label_parameters
from seatrial.notes.read.gapped import may_begin, pipes_of_gaps
from seatrial.notes.read.htmltables import pipes_of_html
from seatrial.notes.read.led import led_sections
from seatrial.notes.read.listed import pipes_of_lists
from seatrial.notes.read.outline import HEADING, Chapters, Tree
from seatrial.notes.read.scan import Token, is_delimiter, is_rule, scan
from seatrial.notes.read.sound import MOST_COUNTED
from seatrial.notes.read.spelt import has_numbers, in_digits, spelt
from seatrial.notes.read.wikitables import pipes_of_wiki
from seatrial.notes.read.wordings import CUES, DEVICE, EACH_OF, LOOSELY, OF_DEVICES, SURE, values_of
from seatrial.record import Record, Stated
from seatrial.tables.headings import clean
from seatrial.tables.tongues import in_english

_ALL_CUES = CUES | {"recomp", "checkpoint", "expert", "moe", "mixt", "llama", "glu"}


def _shapes_of(text: str) -> dict[str, dict[str, object]]:
    """Of a line that speaks of several sizes what it says of each: behind its label, or before it where they come first."""
    marks = list(_LABEL.finditer(text))
    wanted = {name: SURE[name] for name in SHAPE}
    before = bool(values_of(text[: marks[0].start()], wanted))
    ends = [0, *(mark.end() for mark in marks)] if before else [*(mark.start() for mark in marks), len(text)]
    parts: dict[str, dict[str, object]] = {}
    for mark, start, end in zip(marks, ends, ends[1:]):
        parts.setdefault(f"{mark[1]}{mark[2]}".upper(), {}).update(values_of(text[start:end], wanted))
    return parts


_WORDS_FOR = {"a": 1, "single": 1}
_NODES_OF = re.compile(
    rf"\b(\d{{1,5}}|{'|'.join(_WORDS_FOR)}) (?:[\w-]+ ){{0,2}}?(?:nodes?|servers?|machines?|boxes|hosts?)\b"
    rf"(?:[,;:]? each(?: with| of)?|,| of| with(?: each| per)?|:| x| ×{EACH_OF}| \()?\s*"
    rf"(\d{{1,5}})\s?[x×]?\s?(?:[\w-]+ ){{0,2}}?{DEVICE}(?!\w)(?! ?(?:hours?|h)\b)|"
    rf"(?<![\w.,×x/-])(\d{{1,4}}) ?[x×] ?(\d{{1,2}})(?: ?[x×])? (?=(?:[\w-]+ )?{DEVICE}(?!\w))", re.IGNORECASE
)
"""`8 nodes x 8 B200`, `one node, 8x H100`: how many devices there are in all."""
_LONG = re.compile(r"\d{40}")
_SAYS = re.compile(r"\d|llama|glu|recompu|checkpointing|expert|moe", re.IGNORECASE)
_SELECTIVE = re.compile(r"\bselective\b", re.IGNORECASE)
SHAPE = ("layers", "hidden", "heads", "kv_heads", "ffn")
_LABEL = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)[ -]?([MBT])(?![\w])")
_NO = re.compile(
    r"\b(?:no|without|w/o)\b[ \w]{0,12}(?:activation|gradient)?[ -]?(?:recompute|recomputation|checkpointing)", re.IGNORECASE
)
_FULL = re.compile(
    r"(?:full|with|\\w|w/)? ?(?:activation|gradient)?[ -](?:recompute|recomputation|checkpointing)\b", re.IGNORECASE
)
_WITH = re.compile(r"full|with|w/", re.IGNORECASE)
_ASKS = re.compile(r"\b(?:what|how|whether|costs?|effects?|polic(?:y|ies)|compar\w+|sweep|vs)\b", re.IGNORECASE)
"""Of a chapter on what recomputation costs nobody says that its runs did it."""
_EXPERTS = re.compile(r"\bMoE\b|\bexperts\b|\bmixture[ -]of|\bmixtral", re.IGNORECASE)
_GLU = re.compile(r"\bllama|\bswiglu|\bgeglu|\bglu\b", re.IGNORECASE)


_LATER = ("seq", "gbs", *SHAPE)


@lru_cache(maxsize=4096)
def is_of(label: str, other: str) -> bool:
    """Whether parameters are those of a label that rounds them: 6.74B of 7B."""
    own, its = label_parameters(label), label_parameters(other)
    return label.upper() == other or bool(own and its and its[1] < own[1] and abs(own[0] - its[0]) <= own[1])


_OF_A_WIKI = re.compile(r"(?m)^(?:={1,6} ?\w|h[1-6]\. |\\(?:sub)*section)")


def piped(text: str) -> tuple[str, ...]:
    """The lines of a text, with headings and rows of a wiki, of HTML and of tables set by gaps as Markdown has them."""
    lines = text.splitlines()
    if _OF_A_WIKI.search(text):
        for number, line in pipes_of_wiki(enumerate(text.splitlines(), 1)):
            if line.startswith("#"):
                lines[number - 1] = line
    if "</" in text:
        for number, line in pipes_of_html(enumerate(text.splitlines(), 1)):
            if line and not is_delimiter(line):
                lines[number - 1] = line if line.startswith(("|", "#")) else clean(line) if "<" in line else line
    if any(map(may_begin, lines)):
        for number, line in pipes_of_gaps(enumerate(text.splitlines(), 1)):
            if not is_delimiter(line):
                lines[number - 1] = line or lines[number - 1]
            elif number < len(lines) and is_rule(lines[number]):
                lines[number] = line  # else what stands above it were a heading
    for number, line in pipes_of_lists(enumerate(lines, 1)):
        if line[:1] == "|" and not is_delimiter(line):
            lines[number - 1] = line  # else a row whose figures each carry their name were a sentence
    return tuple(lines)


class Hints:
    def __init__(self, lines: tuple[str, ...]) -> None:
        self.lines = lines
        self._tokens: Sequence[Token] | None = None
        self._found: dict[int, dict[str, object]] = {}
        self._loosely: dict[int, dict[str, object]] = {}
        self._near: dict[tuple[int | None, str], dict[str, object]] = {}
        self._seen: dict[tuple[int, int], list[tuple[int, tuple[int, int]]]] = {}
        self._later: dict[tuple[object, ...], tuple[object, list[str]]] = {}

    @classmethod
    def of(cls, tokens: Sequence[Token]) -> Hints:
        lines = [""] * (tokens[-1].line if tokens else 0)
        for token in tokens:
            lines[token.line - 1] = token.text
        made = cls(tuple(lines))
        made._tokens = tokens
        return made

    def enriched(self, record: Record) -> Record:
        """The record with what sentences near it say of fields that it leaves open, marked as inferred."""
        if record.table is None or not self.lines:
            return record
        # What the importer inferred comes from farther away than a sentence of the row's own section.
        hints, context, inferred = self._of(record), record.context, record.inferred
        later = [name for name in self._said_later(record, hints) if context[name].value == getattr(record, name)
                 and context[name].line <= (record.source_line or 0)]  # fmt: skip
        if later and not ("layers" in later and "hidden" in later):
            later = [name for name in later if name not in SHAPE]  # another model is another depth and width
        new = {name: value for name, value in hints.items() if name != "experts"
               and (name in inferred or name in later or getattr(record, name) in (None, ""))}  # fmt: skip
        if "gpus" in new and (record.gpus or record.nodes or record.dp):
            del new["gpus"]
        if "kv_heads" in new and record.heads is None and "heads" not in new:
            # Heads that share their keys are 128 wide nearly always.
            heads, rest = divmod(int(new.get("hidden") or record.hidden or 0), 128)  # type: ignore[call-overload]
            if not heads or rest or heads % 8 or heads % int(new["kv_heads"]):  # type: ignore[call-overload]
                del new["kv_heads"]
            else:
                new["heads"] = heads
        if not new:
            return record
        new["inferred"] = tuple(sorted({*record.inferred, *new}))
        if later:
            new["context"] = {name: stated for name, stated in record.context.items() if name not in later}
        return record.changed(new)

    def _said_later(self, record: Record, hints: dict[str, object]) -> list[str]:
        """The fields of which a sentence between the rows and what the importer took from farther above says otherwise."""
        key, context = (record.table, record.size_label), record.context
        if key not in self._later or self._later[key][0] != context:  # of all rows of a table alike
            self._later[key] = context, [*self._said_between(record.source_line or 0, hints, context)]
        return self._later[key][1]

    def _said_between(self, at: int, hints: dict[str, object], context: dict[str, Stated]) -> Iterator[str]:
        tree, visible = self.sections, self.visible(at)
        depth = {section: place for place, section in enumerate(tree.chain(tree.at(at)))}
        for name in (name for name in _LATER if name in hints and name in context):
            above = context[name].line
            number, scope = next(((number, scope) for number, (scope, _) in visible
                                  if self._said(number).get(name) == hints[name]), (0, 0))  # fmt: skip
            if number > above and (scope, -number) < (depth.get(tree.scope(tree.at(above)), len(depth)), -above) and any(
                    line.lstrip().startswith("|") for line in self.lines[above:number]):
                yield name

    def _of(self, record: Record) -> dict[str, object]:
        # All rows of a table stand under the same text.
        key = (record.table, record.size_label)
        if key not in self._near:
            near = self.near(record.source_line or 0, record.size_label)
            self._near[key] = {name: value for name, value in near.items()
                               if not isinstance(value, (int, float)) or value <= MOST_COUNTED}  # fmt: skip
        return self._near[key]

    def line_of(self, record: Record, name: str) -> int | None:
        """The line nearest above that says what a row has in a field."""
        value = getattr(record, name)
        return next((n for n, _ in self.visible(record.source_line or 0) if self._said(n).get(name) == value), None)

    def nearest(self, record: Record, name: str, *, surely: bool) -> tuple[object, int] | None:
        """What the text nearest above a row says of a field, and in which line."""
        for number, _ in self.visible(record.source_line or 0):
            said = self._said(number) if surely else {**self._loose(number), **self._said(number)}
            if name in said:
                return said[name], number
        return None

    def mixture(self, record: Record) -> bool:
        """Whether the text around a row speaks of experts."""
        return record.table is not None and bool(self.lines) and "experts" in self._of(record)

    def near(self, line: int, label: str = "") -> dict[str, object]:
        loosely, surely = self._agreed(line, label, self._loose), self._agreed(line, label, self._said)
        # What is hardly said counts before what is surely said of a table farther above.
        nearer = {name: pair for name, pair in loosely.items() if name not in surely or pair[0] < surely[name][0]}
        return {name: value for name, (_, value) in {**surely, **nearer}.items()}

    def devices(self, line: int) -> int | None:
        """How many devices the text near a line speaks of."""
        found = self.near(line).get("gpus")
        return found if isinstance(found, int) else None

    def _agreed(
        self, line: int, label: str, read: Callable[[int], dict[str, object]]
    ) -> dict[str, tuple[tuple[int, int], object]]:
        """What the innermost text says, and how far away it is: by sections, and by the tables between."""
        said: dict[str, tuple[tuple[int, int], set[object]]] = {}
        for number, place in self.visible(line):
            message = read(number)
            if isinstance(apart := message.get("except"), dict):
                own = apart.get(label.upper(), {})
                message = {name: value for name, value in {**message, **own}.items() if value is not None and name != "except"}
            if isinstance(shapes := message.get("shapes"), dict):
                rest = {name: value for name, value in message.items() if name not in (*SHAPE, "shapes")}
                told = [part for part in shapes.values() if part]
                only = told[0] if len(told) == 1 and label.upper() not in shapes else {}  # beside a number of tokens
                message = {**rest, **shapes.get(label.upper(), only)}
            labels = message.get("labels")
            other_model = bool(label) and isinstance(labels, set) and not any(is_of(label, one) for one in labels)
            for name, value in message.items():
                if name != "labels" and not (other_model and name in SHAPE):
                    first, values = said.setdefault(name, (place, set()))
                    if first == place:
                        values.add(value)
        return {name: ((place[0], -place[1]), next(iter(values))) for name, (place, values) in said.items() if len(values) == 1}

    def visible(self, line: int) -> list[tuple[int, tuple[int, int]]]:
        """The lines of text above that hold for a table at `line`, the nearest first; with the section and the tables above."""
        tree, text = self._tree
        key = tree.at(line), bisect.bisect_left(text, (line,))
        if key not in self._seen:
            depth = {section: place for place, section in enumerate(tree.chain(key[0]))}
            seen = [(depth[scope], -number, after) for number, section, after in text[: key[1]]
                    if (scope := tree.scope(section)) in depth]  # fmt: skip
            self._seen[key] = [(-number, (scope, after)) for scope, number, after in sorted(seen)]
        return self._seen[key]

    @cached_property
    def _tree(self) -> tuple[Tree, list[tuple[int, int, int]]]:
        """The sections, and of each line of text its number, its section and how many tables stand above it."""
        tree, text, tables, in_table = Tree(), [], 0, False
        for token in scan(led_sections(_but_rows(self.lines))) if self._tokens is None else self._tokens:
            if token.kind != "text":
                tables += not in_table
                in_table = True
                tree.mark_rows()
            elif token.text.strip() and not (token.fenced and token.text.lstrip().startswith("#")):
                in_table = False
                if (heading := HEADING.match(token.text)) and not token.fenced:
                    tree.open(token.line, len(heading.group(1)), heading.group(2))
                if self._said(token.line) or self._loose(token.line):
                    text.append((token.line, len(tree.sections) - 1, tables))
        return tree, text

    def heard(self, chapters: Chapters, part: int) -> Hints:
        """Of a chapter and what speaks for it, each line where it was."""
        heard, lines = chapters.heard(part), list(self.lines)
        for (start, of), (end, _) in pairwise([*chapters.runs(), (len(lines) + 1, part)]):
            if of not in heard:
                lines[start - 1 : end - 1] = [""] * (end - start)
        return self.among(tuple(lines))

    def among(self, lines: tuple[str, ...]) -> Hints:
        """Of some of the lines, the others being empty: what is read already is not read again."""
        tree, text = self._tree
        made = Hints(lines)
        made._found, made._loosely = self._found, self._loosely
        made.__dict__["_tree"] = tree, [each for each in text if lines[each[0] - 1]]
        return made

    @property
    def sections(self) -> Tree:
        return self._tree[0]

    def _said(self, number: int) -> dict[str, object]:
        if number not in self._found:
            self._found[number] = read_sentence(self.lines[number - 1])
        return self._found[number]

    def _loose(self, number: int) -> dict[str, object]:
        if number not in self._loosely:
            self._loosely[number] = _read_loosely(self.lines[number - 1])
        return self._loosely[number]


def _but_rows(lines: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """The lines, of a table between pipes those that it is told by: whatever stands right below is a row of it too."""
    below, ruled = 0, False
    for number, line in enumerate(lines, 1):
        below = below + 1 if line[:1] == "|" else 0
        if below == 2:
            ruled = is_delimiter(line)
        if below < 4 or not ruled:
            yield number, line


@lru_cache(maxsize=4096)
def _read_loosely(text: str) -> dict[str, object]:
    """The same of what a line hardly says surely."""
    plain = len(text) <= 2000 and (any(map(str.isdigit, text)) or has_numbers(text)) and not _LONG.search(text)
    english = _in_english(text) if plain else ""
    found = values_of(english, LOOSELY) if english else {}
    if not _in_use(found.get("seq")):
        found.pop("seq", None)
    return found


_COUNTED = re.compile(r"(?<=\d)\s?[个個つ]\s?")
"""`40 个注意力头`: so many of them."""


@lru_cache(maxsize=64)
def _in_english(text: str) -> str:
    """A line that may say something; asked for what it says surely, and for what hardly."""
    english = in_english(text if text.isascii() else in_digits(text))
    if english != text:
        english = _THOUSANDS.sub(r"\1\2", _COUNTED.sub(" ", english))  # 65 536, as English does not write it
    english = spelt(english)
    return english if _has_cue(english) else ""


def _has_cue(text: str) -> bool:
    letters = text.casefold()
    for cue in _ALL_CUES:  # asked of every line: no generator
        if cue in letters:
            return True
    return OF_DEVICES.search(letters) is not None


def _in_use(seq: object) -> bool:
    """Whether people train on sequences of such a length: a power of two, or three of them."""
    return isinstance(seq, int) and seq >= 256 and seq // (seq & -seq) in (1, 3)


@lru_cache(maxsize=4096)
def read_sentence(text: str) -> dict[str, object]:
    """What one line says; a field with two different values is left out. Notes say the same above table after table."""
    if (
        len(text) > 2000
        or _LONG.search(text)  # no number that was ever measured, and the patterns take its length squared
        or not (_SAYS.search(text) or has_numbers(text))
        or "iteration " in text
        and " | " in text
    ):
        return {}
    text = _in_english(text)
    if not text:
        return {}
    text, apart = _without_exceptions(text)
    letters = text.casefold()
    found: dict[str, object] = {**values_of(text, SURE), **({"except": apart} if apart else {})}
    if "gpus" not in found and OF_DEVICES.search(letters) and (devices := _in_all(text)):
        found["gpus"] = devices
    if found.get("procs_per_node") == found.get("gpus", 0) and "nodes," in letters:
        del found["procs_per_node"]  # `4 nodes, 32 GPUs`: those of all
    labels = {f"{m[1]}{m[2]}".upper() for m in _LABEL.finditer(text)} if found else set()
    if labels:
        found["labels"] = labels
    if len(labels) > 1 and any(name in found for name in SHAPE):
        found["shapes"] = _shapes_of(text)
    if "recomp" not in letters and "checkpoint" not in letters:
        pass
    elif _SELECTIVE.search(text):
        found["recompute"] = "selective"
    elif _NO.search(text):
        found["recompute"] = "none"
    elif (said := _FULL.search(text)) and (_WITH.match(said[0]) or not _ASKS.search(text)):
        found["recompute"] = "full"
    if ("expert" in letters or "moe" in letters or "mixt" in letters) and _EXPERTS.search(text):
        found["experts"] = True
    if ("llama" in letters or "glu" in letters) and _GLU.search(text):
        found["family"] = "llama"
    return found


def _in_all(text: str) -> int | None:
    """Nodes times their devices; `2 nodes, 16x MI300X` has said both already."""
    counts = set()
    for match in _NODES_OF.finditer(text):
        of_all, each = match[1] or match[3], int(match[2] or match[4])
        nodes = _WORDS_FOR.get(of_all.lower()) or int(of_all)
        counts.add(each if nodes and each > 8 and each % nodes == 0 and each // nodes in (4, 8) else nodes * each)
    return counts.pop() if len(counts) == 1 and min(counts) > 1 else None


_THOUSANDS = re.compile(r"(?<![\d.,] )\b(\d{1,3}) (\d{3})\b(?! ?\d)")
_ONE = r"(?:(?:for|in|of) )?(?:the )?(?<![\w.])(\d+(?:\.\d+)?)[ -]?([MBT])(?!\w)"
_BUT = re.compile(rf"\b(?:except(?:ing)?|but|apart from|other than) {_ONE}(?: model)?(?:\s*\(([^()]*)\))?"
                  rf"|\({_ONE}:\s*([^()]*)\)", re.IGNORECASE)  # fmt: skip
_BUTS = ("except", "but", "apart from", "other than", "(")
_PLAIN_GPT = re.compile(r"\b(?:plain|ordinary|classic|standard) (?:GPT|MLP)|\bGPT-?2\b|\bgelu\b", re.IGNORECASE)
_SUBJECTS = {"kv_heads": "kv head", "vocab": "vocab", "ffn": "ffn", "layers": "layer", "hidden": "hidden", "heads": "head",
             "seq": "sequence"}  # fmt: skip


def _without_exceptions(text: str) -> tuple[str, dict[str, dict[str, object]]]:
    """`all have as many KV heads as heads, except the 1.1B (4)`: what holds for the others, and what for that size.

    What the clause says is not said of the size; what stands in brackets is."""
    if not any([cue in text.casefold() for cue in _BUTS]) or not _BUT.search(text):
        return text, {}
    apart: dict[str, dict[str, object]] = {}
    for clause in re.split(r"(?<=[;.])\s(?![^()]*\))", text):
        for match in _BUT.finditer(clause):
            size, inside = f"{match[1] or match[4]}{match[2] or match[5]}".upper(), match[3] or match[6] or ""
            rest = clause[: match.start()] if match[4] is None else clause[: match.start()].rpartition(",")[2]
            own = apart.setdefault(size, {})
            own |= dict.fromkeys(values_of(rest, SURE)) | ({"family": None} if _GLU.search(rest) else {})
            own |= values_of(inside, SURE) | ({"family": "gpt2"} if _PLAIN_GPT.search(inside) else {})
            subject = next((name for name, word in _SUBJECTS.items() if word in rest.casefold()), "")
            if subject and inside.strip().isdecimal() and len(inside.strip()) < 8:
                own[subject] = int(inside)
    return _BUT.sub(" ", text), apart


