"""Finding a model and its images."""

from __future__ import annotations

import pytest

from lanewise.errors import InputError
from lanewise.io.captures.colmap import find_images, find_model, read_model


@pytest.mark.parametrize("folder", ["sparse/0", "sparse", "colmap/sparse/0"])
@pytest.mark.parametrize("file", ["cameras.bin", "images.txt"])
def test_model_is_found(tmp_path, folder, file):
    assert find_model(tmp_path) is None
    (tmp_path / folder).mkdir(parents=True)
    assert find_model(tmp_path) is None
    (tmp_path / folder / file).touch()
    assert find_model(tmp_path) == tmp_path / folder


def test_images_inside_outside_and_nowhere(tmp_path):
    capture, elsewhere = tmp_path / "capture", tmp_path / "elsewhere"
    (capture / "images_2").mkdir(parents=True)
    elsewhere.mkdir()
    assert find_images(capture, "images_2") == capture / "images_2"
    assert find_images(capture, elsewhere) == elsewhere
    with pytest.raises(InputError, match=r"images: got no such folder.*Fix: name the folder with --images"):
        find_images(capture)


@pytest.mark.parametrize("missing", ["cameras.bin", "images.bin", "points3D.bin"])
def test_missing_file_is_named(tmp_path, write_colmap, missing):
    write_colmap(tmp_path)
    (tmp_path / "sparse/0" / missing).unlink()
    with pytest.raises(InputError, match=rf"{missing.replace('.', '[.]')}: got no such file"):
        read_model(tmp_path / "sparse/0")


def test_binary_is_preferred(tmp_path, write_colmap):
    write_colmap(tmp_path)
    (tmp_path / "sparse/0/cameras.txt").write_text("garbage")
    assert len(read_model(tmp_path / "sparse/0").images) == 3
