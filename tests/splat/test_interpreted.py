import os
import subprocess
import sys
from pathlib import Path

import pytest
from interpreter import missing

HELPERS = Path(__file__).parents[1] / "helpers"


SCRIPTS = {"interpreted": 5, "interpreted_lists": 6, "interpreted_operands": 5}  # and how many lines "ok" they print


@pytest.mark.slow
@pytest.mark.skipif(missing() is not None, reason=missing() or "")
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_triton_kernels_in_the_interpreter(script):
    """In a process of its own: the interpreter is chosen when Triton is imported, and computes on one thread."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HELPERS), *sys.path])}
    command = [sys.executable, str(HELPERS / f"{script}.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok ") == SCRIPTS[script]
