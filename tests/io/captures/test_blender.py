"""Blender captures: angle of view, split, white background."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from lanewise.errors import InputError
from lanewise.io.captures import load_capture


@pytest.fixture
def write_blender(tmp_path, save, noise):
    def write(**splits):
        for split, names in splits.items():
            frames = []
            for name in names:
                save(tmp_path / f"{name}.png", noise(0, channels=4))
                pose = np.eye(4)
                pose[2, 3] = 4
                frames.append({"file_path": f"./{name}", "rotation": 0.1, "transform_matrix": pose.tolist()})
            text = json.dumps({"camera_angle_x": math.pi / 2, "frames": frames})
            (tmp_path / f"transforms_{split}.json").write_text(text)
        return tmp_path

    return write


def test_small_capture(write_blender):
    capture = load_capture(write_blender(train=["train/r_0", "train/r_1"], test=["test/r_0"], val=["val/r_0"]))
    assert (capture.format, capture.background, capture.has_own_split) == ("blender", (1.0, 1.0, 1.0), True)
    assert capture.points is None
    assert [(v.name, v.split) for v in capture.views] == [
        ("test/r_0.png", "test"),
        ("train/r_0.png", "train"),
        ("train/r_1.png", "train"),
        ("val/r_0.png", "val"),
    ]
    assert [view.name for view in capture.test_views()] == ["test/r_0.png"]
    np.testing.assert_allclose(capture.views[0].K, [[6, 0, 6], [0, 6, 4], [0, 0, 1]])
    np.testing.assert_array_equal(capture.views[0].viewmat @ [0, 1, 0, 1], [0, -1, 4, 1])
    assert capture.warnings == ()


def test_val_may_repeat_test(write_blender):
    capture = load_capture(write_blender(train=["train/r_0"], test=["test/r_0"], val=["test/r_0"]))
    assert [view.split for view in capture.views] == ["test", "train"]


@pytest.mark.parametrize("split", ["test", "val"])
def test_training_images_cannot_be_held_out(write_blender, split):
    with pytest.raises(InputError, match=rf"transforms_{split}\.json.*'train/r_0\.png': got listed under train and"):
        load_capture(write_blender(train=["train/r_0"], **{split: ["train/r_0"]}))


def test_no_held_out_images_is_a_warning(write_blender):
    assert "no image is held out" in load_capture(write_blender(train=["train/r_0"])).warnings[0]


def test_damaged_split_is_named(write_blender):
    folder = write_blender(train=["train/r_0"], test=["test/r_0"])
    (folder / "transforms_test.json").write_text('{"frames": [')
    with pytest.raises(InputError, match=r"transforms_test\.json: got broken JSON"):
        load_capture(folder)


def test_image_override_is_refused(write_blender):
    with pytest.raises(InputError, match=r"images: got images_2, expected nothing for a Blender capture"):
        load_capture(write_blender(train=["train/r_0"]), images="images_2")


def test_chair(sample_data):
    """The real set: every camera looks at the object's middle from about four units away."""
    capture = load_capture(sample_data("chair_200"))
    assert (len(capture.train_views()), len(capture.test_views()), len(capture.views)) == (100, 25, 135)
    for view in capture.views:
        x, y, depth = (view.viewmat @ [0, 0, 0, 1])[:3]
        assert 3.5 < depth < 4.5
        assert np.hypot(x, y) < 0.1
        assert view.K[0, 0] == pytest.approx(277.7777, abs=1e-3)
