from types import SimpleNamespace

import pytest
import torch

from lanewise.conv import precision
from lanewise.errors import InputError


def test_none_follows_torchs_flags(monkeypatch):
    cudnn = SimpleNamespace(conv=SimpleNamespace(fp32_precision="tf32"))
    monkeypatch.setattr(torch.backends, "cudnn", cudnn)
    assert precision.resolve(None, "cuda") == "tf32"
    assert precision.resolve(None, "cpu") == "fp32"
    for said in ("ieee", "none"):
        cudnn.conv.fp32_precision = said
        assert precision.resolve(None, "cuda") == "fp32"
        assert precision.resolve("tf32", "cuda") == "tf32"


def test_before_torch_2_9_the_flag_is_a_truth_value(monkeypatch):
    cudnn = SimpleNamespace(allow_tf32=True)
    monkeypatch.setattr(torch.backends, "cudnn", cudnn)
    assert precision.resolve(None, "cuda") == "tf32"
    with precision.in_force("fp32", "cuda"):
        assert cudnn.allow_tf32 is False
    assert cudnn.allow_tf32 is True
    cudnn.allow_tf32 = False
    assert precision.resolve(None, "cuda") == "fp32"
    with precision.in_force("tf32", "cuda"):
        assert cudnn.allow_tf32 is True


def test_flags_are_put_back_whatever_happens(monkeypatch):
    cudnn = SimpleNamespace(conv=SimpleNamespace(fp32_precision="tf32"))
    monkeypatch.setattr(torch.backends, "cudnn", cudnn)

    def fails():
        with precision.in_force("fp32", "cuda"):
            assert cudnn.conv.fp32_precision == "ieee"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert cudnn.conv.fp32_precision == "tf32"


def test_a_cpu_that_may_use_bf16_is_held_to_fp32_when_asked(monkeypatch):
    mkldnn = SimpleNamespace(conv=SimpleNamespace(fp32_precision="bf16"))
    monkeypatch.setattr(torch.backends, "mkldnn", mkldnn)
    with precision.in_force("tf32", "cpu"):
        assert mkldnn.conv.fp32_precision == "bf16"


def test_what_may_be_asked_for():
    for fine in (None, "fp32", "tf32"):
        precision.check_precision(fine)
    with pytest.raises(InputError, match=r"precision: got 'ieee'.*allow_tf32 is True by default"):
        precision.check_precision("ieee")
