"""The rule language agrees with Python where both speak, on numbers and on arrays, and refuses everything else in one line."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial import expression
from seatrial.errors import BadInput

NAMES = ("dp", "tp", "pp", "gbs", "zero")
numbers = st.integers(0, 3000).map(str)
leaves = st.one_of(numbers, st.sampled_from(NAMES))


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    sign = st.sampled_from(["+", "-", "*", "//", "%", "==", "!=", "<", "<=", ">", ">=", "and", "or"])
    pair = st.tuples(inner, sign, inner).map(" ".join)
    return st.one_of(pair, inner.map(lambda e: f"({e})"), inner.map(lambda e: f"(not {e})"), inner.map(lambda e: f"-({e})"))


texts = st.recursive(leaves, grown, max_leaves=8)
rows = st.lists(st.fixed_dictionaries({n: st.integers(0, 500) for n in NAMES}), min_size=1, max_size=5)


def by_python(text: str, values: dict[str, int]) -> int | None:
    """Python's own answer as the rule language means it: `and` and `or` give 0 or 1; None where it cannot be computed."""
    import ast

    class Truth(ast.NodeTransformer):
        def visit_BoolOp(self, node):
            self.generic_visit(node)
            return ast.Call(func=ast.Name(id="bool", ctx=ast.Load()), args=[node], keywords=[])

    tree = ast.fix_missing_locations(Truth().visit(ast.parse(text, mode="eval")))
    try:
        value = int(eval(compile(tree, "rule", "eval"), {"__builtins__": {"bool": bool}}, dict(values)))
    except ZeroDivisionError:
        return None
    return value


def by_rule(text: str, values: dict[str, object]) -> object:
    try:
        return expression.parse(text, NAMES).value(values)
    except BadInput as error:
        assert "divides by zero" in str(error) or "the largest number" in str(error)
        return None


@settings(max_examples=300, deadline=None)
@given(texts, rows)
def test_it_means_what_python_means(text, table):
    for values in table:
        found = by_rule(text, values)
        if found is not None:
            assert found == by_python(text, values)


@settings(max_examples=300, deadline=None)
@given(texts, rows)
def test_an_array_gives_what_each_row_gives(text, table):
    columns = {n: np.array([row[n] for row in table]) for n in NAMES}
    one_by_one = [by_rule(text, row) for row in table]
    together = by_rule(text, columns)
    if together is None:
        assert None in one_by_one
    else:
        assert np.broadcast_to(together, len(table)).tolist() == one_by_one


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="dptg0123456789 ()+-*/%<>=!andornt.&|_[]'\"\\\n", max_size=40))
def test_any_text_is_a_rule_or_one_line(text):
    try:
        rule = expression.parse(text)
        rule.value({name: 3 for name in rule.names})
    except BadInput as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(("text", "says"), [
    ("1 < dp and gbz % 4 == 0", "position 12: gbz is not known; did you mean 'gbs'?"),
    ("q % 4 == 0", "position 1: q is not known; known are dp, gbs, pp, tp, zero"),
    ("dp % 4 = 0", "position 8: '=' was not expected; use =="),
    ("dp ** 2 == 4", "there are no powers"),
    ("dp.real", "there are no attributes"),
    ("abs(dp)", "abs is not known"),
    ("dp(4)", "there are no functions"),
    ("dp % (4 == 0", "position 6: this parenthesis is never closed"),
    ("dp %", "the rule ends too early"),
    ("", "an empty rule"),
    ("1.5 < dp", "'1.5' is not a whole number"),
    ("0x10 < dp", "'0x10' is not a whole number"),
    ("9" * 30 + " > dp", "the largest number"),
    ("dp @ 3", "'@' has no meaning here"),
    ("(" * 100 + "dp" + ")" * 100, "nested deeper than 40"),
    ("not " * 100 + "dp", "nested deeper than 40"),
    ("-" * 100 + "dp", "nested deeper than 40"),
    ("dp + " * 500 + "dp", "1000 are the most"),
    ("dp == 'x'", "there are no texts"),
    ("__import__ == 1", "__import__ is not known"),
])  # fmt: skip
def test_what_is_wrong_is_said_with_its_position(text, says):
    with pytest.raises(BadInput) as caught:
        expression.parse(text, NAMES)
    assert says in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [0, np.array([4, 0])])
def test_division_by_zero_is_said_with_its_position(value):
    with pytest.raises(BadInput, match="position 4: % divides by zero"):
        expression.parse("dp % zero").value({"dp": 8, "zero": value})


def test_a_guard_keeps_a_division_from_being_made():
    rule = expression.parse("zero > 0 and dp % zero == 0")
    assert rule.holds({"dp": 8, "zero": np.array([0, 2, 3])}).tolist() == [False, True, False]


@pytest.mark.parametrize("big", [10**17, np.array([10**17])])
def test_a_result_beyond_64_bits_is_refused_and_never_wraps(big):
    with pytest.raises(BadInput, match="the largest number"):
        expression.parse("dp * dp > 0").value({"dp": big})


def test_a_long_sum_is_no_burden_on_the_stack():
    assert expression.parse("+".join(["dp"] * 300)).value({"dp": 2}) == 600


def test_names_are_those_that_it_needs():
    assert expression.parse("dp % 4 == 0 and not gbs < tp").names == {"dp", "gbs", "tp"}
    with pytest.raises(BadInput, match="dp has no value here"):
        expression.parse("dp > 1").value({"dpp": 1})
