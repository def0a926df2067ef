from dataclasses import replace

import pytest
import torch

from lanewise.audit.call import OUTPUT
from lanewise.audit.case import Case
from lanewise.audit.catalogue import catalogue
from lanewise.audit.spec import Input, Spec
from lanewise.audit.suspect import cause, code_of, kernels_of, within_limit, workarounds
from lanewise.audit.verdict import Verdict

SPEC = Spec("f", "2 * x", (Input("x", "B C"),), {"B": 8, "C": 4}, batch={"x": 0, OUTPUT: 0}, alternative="x + x")
CASE = Case("f", (("B", 8), ("C", 4)))
FAILED = Verdict("adjoint", "x", "failed", 1.0, 1e-6, 3, 1.0, code="LW103")


@pytest.mark.parametrize(
    ("case", "code"),
    [
        (CASE, "LW103"),
        (replace(CASE, cotangent="expanded"), "LW301"),
        (replace(CASE, layout="transposed"), "LW301"),
        (CASE.resized(B=2**29, C=5), "LW201"),
        (CASE.resized(B=2**28, C=5), "LW202"),
        (replace(CASE.resized(B=2**28, C=5), dtype="float16"), "LW203"),
        (CASE.resized(B=65536), "LW203"),
        (CASE.resized(B=65535), "LW103"),
    ],
)
def test_the_code_follows_from_what_the_smallest_case_needs(case, code):
    assert code_of(SPEC, case, FAILED) == code


@pytest.mark.parametrize(
    ("case", "within"),
    [
        (CASE.resized(B=2**29, C=5), CASE.resized(B=2**31 // 5, C=5)),
        (CASE.resized(B=2**28, C=5), CASE.resized(B=(2**32 - 1) // 20, C=5)),
        (CASE.resized(B=70_000), CASE.resized(B=65_535)),
        (CASE, None),
    ],
)
def test_within_its_limit_a_case_has_another_code(case, within):
    code = code_of(SPEC, case, FAILED)
    assert within_limit(SPEC, case, code) == within
    assert within is None or code_of(SPEC, within, FAILED) != code


def test_a_backward_that_raises_is_a_code_of_its_own():
    assert code_of(SPEC, CASE, replace(FAILED, code=None, reason="the backward raised RuntimeError: no")) == "LW204"


def test_the_compiler_is_blamed_only_where_eager_passes():
    assert "torch.compile" in cause(SPEC, replace(CASE, compiled=True), "LW104")
    assert "torch.compile" not in cause(SPEC, CASE, "LW104")


def test_a_workaround_changes_what_it_says():
    tried = {w.text: w.case for w in workarounds(SPEC, replace(CASE, compiled=True, cotangent="ones", dtype="float16"))}
    by_word = {
        word: next(c for text, c in tried.items() if word in text)
        for word in ("torch.compile", "hook", "slices", "x + x", "float32", "mkldnn")
    }
    assert by_word["torch.compile"].compiled is False
    assert by_word["hook"].cotangent == "contiguous"
    assert by_word["slices"].slices == 2
    assert by_word["x + x"].alternative
    assert by_word["float32"].dtype == "float32"
    assert by_word["mkldnn"].flags == ("torch.backends.mkldnn.enabled = False",)


def test_what_the_backward_pass_runs_is_named():
    conv = next(s for s in catalogue("torch") if s.name == "conv2d")
    case = Case("conv2d", tuple(conv.sizes.items()), (("stride", 1), ("padding", 1)))
    assert "aten::convolution_backward" in kernels_of(conv, case)
    assert "aten::convolution_backward" in cause(conv, case, "LW103", kernels_of(conv, case))


def test_our_convolution_is_tried_where_torch_convolves():
    conv = next(s for s in catalogue("torch") if s.name == "conv2d")
    case = Case("conv2d", tuple(conv.sizes.items()), (("stride", 1), ("padding", 1)))
    (ours,) = [w for w in workarounds(conv, case) if w.case.alternative]
    assert "use conv2d(x, weight, bias, stride=stride, padding=padding) of lanewise.conv" in ours.text
    torch.testing.assert_close(ours.case.call(conv).output(), case.call(conv).output())
