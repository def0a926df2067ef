from types import SimpleNamespace

import pytest
import torch

from lanewise import InputError, LanewiseError
from lanewise.target import detect
from lanewise.target.detect import architecture


def test_the_cpu_is_a_target():
    assert detect("cpu").name == "cpu"


def test_the_first_gpu_is_the_default_where_there_is_one():
    assert detect().vendor == ("cpu" if not torch.cuda.is_available() else detect("cuda").vendor)


@pytest.mark.parametrize("device", ["nonsense", "meta", "mps"])
def test_other_devices_are_refused(device):
    with pytest.raises(InputError, match="device: got"):
        detect(device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_missing_gpu_is_one_message():
    with pytest.raises(InputError, match="a GPU that torch sees"):
        detect("cuda")


def test_architecture_on_rocm_and_on_cuda(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert architecture(SimpleNamespace(gcnArchName="gfx1151", major=11, minor=5)) == "gfx1151"
    monkeypatch.setattr(torch.version, "hip", None)
    assert architecture(SimpleNamespace(gcnArchName="", major=9, minor=0)) == "sm_90"


def test_a_wave_width_that_contradicts_the_table_stops_everything(monkeypatch):
    properties = SimpleNamespace(gcnArchName="gfx1151", major=11, minor=5, warp_size=64)
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    with pytest.raises(LanewiseError, match="reports waves of 64 lanes, the table of targets says 32"):
        detect("cuda")
    properties.warp_size = 32
    assert detect("cuda").wave == 32


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
def test_this_gpu_is_in_the_table():
    assert detect("cuda").wave == torch.cuda.get_device_properties(0).warp_size
