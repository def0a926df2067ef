from functools import partial
from typing import Any

import numpy as np
import pycolmap
import pytest
from PIL import Image

from lanewise.demo import write_capture
from lanewise.demo.cameras import rings
from lanewise.demo.scene import still_life
from lanewise.demo.tracer import nearest
from lanewise.errors import InputError, StorageError
from lanewise.io.captures import load_capture

write_small = partial(write_capture, width=40, height=30, views=6, points=300)


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    return write_small(tmp_path_factory.mktemp("demo") / "capture")


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_same_bytes_every_time(capture, tmp_path):
    again = contents(write_small(tmp_path / "again"))
    assert again == contents(capture)
    assert len(again) == 6 + 3 + 1  # pictures, model, marker


def test_progress_counts_the_pictures(tmp_path):
    calls = []
    write_small(tmp_path / "capture", progress=lambda done, total: calls.append((done, total)))
    assert calls == [(i, 6) for i in range(1, 7)]


def test_pycolmap_reads_the_model(capture):
    model = pycolmap.Reconstruction(str(capture / "sparse" / "0"))
    (camera,) = model.cameras.values()
    assert camera.model == pycolmap.CameraModelId.PINHOLE
    images = sorted(model.images.values(), key=lambda image: image.name)
    assert len(images) == 6
    for image, ours in zip(images, rings(6, 40, 30), strict=True):
        assert image.has_pose
        np.testing.assert_allclose(image.cam_from_world().matrix(), ours.viewmat[:3], atol=1e-12)
        np.testing.assert_allclose(camera.calibration_matrix(), ours.K)
        with Image.open(capture / "images" / image.name) as png:
            assert png.size == (camera.width, camera.height)
    assert len(model.points3D) > 60


def test_lanewise_reads_the_capture(capture):
    loaded = load_capture(capture)
    assert loaded.format == "colmap"
    assert loaded.warnings == ()
    assert loaded.points is not None
    for view, ours in zip(loaded.views, rings(6, 40, 30), strict=True):
        assert (view.width, view.height) == (40, 30)
        np.testing.assert_allclose(view.viewmat, ours.viewmat, atol=1e-12)
        np.testing.assert_allclose(view.K, ours.K)


def test_the_models_cameras_see_the_models_points(capture):
    """Through pycolmap's own projection: a pixel of a point is as far away as the point, and mostly of its colour."""
    model = pycolmap.Reconstruction(str(capture / "sparse" / "0"))
    points = list(model.points3D.values())
    shown = np.zeros(len(points), int)
    colour_errors = []
    for image, ours in zip(sorted(model.images.values(), key=lambda i: i.name), rings(6, 40, 30), strict=True):
        rgb = np.asarray(Image.open(capture / "images" / image.name), int)
        distance = nearest(still_life(), *ours.rays())[0].reshape(30, 40)
        for i, point in enumerate(points):
            pixel = image.project_point(point.xyz)
            if pixel is None or not (0 <= pixel[0] < 40 and 0 <= pixel[1] < 30):
                continue
            x, y = pixel.astype(int)
            expected = np.linalg.norm(point.xyz - image.projection_center())
            if abs(distance[y, x] - expected) < 0.03 * expected:
                shown[i] += 1
                colour_errors.append(np.abs(rgb[y, x] - point.color).mean())
    assert (shown >= 3).mean() > 0.9
    assert np.median(colour_errors) < 16


def test_a_finished_capture_is_kept(capture):
    before = {path: path.stat().st_mtime_ns for path in capture.rglob("*")}
    assert write_small(capture, progress=lambda done, total: pytest.fail("traced again")) == capture
    assert {path: path.stat().st_mtime_ns for path in capture.rglob("*")} == before


def test_a_capture_of_other_settings_is_refused(capture):
    with pytest.raises(InputError, match="another demo capture"):
        write_small(capture, views=7)


def test_a_folder_of_the_users_own_is_refused_and_untouched(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match=r"thesis\.txt"):
        write_small(tmp_path)
    assert contents(tmp_path) == {"thesis.txt": b"years of work"}


def test_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="a file"):
        write_small(tmp_path / "file")


def test_an_empty_folder_is_filled_and_missing_parents_are_made(tmp_path):
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "new" / "deep"):
        assert (write_small(folder) / "sparse" / "0" / "images.bin").is_file()


def test_an_interrupted_writer_leaves_nothing(tmp_path):
    def interrupt(done, total):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_small(tmp_path / "capture", progress=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_a_storage_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="capture"):
        write_small(tmp_path / "file" / "capture")


@pytest.mark.parametrize("name", ["width", "height", "views", "points"])
def test_sizes_and_numbers_must_be_positive(name, tmp_path):
    setting: dict[str, Any] = {name: 0}
    with pytest.raises(InputError, match=name):
        write_small(tmp_path / "capture", **setting)
    assert list(tmp_path.iterdir()) == []


def test_a_relative_folder_becomes_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert write_small("capture") == tmp_path / "capture"
