"""Scripts: of a healthy operator none shows a fault, of a planted one all do."""

from dataclasses import replace

import audited_functions as audited
import pytest
import torch

from lanewise.audit.case import Case
from lanewise.audit.infer import spec_of
from lanewise.audit.repro import CRASH, Repro, make
from lanewise.audit.spec import Input, Spec

INPUTS = (Input("x", "B C"), Input("weight", "K C"))
LINEAR = Spec("linear", "F.linear(x, weight)", INPUTS, {"B": 4, "C": 3, "K": 2}, linear=("x", "weight"))
CASE = Case("linear", tuple(LINEAR.sizes.items()), layout="transposed")


def test_no_script_accuses_a_healthy_operator():
    scripts = make(LINEAR, CASE, "weight", "adjoint", "linear: a test")
    assert len(scripts) == 4  # layout, adjoint, truth, differences
    for script in scripts:
        assert "lanewise" not in script.source
        assert script.verify().verified is False


def test_a_planted_fault_shows_without_lanewise():
    spec = spec_of(audited.loses_rows, (torch.randn(8, 16), torch.randn(40, 16)))
    case = Case(spec.name, tuple(spec.sizes.items()))
    (first, *_) = make(spec, case, "w", "adjoint", "a test")
    assert "lanewise" not in first.source
    assert first.verify().verified is True


def test_the_users_own_tensors_come_in_a_file(tmp_path):
    spec = spec_of(audited.loses_rows, (torch.randn(8, 16), torch.randn(40, 16)))
    case = replace(Case(spec.name, tuple(spec.sizes.items())), values="example")
    (first, *_) = make(spec, case, "w", "adjoint", "a test")
    assert set(first.files) == {"inputs.pt"}
    assert first.verify().verified is True
    assert first.write(tmp_path / "new").is_file()


@pytest.mark.parametrize(("source", "verified"), [("import sys; sys.exit(1)", False), ("import os; os.abort()", True)])
def test_only_a_measured_error_or_a_crash_counts_as_shown(source, verified):
    assert Repro(source).verify().verified is verified


def test_a_gradient_that_is_wrong_only_beside_the_others_has_a_script():
    spec = spec_of(audited.forgets_half_beside_another, (torch.randn(8, 16), torch.randn(4, 16)))
    case = Case(spec.name, tuple(spec.sizes.items()))
    scripts = {script.source: script.verify().verified for script in make(spec, case, "w", "repeats", "a test")}
    assert [shown for source, shown in scripts.items() if "beside those of all other" in source] == [True]
    assert list(scripts.values()).count(True) == 1


def test_a_crash_is_shown_by_the_gradient_of_one_argument_alone():
    spec = spec_of(audited.crashes_for_the_weight_alone, (torch.randn(8, 16), torch.randn(4, 16)))
    case = Case(spec.name, tuple(spec.sizes.items()))
    shown = {a: make(spec, case, a, CRASH, "a test")[0].verify().verified for a in ("x", "w")}
    assert shown == {"x": False, "w": True}
