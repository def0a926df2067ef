import pytest
import torch

from lanewise.audit.probes import measure

G = torch.Generator().manual_seed(0)
A, B = torch.randn(2, 7, 5, generator=G).half()


@pytest.mark.parametrize("chunk", [1, 8, 1000])
def test_chunks_make_no_difference(chunk, monkeypatch):
    monkeypatch.setattr(measure, "CHUNK", chunk)
    assert measure.dot(A, B.T.contiguous().T) == pytest.approx(float((A.double() * B.double()).sum()))
    assert measure.norm(A) == pytest.approx(float(A.double().norm()))
    assert measure.norm(A, scale=2.0) == pytest.approx(2 * float(A.double().norm()))
    assert measure.norm(A, minus=B, scale=2.0) == pytest.approx(float((2 * A.double() - B.double()).norm()))
    assert measure.norms([A, B]) == pytest.approx(float(torch.cat([A, B]).double().norm()))
    assert measure.numels([A, B]) == 70


def test_of_nothing():
    assert measure.dot(torch.zeros(0), torch.zeros(0)) == measure.norm(torch.zeros(0)) == 0


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_participation_counts_elements_of_any_scale(scale):
    x = torch.zeros(20, dtype=torch.float64)
    x[3:8] = scale
    assert measure.participation(x) == pytest.approx(5)
    assert measure.participation(x, minus=x) == 20
