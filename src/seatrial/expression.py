"""Rules that people write, `dp % 4 == 0 and nodes <= 48`: a small language of whole numbers, read by our own parser.

    rule = expression.parse("dp % 4 == 0", names={"dp", "tp", "pp"})
    rule.holds({"dp": 8})                          True
    rule.holds({"dp": np.array([4, 6])})           array([True, False])
    python -m seatrial.expression '12 <= layers // pp' layers=72 pp=6

There are numbers, names, `+ - * // %`, comparisons (chained as in Python), `and`, `or`, `not` and parentheses; nothing that
calls, indexes, raises to a power or reaches an attribute, and nothing is handed to Python's own evaluator. Length, depth and
every number on the way are bounded. `and` and `or` look at their right side only where the left leaves it open, on arrays row
by row, so `zero > 0 and dp % zero == 0` never divides by zero.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seatrial.errors import BadInput
from seatrial.fields import nearest

if TYPE_CHECKING:
    import numpy as np

    Value = int | np.ndarray

MAX_LENGTH = 1000
MAX_DEPTH = 40
MAX_NUMBER = 10**18
"""Literals and results: it fits 64 bits with room for one addition, so arrays and plain numbers agree."""

_TOKEN = re.compile(r"(?P<number>\d[\w.]*)|(?P<name>[^\W\d]\w*)|"
                    r"(?P<sign>//|\*\*|==|!=|<=|>=|&&|\|\||[-+*/%<>=!&|^~()\[\]{}.,:;'\"])")
_COMPARISONS = ("==", "!=", "<=", ">=", "<", ">")
_HINTS = {"=": "use ==", "&&": "use and", "||": "use or", "!": "use not", "**": "there are no powers", "/": "use //",
          "&": "use and", "|": "use or", ".": "there are no attributes or fractions", "'": "there are no texts",
          '"': "there are no texts", "[": "there is no indexing"}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    """number, name, word (and, or, not), sign or end."""
    text: str
    at: int
    """0-based position in the text; errors count from 1."""


@dataclass(frozen=True, slots=True)
class _Node:
    op: str
    """`number`, `name`, `not`, `neg`, `and`, `or`, or an operator's sign."""
    at: int
    parts: tuple[_Node, ...] = ()
    number: int = 0
    name: str = ""


@dataclass(frozen=True)
class Expression:
    """A rule that has been read; it keeps its text for messages."""

    text: str
    root: _Node

    @property
    def names(self) -> frozenset[str]:
        """The names that it needs values for."""
        found: set[str] = set()
        pending = [self.root]
        while pending:
            node = pending.pop()
            pending.extend(node.parts)
            if node.op == "name":
                found.add(node.name)
        return frozenset(found)

    def value(self, values: Mapping[str, Value]) -> Value:
        """The whole number it comes to (comparisons give 0 or 1), or one a row where a name stands for an array."""
        missing = sorted(self.names - set(values))
        if missing:
            raise BadInput(f"rule {self.text!r}: {missing[0]} has no value here; {nearest(missing[0], values)}")
        return _Evaluation(self.text).of(self.root, {name: values[name] for name in self.names})

    def holds(self, values: Mapping[str, Value]) -> bool | np.ndarray:
        """Whether it is true (not 0)."""
        result = self.value(values)
        return result != 0


def parse(text: str, names: Iterable[str] | None = None) -> Expression:
    """Read a rule. With `names`, any other name is an error that gives its position and the nearest known one."""
    if len(text) > MAX_LENGTH:
        raise BadInput(f"rule of {len(text)} characters: {MAX_LENGTH} are the most")
    return Expression(text, _Parser(text, None if names is None else frozenset(names)).whole())


def _wrong(text: str, at: int, what: str) -> BadInput:
    return BadInput(f"rule {text!r}, position {at + 1}: {what}")


def _tokens(text: str) -> list[_Token]:
    tokens, at = [], 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        match = _TOKEN.match(text, at)
        if not match:
            raise _wrong(text, at, f"{text[at]!r} has no meaning here")
        kind, found = str(match.lastgroup), match.group()
        if kind == "number":
            if not re.fullmatch(r"[0-9]+", found):
                raise _wrong(text, at, f"{found!r} is not a whole number")
            if len(found) > 19 or int(found) > MAX_NUMBER:
                raise _wrong(text, at, f"{found} is above {MAX_NUMBER:.0e}, the largest number a rule can hold")
        elif found in ("and", "or", "not"):
            kind = "word"
        tokens.append(_Token(kind, found, at))
        at = match.end()
    return [*tokens, _Token("end", "", len(text))]


class _Parser:
    """One method a level of precedence, loosest first, as in Python: or, and, not, comparisons, + -, * // %, sign."""

    def __init__(self, text: str, names: frozenset[str] | None):
        self.text, self.known, self.tokens, self.next, self.depth = text, names, _tokens(text), 0, 0

    def whole(self) -> _Node:
        if self.now.kind == "end":
            raise _wrong(self.text, 0, "an empty rule; an example is dp % 4 == 0")
        node = self.either()
        if self.now.kind != "end":
            raise self.unexpected()
        return node

    @property
    def now(self) -> _Token:
        return self.tokens[self.next]

    def take(self, *texts: str) -> _Token | None:
        token = self.now
        if token.text in texts and token.kind in ("sign", "word"):
            self.next += 1
            return token
        return None

    def unexpected(self) -> BadInput:
        token = self.now
        hint = f"; {_HINTS[token.text]}" if token.text in _HINTS else ""
        what = f"{token.text!r} was not expected" if token.kind != "end" else "the rule ends too early"
        if token.text == "(" and self.next and self.tokens[self.next - 1].kind == "name":
            hint = "; there are no functions"
        return _wrong(self.text, token.at, what + hint)

    def deeper(self, at: int) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _wrong(self.text, at, f"nested deeper than {MAX_DEPTH}")

    def either(self) -> _Node:
        node = self.both()
        while token := self.take("or"):
            node = _Node("or", token.at, (node, self.both()))
        return node

    def both(self) -> _Node:
        node = self.negated()
        while token := self.take("and"):
            node = _Node("and", token.at, (node, self.negated()))
        return node

    def negated(self) -> _Node:
        if token := self.take("not"):
            self.deeper(token.at)
            node = _Node("not", token.at, (self.negated(),))
            self.depth -= 1
            return node
        return self.comparison()

    def comparison(self) -> _Node:
        left = self.sum()
        links = []
        while token := self.take(*_COMPARISONS):
            right = self.sum()
            links.append(_Node(token.text, token.at, (left, right)))
            left = right
        if not links:
            return left
        node = links[0]
        for link in links[1:]:
            node = _Node("and", link.at, (node, link))
        return node

    def sum(self) -> _Node:
        node = self.product()
        while token := self.take("+", "-"):
            node = _Node(token.text, token.at, (node, self.product()))
        return node

    def product(self) -> _Node:
        node = self.signed()
        while token := self.take("*", "//", "%"):
            node = _Node(token.text, token.at, (node, self.signed()))
        return node

    def signed(self) -> _Node:
        if token := self.take("-"):
            self.deeper(token.at)
            node = _Node("neg", token.at, (self.signed(),))
            self.depth -= 1
            return node
        return self.atom()

    def atom(self) -> _Node:
        token = self.now
        if token.kind == "number":
            self.next += 1
            return _Node("number", token.at, number=int(token.text))
        if token.kind == "name":
            if self.known is not None and token.text not in self.known:
                raise _wrong(self.text, token.at, f"{token.text} is not known; {nearest(token.text, self.known)}")
            self.next += 1
            return _Node("name", token.at, name=token.text)
        if opening := self.take("("):
            self.deeper(opening.at)
            node = self.either()
            if not self.take(")"):
                if self.now.kind == "end":
                    raise _wrong(self.text, opening.at, "this parenthesis is never closed")
                raise self.unexpected()
            self.depth -= 1
            return node
        raise self.unexpected()


@dataclass(frozen=True)
class _Evaluation:
    text: str

    def of(self, node: _Node, values: Mapping[str, Value]) -> Value:
        # A long sum leans to the left; walking down it in a loop keeps Python's stack out of reach of the text.
        spine: list[_Node] = []
        while node.parts and node.op not in ("not", "neg"):
            spine.append(node)
            node = node.parts[0]
        result = self.leaf(node, values)
        for above in reversed(spine):
            if above.op in ("and", "or"):
                result = self.joined(above, result, values)
            else:
                result = self.combined(above, result, self.of(above.parts[1], values))
        return result

    def leaf(self, node: _Node, values: Mapping[str, Value]) -> Value:
        if node.op == "number":
            return node.number
        if node.op == "name":
            value = values[node.name]
            return self.bounded(node, value if _is_array(value) else int(value))
        inner = self.of(node.parts[0], values)
        return -inner if node.op == "neg" else _number(inner == 0)

    def joined(self, node: _Node, left: Value, values: Mapping[str, Value]) -> Value:
        """`and` looks right where the left is true, `or` where it is false."""
        holds = left != 0
        if not _is_array(holds):
            if bool(holds) == (node.op == "or"):
                return int(holds)
            return _number(self.of(node.parts[1], values) != 0)
        open_rows = holds if node.op == "and" else ~holds  # type: ignore[operator]
        narrowed = {name: value[open_rows] if _is_array(value) else value  # type: ignore[index]
                    for name, value in values.items()}
        result = _number(holds)
        result[open_rows] = _number(self.of(node.parts[1], narrowed) != 0)  # type: ignore[index]
        return result

    def combined(self, node: _Node, a: Value, b: Value) -> Value:
        op = node.op
        if op in _COMPARISONS:
            return _number(_COMPARE[op](a, b))
        if op in ("//", "%"):
            if _any(b == 0):
                raise _wrong(self.text, node.at, f"{op} divides by zero")
            return a // b if op == "//" else a % b
        if op == "*":
            # Checked before it is done: 64 bits wrap round without a word.
            if _largest(a) * _largest(b) > MAX_NUMBER:
                raise self.too_large(node)
            return a * b
        return self.bounded(node, a + b if op == "+" else a - b)

    def bounded(self, node: _Node, value: Value) -> Value:
        if _largest(value) > MAX_NUMBER:
            raise self.too_large(node)
        return value

    def too_large(self, node: _Node) -> BadInput:
        return _wrong(self.text, node.at, f"the result is above {MAX_NUMBER:.0e}, the largest number a rule can hold")


_COMPARE = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b, "<": lambda a, b: a < b, ">": lambda a, b: a > b,
}  # fmt: skip


def _is_array(value: object) -> bool:
    return hasattr(value, "shape") and value.shape != ()


def _any(condition: object) -> bool:
    return bool(condition.any()) if hasattr(condition, "any") else bool(condition)


def _largest(value: Value) -> int:
    if not _is_array(value):
        return abs(int(value))
    return max(abs(int(value.max())), abs(int(value.min()))) if value.size else 0  # type: ignore[union-attr]


def _number(condition: object) -> Value:
    return condition.astype("int64") if _is_array(condition) else int(bool(condition))  # type: ignore[attr-defined]


if __name__ == "__main__":
    import sys

    given = {name: int(number) for name, number in (argument.split("=") for argument in sys.argv[2:])}
    print(parse(sys.argv[1], given).value(given))
