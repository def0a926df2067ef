"""The fixture, in a session of its own."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = """
import torch

def test_healthy(audit_gradients):
    assert audit_gradients(lambda x: 2 * x, (torch.randn(5),)).coverage.ran == 2

def test_wrong(audit_gradients):
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x
        @staticmethod
        def backward(ctx, v):
            return 3 * v
    audit_gradients(lambda x: Wrong.apply(x), (torch.randn(5),))
"""


def test_a_finding_fails_the_test_that_asked(tmp_path):
    (tmp_path / "test_it.py").write_text(TESTS)
    plugin = ("-p", "lanewise.audit.pytest_plugin", "--audit-budget", "2 cases")
    path = os.pathsep.join(str(Path(place).resolve()) for place in sys.path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin, "test_it.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "LW105" in done.stdout
