"""What a training run shows, in a terminal and in a log file."""

import io
from typing import Any

import pytest
from rich.console import Console

from lanewise.audit.finding import Finding
from lanewise.cli.observer import LiveObserver, PlainObserver, evaluation_line
from lanewise.train import StepRecord

INFO: dict[str, Any] = {
    "run": "run",
    "capture": "photos",
    "device": "cpu",
    "backend": "cpu",
    "steps": 250,
    "resumed_from": None,
    "train_views": 28,
    "test_views": 5,
    "width": 472,
    "height": 352,
    "gaussians": 6623,
    "scene_scale": 1.0,
    "warnings": ["3 images were rescaled"],
}


def record(step: int) -> StepRecord:
    return StepRecord(
        step=step,
        loss=0.0512,
        psnr=21.5,
        gaussians=6700,
        split=0,
        duplicated=0,
        pruned=0,
        its_per_s=12.34,
        memory_bytes=3 << 28,
        eta_s=95.0,
    )


def test_a_log_file_gets_a_line_every_hundred_steps_and_the_last(capsys):
    observer = PlainObserver(3)
    observer.on_start(INFO)
    capsys.readouterr()
    for step in range(10, 251, 10):
        observer.on_step(record(step))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["step 100/250", "step 200/250", "step 250/250"]
    assert lines[0] == ("step 100/250  loss 0.0512  PSNR 21.50  6,700 Gaussians  12.3 it/s  768.0 MiB  ETA 1 min 35 s")


def test_the_start_shows_device_images_resolution_points_and_memory(capsys):
    PlainObserver(3).on_start(INFO)
    captured = capsys.readouterr()
    for text in ("cpu, cpu", "28 to train on, 5 held out", "472 x 352", "6,623", "6.0 MiB in training", "250"):
        assert text in captured.out, text
    assert "warning: 3 images were rescaled" in captured.err


def test_a_resumed_run_says_from_where(capsys):
    PlainObserver(3).on_start({**INFO, "resumed_from": 100, "test_views": 0})
    out = capsys.readouterr().out
    assert "resumed from step" in out
    assert "none held out" in out


def test_photographs_are_counted_while_they_are_checked(capsys):
    observer = PlainObserver(3)
    for done in range(1, 151):
        observer.on_check(done, 150)
    assert capsys.readouterr().out.splitlines() == ["checked 100/150 photographs", "checked 150/150 photographs"]


def test_a_terminal_gets_one_line_that_is_redrawn(capsys):
    terminal = Console(file=io.StringIO(), force_terminal=True, width=140, markup=False, highlight=False)
    observer = LiveObserver(3, terminal)
    observer.on_check(1, 33)
    observer.on_start(INFO)
    observer.on_compile(3, 12)
    observer.on_step(record(10))
    observer.on_eval({"step": 10, "split": "test", "psnr": 24.68, "ssim": 0.81234})
    observer.on_step(record(20))
    observer.stop()
    observer.stop()  # also when it was never started, or stopped before
    shown = terminal.file.getvalue()  # type: ignore[attr-defined]
    assert "20/250" in shown
    assert "ETA 1 min 35 s" in shown
    assert shown.count("held-out PSNR 24.68 dB, SSIM 0.8123") == 1


def test_compiling_is_said_once(capsys):
    observer = PlainObserver(3)
    for done in range(13):
        observer.on_compile(done, 12)
    out = capsys.readouterr().out
    assert out == "compiling kernels for 12 kinds of steps; a second run finds them compiled\n"


@pytest.mark.parametrize(("split", "word"), [("test", "held-out"), ("train", "training")])
def test_an_evaluation_says_what_was_measured(split, word):
    line = evaluation_line({"step": 7000, "split": split, "psnr": 24.684, "ssim": None})
    assert line == f"step 7000: {word} PSNR 24.68 dB, SSIM -"


def test_a_finding_is_a_warning_that_names_the_step_and_the_explanation(capsys):
    finding = Finding("LW401", "parameters", "means", {"means": [9, 3]}, "float32", {}, {"step": 100}, cause="lost")
    PlainObserver(3).on_finding(finding)
    said = capsys.readouterr().err
    assert "LW401 parameters: a parameter is dead (argument means" in said
    assert "in step 100: lost" in said
    assert "lanewise explain LW401" in said
