"""Rules that people write, `dp % 4 == 0 and nodes <= 48`: whole-number expressions, read by `ast` and never handed to `eval`.

    rule = expression.parse("dp % 4 == 0", names={"dp", "tp", "pp"})
    rule.holds({"dp": 8})                          True
    rule.holds({"dp": np.array([4, 6])})           array([True, False])
    python -m seatrial.expression '12 <= layers // pp' layers=72 pp=6
    parse("mfu > 0.4 and status == 'ok'", names, cells=True)      over the cells of a table: fractions and texts too

There are numbers, names, `+ - * // %`, comparisons (chained as in Python), `and`, `or`, `not` and parentheses; nothing that
calls, indexes, raises to a power or reaches an attribute. Length, depth and every number on the way are bounded. `and` and `or`
look at their right side only where the left leaves it open, on arrays row by row, so `zero > 0 and dp % zero == 0` never
divides by zero.
"""
from __future__ import annotations

import ast
import keyword
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from seatrial.errors import BadInput
from seatrial.fields import nearest

if TYPE_CHECKING:
    import numpy as np

    Value = int | np.ndarray

MAX_LENGTH = 1000
MAX_DEPTH = 40
MAX_NUMBER = 10**18
"""Literals and results: it fits 64 bits with room for one addition, so arrays and plain numbers agree."""

_TOKEN = re.compile(r"(?P<text>'[^'\\]*'|\"[^\"\\]*\")|(?P<number>\d[\w.]*)|(?P<name>[A-Za-z_]\w*)|"
                    r"(?P<sign>//|\*\*|[=!<>]=|&&|\|\||[-+*/%<>=!&|^~()\[\]{}.,:;'\"])", re.ASCII)
_HINTS = {"=": "use ==", "&&": "use and", "||": "use or", "!": "use not", "**": "there are no powers", "/": "use //",
          "&": "use and", "|": "use or", ".": "there are no attributes or fractions", "'": "there are no texts",
          '"': "there are no texts", "[": "there is no indexing"}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.LtE: operator.le, ast.GtE: operator.ge, ast.Lt: operator.lt,
    ast.Gt: operator.gt,
}  # fmt: skip
_SIGNS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}
_BINARY = {*_SIGNS.values(), "==", "!=", "<=", ">=", "<", ">", "and", "or"}


@dataclass(frozen=True)
class Expression:
    """A rule that has been read; it keeps its text for messages."""

    text: str
    root: ast.expr = field(compare=False)
    names: frozenset[str]
    """The names that it needs values for."""
    cells: bool = False
    """Whether values may be fractions, texts, and not-a-number where a row says nothing, which equals nothing."""

    def value(self, values: Mapping[str, Value]) -> Value:
        """The whole number it comes to (comparisons give 0 or 1), or one per row where a name stands for an array."""
        missing = sorted(self.names - set(values))
        if missing:
            raise BadInput(f"rule {self.text!r}: {missing[0]} has no value here; {nearest(missing[0], values)}")
        return _Evaluation(self.text, self.cells).of(self.root, {name: values[name] for name in self.names})

    def holds(self, values: Mapping[str, Value]) -> bool | np.ndarray:
        """Whether it is true (not 0)."""
        try:
            return _true(self.value(values))
        except TypeError:
            raise BadInput(f"rule {self.text!r}: a text has no order and no sum with numbers; == and != compare them") from None


def parse(text: str, names: Iterable[str] | None = None, *, cells: bool = False) -> Expression:
    """Read a rule. With `names`, any other name is an error that gives its position and the nearest known one."""
    if len(text) > MAX_LENGTH:
        raise BadInput(f"rule of {len(text)} characters: {MAX_LENGTH} are the most")
    plain = _checked(text, None if names is None else frozenset(names), cells)
    try:
        # In brackets, so that spaces in front are no indent: column 1 of the tree is position 1 of the rule.
        root = ast.parse(f"({plain})", mode="eval").body
    except SyntaxError as error:  # `1 == not dp`
        at = max((error.offset or 2) - 2, 0)
        raise _wrong(text, at, f"{text[at:].split(maxsplit=1)[0]!r} was not expected") from None
    return Expression(text, root, frozenset(node.id for node in ast.walk(root) if isinstance(node, ast.Name)), cells)


def _wrong(text: str, at: int, what: str) -> BadInput:
    return BadInput(f"rule {text!r}, position {at + 1}: {what}")


def _checked(text: str, known: frozenset[str] | None, cells: bool) -> str:
    """The text for Python's parser, once every token is one of this language and stands where it can.

    Operands and operators take turns: that finds a mistake with its position, and keeps Python's other syntax out.
    """
    plain = "".join(" " if letter.isspace() else letter for letter in text)
    operand_next, prefixes, at, before = True, 0, 0, ""
    opened: list[tuple[int, int]] = []
    while (at := len(plain) - len(plain[at:].lstrip())) < len(plain):
        match = _TOKEN.match(plain, at)
        if not match:
            raise _wrong(text, at, f"{text[at]!r} has no meaning here")
        token, kind = match.group(), match.lastgroup
        if kind == "text" and not cells:
            token, kind = token[0], "sign"
        fraction = cells and bool(re.fullmatch(r"\d+\.\d+", token))
        if kind == "number" and not token.isdigit() and not fraction:
            raise _wrong(text, at, f"{token!r} is not a {'' if cells else 'whole '}number")
        if kind == "number" and not fraction and (len(token) > 19 or int(token) > MAX_NUMBER):
            raise _wrong(text, at, f"{token} is above {MAX_NUMBER:.0e}, the largest number a rule can hold")
        if kind == "number" and not fraction:  # 007 is 7 here, and an error in Python
            plain = plain[:at] + str(int(token)).rjust(len(token)) + plain[match.end() :]
        is_operand = kind in ("number", "text") or kind == "name" and token not in ("and", "or", "not")
        if operand_next and (is_operand or token in ("(", "-", "not")):
            if kind == "name" and is_operand and (token not in known if known is not None else keyword.iskeyword(token)):
                quotes = f", or a text: '{token}'" if cells and before in ("==", "!=") else ""
                raise _wrong(text, at, f"{token} is not known{quotes}; {nearest(token, known or ())}")
            prefixes = 0 if is_operand else prefixes + 1
            if prefixes + sum(count for _, count in opened) > MAX_DEPTH:
                raise _wrong(text, at, f"nested deeper than {MAX_DEPTH}")
            if token == "(":
                opened.append((at, prefixes))
                prefixes = 0
            operand_next = not is_operand
        elif not operand_next and (token in _BINARY or token == ")" and opened):
            operand_next = token != ")" or not opened.pop()
        else:
            hint = "there are no functions" if token == "(" and before.isidentifier() else _HINTS.get(token, "")
            raise _wrong(text, at, f"{token!r} was not expected" + (f"; {hint}" if hint else ""))
        at, before = match.end(), token
    if not before:
        raise _wrong(text, 0, "an empty rule; an example is dp % 4 == 0")
    if operand_next:
        raise _wrong(text, len(text), "the rule ends too early")
    if opened:
        raise _wrong(text, opened[-1][0], "this parenthesis is never closed")
    return plain


@dataclass(frozen=True)
class _Evaluation:
    text: str
    cells: bool = False

    def of(self, node: ast.expr, values: Mapping[str, Value]) -> Value:
        # A long sum leans to the left; walking down it in a loop keeps Python's stack out of reach of the text.
        spine: list[ast.BinOp] = []
        while isinstance(node, ast.BinOp):
            spine.append(node)
            node = node.left
        result = self.operand(node, values)
        for above in reversed(spine):
            result = self.arithmetic(above, result, self.of(above.right, values))
        return result

    def operand(self, node: ast.expr, values: Mapping[str, Value]) -> Value:
        if isinstance(node, ast.Constant):
            return node.value if self.cells else int(node.value)  # type: ignore[arg-type,return-value]
        if isinstance(node, ast.Name):
            value = values[node.id]
            if self.cells:
                return value
            return self.bounded(node.col_offset - 1, value if _is_array(value) else int(value))
        if isinstance(node, ast.UnaryOp):
            inner = self.of(node.operand, values)
            if isinstance(node.op, ast.USub):
                return -inner
            return int(not _true(inner)) if self.cells else _number(inner == 0)
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            links = [lambda values, a=a, b=b, op=op: _COMPARE[type(op)](self.of(a, values), self.of(b, values))
                     for a, op, b in zip(sides, node.ops, sides[1:])]
            return self.joined(True, links, values)
        assert isinstance(node, ast.BoolOp), f"{type(node).__name__} is not of this language"
        parts = [lambda values, part=part: _true(self.of(part, values)) for part in node.values]
        return self.joined(isinstance(node.op, ast.And), parts, values)

    def joined(self, every: bool, parts: list[Callable[..., Any]], values: Mapping[str, Value]) -> Value:
        """`and` (every) looks at the next part where all so far are true, `or` where none is."""
        holds = parts[0](values)
        for part in parts[1:]:
            if not _is_array(holds):
                holds = part(values) if bool(holds) == every else holds
                continue
            open_rows = holds if every else ~holds
            narrowed = {name: value[open_rows] if _is_array(value) else value  # type: ignore[index]
                        for name, value in values.items()}
            holds = holds.copy()
            holds[open_rows] = part(narrowed)
        return _number(holds)

    def arithmetic(self, node: ast.BinOp, a: Value, b: Value) -> Value:
        sign = _SIGNS[type(node.op)]
        at = self.text.index(sign, (node.left.end_col_offset or 1) - 1)
        if sign in ("//", "%"):
            zero = b == 0
            if bool(zero.any()) if _is_array(zero) else zero:  # type: ignore[union-attr]
                raise _wrong(self.text, at, f"{sign} divides by zero")
            return a // b if sign == "//" else a % b
        if self.cells:
            return a * b if sign == "*" else a + b if sign == "+" else a - b
        if sign == "*":
            # Checked before it is done: 64 bits wrap round without a word.
            if _largest(a) * _largest(b) > MAX_NUMBER:
                raise self.too_large(at)
            return a * b
        return self.bounded(at, a + b if sign == "+" else a - b)

    def bounded(self, at: int, value: Value) -> Value:
        if _largest(value) > MAX_NUMBER:
            raise self.too_large(at)
        return value

    def too_large(self, at: int) -> BadInput:
        return _wrong(self.text, at, f"the result is above {MAX_NUMBER:.0e}, the largest number a rule can hold")


def _is_array(value: object) -> bool:
    return hasattr(value, "shape") and value.shape != ()


def _largest(value: Value) -> int:
    if not _is_array(value):
        return abs(int(value))
    return max(abs(int(value.max())), abs(int(value.min()))) if value.size else 0  # type: ignore[union-attr]


def _true(value: Any) -> Any:
    """Not 0; and not not-a-number, which is unlike itself."""
    return (value != 0) & (value == value)


def _number(condition: object) -> Value:
    return condition.astype("int64") if _is_array(condition) else int(bool(condition))  # type: ignore[attr-defined]


if __name__ == "__main__":
    import sys

    given = {name: int(number) for name, number in (argument.split("=") for argument in sys.argv[2:])}
    print(parse(sys.argv[1], given).value(given))
