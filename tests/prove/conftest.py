from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest

from lanewise.prove.cases import cases
from lanewise.prove.configurations import recorded
from lanewise.prove.launches import Configuration


@pytest.fixture(scope="module")
def cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Triton's cache of another checkout of these sources holds that one's paths, which stand in the assembly."""
    with mock.patch.dict("os.environ", TRITON_CACHE_DIR=str(tmp_path_factory.mktemp("triton"))):
        yield


@pytest.fixture(scope="module")
def by_kernel() -> dict[str, Configuration]:
    """A configuration of every kernel."""
    chosen = [case for case in cases() if case.quick]
    return {config.name: config for found in recorded(chosen).values() for config in sorted(found, key=repr)}
