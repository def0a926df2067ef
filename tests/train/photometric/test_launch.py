from __future__ import annotations

import pytest

from lanewise.errors import UnsupportedError

pytest.importorskip("triton", reason="triton is not installed")

from lanewise.train.photometric import launch


@pytest.mark.parametrize("sizes", [(2**31 - 32, 3, 1), (11, 2**31 - 128, 1), (11, 33, 2**31 - 1024)])
def test_what_32_bits_cannot_number_is_refused(sizes: tuple[int, int, int]):
    launch._check_bounds(10**6, 10**6, 10**6)
    with pytest.raises(UnsupportedError, match="in one launch is not supported"):
        launch._check_bounds(*sizes)
