"""For all tests: memory that torch hands out unwritten holds poison, so that an output nobody wrote fails its test."""

from collections.abc import Iterator

import lanewise  # noqa: F401  (before torch: idle OpenMP threads then sleep instead of spinning)

# isort: split
import pytest

from lanewise.audit.probes.poison import poisoned_in_python


@pytest.fixture(autouse=True)
def unwritten_memory_is_poison() -> Iterator[None]:
    with poisoned_in_python():
        yield
