"""train: what is shown, what is written, how a run is resumed and stopped, what is refused before it begins."""

import json
import shutil
import signal
import subprocess
import sys

import pytest

from lanewise.cli import main
from lanewise.cli.observer import optimizer_bytes


def short(capture, out, *more):
    return ["train", str(capture), "--out", str(out), "--steps", "20", "--sh-degree", "0", *more]


def test_a_run_shows_what_it_uses_and_what_came_out(capture, tmp_path, capsys):
    assert main(short(capture, tmp_path / "run")) == 0
    out = capsys.readouterr().out
    for text in (
        "48 x 36",
        "7 to train on, 2 held out",
        "device, backend",
        "step 20/20",
        "ETA",
        "held-out PSNR",
        "SSIM",
    ):
        assert text in out, text
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert {"psnr", "ssim", "baseline_psnr", "seconds", "gaussians", "backend", "device"} <= summary.keys()


def test_json_is_the_summary(capture, tmp_path, capsys):
    assert main(short(capture, tmp_path / "run", "--json", "-")) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert result["steps"] == 20
    assert result["psnr"] == pytest.approx(json.loads((tmp_path / "run" / "summary.json").read_text())["psnr"])
    assert "step 20/20" in captured.err


def test_a_run_is_never_overwritten(capture, run_folder, capsys):
    before = (run_folder / "summary.json").read_bytes()
    assert main(short(capture, run_folder)) == 2
    assert f"--resume {run_folder}" in capsys.readouterr().err
    assert (run_folder / "summary.json").read_bytes() == before


def test_resume_makes_a_run_longer(run_folder, tmp_path, capsys):
    longer = shutil.copytree(run_folder, tmp_path / "run")
    assert main(["train", "--resume", str(longer), "--steps", "40"]) == 0
    assert "resumed from step" in capsys.readouterr().out
    summary = json.loads((longer / "summary.json").read_text())
    assert summary["steps"] == 40


def test_resume_without_more_takes_the_steps_of_the_run(run_folder, tmp_path):
    again = shutil.copytree(run_folder, tmp_path / "run")
    assert main(["train", "--resume", str(again), "--json", str(tmp_path / "result.json")]) == 0
    assert json.loads((tmp_path / "result.json").read_text())["steps"] == 30


def test_resume_knows_a_capture_that_has_moved(capture, run_folder, tmp_path):
    moved = shutil.copytree(capture, tmp_path / "moved")
    longer = shutil.copytree(run_folder, tmp_path / "run")
    assert main(["train", str(moved), "--resume", str(longer), "--steps", "31"]) == 0


def test_resume_refuses_other_settings_and_another_folder(run_folder, capsys):
    assert main(["train", "--resume", str(run_folder), "--sh-degree", "2", "--seed", "3"]) == 2
    err = capsys.readouterr().err
    assert "--seed" in err
    assert "--sh-degree" in err
    assert "only --steps" in err
    assert main(["train", "--resume", str(run_folder), "--out", "other"]) == 2
    assert "one of the two" in capsys.readouterr().err


def test_resume_of_no_run_is_bad_input(tmp_path, capsys):
    assert main(["train", "--resume", str(tmp_path)]) == 2
    assert "no config.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["capture"], ["--out", "run"]])
def test_half_a_command_line_shows_the_whole(arguments, capsys):
    assert main(["train", *arguments]) == 2
    assert "lanewise train CAPTURE --out RUN" in capsys.readouterr().err


def missing(capture):
    shutil.rmtree(capture)
    return str(capture)


def cut_image(capture):
    image = sorted((capture / "images").iterdir())[3]
    image.write_bytes(image.read_bytes()[:400])
    return image.name


def cut_model(capture):
    model = capture / "sparse" / "0" / "images.bin"
    model.write_bytes(model.read_bytes()[:100])
    return model.name


def broken_json(capture):
    shutil.rmtree(capture / "sparse")
    (capture / "transforms.json").write_text('{"frames": [')
    return "transforms.json"


def no_image(capture):
    image = sorted((capture / "images").iterdir())[3]
    image.unlink()
    return image.name


@pytest.mark.parametrize("damage", [missing, cut_image, cut_model, broken_json, no_image])
def test_a_bad_capture_is_one_message_that_names_the_file(capture, tmp_path, capsys, damage):
    copy = shutil.copytree(capture, tmp_path / "capture")
    named = damage(copy)
    assert main(short(copy, tmp_path / "run")) == 2
    captured = capsys.readouterr()
    assert named in captured.err
    assert len(captured.err.strip().splitlines()) == 1
    assert "Traceback" not in captured.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("option", "value", "named"),
    [("--steps", "0", "steps"), ("--device", "abacus", "device"), ("--ssim-weight", "2", "ssim_weight")],
)
def test_a_bad_setting_is_refused_before_anything_is_read(tmp_path, capsys, option, value, named):
    assert main(["train", str(tmp_path), "--out", str(tmp_path / "run"), option, value]) == 2
    assert f"{named}: got" in capsys.readouterr().err


def test_a_polite_kill_leaves_a_run_that_resumes(capture, tmp_path):
    run = tmp_path / "run"
    command = [sys.executable, "-u", "-m", "lanewise.cli", *short(capture, run), "--steps", "1000000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("step "):
            process.send_signal(signal.SIGTERM)
            break
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert f"lanewise train --resume {run}" in out
    assert "Traceback" not in err
    (checkpoint,) = (run / "checkpoints").glob("step_*.safetensors")
    done = int(checkpoint.stem.removeprefix("step_"))
    assert main(["train", "--resume", str(run), "--steps", str(done + 1)]) == 0


def test_predicted_memory_is_that_of_the_optimizer():
    # 59 floats a Gaussian at degree 3, each with its gradient and two moments.
    assert optimizer_bytes(1000, 3) == 1000 * 59 * 4 * 4
