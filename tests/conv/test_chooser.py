import json
import sys
import time
from dataclasses import astuple, replace
from types import SimpleNamespace

import pytest
import torch
from conv_shapes import incident, problems
from conv_tensors import of_direction, operands, truth
from hypothesis import given, settings

from lanewise.audit.faults import FAULTS
from lanewise.audit.gate import gate, require
from lanewise.conv import backends, chooser, conv2d, vendor
from lanewise.conv.calls import call_of
from lanewise.conv.choices import Choice, Choices
from lanewise.errors import InputError, UnsupportedError

CPU = torch.device("cpu")
FLAGS = (torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic, False)
DIRECTIONS = ("forward", "input_grad", "weight_grad")


def kernels(alter=lambda out: out, refuse=None):
    """A stand-in for the Triton launchers: torch's convolution, with what `alter` makes of it."""

    right = {name: getattr(vendor, name) for name in DIRECTIONS}  # torch's, as it is now

    def forward(x, w, bias, problem, precision, out=None):
        done = alter(right["forward"](x, w, bias, problem, precision))
        return done if out is None else out.copy_(done)

    def input_grad(dy, w, bias, problem, precision, out=None):
        assert bias is None
        done = alter(right["input_grad"](dy, w, problem, precision))
        return done if out is None else out.copy_(done)

    def weight_grad(x, dy, problem, precision):
        return alter(right["weight_grad"](x, dy, problem, precision))

    return SimpleNamespace(
        forward=forward,
        input_grad=input_grad,
        weight_grad=weight_grad,
        bias_grad=vendor.bias_grad,
        supports=lambda problem: refuse,
    )


@pytest.fixture
def ours(monkeypatch, tmp_path):
    """Puts kernels in the place of ours; nothing is remembered from elsewhere."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(backends, "without_kernels", lambda device: None)
    monkeypatch.setattr(chooser, "_chosen", {})
    chooser._choices.cache_clear()
    call_of.cache_clear()  # which know who runs them

    def put(module):
        monkeypatch.setitem(sys.modules, "lanewise.conv.launch", module)
        monkeypatch.setattr("lanewise.conv.launch", module, raising=False)

    yield put
    chooser._choices.cache_clear()
    call_of.cache_clear()


def slowly(out):
    time.sleep(0.005)
    return out


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_faster_one_of_two_that_are_right_is_chosen(direction, ours):
    ours(kernels(slowly))
    choice = chooser.measure(incident(3, 4, 5, 9, direction), CPU, "fp32", ("vendor", "ours"))
    assert choice.backend == "vendor"
    assert choice.ms["ours"] > choice.ms["vendor"]
    assert not choice.faults


@pytest.mark.parametrize(("vendors", "taken"), [(1.02, "vendor"), (0.5, "vendor"), (1.05, "ours")])
def test_ours_has_to_be_faster_by_more_than_what_cannot_be_told_apart(vendors, taken, ours, monkeypatch):
    ours(kernels())
    monkeypatch.setattr(chooser, "_interleaved", lambda runs, device: {"vendor": vendors, "ours": 1.0})
    assert chooser.measure(incident(3, 4, 5, 9), CPU, "fp32", ("vendor", "ours")).backend == taken


def test_what_is_timed_has_the_operands_dtype_as_what_is_used_has(ours, monkeypatch):
    ours(kernels(lambda out: out.float()))
    dtypes = []

    def timed(runs, device):
        dtypes.extend(run().dtype for run in runs.values())
        return dict.fromkeys(runs, 1.0)

    monkeypatch.setattr(chooser, "_interleaved", timed)
    problem = replace(incident(3, 4, 5, 9, "weight_grad"), dtype=torch.bfloat16)
    chooser.measure(problem, CPU, "fp32", ("vendor", "ours"))
    assert dtypes == [torch.bfloat16] * 2


@pytest.fixture
def broken(monkeypatch):
    """Breaks torch's convolution in all directions."""

    def put(alter):
        wrong = kernels(alter)  # holds the right ones
        for name in DIRECTIONS:
            monkeypatch.setattr(vendor, name, getattr(wrong, name))
        monkeypatch.setattr(vendor, "input_grad", lambda dy, w, *how: wrong.input_grad(dy, w, None, *how))

    return SimpleNamespace(put=put, right=kernels())


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_vendor_that_is_wrong_is_reported_and_never_used(direction, fault, ours, broken):
    ours(broken.right)
    broken.put(fault.apply)
    problem = incident(40, 5, 48, 9, direction)
    for candidates, taken in ((("vendor", "ours"), "ours"), (("vendor",), "reference")):
        with pytest.warns(RuntimeWarning, match=rf"vendor's convolution is wrong.*torch [\d.]+.*: {taken}\. Please"):
            choice = chooser.measure(problem, CPU, "fp32", candidates)
        assert (choice.backend, list(choice.faults)) == (taken, ["vendor"])
        tensors = operands(problem)
        got = backends.call(choice.backend, problem, *of_direction(problem, *tensors), None, "fp32")
        require(gate(direction, got, truth(problem, *tensors)))


@pytest.mark.parametrize(("times", "warned"), [(2, False), (chooser.INEXACT * 2, True)])
def test_a_vendor_that_rounds_more_than_it_should_is_no_fault_and_taken_only_where_nothing_is_better(
    times, warned, ours, monkeypatch, recwarn
):
    ours(kernels())
    probe = chooser.probe

    def probed(name, *args):
        verdict = probe(name, *args)
        return verdict if name == "ours" else replace(verdict, outcome="failed", residual=times * verdict.tolerance)

    monkeypatch.setattr(chooser, "probe", probed)
    choice = chooser.measure(incident(3, 4, 5, 9), CPU, "fp32", ("vendor", "ours"))
    alone = chooser.measure(incident(3, 4, 5, 9), CPU, "fp32", ("vendor",))
    assert (choice.backend, alone.backend) == ("ours", "reference" if warned else "vendor")
    assert bool(choice.faults) == bool(recwarn.list) == warned == (not choice.inexact)


def test_our_own_kernel_has_to_pass_too(ours):
    ours(kernels(torch.zeros_like))
    with pytest.warns(RuntimeWarning, match="Lanewise's own kernel is wrong and is not used: adjoint residual"):
        assert chooser.measure(incident(3, 4, 5, 9), CPU, "fp32", ("vendor", "ours")).backend == "vendor"

    def raising(out):
        raise RuntimeError("no such instruction")

    ours(kernels(raising))
    with pytest.warns(RuntimeWarning, match="is not used: RuntimeError: no such instruction"):
        assert chooser.measure(incident(3, 4, 5, 9), CPU, "fp32", ("vendor", "ours")).backend == "vendor"


@settings(max_examples=60, deadline=None)
@given(problems())
def test_the_probe_passes_what_is_right(problem):
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        assert chooser.probe("vendor", replace(problem, dtype=dtype), CPU, "fp32").ok


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_probe_allows_tf32_only_where_it_was_asked_for(direction, ours):
    ours(kernels(lambda out: out * (1 + 4e-4 * torch.randn_like(out))))
    problem = incident(3, 4, 5, 9, direction)
    assert chooser.probe("ours", problem, CPU, "tf32").ok
    assert not chooser.probe("ours", problem, CPU, "fp32").ok


@pytest.fixture
def gpu(monkeypatch):
    """What stands for a GPU where nothing is launched."""
    monkeypatch.setattr(backends, "versions", lambda device: {})
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return torch.device("cuda", 0)


def test_a_choice_is_made_once_and_kept_on_the_disk(ours, gpu, monkeypatch):
    ours(kernels())
    problem = incident(3, 4, 5, 9)
    made = []
    monkeypatch.setattr(chooser, "measure", lambda *arguments: made.append(arguments) or Choice("vendor"))
    assert chooser.choose(problem, gpu, "fp32") == "vendor"
    assert chooser.choose(problem, gpu, "fp32") == "vendor"
    chooser._chosen.clear()
    chooser._choices.cache_clear()  # another process
    assert chooser.choose(problem, gpu, "fp32") == "vendor"
    assert len(made) == 1
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)  # another flag is another question
    chooser.choose(problem, gpu, "fp32")
    chooser.choose(problem, gpu, "tf32")
    chooser.choose(problem.along("forward"), gpu, "fp32")
    assert len(made) == 4
    monkeypatch.setenv("LANEWISE_CONV", "ours")  # so is another wish
    assert chooser.choose(problem, gpu, "fp32") == "ours"


def test_inside_a_capture_only_what_was_chosen_before_is_used(ours, gpu, monkeypatch):
    ours(kernels())
    problem = incident(3, 4, 5, 9)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(UnsupportedError, match="Fix: run the model once before the capture, or set LANEWISE_CONV"):
        chooser.choose(problem, gpu, "fp32")
    Choices({}).put(str((*astuple(problem), "fp32", *FLAGS)), Choice("ours"))
    chooser._choices.cache_clear()
    assert chooser.choose(problem, gpu, "fp32") == "ours"


def test_measuring_leaves_random_numbers_and_modes_alone(ours):
    ours(kernels())
    torch.manual_seed(3)
    want = torch.rand(2)
    torch.manual_seed(3)
    with torch.inference_mode():
        chooser.measure(incident(3, 4, 5, 9), CPU, "fp32", ("vendor", "ours"))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        chooser.measure(incident(3, 4, 5, 9), CPU, "fp32", ("vendor", "ours"))
    assert torch.equal(torch.rand(2), want)


def test_without_memory_a_smaller_batch_is_probed(ours, monkeypatch):
    tried = []

    def judged(problem, *rest):
        tried.append(problem.n)
        if problem.n > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return Choice("ours")

    monkeypatch.setattr(chooser, "_judged", judged)
    assert chooser.measure(incident(13), CPU, "fp32", ("vendor", "ours")).backend == "ours"
    assert tried == [13, 6, 3]


@pytest.mark.parametrize(
    ("asked", "refuse", "taken"), [("ours", None, "ours"), ("ours", "no fp64", "vendor"), ("vendor", None, "vendor")]
)
def test_the_environment_decides(asked, refuse, taken, ours, monkeypatch):
    ours(kernels(refuse=refuse))
    monkeypatch.setenv("LANEWISE_CONV", asked)
    assert chooser.choose(incident(2), CPU, "fp32") == taken
    monkeypatch.setenv("LANEWISE_CONV", "fastest")
    with pytest.raises(InputError, match="LANEWISE_CONV: got 'fastest', expected 'ours', 'vendor' or 'auto'"):
        chooser.choose(incident(2), CPU, "fp32")


def test_a_cpu_takes_torchs_without_asking(monkeypatch):
    monkeypatch.delenv("LANEWISE_CONV", raising=False)
    assert chooser.choose(incident(2), CPU, "fp32") == "vendor"


@pytest.mark.parametrize("window", [None, 2000])
def test_a_model_runs_on_our_kernels(ours, monkeypatch, window):
    used = []
    ours(kernels(lambda out: used.append(1) or out))
    monkeypatch.setenv("LANEWISE_CONV", "ours")
    x, w, b = torch.randn(4, 3, 6, 6), torch.randn(5, 3, 3, 3, requires_grad=True), torch.randn(5, requires_grad=True)
    y = conv2d(x, w, b, window_bytes=window)
    v = torch.randn_like(y)
    dw, db = torch.autograd.grad(y, (w, b), v)
    want = torch.autograd.grad(torch.nn.functional.conv2d(x.double(), w.double(), b.double()), (w, b), v.double())
    require(gate("dw", dw, want[0]), gate("db", db, want[1]))
    assert len(used) >= 2


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_bias_gradient_of_our_kernel_is_of_parts_within_the_window(ours, channels_last):
    seen = []
    module = kernels()
    module.bias_grad = lambda dy: seen.append(dy.numel() * 4) or vendor.bias_grad(dy)
    ours(module)
    dy = torch.randn(7, 3, 4, 4)
    if channels_last:
        dy = dy.contiguous(memory_format=torch.channels_last)
    image = 3 * 16 * 4
    got = backends.bias_grad(dy, 3 * image)
    assert seen == [3 * image, 3 * image, image]
    require(gate("db", got, dy.double().sum((0, 2, 3))))
    require(gate("db", backends.bias_grad(dy, image - 1), dy.double().sum((0, 2, 3))))
    assert len(seen) == 3  # an image is too large for the kernel


def test_files_of_other_versions_or_of_nobody_are_ignored(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    choices = Choices({"torch": "1"})
    choices.put("a", Choice("ours", {"ours": 1.0}))
    assert Choices({"torch": "1"}).get("a") == Choice("ours", {"ours": 1.0})
    assert Choices({"torch": "2"}).get("a") is None
    assert json.loads(choices.path.read_text())["versions"] == {"torch": "1"}
    for text in ("", "[]", "{}", '{"versions": {"torch": "1"}, "choices": {"a": {"who": 1}}}', "\x00"):
        choices.path.write_text(text)
        assert Choices({"torch": "1"}).get("a") is None


def test_what_other_processes_wrote_stays(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    one, two = Choices({}), Choices({})
    one.put("a", Choice("ours"))
    two.put("b", Choice("vendor"))
    assert Choices({}).get("a") == Choice("ours")
    assert Choices({}).get("b") == Choice("vendor")


def test_a_folder_that_cannot_be_written_costs_nothing(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    choices = Choices({})
    choices.put("a", Choice("ours"))
    assert choices.get("a") == Choice("ours")
