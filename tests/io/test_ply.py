"""PLY files: bit-exact round trips, the layout that other programs expect, and clear errors."""

import contextlib
import errno
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from plyfile import PlyData, PlyElement

from lanewise.errors import InputError, StorageError
from lanewise.io import files
from lanewise.io.ply import load_ply, save_ply
from lanewise.io.scene import Gaussians

PLAYBOT = Path(__file__).parents[2] / ".." / "shared" / "data" / "import" / "playbot_lod4.ply"


def scene(n: int = 7, degree: int = 3, seed: int = 0) -> Gaussians:
    g = torch.Generator().manual_seed(seed)
    k = (degree + 1) ** 2
    shapes = {"means": (n, 3), "quats": (n, 4), "scales": (n, 3), "opacities": (n,), "sh0": (n, 1, 3)}
    return Gaussians(
        **{name: torch.randn(shape, generator=g) for name, shape in shapes.items()},
        shN=torch.randn(n, k - 1, 3, generator=g),
    )


def assert_bit_equal(a: Gaussians, b: Gaussians) -> None:
    for name, tensor in a.tensors().items():
        other = b.tensors()[name]
        assert tensor.shape == other.shape, name
        assert torch.equal(tensor.contiguous().view(torch.int32), other.contiguous().view(torch.int32)), name


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), n=st.integers(0, 6), degree=st.integers(0, 4))
def test_round_trip_keeps_every_bit(tmp_path, data, n, degree):
    finite = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=True)
    k = (degree + 1) ** 2
    values = data.draw(hnp.arrays(np.float32, (n, 14 + 3 * (k - 1)), elements=finite, fill=st.just(np.float32(-0.0))))
    table = torch.from_numpy(values)
    written = Gaussians(
        means=table[:, :3],
        quats=table[:, 3:7],
        scales=table[:, 7:10],
        opacities=table[:, 10],
        sh0=table[:, 11:14].reshape(n, 1, 3),
        shN=table[:, 14:].reshape(n, k - 1, 3),
    )
    save_ply(tmp_path / "scene.ply", written)
    assert_bit_equal(load_ply(tmp_path / "scene.ply"), written)


def test_layout_is_the_one_of_the_3dgs_code(tmp_path):
    gaussians = scene(n=2, degree=1)
    save_ply(tmp_path / "scene.ply", gaussians)
    header = (tmp_path / "scene.ply").read_bytes().split(b"end_header\n")[0].decode()
    names = [line.split()[-1] for line in header.splitlines() if line.startswith("property float ")]
    assert names == [
        *("x", "y", "z", "nx", "ny", "nz", "f_dc_0", "f_dc_1", "f_dc_2"),
        *(f"f_rest_{i}" for i in range(9)),
        *("opacity", "scale_0", "scale_1", "scale_2", "rot_0", "rot_1", "rot_2", "rot_3"),
    ]
    assert "format binary_little_endian 1.0" in header
    vertex = PlyData.read(tmp_path / "scene.ply")["vertex"]
    # Channel slowest: f_rest_3 is the first green coefficient.
    assert vertex["f_rest_3"][1] == gaussians.shN[1, 0, 1].item()
    assert vertex["f_rest_2"][1] == gaussians.shN[1, 2, 0].item()
    assert vertex["rot_0"][0] == gaussians.quats[0, 0].item()


@pytest.mark.parametrize("form", ["ascii", "big", "shuffled", "double", "without normals"])
def test_reads_every_form_of_the_layout(tmp_path, form):
    gaussians = scene(n=5, degree=2)
    save_ply(tmp_path / "scene.ply", gaussians)
    data = PlyData.read(tmp_path / "scene.ply")["vertex"].data
    names = list(data.dtype.names)
    if form == "shuffled":
        np.random.default_rng(0).shuffle(names)
    if form == "without normals":
        names = [name for name in names if not name.startswith("n")]
    table = np.empty(len(data), [(name, "f8" if form == "double" else "f4") for name in names])
    for name in names:
        table[name] = data[name]
    element = PlyElement.describe(table, "vertex")
    PlyData([element], text=form == "ascii", byte_order=">" if form == "big" else "<").write(tmp_path / "other.ply")
    assert_bit_equal(load_ply(tmp_path / "other.ply"), gaussians)


def test_refuses_what_is_not_a_ply_file(tmp_path):
    with pytest.raises(InputError, match=r"nothing there, expected a PLY file"):
        load_ply(tmp_path / "missing.ply")
    with pytest.raises(InputError, match="a folder"):
        load_ply(tmp_path)
    (tmp_path / "photo.ply").write_bytes(b"\x89PNG\r\n" + bytes(40))
    with pytest.raises(InputError, match="another kind of file"):
        load_ply(tmp_path / "photo.ply")
    (tmp_path / "empty.ply").write_bytes(b"")
    with pytest.raises(InputError, match="another kind of file"):
        load_ply(tmp_path / "empty.ply")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keep=st.floats(0, 1, exclude_max=True))
def test_a_file_cut_anywhere_is_refused(tmp_path, keep):
    save_ply(tmp_path / "scene.ply", scene(n=3, degree=0))
    content = (tmp_path / "scene.ply").read_bytes()
    (tmp_path / "cut.ply").write_bytes(content[: int(keep * len(content))])
    with pytest.raises(InputError):
        load_ply(tmp_path / "cut.ply")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255))
def test_a_damaged_header_raises_nothing_but_input_error(tmp_path, position, byte):
    save_ply(tmp_path / "scene.ply", scene(n=2, degree=0))
    content = bytearray((tmp_path / "scene.ply").read_bytes())
    content[int(position * content.index(b"end_header"))] = byte
    (tmp_path / "damaged.ply").write_bytes(content)
    with contextlib.suppress(InputError):
        load_ply(tmp_path / "damaged.ply")


def test_missing_property_and_wrong_number_of_coefficients_are_named(tmp_path):
    def rewrite(keep):
        data = PlyData.read(tmp_path / "scene.ply")["vertex"].data
        kept = [name for name in data.dtype.names if keep(name)]
        table = np.empty(len(data), [(name, "f4") for name in kept])
        for name in kept:
            table[name] = data[name]
        PlyData([PlyElement.describe(table, "vertex")]).write(tmp_path / "other.ply")
        return tmp_path / "other.ply"

    save_ply(tmp_path / "scene.ply", scene(degree=1))
    with pytest.raises(InputError, match=r"without scale_2, expected the properties of a 3DGS scene"):
        load_ply(rewrite(lambda name: name != "scale_2"))
    with pytest.raises(InputError, match=r"8 f_rest_\* properties, expected f_rest_0 onwards"):
        load_ply(rewrite(lambda name: name != "f_rest_8"))
    points = PlyElement.describe(np.zeros(3, [("a", "f4")]), "face")
    PlyData([points]).write(tmp_path / "faces.ply")
    with pytest.raises(InputError, match="without vertices"):
        load_ply(tmp_path / "faces.ply")


def test_nan_is_counted_and_named_on_reading_and_writing(tmp_path):
    gaussians = scene(n=5)
    save_ply(tmp_path / "scene.ply", gaussians)
    before = (tmp_path / "scene.ply").read_bytes()
    ply = PlyData.read(tmp_path / "scene.ply")
    ply["vertex"].data["y"][1:4] = np.nan
    ply["vertex"].data["scale_0"][2] = np.inf
    ply.write(tmp_path / "bad.ply")
    with pytest.raises(InputError, match=r"3 in y, 1 in scale_0"):
        load_ply(tmp_path / "bad.ply")
    gaussians.quats[0, 3] = float("nan")
    with pytest.raises(InputError, match=r"1 in rot_3.*earlier checkpoint"):
        save_ply(tmp_path / "scene.ply", gaussians)
    assert (tmp_path / "scene.ply").read_bytes() == before


def test_infinite_opacity_logit_means_opaque(tmp_path):
    gaussians = scene(n=3)
    gaussians.opacities[1] = float("inf")
    save_ply(tmp_path / "scene.ply", gaussians)
    assert_bit_equal(load_ply(tmp_path / "scene.ply"), gaussians)


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    save_ply(tmp_path / "scene.ply", scene(n=3))
    before = (tmp_path / "scene.ply").read_bytes()

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(StorageError, match="the disk is full"):
        save_ply(tmp_path / "scene.ply", scene(n=4))
    assert (tmp_path / "scene.ply").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["scene.ply"]


def test_a_missing_folder_is_a_storage_error(tmp_path):
    with pytest.raises(StorageError, match="the folder does not exist"):
        save_ply(tmp_path / "nowhere" / "scene.ply", scene())


@pytest.mark.skipif(not PLAYBOT.exists(), reason="the shared sample data are not beside this checkout")
def test_reads_a_file_of_another_program():
    gaussians = load_ply(PLAYBOT)
    assert len(gaussians) == 8406
    vertex = PlyData.read(PLAYBOT)["vertex"]
    assert gaussians.means[17].tolist() == [vertex[a][17] for a in "xyz"]
    assert gaussians.opacities[17].item() == vertex["opacity"][17]
