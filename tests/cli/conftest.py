"""A small capture and a short run, made once for the tests of all commands; none of them changes either."""

import pytest

from lanewise.cli import main
from lanewise.demo import write_capture

STEPS = 30


@pytest.fixture(scope="session")
def capture(tmp_path_factory):
    """Nine pictures of 48 x 36 pixels; two of them are held out."""
    return write_capture(tmp_path_factory.mktemp("cli") / "capture", width=48, height=36, views=9, points=400)


@pytest.fixture(scope="session")
def run_folder(capture, tmp_path_factory):
    """A run of `STEPS` steps on the capture."""
    run = tmp_path_factory.mktemp("cli") / "run"
    assert main(["train", str(capture), "--out", str(run), "--steps", str(STEPS), "--sh-degree", "1"]) == 0
    return run
