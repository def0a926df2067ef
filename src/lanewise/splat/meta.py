"""What `rasterization` tells besides the picture."""

from __future__ import annotations

from typing import Any

from lanewise.splat.binning.reference import TileLists


class Meta(dict[str, Any]):
    """What `rasterization` tells besides the picture. `isect_ids`, which nothing here needs, is made when it is asked
    for."""

    def __init__(self, lists: TileLists, entries: dict[str, Any]) -> None:
        super().__init__(entries)
        self._lists = lists

    def __contains__(self, key: object) -> bool:
        return key == "isect_ids" or super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """As of a dictionary; `isect_ids` is made here too."""
        return self[key] if key in self else default  # noqa: SIM401 - `dict.get` does not know of `__missing__`

    def __missing__(self, key: str) -> Any:
        if key != "isect_ids":
            raise KeyError(key)
        self[key] = self._lists.isect_ids(self["depths"])
        return self[key]
