"""Formats are told apart, wrong folders are explained, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lanewise.errors import InputError
from lanewise.io.captures import check_images, load_capture


def snapshot(folder: Path) -> dict[Path, tuple[int, bytes]]:
    return {p: (p.stat().st_mtime_ns, p.read_bytes() if p.is_file() else b"") for p in [folder, *folder.rglob("*")]}


def test_formats_are_told_apart(tmp_path, write_colmap, write_transforms):
    assert load_capture(write_colmap(tmp_path / "a")).format == "colmap"
    assert load_capture(write_transforms(tmp_path / "b")).format == "nerfstudio"
    assert load_capture(write_transforms(tmp_path / "c", file="transforms_train.json")).format == "blender"


def test_several_formats_are_a_warning_and_a_choice(tmp_path, write_colmap, write_transforms):
    write_transforms(write_colmap(tmp_path))
    capture = load_capture(str(tmp_path))
    assert capture.format == "nerfstudio"
    assert capture.warnings == (f"{tmp_path}: found nerfstudio, colmap; read as nerfstudio",)
    chosen = load_capture(tmp_path, format="colmap")
    assert (chosen.format, chosen.warnings) == ("colmap", ())
    assert chosen.path == tmp_path


def test_nothing_is_written(tmp_path, write_colmap, write_transforms):
    write_transforms(write_colmap(tmp_path))
    before = snapshot(tmp_path)
    for format in ("colmap", "nerfstudio"):
        check_images(load_capture(tmp_path, format=format, downscale=2).views)
    assert snapshot(tmp_path) == before


def test_wrong_folders(tmp_path, save, noise):
    with pytest.raises(InputError, match=r"none: got nothing there, expected a capture folder.*Fix: check the path"):
        load_capture(tmp_path / "none")
    path = save(tmp_path / "a.png", noise(0))
    with pytest.raises(InputError, match=r"a\.png: got a file, expected a capture folder"):
        load_capture(path)
    with pytest.raises(InputError, match=r"got no cameras.*transforms\.json.*Fix: .*lanewise sfm IMAGES --out DIR"):
        load_capture(tmp_path)


@pytest.mark.parametrize("format", ["colmap", "nerfstudio", "blender"])
def test_chosen_format_that_is_not_there(tmp_path, format):
    with pytest.raises(InputError):
        load_capture(tmp_path, format=format)


@pytest.mark.parametrize("downscale", [0, -1, 1.5, True, "2"])
def test_downscale_is_a_whole_number(tmp_path, downscale):
    with pytest.raises(InputError, match=r"downscale: got .*expected a whole number of at least 1"):
        load_capture(tmp_path, downscale=downscale)


def test_unknown_format(tmp_path):
    with pytest.raises(
        InputError, match="format: got 'nerf', expected 'blender' or 'nerfstudio' or 'colmap' or 'auto'"
    ):
        load_capture(tmp_path, format="nerf")


def test_downscale_reaches_the_views(tmp_path, write_colmap):
    view = load_capture(write_colmap(tmp_path), downscale=2).views[0]
    assert (view.width, view.height) == (6, 4)
    np.testing.assert_array_equal(view.K, [[5, 0, 3.25], [0, 5.5, 1.75], [0, 0, 1]])


def test_real_capture_equals_its_extract(sample_data):
    """The same set, read by another reader once, as world-to-camera matrices, intrinsics and names."""
    extract = np.load(sample_data("miku_undist.npz"))
    capture = load_capture(sample_data("miku_undist"))
    assert [view.name for view in capture.views] == list(extract["names"])
    np.testing.assert_allclose([v.viewmat for v in capture.views], extract["V"], rtol=0, atol=1e-14)
    np.testing.assert_array_equal([v.K for v in capture.views], extract["K"])
    assert capture.points is not None
    assert capture.colors is not None
    np.testing.assert_array_equal(np.sort(capture.points, axis=0), np.sort(extract["pts"], axis=0))
    assert capture.colors.sum(dtype=np.int64) == extract["col"].sum(dtype=np.int64)
