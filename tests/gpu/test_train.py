"""Training on a GPU: graphs, lists that overflow, photographs that do not fit, resuming, determinism."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from balls import write_capture

from lanewise.train import RunFolder, TrainConfig, engine, lists, photos, resume, train
from lanewise.train.checkpoint import load_checkpoint
from lanewise.train.graph import CaptureError, Graphs
from lanewise.train.watching import TrainingWatch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")]

QUICK = TrainConfig(
    steps=300, device="cuda", random_points=400, sh_degree=2, sh_degree_interval=70, refine_start=60, refine_every=40,
    reset_every=170, refine_stop=260, checkpoint_every=110, eval_at=(), grow_grad2d=1e-4, max_gaussians=2000,
)  # fmt: skip


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_capture(tmp_path_factory.mktemp("capture") / "balls", count=17)


@pytest.fixture
def deterministic(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def run(capture: Path, out: Path, **options: Any) -> RunFolder:
    train(capture, out, dataclasses.replace(QUICK, **options))
    return RunFolder(out)


def same(a: RunFolder, b: RunFolder) -> None:
    """All tensors of the last checkpoints agree to the bit, and so do the lines but for the time."""
    got, expected = (load_checkpoint(folder.checkpoint_path(300)).tensors for folder in (a, b))
    different = [name for name in expected if not torch.equal(got[name], expected[name])]
    assert got.keys() == expected.keys()
    assert not different
    timeless = [[{**line, "seconds": 0} for line in folder.metrics()] for folder in (a, b)]
    assert timeless[0] == timeless[1]


def test_the_graph_is_used_and_ends_where_single_launches_end(capture: Path, tmp_path: Path):
    with_graph, without = (run(capture, tmp_path / str(on), cuda_graph=on).summary() for on in (True, False))
    timing = with_graph["timing"]
    assert timing["cuda_graph"] == "on"
    looks = sum(map(TrainingWatch.looks, range(QUICK.steps)))  # steps that the watch looks at are launched one by one
    assert timing["replays"] == timing["steps"] - looks
    # First, degrees 1 and 2, a refinement every 40 steps from the 80th on, the end of the statistics.
    assert timing["captures"] <= 20 + timing["overflows"]
    assert (without["timing"]["cuda_graph"], without["timing"]["replays"]) == ("off", 0)
    assert abs(with_graph["psnr"] - without["psnr"]) < 1.0
    assert timing["photographs"] == "resident"
    assert with_graph["warmup_seconds"] > 0


def test_the_same_bits_with_and_without_a_graph(capture: Path, tmp_path: Path, deterministic: None):
    first = run(capture, tmp_path / "first")
    assert first.summary()["timing"]["cuda_graph"] == "on"
    same(run(capture, tmp_path / "again"), first)
    same(run(capture, tmp_path / "single", cuda_graph=False), first)


@pytest.mark.parametrize("options", [{}, {"selective_adam": True, "batch_size": 2}, {"absgrad": True}], ids=str)
def test_overflows_change_nothing(
    capture: Path, tmp_path: Path, deterministic: None, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
):
    roomy = run(capture, tmp_path / "roomy", **options)
    monkeypatch.setattr(lists.Lists, "first_room", 0.1)
    monkeypatch.setattr(lists.Lists, "more_room", 1.0)
    tight = run(capture, tmp_path / "tight", **options)
    assert tight.summary()["timing"]["overflows"] >= 4
    same(tight, roomy)


def test_streamed_photographs_change_nothing(
    capture: Path, tmp_path: Path, deterministic: None, monkeypatch: pytest.MonkeyPatch
):
    resident = run(capture, tmp_path / "resident")
    monkeypatch.setattr(engine, "RESIDENT", 0.0)
    streamed = run(capture, tmp_path / "streamed")
    assert streamed.summary()["timing"]["photographs"] == "streamed"
    same(streamed, resident)


def test_resuming(capture: Path, tmp_path: Path, deterministic: None):
    straight = run(capture, tmp_path / "straight")
    halved = run(capture, tmp_path / "halved", steps=155)
    resume(halved.path, steps=300)
    got, expected = (load_checkpoint(folder.checkpoint_path(300)).tensors for folder in (halved, straight))
    assert all(torch.equal(got[name], expected[name]) for name in expected)


def test_photographs_on_the_device_are_the_hosts(capture: Path):
    from lanewise.train.data import load_batch, load_data

    data, cuda = load_data(capture, TrainConfig()), torch.device("cuda")
    for budget in (1 << 30, 0):
        store = photos.DevicePhotos(data, cuda, budget, flight=4)
        for begin in range(0, 12, 4):
            flight = [[i] for i in range(begin, begin + 4)]
            for views, slots in zip(flight, store.reserve(flight), strict=True):
                store.load(views, slots)
                numbers = (torch.tensor(x, dtype=torch.int32, device=cuda) for x in (views, slots))
                batch = store.batch((28, 36), *numbers)
                truth = load_batch(data, [data.train[views[0]]], cuda)
                assert torch.equal(batch.rgb, truth.rgb)
                assert torch.equal(batch.viewmats, truth.viewmats)


def test_pools_are_reused_and_grow_rarely():
    graphs, cuda = Graphs[torch.Tensor](torch.device("cuda")), torch.device("cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        for step in range(60):
            graphs.clear()
            data = torch.arange(4_000_000 + 100_000 * step, device=cuda, dtype=torch.float32)

            def work(data: torch.Tensor = data) -> torch.Tensor:
                return (data * 2 + 1).sum() * 0 + (data + 3).max()

            for _ in range(2):
                assert graphs(step, work).item() == len(data) + 2
            torch.cuda.current_stream().synchronize()
    assert (graphs.captures, graphs.replays) == (60, 120)
    assert graphs._size + graphs._grown < 3 * 3 * 4 * 10_000_000


def test_what_waits_for_the_gpu_cannot_be_captured():
    graphs = Graphs[float](torch.device("cuda"))
    value = torch.ones(1, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        with pytest.raises(CaptureError):
            graphs("a", lambda: value.item())
        assert graphs("b", lambda: value + 1).item() == 2  # the stream can be used on
