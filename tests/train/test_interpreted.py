import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HELPERS = Path(__file__).parents[1] / "helpers"


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_the_training_kernels_pass_the_gate_in_the_interpreter():
    """In a process of its own: the interpreter is chosen when Triton is imported, and computes on one thread."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HELPERS), *sys.path])}
    script = [sys.executable, str(HELPERS / "interpreted_training.py")]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok ") == 4
