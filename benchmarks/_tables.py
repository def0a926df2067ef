"""The rows of a benchmark's JSON as a markdown table.

usage: python benchmarks/_tables.py NAME [COLUMN,COLUMN,...]
"""

from __future__ import annotations

import json
import sys
from typing import Any

from _harness import RESULTS


def table(rows: list[dict[str, Any]], columns: list[str] | None = None) -> str:
    """Markdown of rows: four significant digits, bytes as MiB, an empty cell where a row has no value.

    Args:
        rows: as in the JSON.
        columns: which, and in what order; all in the order of their first appearance without.
    """
    columns = columns or list(dict.fromkeys(name for row in rows for name in row))
    lines = [columns, ["---"] * len(columns), *([cell(name, row.get(name)) for name in columns] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(column: str, value: Any) -> str:
    """One value; columns that begin with `peak` hold bytes."""
    if value is None:
        return ""
    if column.startswith("peak"):
        return f"{value / 2**20:,.0f} MiB"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value).replace("|", "\\|")


def main() -> int:
    if not 2 <= len(sys.argv) <= 3:
        print((__doc__ or "").strip())
        return 2
    result = json.loads((RESULTS / f"{sys.argv[1]}.json").read_text())
    print(table(result["rows"], sys.argv[2].split(",") if len(sys.argv) == 3 else None))
    return 0


if __name__ == "__main__":
    sys.exit(main())
