"""eval, render, export and demo on a short run."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import lanewise.demo
import lanewise.io.ply
from lanewise.cli import main
from lanewise.io.ply import load_ply
from lanewise.train import RunFolder


def test_eval_gives_a_line_an_image_and_the_means(run_folder, capsys):
    assert main(["eval", str(run_folder), "--json", "-"]) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert result["step"] == 30
    assert len(result["per_image"]) == 2
    assert result["psnr"] == pytest.approx(np.mean([row["psnr"] for row in result["per_image"]]))
    assert result["psnr"] == pytest.approx(RunFolder(run_folder).summary()["psnr"], abs=1e-4)
    for row in result["per_image"]:
        assert row["name"] in captured.err


def test_eval_of_a_step_that_is_not_there_names_those_that_are(run_folder, capsys):
    assert main(["eval", str(run_folder), "--step", "30"]) == 0
    capsys.readouterr()
    assert main(["eval", str(run_folder), "--step", "7"]) == 2
    err = capsys.readouterr().err
    assert "7" in err
    assert "30" in err


@pytest.mark.parametrize("command", [["eval"], ["render"], ["export", "--out", "scene.ply"]])
def test_no_run_is_bad_input(command, tmp_path, capsys):
    assert main([command[0], str(tmp_path), *command[1:]]) == 2
    assert "no config.yaml" in capsys.readouterr().err


def test_render_writes_held_out_views_and_an_orbit(run_folder, tmp_path, capsys):
    out = tmp_path / "pictures"
    assert main(["render", str(run_folder), "--orbit", "3", "--out", str(out), "--json", "-"]) == 0
    written = json.loads(capsys.readouterr().out)["pictures"]
    assert len(written) == 5
    assert len(list((out / "held_out").iterdir())) == 2
    assert [p.name for p in sorted((out / "orbit").iterdir())] == ["0000.png", "0001.png", "0002.png"]
    frames = [np.asarray(Image.open(path)) for path in sorted((out / "orbit").iterdir())]
    assert frames[0].shape == (36, 48, 3)
    assert (frames[0] != frames[1]).any()
    assert all(frame.max() > 0 for frame in frames), "the orbit looks away from the scene"


def test_render_into_a_file_is_an_error_not_a_crash(run_folder, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["render", str(run_folder), "--out", str(tmp_path / "file")]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_render_with_nothing_to_render_exits_with_5(capture, tmp_path, capsys):
    run = str(tmp_path / "run")
    assert main(["train", str(capture), "--out", run, "--steps", "1", "--test-every", "0", "--sh-degree", "0"]) == 0
    capsys.readouterr()
    assert main(["render", run]) == 5
    assert "--orbit" in capsys.readouterr().err


def test_export_is_the_trainer_s_scene(run_folder, tmp_path, capsys):
    out = tmp_path / "scene.ply"
    assert main(["export", str(run_folder), "--out", str(out), "--json", "-"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["identical"] is True
    assert result["good"] is True
    for name, tensor in RunFolder(run_folder).scene().tensors().items():
        assert torch.equal(tensor, load_ply(out).tensors()[name])


def test_an_export_that_gives_another_picture_exits_with_1(run_folder, tmp_path, capsys, monkeypatch):
    def wrong(path):
        gaussians = load_ply(path)
        gaussians.quats = gaussians.quats[:, [1, 2, 3, 0]]  # xyzw read as wxyz: the classical mistake
        return gaussians

    monkeypatch.setattr(lanewise.io.ply, "load_ply", wrong)
    assert main(["export", str(run_folder), "--out", str(tmp_path / "scene.ply")]) == 1
    assert "does not give the trainer's picture" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["scene.splat", "scene", "."])
def test_export_wants_a_ply_file(run_folder, tmp_path, capsys, name):
    assert main(["export", str(run_folder), "--out", str(tmp_path / name)]) == 2
    assert "ends in .ply" in capsys.readouterr().err


def test_info_of_a_run_a_capture_and_a_splat_file(run_folder, capture, capsys):
    for path, kind, key, value in [
        (run_folder, "run", "steps_done", 30),
        (capture, "capture", "images", 9),
        (run_folder / "scene.ply", "splat file", "sh_degree", 1),
    ]:
        assert main(["info", str(path), "--json", "-"]) == 0
        result = json.loads(capsys.readouterr().out)
        assert result["kind"] == kind
        assert result[key] == value


def test_info_says_how_an_unfinished_run_goes_on(run_folder, tmp_path, capsys):
    (tmp_path / "config.yaml").write_bytes((run_folder / "config.yaml").read_bytes())
    assert main(["info", str(tmp_path)]) == 0
    assert f"lanewise train --resume {tmp_path}" in capsys.readouterr().err


def test_info_of_nothing_is_bad_input(tmp_path, capsys):
    assert main(["info", str(tmp_path / "nothing")]) == 2
    assert "expected a capture, a run or a .ply file" in capsys.readouterr().err


def test_demo_does_everything_once(tmp_path, capsys, monkeypatch):
    full = lanewise.demo.write_capture
    small = {"width": 48, "height": 36, "views": 9, "points": 400}
    monkeypatch.setattr(lanewise.demo, "write_capture", lambda folder, **more: full(folder, **small, **more))
    out = tmp_path / "demo"
    assert main(["demo", "--out", str(out), "--steps", "20", "--json", str(tmp_path / "result.json")]) == 0
    shown = capsys.readouterr().out
    for text in ("1/3", "photographs 9/9", "2/3", "step 20/20", "3/3", "nearest training photograph", "next:"):
        assert text in shown, text
    summary = json.loads((out / "summary.json").read_text())
    assert {"psnr", "ssim", "baseline_psnr", "seconds", "gaussians", "backend", "device"} <= summary.keys()
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["gain_db"] == pytest.approx(summary["psnr"] - summary["baseline_psnr"])
    assert result["export"]["identical"] is True
    assert len(load_ply(out / "export.ply")) == summary["gaussians"]
    assert main(["demo", "--out", str(out)]) == 2
    assert "never overwritten" in capsys.readouterr().err
