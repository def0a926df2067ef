from dataclasses import replace

import pytest
import torch

from lanewise.audit.call import OUTPUT
from lanewise.audit.case import COTANGENTS, LAYOUTS, VALUES, Case
from lanewise.audit.spec import Input, Spec

SPEC = Spec(
    "conv2d",
    "F.conv2d(x, weight, stride=stride)",
    (Input("x", "B C H 5"), Input("weight", "K C 3 3")),
    {"B": 4, "C": 3, "H": 6, "K": 2},
    options={"stride": (1, 2)},
    linear=("x", "weight"),
    batch={"x": 0, OUTPUT: 0},
)
CASE = Case("conv2d", tuple(SPEC.sizes.items()), (("stride", 1),), seed=3)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_changes_the_strides_and_not_the_values(layout):
    plain, laid = CASE.inputs(SPEC), replace(CASE, layout=layout).inputs(SPEC)
    assert laid["x"].shape == plain["x"].shape
    expected = plain["x"][:1].expand_as(plain["x"]) if layout == "expanded" else plain["x"]
    assert torch.equal(laid["x"], expected)
    assert torch.equal(laid["weight"], plain["weight"])
    different = laid["x"].stride() != plain["x"].stride() or laid["x"].storage_offset() != 0
    assert different == (layout != "contiguous")


def test_layouts_that_a_tensor_has_no_room_for_leave_it_alone():
    spec = Spec("f", "x", (Input("x", "B"),), {"B": 3})
    case = Case("f", (("B", 3),))
    for layout in ("transposed", "channels_last"):
        assert torch.equal(replace(case, layout=layout).inputs(spec)["x"], case.inputs(spec)["x"])


@pytest.mark.parametrize("values", VALUES)
def test_values_are_of_their_scale(values):
    x = replace(CASE, values=values).inputs(SPEC)["x"]
    assert x.isfinite().all()
    assert {"tiny": x.abs().max() < 1e-3, "large": x.abs().max() > 20, "positive": x.min() >= 0}.get(values, True)


def test_the_same_case_has_the_same_inputs_and_another_seed_others():
    assert torch.equal(CASE.inputs(SPEC)["x"], CASE.inputs(SPEC)["x"])
    assert not torch.equal(CASE.inputs(SPEC)["x"], replace(CASE, seed=4).inputs(SPEC)["x"])


def test_the_setting_names_only_what_is_not_as_usual():
    assert CASE.setting == {"device": "cpu", "stride": 1}
    assert replace(CASE, layout="strided", compiled=True).setting == {
        "device": "cpu",
        "stride": 1,
        "layout": "strided",
        "compiled": True,
    }


def test_the_inputs_are_made_by_the_lines_that_scripts_show():
    names: dict = {"torch": torch}
    exec("\n".join(replace(CASE, layout="transposed").input_lines(SPEC)), names)
    assert torch.equal(names["x"], CASE.inputs(SPEC)["x"])


def test_sizes_in_draws_are_names():
    spec = Spec(
        "embedding",
        "F.embedding(i, w)",
        (Input("i", "N", "torch.randint(0, V, {shape}, {on})", "other"), Input("w", "V 2")),
        {"N": 50, "V": 4},
    )
    index = Case("embedding", (("N", 50), ("V", 4))).inputs(spec)["i"]
    assert index.dtype == torch.int64
    assert index.max() < 4


@pytest.mark.parametrize("slices", [2, 3])
def test_a_sliced_call_gives_the_same_outputs(slices):
    whole, parts = CASE.call(SPEC), replace(CASE, slices=slices).call(SPEC)
    torch.testing.assert_close(parts.output()[0], whole.output()[0])


def test_the_call_has_what_the_spec_says():
    call = replace(CASE, cotangent="expanded").call(SPEC)
    assert call.names == ("x", "weight")
    assert call.linear == ("x", "weight")
    assert call.batch == {"x": 0, OUTPUT: 0}
    assert call.cotangent == "expanded"
    assert "expanded" in COTANGENTS


def test_flags_are_in_force_in_the_block_and_not_afterwards():
    before = torch.backends.mkldnn.enabled
    with replace(CASE, flags=("torch.backends.mkldnn.enabled = False",)).in_force():
        assert torch.backends.mkldnn.enabled is False
    assert torch.backends.mkldnn.enabled is before
