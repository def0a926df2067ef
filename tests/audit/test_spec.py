import pytest
import torch

from lanewise.audit.spec import Input, Spec

LINEAR = Spec(
    "linear", "F.linear(x, weight) * C", (Input("x", "B C"), Input("weight", "2*K C")), {"B": 2, "C": 3, "K": 4}
)


def test_shapes_are_names_numbers_and_expressions():
    assert Input("x", "B 2*H 3").shape({"B": 5, "H": 7}) == (5, 14, 3)


@pytest.mark.parametrize(("name", "variable"), [("x", "x"), ("layers.0.weight", "layers_0_weight"), ("0", "_0")])
def test_a_name_becomes_an_identifier(name, variable):
    assert Input(name, "B").variable == variable


def test_an_expression_becomes_a_function_with_the_names_that_it_uses():
    assert (
        LINEAR.definition(LINEAR.sizes) == "def operator(x, weight):\n    C = 3\n    return F.linear(x, weight) * C\n"
    )
    x, w = torch.randn(2, 3), torch.randn(8, 3)
    torch.testing.assert_close(LINEAR.bind(LINEAR.sizes)(x=x, weight=w), 3 * x @ w.T)


def test_statements_are_a_body():
    spec = Spec("twice", "y = x + x\nreturn y", (Input("x", "B"),), {"B": 2})
    assert spec.bind(spec.sizes)(x=torch.ones(2)).tolist() == [2, 2]


def test_only_floating_inputs_that_are_not_constant_are_differentiated():
    spec = Spec("f", "x", (Input("x", "B"), Input("t", "B", kind="constant"), Input("i", "B", kind="other")), {"B": 2})
    assert spec.differentiable == ("x",)
