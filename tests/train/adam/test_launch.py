from __future__ import annotations

import pytest
import torch

from lanewise.errors import UnsupportedError

pytest.importorskip("triton", reason="triton is not installed")

from lanewise.train.adam import launch


def test_more_blocks_than_can_be_numbered_are_refused():
    huge = torch.zeros(1, device="meta").new_zeros(2**31 * launch.BLOCK)
    with pytest.raises(UnsupportedError, match="a step over"):
        launch.adam_step(huge, huge, huge, huge, huge[:2], (0.9, 0.999), 1e-8, None, None)
