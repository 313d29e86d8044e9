"""Devices that sentences count: of nodes and of layouts, against each other and against the rows around.

    check(sheet)          findings, each of one figure of a sentence

    16 nodes (64 GCDs)                          of 8 a node, as all rows have it: 128
    384 GPUs = 96 nodes x 8                     768
    TP 4 x PP 2 x DP 48 = 768 GPUs              384
    With DP 24 (384 GPUs) the batch divides.    though the row of 384 GPUs has DP 48
    1536 sequences, that is 6.29M tokens.       of 2048 tokens as in all rows: 3.15M
"""
from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.claims import scope_of
from seatrial.notes.lint.text.figures import Figure, figures
from seatrial.notes.lint.text.mentions import mentions, spoken_of
from seatrial.notes.lint.text.sentences import Sentence
from seatrial.notes.lint.usual import round_number
from seatrial.notes.read.sentences import read_sentence
from seatrial.notes.read.sound import MOST_COUNTED

MOST_LINES, MOST_OF_A_NODE, MOST_ROWS = 4000, 16, 60
_AXES = re.compile(r"(?<![A-Za-z0-9_])(DP|TP|PP|CP|MP)(?:_?size)?\s?[=:]?\s?(\d{1,5})(?!\w|[.,]\d|"
                   r" ?(?:to|-|–|/|and|or|,) ?\d)")  # fmt: skip
_NODE = (r"(?:nodes?|hosts?|box(?:es)?|servers?|knoten|n(?:oe)?uds?|nodos?|nodi|nos|knooppunt(?:en)?|wezl\w*|узл\w*|ノード|"
         r"节点|노드)")  # fmt: skip
_A_NODE = re.compile(rf"(?<![\w.,])(\d{{1,2}}) ?(?:[x×] ?)?(?:[\w-]+ ){{0,3}}?(?:per|a|/|in a|in each|je|pro|par|por|na|"
                     rf"на) ?{_NODE}\b|"
                     rf"\b{_NODE} ?(?:of|with|mit|de|con|à|a|x|×|·|\*) ?(\d{{1,2}})(?!\d|[.,]\d| ?(?:cores?|GB|TB|NICs?))|"
                     r"每节点 ?(\d{1,2})|1 ?ノード ?(?:あたり|当たり) ?(\d{1,2})", re.IGNORECASE)  # fmt: skip
_BESIDE = re.compile(r"(?:[ -]?(?:SXM\d?|PCIe|NVL|OAM|\d{2,3} ?GB|GPUs?))*[\s(,=:≈]*(?:(?:are|is|sind|macht|das sind|"
                     r"i\.e\.|that is|also|soit|c'est-a-dire|es decir|son|cioe|"
                     r"sono|ou|"
                     r"or|oder|sao|dus|czyli|то есть|=)[\s,]*)*[\s(]*", re.IGNORECASE)  # fmt: skip
"""Between two counts of the same: `16 nodes (64 GPUs)`."""
_OTHERS = re.compile(r"\b(?:instead|would|could|should|if|more than|up to|at least|at most|of the|out of|left|idle|spare|"
                     r"broken|"
                     r"missing|only|except|of which|davon|dont|planned|reserv\w+|cluster|has|have|partition|limit|budget|"
                     r"from|to|"
                     r"until|or|wenn|si|oder)\b", re.IGNORECASE)  # fmt: skip
_OF_THEM = re.compile(r"\b(?:of|von|de|des|di|der|из) (?:the|our|all|den|unseren|les|los|las|nos|i|le)? ?$", re.IGNORECASE)
"""`60 of the 64 nodes`."""


@dataclass(frozen=True)
class _Around:
    """What the rows around a sentence have in common."""

    rows: list[Row]
    each: int | None
    """Devices of a node."""
    seq: int | None


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for file, text in sheet.prose.items():
        tables = sheet.tables_of(file)
        for sentence in text.sentences if len(text.lines) <= MOST_LINES else ():
            its = [one for one in figures(sentence.text) if one.kind in _COUNTED]
            if its:
                around = _around(tables, text.lines, sentence.line)
                found += _judged(file, sentence, its, around, text.lines)
    return found


_COUNTED = frozenset(("devices", "nodes", "samples", "tokens", "tokens of a step"))


def _around(tables: list[list[Row]], lines: tuple[str, ...], number: int) -> _Around:
    scope = scope_of(tables, lines, number)
    rows = list(scope.last) if scope.near else []
    shown = {row.record.gpus / row.record.nodes for row in rows if row.shows("nodes") and row.shows("gpus")
             and row.record.nodes and row.record.gpus}  # fmt: skip
    told = {row.procs for row in rows if row.procs != 1} - {None}
    each = shown if len(shown) == 1 and len(rows) > 2 else told if len(told) == 1 and not shown else set()
    seqs = {row.seq for row in rows}
    value = next(iter(each), None)
    if not scope.last:  # of what comes, how many devices it has is enough
        rows = [row for its in tables for row in its][:MOST_ROWS]
    return _Around(rows, int(value) if value and value == int(value) else None, next(iter(seqs)) if len(seqs) == 1 else None)


def _judged(file: str, sentence: Sentence, its: list[Figure], around: _Around, lines: tuple[str, ...]) -> Iterator[Finding]:
    text = sentence.text

    def finding(one: Figure, right: str | None, why: str, level: Level, printed: str = "") -> Finding:
        message = f"{printed or one.text}{f' -> {right}' if right else ''}: {why}"
        return Finding(file=file, line=sentence.line_at(one.start), code="world-size", level=level, message=message,
                       printed=printed or one.text, proposed=right)  # fmt: skip

    its = [one for one in its if not _OF_THEM.search(text[: one.start])]
    its = [one for one in its if not one.bound and one.value < MOST_COUNTED]
    nodes, devices = ([one for one in its if one.kind == kind] for kind in ("nodes", "devices"))
    axes: dict[str, set[int]] = {}
    for name, size in _AXES.findall(text):
        axes.setdefault(name, set()).add(int(size))
    sizes = {name: next(iter(its)) for name, its in axes.items() if len(its) == 1}
    of_a_node = list(_A_NODE.finditer(text))
    each = {int(next(filter(None, match.groups()))) for match in of_a_node}
    devices = [one for one in devices if not any(match.start() < one.end and one.start < match.end() for match in of_a_node)]
    a_node = next(iter(each)) if len(each) == 1 else None if each else around.each
    if len(nodes) == len(devices) == 1:
        yield from _of_nodes(nodes[0], devices[0], a_node, bool(each), around, text, lines, finding)
    worlds = {int(one.value) for one in devices if one.value > 1}
    many = next(iter(worlds)) if len(worlds) == 1 else 0
    from_nodes = not devices and len(nodes) == 1 and a_node is not None
    if from_nodes:
        many = int(nodes[0].value) * (a_node or 0)
    if many and "DP" in sizes and len(sizes) > 1 and len(sizes) == len(axes) and 0 not in sizes.values():
        one = (devices or nodes)[0]
        if not re.search(r"= ?$", text[: one.start]):  # else it is an equation: see `claimed`
            yield from _laid_out(sizes, many, one, around, a_node if from_nodes else None, text, finding)
    elif many and {*sizes} == {"DP"} and not _OTHERS.search(text):
        rows = [row for row in around.rows if row.world == many and row.shows("dp") and row.record.dp]
        meant = {row.record.dp for row in rows}
        if rows and len(meant) == 1 and sizes["DP"] not in meant and sizes["DP"] * 24 > many // 64:
            (right,) = meant
            why = f"DP {sizes['DP']} -> {right}: so many replicas has the row of {many}"
            yield Finding(file=file, line=sentence.line, code="header-vs-row", level="warning", message=why,
                          printed=str(sizes["DP"]), proposed=str(right))  # fmt: skip
    if len(nodes) == 1 and not devices and not axes and not each:
        yield from _of_named(nodes[0], around, text, finding)
    yield from _of_tokens(its, around, text, finding)


def _of_named(nodes: Figure, around: _Around, text: str, finding: Callable[..., Finding]) -> Iterator[Finding]:
    """Nodes of the rows of one model, or one kind, where all of them have other ones: `the 70B is tuned on 8 nodes`."""
    some = [one for one in mentions(text, around.rows) if one.heading not in ("nodes", "devices")] if around.rows else []
    rows = spoken_of(some, around.rows)
    sizes = {row.world for row in rows} | ({row.record.nodes for row in rows if row.shows("nodes")} & {0})
    if len(sizes) != 1 or None in sizes or _OTHERS.search(text) or _COMPARES.search(text) or not around.each:
        return
    (world,) = sizes
    right, rest = divmod(world or 0, around.each)
    told = int(nodes.value)
    if rest or not right or told in (right, world) or told < 2:
        return
    why = f"the {world} devices of {rows[0].where} are in {right} nodes of {around.each}"
    yield finding(nodes, nodes.like(right), why, "warning")


_COMPARES = re.compile(r"\b(?:than|compared|instead|against|faster|slower|more|less|times|as)\b|->|→|[×x] ", re.IGNORECASE)


def _of_nodes(nodes: Figure, devices: Figure, each: int | None, said: bool, around: _Around, text: str,
              lines: tuple[str, ...], finding: Callable[..., Finding]) -> Iterator[Finding]:  # fmt: skip
    """Devices beside the nodes that they are in."""
    first, last = sorted((nodes, devices), key=lambda one: one.start)
    if not said and not _BESIDE.fullmatch(text[first.end : last.start]) or nodes.about or devices.about:
        return
    if "GCD" in text and re.search(r"MI\d{3}X?", text):  # which has two of them
        return
    many, count = int(nodes.value), int(devices.value)
    if not many or count < many or count <= MOST_OF_A_NODE and not said:
        return
    if each is None or not each:
        if count % many and first is nodes and not _OTHERS.search(text[first.end : last.start]):
            yield finding(devices, None, f"{many} nodes are no {count} devices", "error")
        return
    apart = said and not _BESIDE.fullmatch(text[first.end : last.start]) and "=" not in text
    if count in (many * each, each) or apart:
        return
    other = count / many
    if other == int(other) and not said and _is_told(int(other), lines):
        return  # of another kind of node
    fits = [row for row in around.rows if row.world == count], [row for row in around.rows if row.record.nodes == many]
    level: Level = "error" if said or fits[0] or fits[1] else "warning"
    if fits[0] and (not fits[1] or first is devices) and count % each == 0:
        yield finding(nodes, str(count // each), f"{count} devices are in {count // each} nodes of {each}", level)
    else:
        yield finding(devices, devices.like(many * each), f"{many} nodes of {each} are {many * each}", level)


def _is_told(each: int, lines: tuple[str, ...]) -> bool:
    return any(str(each) in line and each in {int(next(filter(None, match.groups()))) for match in _A_NODE.finditer(line)}
               for line in lines)  # fmt: skip


_OF_ATTENTION = re.compile(r"\bDP[ =-]?\d* attention|\battention[ -](?:DP|replicas?|data)|\bdecode\b", re.IGNORECASE)


def _laid_out(sizes: dict[str, int], devices: int, one: Figure, around: _Around, each: int | None, text: str,
              finding: Callable[..., Finding]) -> Iterator[Finding]:  # fmt: skip
    """A layout beside the devices that it is for; `each`: of the nodes that are counted in their place."""
    product = math.prod(sizes.values())
    if product == devices or not devices % product and not {"TP", "PP"} <= sizes.keys():
        return
    if _OF_ATTENTION.search(text):
        return  # a server's replicas of attention, which share the devices of its tensor parallelism
    said = " x ".join(f"{name} {size}" for name, size in sizes.items())
    fitting = {name: devices * size // product for name, size in sizes.items() if devices * size % product == 0}
    only = [name for name, size in fitting.items() if size and round_number(size)]
    # What the rows of so many devices have.
    rows = [row for row in around.rows if row.world == devices]
    theirs = [name for name, size in fitting.items() if any(row.whole(name.lower()) == size for row in rows if name != "CP")]
    only = theirs if len(theirs) == 1 else only
    options = "; ".join([f"{devices} -> {product}", *(f"{name} {sizes[name]} -> {fitting[name]}" for name in only)])
    if each:
        why = f"{said} are {product}, and {one.text} nodes of {each} are {devices}"
        rows = [row for row in around.rows if row.record.nodes == one.value and row.record.dp == fitting.get("DP")]
        if rows:
            yield finding(one, str(fitting["DP"]), why, "error", str(sizes["DP"]))
        else:
            yield finding(one, str(product // each) if product % each == 0 else None, why, "error")
        return
    meant = f"{only[0]} {fitting[only[0]]}" if len(only) == 1 else None
    printed = f"{only[0]} {sizes[only[0]]}" if len(only) == 1 else str(devices)
    yield finding(one, meant, f"{said} are {product} and not {devices}: {options}", "error", printed)


def _of_step(told: Figure, around: _Around, text: str, finding: Callable[..., Finding]) -> Iterator[Finding]:
    """Tokens of a step, where all rows have one batch of one length."""
    batches = {row.get("gbs") for row in around.rows}
    (batch,) = batches if len(batches) == 1 else (None,)
    of_others = read_sentence(text).keys() & {"seq", "gbs", "mbs"} or _EQUATION.search(text)
    if not batch or not around.seq or told.about or len(around.rows) < FEWEST or of_others:
        return
    meant = batch * around.seq
    off = min(abs(math.log(value / times / meant)) for value in told.values for times in (1.0, 1e6 / 2**20))
    each = {row.world for row in around.rows} | {row.record.dp for row in around.rows}
    if off < 0.06 or any(size and told.near(meant / size, 0.06) for size in each) or off > math.log(12):
        return
    why = f"a batch of {batch:g} sequences of {around.seq} tokens, as all rows have it"
    yield finding(told, told.like(meant), why, "warning")


FEWEST = 3
_EQUATION = re.compile(r"\d\s?[x×·*=]|=\s?\d")


def _of_tokens(its: list[Figure], around: _Around, text: str, finding: Callable[..., Finding]) -> Iterator[Finding]:
    """A batch in sequences beside the same in tokens, where all rows have one length."""
    samples = [one for one in its if one.kind == "samples"]
    tokens = [one for one in its if one.kind in ("tokens", "tokens of a step")]
    if not samples and len(tokens) == 1 and (tokens[0].kind == "tokens of a step" or _A_STEP.search(text)):
        yield from _of_step(tokens[0], around, text, finding)
    if len(samples) != 1 or len(tokens) != 1 or not around.seq or read_sentence(text).get("seq"):
        return
    batch, told = samples[0], tokens[0]
    if batch.start > told.start or not _BESIDE.fullmatch(_EACH.sub("", text[batch.end : told.start])) or told.about:
        return
    meant = batch.value * around.seq
    if any(abs(value / times / meant - 1) < 0.06 for value in told.values for times in (1.0, 1e6 / 2**20)):
        return
    slips = digits.slips(batch.text, (told.value / around.seq * 0.97, told.value / around.seq * 1.03))
    if any(round_number(int(slip.value)) for slip in slips):
        slip = next(slip for slip in slips if round_number(int(slip.value)))
        why = f"of {around.seq} tokens each they are the {told.text} that follow ({slip.how})"
        yield finding(batch, slip.text, why, "error")
    elif 1 / 12 < told.value / meant < 12:
        yield finding(told, told.like(meant), f"{batch.text} of {around.seq} tokens each, as the rows have it", "error")


_A_STEP = re.compile(r"\b(?:an?|per|each|every|one|pro|jeder|je|ein|par|chaque|un|por|cada|ogni|per|elke) (?:training |"
                     r"optimi[sz]er )?"
                     r"(?:step|iteration|update|batch|schritt|pas|paso|passo|stap)\b", re.IGNORECASE)  # fmt: skip
_EACH = re.compile(r" ?(?:a|per|each|every|pro|je|par|por) (?:step|iteration|update|batch|schritt|pas|paso)", re.IGNORECASE)
