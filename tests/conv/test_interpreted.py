import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from interpreter import missing

HELPERS = Path(__file__).parents[1] / "helpers"


@pytest.mark.slow
@pytest.mark.skipif(missing() is not None, reason=missing() or "")
@pytest.mark.skipif(importlib.util.find_spec("lanewise.conv.launch") is None, reason="the kernels are not here")
def test_the_functions_run_on_our_kernels_in_the_interpreter():
    """In a process of its own: the interpreter is chosen when Triton is imported, and computes on one thread."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HELPERS), *sys.path])}
    command = [sys.executable, str(HELPERS / "interpreted_conv_ops.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok ") == 7
