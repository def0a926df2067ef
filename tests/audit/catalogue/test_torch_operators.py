"""torch's catalogue: every row can be run, and says the truth about its operator."""

from collections import Counter

import pytest
import torch

from lanewise.audit import infer
from lanewise.audit.call import ForwardError
from lanewise.audit.catalogue import catalogue
from lanewise.audit.examine import examine
from lanewise.audit.sweep import Plan, Sweep

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # what torch says of operators in beta

SPECS = catalogue("torch")
SWEEP = Sweep(SPECS, Plan())
ELSEWHERE = ("attention_efficient", "attention_cudnn")  # backends that only GPUs have
WRONG = ("ldexp",)  # in torch 2.13: see docs/findings.md


def calls():
    for spec in SPECS:
        if not spec.name.startswith(ELSEWHERE):
            yield spec, SWEEP.base(spec).call(spec)


def test_names_are_unique():
    assert [name for name, count in Counter(spec.name for spec in SPECS).items() if count > 1] == []


def test_what_people_train_with_is_there():
    names = {spec.name for spec in SPECS}
    assert {"linear", "bmm", "conv2d", "conv_transpose3d_grouped", "adaptive_max_pool3d", "grid_sample2d"} <= names
    assert {"group_norm", "log_softmax", "ctc_loss", "embedding_bag", "scatter_reduce", "cummax", "lstm"} <= names
    assert {"attention_flash", "attention_efficient", "attention_cudnn", "eigh", "lstsq", "stft"} <= names
    assert len(names) > 400


def test_every_row_runs_and_its_output_depends_on_all_that_is_differentiated():
    for spec, call in calls():
        leaves, outputs = call.graph()
        outputs = [y for y in outputs if y.requires_grad]
        grads = torch.autograd.grad(
            outputs, list(leaves.values()), list(map(torch.ones_like, outputs)), allow_unused=True
        )
        assert all(g is not None for g in grads), spec.name
        assert all(bool(y.isfinite().all()) for y in outputs), spec.name


def test_what_is_called_linear_is_affine():
    for spec, call in calls():
        assert set(spec.linear) <= set(infer.linear_arguments(call, spec.linear)), spec.name


def test_what_is_called_a_batch_is_independent():
    for spec, call in calls():
        if spec.batch:
            whole, part = call.output(), call.entries(0, 2).output()
            assert all(torch.allclose(y[:2], z, atol=1e-5) for y, z in zip(whole, part, strict=True)), spec.name


def test_a_formula_beside_an_operator_computes_the_same():
    for spec, call in calls():
        if spec.reference or spec.alternative:
            other = call.reference or spec.bind(SWEEP.base(spec).names, spec.alternative)
            torch.testing.assert_close(other(**call.kwargs), call.fn(**call.kwargs), rtol=1e-4, atol=1e-5)


def test_what_only_gpus_have_is_refused_elsewhere():
    spec = next(spec for spec in SPECS if spec.name == "attention_cudnn")
    with pytest.raises(ForwardError):
        SWEEP.base(spec).call(spec).output()


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec", [s for s in SPECS if not s.name.startswith((*ELSEWHERE, *WRONG))], ids=lambda s: s.name
)
def test_the_usual_case_has_no_finding(spec):
    assert examine(spec, SWEEP.base(spec)).outcome == "passed"
