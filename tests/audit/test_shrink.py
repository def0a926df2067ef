import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lanewise.audit.case import Case
from lanewise.audit.compose import chain
from lanewise.audit.shrink import shrink
from lanewise.audit.spec import Input, Spec

SPEC = Spec("f", "x", (Input("x", "B C"),), {"B": 8, "C": 8}, options={"stride": (1, 2)})
CASE = Case(
    "f", (("B", 500), ("C", 700)), (("stride", 2),), dtype="float16", layout="strided", cotangent="ones", values="tiny"
)


@given(st.integers(1, 500), st.integers(1, 700))
def test_sizes_shrink_to_where_the_failure_begins(rows, columns):
    _, case = shrink(SPEC, CASE, lambda _, c: dict(c.sizes)["B"] >= rows and dict(c.sizes)["C"] >= columns)
    assert case == Case("f", (("B", rows), ("C", columns)), (("stride", 1),))


@given(st.sampled_from(["layout", "cotangent", "values", "dtype", "compiled", "options"]))
def test_what_is_still_unusual_is_needed(name):
    start = replace(CASE, compiled=True)
    _, case = shrink(SPEC, start, lambda _, c: getattr(c, name) == getattr(start, name))
    usual = Case("f", (("B", 1), ("C", 1)), (("stride", 1),))
    assert case == replace(usual, **{name: getattr(start, name)})


def test_a_chain_loses_the_statements_that_are_not_needed():
    spec = next(s for s in map(chain, range(500)) if "cumsum" in s.source and len(s.source.splitlines()) > 5)
    case = Case(spec.name, tuple(spec.sizes.items()))
    small, _ = shrink(spec, case, lambda s, _: "cumsum" in s.source)
    statement, result = small.source.splitlines()
    assert "cumsum" in statement
    assert result == f"return {statement.split()[0]}"
    assert [tensor.name for tensor in small.inputs] == ["x"]


def test_a_chain_keeps_every_statement_of_what_fails():
    spec = next(
        s for s in map(chain, range(500)) if {"cumsum", "softmax", "index_add"} <= set(re.findall(r"\w+", s.source))
    )
    case = Case(spec.name, tuple(spec.sizes.items()))
    small, _ = shrink(spec, case, lambda s, _: "cumsum" in s.source and "index_add" in s.source)
    assert len(small.source.splitlines()) == 3
    small.bind(small.sizes)(**case.inputs(small))


def test_what_never_fails_again_stays_as_it_is():
    assert shrink(SPEC, CASE, lambda *_: False) == (SPEC, CASE)
