"""`lanewise sfm`: which arguments it takes, and that an undistorted capture comes out."""

import json

import numpy as np
import PIL.Image
import pytest

from lanewise.cli import main
from lanewise.io.captures import load_capture
from lanewise.io.captures.colmap import Camera, Image, Points, write_model


@pytest.fixture
def distorted(tmp_path):
    """A COLMAP capture of one image with a distorted camera."""
    folder = tmp_path / "distorted"
    (folder / "images").mkdir(parents=True)
    PIL.Image.new("RGB", (48, 32), (10, 200, 30)).save(folder / "images/a.png")
    camera = Camera(1, "SIMPLE_RADIAL", 48, 32, (40.0, 24.0, 16.0, 0.1))
    image = Image.from_viewmat(1, np.eye(4), 1, "a.png")
    write_model(folder / "sparse/0", [camera], [image], Points(np.zeros((1, 3)), np.zeros((1, 3), np.uint8)))
    return folder


def test_undistort_writes_a_capture(distorted, tmp_path, capsys):
    pytest.importorskip("pycolmap", reason="pip install 'lanewise[colmap]'")
    out = tmp_path / "out"
    assert main(["sfm", "--undistort", str(distorted), "--out", str(out), "--json", "-"]) == 0
    output = capsys.readouterr()
    result = json.loads(output.out)
    assert result == {"capture": str(out), "images": 1, "sizes": result["sizes"], "points": 1, "warnings": []}
    assert f"next: lanewise train {out} --out RUN" in output.err
    view = load_capture(out).views[0]
    assert result["sizes"] == [f"{view.width}x{view.height}"]


def test_photographs_that_do_not_overlap(tmp_path, capsys):
    pytest.importorskip("pycolmap", reason="pip install 'lanewise[colmap]'")
    for i in range(3):
        PIL.Image.new("RGB", (48, 32), (80 * i, 0, 0)).save(tmp_path / f"{i}.png")
    assert main(["sfm", str(tmp_path), "--out", str(tmp_path.parent / "out"), "--matching", "sequential"]) == 2
    output = capsys.readouterr()
    assert "no camera could be estimated" in output.err
    assert output.out.split() == ["features", "matching", "mapping"]


@pytest.mark.parametrize("arguments", [[], ["photos"], ["--out", "o"], ["photos", "--undistort", "c", "--out", "o"]])
def test_arguments_that_make_no_sense(arguments, capsys):
    assert main(["sfm", *arguments]) == 2
    assert "lanewise sfm IMAGES --out DIR, or lanewise sfm --undistort CAPTURE --out DIR" in capsys.readouterr().err


def test_pinhole_capture_needs_no_undistortion(capture, tmp_path, capsys):
    assert main(["sfm", "--undistort", str(capture), "--out", str(tmp_path / "out")]) == 2
    assert "as it is" in capsys.readouterr().err
