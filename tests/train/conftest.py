from __future__ import annotations

from pathlib import Path

import pytest
from balls import write_capture


@pytest.fixture(scope="session")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a capture of nine photographs, two of them held out (0 and 8)."""
    return write_capture(tmp_path_factory.mktemp("capture") / "balls")
