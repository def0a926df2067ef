"""How many small changes of the audit's probes and tolerances do the tests notice?

usage: python benchmarks/audit_mutants.py [--sample 60] [--seed 0] [--json FILE]

A mutant is one file with one comparison, sign, constant, `max` or `and` changed. Each runs the file's own tests, then
those of all probes, in a process that is forked after torch was imported; the first test that fails, or no end within
`--timeout` seconds, is its end. What survives is printed with its line.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.machinery
import importlib.util
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

ROOT = Path(__file__).resolve().parents[1]
AUDIT = ROOT / "src" / "lanewise" / "audit"
FILES = (
    *sorted((AUDIT / "probes").glob("*.py")),
    *(AUDIT / name for name in ("tolerance.py", "verdict.py", "conditioning.py")),
)
TESTS = (
    "tests/audit/probes",
    "tests/audit/test_tolerance.py",
    "tests/audit/test_verdict.py",
    "tests/audit/test_conditioning.py",
)

_SWAPS: dict[type, Callable[[], Any]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
_NAMES = {"max": "min", "min": "max", "any": "all", "all": "any"}


class Mutant(NamedTuple):
    """One changed file."""

    file: Path
    line: int
    change: str
    source: str


def mutants(file: Path) -> Iterator[Mutant]:
    """Every mutant of a file."""
    original = file.read_text()
    places = sum(1 for _ in _changes(ast.parse(original)))
    for place in range(places):
        tree = ast.parse(original)
        line, change, apply = next(c for i, c in enumerate(_changes(tree)) if i == place)
        before = ast.unparse(_statement(tree, line)).splitlines()[0]
        apply()
        yield Mutant(file, line, f"{change}: {before[:100]}", ast.unparse(tree))


def _changes(tree: ast.Module) -> Iterator[tuple[int, str, Callable[[], None]]]:
    """(line, what, how) of each change that a tree allows."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPS:
            new = _SWAPS[type(node.ops[0])]()
            yield node.lineno, f"{_called(node.ops[0])} to {_called(new)}", _setter(node.ops, 0, new)
        elif isinstance(node, (ast.BinOp, ast.BoolOp)) and type(node.op) in _SWAPS:
            new = _SWAPS[type(node.op)]()
            yield node.lineno, f"{_called(node.op)} to {_called(new)}", _setter(node, "op", new)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _NAMES:
            name = _NAMES[node.func.id]
            yield node.lineno, f"{node.func.id} to {name}", _setter(node.func, "id", name)
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool)
        ):
            new = node.value * 4 if node.value else 1
            yield node.lineno, f"{node.value} to {new}", _setter(node, "value", new)


def _setter(place: Any, key: Any, value: Any) -> Callable[[], None]:
    return lambda: place.__setitem__(key, value) if isinstance(place, list) else setattr(place, key, value)


def _called(operator: ast.AST) -> str:
    return type(operator).__name__


def _statement(tree: ast.Module, line: int) -> ast.stmt:
    """The smallest statement that this line is in."""
    inside = [n for n in ast.walk(tree) if isinstance(n, ast.stmt) and n.lineno <= line <= (n.end_lineno or n.lineno)]
    return max(inside, key=lambda node: node.lineno)


def survives(mutant: Mutant, timeout: float) -> bool:
    """Whether no test notices."""
    child = os.fork()
    if child == 0:
        _test(mutant)
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def _test(mutant: Mutant) -> None:
    """Import the mutant in place of its file, run the tests, and leave with their exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    os.chdir(ROOT)
    torch.set_num_threads(1)
    name = ".".join(mutant.file.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    sys.meta_path.insert(0, _Finder(name, mutant))
    import pytest

    own = ROOT / "tests" / mutant.file.relative_to(AUDIT.parent).parent / f"test_{mutant.file.stem}.py"
    # Without other plugins: pytest would load the modules of Lanewise, which has one, by itself.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    quiet = ("-x", "-q", "-p", "no:cacheprovider", "-p", "pytest_timeout", "-m", "not slow and not gpu")
    code = 0
    for tests in ((str(own),) if own.exists() else (), TESTS):
        code = code or (int(pytest.main([*quiet, *tests])) if tests else 0)
    os._exit(min(code, 1))


class _Finder(importlib.machinery.SourceFileLoader):
    """Finds one module, and gives the mutant's source for it."""

    def __init__(self, name: str, mutant: Mutant) -> None:
        super().__init__(name, str(mutant.file))
        self._wanted, self._mutant = name, mutant

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The spec of that module; None for every other."""
        if name != self._wanted:
            return None
        inside = [str(self._mutant.file.parent)] if self._mutant.file.stem == "__init__" else None
        return importlib.util.spec_from_file_location(
            name, self._mutant.file, loader=self, submodule_search_locations=inside
        )

    def get_code(self, fullname: str) -> Any:
        """The mutant, compiled."""
        return compile(self._mutant.source, str(self._mutant.file), "exec")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sample", type=int, help="how many mutants, at random; all without this")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=300.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = [mutant for file in FILES for mutant in mutants(file)]
    total = len(found)
    if options.sample:
        found = random.Random(options.seed).sample(found, min(options.sample, total))
    survivors = []
    for number, mutant in enumerate(found, 1):
        if survives(mutant, options.timeout):
            survivors.append(mutant)
            print(f"{mutant.file.relative_to(ROOT)}:{mutant.line}: {mutant.change}", flush=True)
        print(f"  {number} of {len(found)}, {len(survivors)} survive", end="\r", file=sys.stderr, flush=True)
    print(f"{len(found)} of {total} mutants, {len(found) - len(survivors)} noticed, {len(survivors)} survive")
    if options.json:
        kept = [{"file": str(m.file.relative_to(ROOT)), "line": m.line, "change": m.change} for m in survivors]
        options.json.write_text(json.dumps({"mutants": len(found), "of": total, "survivors": kept}, indent=2))


if __name__ == "__main__":
    main()
