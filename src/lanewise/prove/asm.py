"""Somebody else's assembly against a Python reference: `lanewise prove --asm FILE --spec FILE`.

A spec is a Python file with `kernel`, the kernel's name (not needed where the assembly has one kernel), and `cases()`,
which yields dictionaries:

    name        what is special about this launch
    grid        workgroups along x, y and z
    threads     of a workgroup, a multiple of the wave; or `waves`, how many waves it has
    arguments   in the kernel's order: numpy arrays, which the kernel may change, and numbers
    expected    what the kernel should leave in its arrays, by the argument's position; in float64 where it is a sum
    limit       the relative L2 error that is allowed, 2e-6 unless it is given; 0 for the same bits
    shared      bytes of LDS that the launch adds to what the assembly declares
"""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lanewise import isa
from lanewise.audit.gate import FLOOR, relative_error
from lanewise.errors import InputError, LanewiseError
from lanewise.prove.compile import amd_numbers
from lanewise.prove.rows import Row
from lanewise.prove.run import ORDERS
from lanewise.target import find

NEEDED, KNOWN = {"grid", "arguments", "expected"}, {"name", "threads", "waves", "limit", "shared"}


def prove_assembly(assembly: Path, spec: Path, orders: tuple[str, ...] = ORDERS) -> list[Row]:
    """Run every case of a spec in every order; one row a case.

    Args:
        assembly: text for an AMD GPU, as a compiler writes it with `-S`.
        spec: the Python file; it is executed.
        orders: of the waves.

    Raises:
        InputError: a file that is missing, or a spec without what it needs.
        lanewise.isa.UnsupportedInstruction: the assembly holds what the emulator does not model.
    """
    text = read(assembly)
    names = read_spec(spec)
    program = isa.load(text, names.get("kernel"))
    target = find(program.arch)
    columns = {k: v for k, v in amd_numbers(text).items() if k in ("vgprs", "agprs", "sgprs", "spills", "cas_loops")}
    columns |= {"lds": program.lds, "instructions": len(program.instructions)}
    rows = []
    for number, case in enumerate(names["cases"]()):
        check_case(case, spec)
        name = case.get("name", f"case {number}")
        row = Row(program.name, name, program.arch, target.family, program.wave, compiled=True, executed=True)
        for column, value in columns.items():
            setattr(row, column, value)
        reached, notes = np.zeros(len(program.instructions), bool), []
        for seed, order in enumerate(orders):
            try:
                reached |= _run(program, case, row, notes, order, seed)
            except LanewiseError as error:
                row.ok = False
                notes.append(f"{order}: {type(error).__name__}: {error}")
                break
            row.orders.append(order)
        row.coverage, row.note = float(reached.mean()), "; ".join(notes)
        rows.append(row)
    return rows


def _run(
    program: isa.Program, case: Mapping[str, Any], row: Row, notes: list[str], order: str, seed: int
) -> np.ndarray:
    """Run a case in one order and compare; which instructions were reached."""
    arguments = [x.copy() if isinstance(x, np.ndarray) else x for x in case["arguments"]]
    waves = case["waves"] if "waves" in case else -(-case.get("threads", program.wave) // program.wave)
    row.warps = waves
    run = program.run(
        tuple(case["grid"]), arguments, waves=waves, order=order, seed=seed, shared=case.get("shared")
    )  # fmt: skip
    limit = case.get("limit", FLOOR)
    for place, expected in case["expected"].items():
        error = relative_error(torch.as_tensor(arguments[place]), torch.as_tensor(np.asarray(expected)))
        if row.max_rel_err is None or not error <= row.max_rel_err:
            row.max_rel_err, row.limit = error, limit
        if not error <= limit:
            row.ok = False
            notes.append(f"{order}: argument {place} is off by {error:.3g}, limit {limit:.3g}")
    return np.asarray(run.coverage, bool)


def read(path: Path) -> str:
    """The text of a file.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), got=str(error), expected="a text file") from error


def read_spec(path: Path) -> dict[str, Any]:
    """The names that a spec defines.

    Raises:
        InputError: it cannot be run, or has no `cases`.
    """
    read(path)
    try:
        names = runpy.run_path(str(path), run_name="lanewise_spec")
    except Exception as error:
        raise InputError(
            str(path), got=f"{type(error).__name__}: {error}", expected="a Python file that runs"
        ) from error
    if not callable(names.get("cases")):
        raise InputError(str(path), got="no function cases()", expected="cases() that yields dictionaries")
    return names


def check_case(case: Any, spec: Path) -> None:
    """Raise an InputError unless a case has what is needed and nothing unknown."""
    if not isinstance(case, Mapping) or not set(case) >= NEEDED or set(case) - NEEDED - KNOWN:
        got = sorted(case) if isinstance(case, Mapping) else type(case).__name__
        raise InputError(f"{spec}: a case", got=got, expected=f"{sorted(NEEDED)}, perhaps {sorted(KNOWN)}")
    for place in case["expected"]:
        arguments = case["arguments"]
        if not 0 <= place < len(arguments) or not isinstance(arguments[place], np.ndarray):
            raise InputError(f"{spec}: expected", got=place, expected="positions of arrays among the arguments")
