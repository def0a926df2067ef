"""The script for compute-sanitizer runs, here with the CPU's kernels."""

import sanitized
import torch


def test_every_scene_runs(capsys):
    assert sanitized.main("cpu") == 0
    assert capsys.readouterr().out.count("ran ") == len(sanitized.SCENES) + 1


def test_without_a_gpu_nothing_runs_and_the_exit_code_says_so(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("os.environ", {})
    assert sanitized.main() == 5
    assert "no GPU" in capsys.readouterr().out
