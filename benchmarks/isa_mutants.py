"""Mutants of the product's machine code: is every one that changes an output detected?

python benchmarks/isa_mutants.py                                                     # everything: hours
python benchmarks/isa_mutants.py --each 3 --configurations 1 --arch gfx942,gfx1100   # a sample, always the same one
python benchmarks/isa_mutants.py --asm kernel.s --spec spec.py
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
import functools
import multiprocessing
import os
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import _harness
import torch

from lanewise.isa.examine import Examination, Outcome
from lanewise.isa.mutate import mutants, sample
from lanewise.isa.schedule import ORDERS
from lanewise.prove.asm import read, read_spec
from lanewise.prove.cases import cases
from lanewise.prove.compile import compile_for, triton_version
from lanewise.prove.launches import Configuration
from lanewise.prove.mutation import Launching, OnCases, OnSpec, chosen, launched
from lanewise.prove.run import EXECUTED
from lanewise.target import compiles, find

CASES = 3  # that a mutant is tried on at least, of those that launch its configuration
MEMORY = 6 * 2**30  # a mutant may ask for any amount
FAR = 40 * 2**30  # convolutions' images lie far apart in mappings of which few pages are in use
STATUSES = ("value", "error", "same", "unreached", "invalid", "missed")


def row_of(kernel: str, arch: str, config: str, outcomes: list[Outcome], seconds: float) -> dict[str, Any]:
    """Counts by rule and by reason, and every mutant that no run showed."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for outcome in outcomes:
        counts[outcome.mutant.rule.name][outcome.status] += 1
    silent = [o for o in outcomes if o.status in ("same", "unreached", "missed")]
    return {
        "kernel": kernel,
        "arch": arch,
        "config": config,
        "triton": triton_version(),
        "mutants": len(outcomes),
        **{status: sum(count[status] for count in counts.values()) for status in STATUSES},
        "rules": {rule: dict(count) for rule, count in sorted(counts.items())},
        "reasons": dict(collections.Counter(o.reason for o in outcomes if o.status == "same")),
        "silent": [{"mutant": str(o.mutant), "status": o.status, "reason": o.reason, "why": o.detail} for o in silent],
        "seconds": round(seconds, 1),
    }


@functools.cache
def launched_on(arch: str, pattern: str) -> dict[Configuration, list[Launching]]:
    """What the cases of such kernels launch on a target; kept in each process."""
    torch.set_num_threads(1)
    mine = [case for case in cases() if fnmatch.filter(case.kernels, pattern)]
    far = any(name.startswith("conv.") for case in mine for name in case.kernels)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY + FAR * far, resource.getrlimit(resource.RLIMIT_AS)[1]))
    return launched(mine, find(arch))


def examine_kernel(
    kernel: str, pattern: str, arch: str, each: int, configurations: int, orders: tuple[str, ...]
) -> list[dict[str, Any]]:
    """A row for each of so many configurations of a kernel, those that most cases launch first."""
    everything = launched_on(arch, pattern).items()
    found = [(config, launching) for config, launching in everything if config.name == kernel]
    found.sort(key=lambda item: (-len(item[1]), item[0].label))
    rows = []
    for config, launching in found[: configurations or len(found)]:
        start = time.perf_counter()
        outcomes = examine_configuration(config, launching, arch, each, orders)
        rows.append(row_of(kernel, arch, config.label, outcomes, time.perf_counter() - start))
    return rows


def examine_configuration(
    config: Configuration, launching: list[Launching], arch: str, each: int, orders: tuple[str, ...]
) -> list[Outcome]:
    """What became of a configuration's mutants; what is missed is tried again on all cases that launch it."""
    target = find(arch)
    compiled = compile_for(config, target)

    def examination(launching: list[Launching]) -> Examination:
        trial = OnCases(launching, target, config)
        return Examination(compiled.assembly, trial, compiled.function, orders)

    some, drawn = examination(chosen(launching, CASES)), mutants(compiled.assembly, compiled.function)
    outcomes = [some.examine(mutant) for mutant in sample(drawn, each or sys.maxsize)]
    if any(outcome.status == "missed" for outcome in outcomes):
        everything = examination(launching)
        outcomes = [everything.examine(o.mutant) if o.status == "missed" else o for o in outcomes]
    return outcomes


def main() -> int:
    """Runs what is asked for; the exit code is 1 where a mutant was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", default="*", help="pattern of kernels' names")
    parser.add_argument("--arch", default=",".join(EXECUTED), help="targets, with commas")
    parser.add_argument("--each", type=int, default=0, help="mutants of each rule and kernel; all without it")
    parser.add_argument("--configurations", type=int, default=0, help="of each kernel; all without it")
    parser.add_argument("--orders", default=",".join(ORDERS), help="wave orders, with commas")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--asm", type=Path)
    parser.add_argument("--spec", type=Path)
    options = parser.parse_args()
    orders = tuple(options.orders.split(","))
    if options.asm:
        names, text = read_spec(options.spec), read(options.asm)
        start = time.perf_counter()
        examination = Examination(text, OnSpec(list(names["cases"]())), names.get("kernel"), orders)
        drawn = sample(mutants(text, names.get("kernel")), options.each or sys.maxsize)
        outcomes = [examination.examine(mutant) for mutant in drawn]
        rows = [row_of(options.asm.name, examination.arch, "", outcomes, time.perf_counter() - start)]
        show(rows, explained=True)
        return int(any(row["missed"] for row in rows))
    archs = [arch for arch in options.arch.split(",") if compiles(arch, triton_version()) is not False]
    rows, path = [], None
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        names = sorted({kernel for case in cases() for kernel in case.kernels})
        jobs = [
            pool.submit(examine_kernel, kernel, options.kernel, arch, options.each, options.configurations, orders)
            for arch in archs
            for kernel in names
            if fnmatch.fnmatch(kernel, options.kernel)
        ]
        for job in as_completed(jobs):
            rows += job.result()
            show(job.result())
            path = _harness.merge("isa_mutants", job.result(), ("kernel", "arch", "config"))
    print(path)
    return int(any(row["missed"] for row in rows))


def show(rows: list[dict[str, Any]], explained: bool = False) -> None:
    """A line a row, and a line for each mutant that was missed, or that changed nothing."""
    for row in rows:
        print(row["kernel"], row["arch"], *(f"{status} {row[status]}" for status in STATUSES), flush=True)
        for silent in row["silent"]:
            if explained or silent["status"] == "missed":
                print(f"   {silent['status'].upper()} {silent['mutant']}: {silent['why']}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
