"""Small changes of a Python file: one comparison, sign, constant, `max` or `and` at a time."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

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
    """A file with one change: the lines of the changed statement, what changed, and the text it is now.

    Where the statement is compound (`if`, `for`, `def`) the lines are those of its head.
    """

    file: Path
    line: int
    lines: range
    change: str
    source: str

    @property
    def key(self) -> str:
        """The same for the same text of the file, whatever its comments."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:12]


def mutants(file: Path) -> Iterator[Mutant]:
    """Every mutant of a file."""
    original = file.read_text()
    places = sum(1 for _ in _changes(ast.parse(original)))
    for place in range(places):
        tree = ast.parse(original)
        line, change, apply = next(c for i, c in enumerate(_changes(tree)) if i == place)
        statement = _statement(tree, line)
        before = ast.unparse(statement).splitlines()[0]
        apply()
        yield Mutant(file, line, _head(statement), f"{change}: {before[:100]}", ast.unparse(tree))


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


def _head(statement: ast.stmt) -> range:
    """The lines of a statement without those of the statements inside."""
    inside = [node.lineno for node in ast.walk(statement) if isinstance(node, ast.stmt) and node is not statement]
    return range(statement.lineno, min(inside, default=(statement.end_lineno or statement.lineno) + 1))
