"""What the benchmarks share, and what they say where there is no GPU. Their figures are not tests' business."""

import ast
import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from lanewise.audit.gate import GateError

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
GPU_SCRIPTS = {
    "splat_vs_gsplat": [],
    "splat_scaling": [],
    "splat_kernels": [],
    "long_lists": [],
    "conv_resnet50": [],
    "conv_sweep": [],
    "conv_vs_vendor": [],
    "train_vs_gsplat": ["--data", "data"],
    "train_large": ["--data", "data"],
    "conv_1x1": [],
    "conv_tune": [],
}


@pytest.fixture
def benchmark(monkeypatch):
    """Imports a benchmark by its name, as when it is run."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


@pytest.mark.parametrize("name", GPU_SCRIPTS)
def test_without_a_gpu_nothing_runs_and_the_exit_code_says_so(name, benchmark, monkeypatch, capsys):
    script = benchmark(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", [name, *GPU_SCRIPTS[name]])
    assert script.main() == 5
    assert "no GPU" in capsys.readouterr().out


def test_merge_replaces_the_rows_of_the_same_key_and_keeps_the_others(benchmark, monkeypatch, tmp_path):
    harness = benchmark("_harness")
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    harness.merge("x", [{"part": "a", "seed": 1, "s": 1}, {"part": "a", "seed": 2, "s": 2}], ("part", "seed"))
    path = harness.merge("x", [{"part": "a", "seed": 2, "s": 3}, {"part": "b", "seed": 2, "s": 4}], ("part", "seed"))
    rows = json.loads(path.read_text())["rows"]
    assert [(r["part"], r["seed"], r["s"]) for r in rows] == [("a", 1, 1), ("a", 2, 3), ("b", 2, 4)]


def test_a_table_has_a_cell_for_every_column_of_every_row(benchmark):
    table = benchmark("_tables").table
    rows = [{"scene": "A", "ms": 2.31587, "peak_ours": 3 * 2**20}, {"scene": "B", "n": 1_000_000, "why": "a|b"}]
    assert table(rows).splitlines() == [
        "| scene | ms | peak_ours | n | why |",
        "| --- | --- | --- | --- | --- |",
        "| A | 2.316 | 3 MiB |  |  |",
        "| B |  |  | 1,000,000 | a\\|b |",
    ]
    assert table(rows, ["ms"]).splitlines()[2:] == ["| 2.316 |", "|  |"]


@pytest.mark.parametrize(
    ("ms", "bytes_ms", "issue_ms", "bound"),
    [
        (1.0, 0.6, 0.4, "bytes"),
        (1.0, 0.4, 0.6, "issue"),
        (1.0, 0.1, 0.1, "waiting"),
        (0.004, 0.0001, None, "latency"),
        (1.0, None, None, "unknown"),
    ],
)
def test_what_bounds_a_kernel_is_the_floor_that_explains_most(ms, bytes_ms, issue_ms, bound, benchmark):
    row = {"ms": ms, "bytes_ms": bytes_ms, "issue_ms": issue_ms}
    assert benchmark("splat_kernels").bound(row) == bound


def test_kernels_are_told_apart_by_their_place_in_a_pass(benchmark, monkeypatch):
    script = benchmark("splat_kernels")
    names = ["forward", "sort", "forward"]
    fake_profiler(script, monkeypatch, [(name, 10 * i + k) for i in range(2) for k, name in enumerate(names)])
    times = script.kernel_times(lambda: None, 2)
    assert times == [("forward", [0.0, 0.010]), ("sort", [0.001, 0.011]), ("forward", [0.002, 0.012])]


def test_every_launch_is_heard_of_even_of_a_variant_that_is_compiled(benchmark, monkeypatch):
    jit = pytest.importorskip("triton.runtime.jit")
    script = benchmark("splat_kernels")
    monkeypatch.setattr(jit.JITFunction, "run", lambda *args, **kwargs: None)
    monkeypatch.setattr(script._launch, "_compiled", compiled := {})
    monkeypatch.setattr(script._launch, "_on_gpu", lambda args: True)
    monkeypatch.setattr(script._launch, "_streams", lambda: lambda device: 0)

    def double(x, A):
        pass

    kernel, heard = jit.JITFunction(double), []
    with script.watched(heard.append):
        for _ in range(2):
            script._launch.launch(kernel, (1,), torch.zeros(3), A=1)
    assert [launch.name for launch in heard] == ["double", "double"]
    assert [launch.nbytes for launch in heard] == [12, 12]
    assert script._launch._compiled is compiled


@pytest.mark.parametrize("names", [["a", "b", "b", "a"], ["a", "b", "a"], []])
def test_passes_of_different_kernels_have_no_means(names, benchmark, monkeypatch):
    script = benchmark("splat_kernels")
    fake_profiler(script, monkeypatch, [(name, k) for k, name in enumerate(names)])
    with pytest.raises(SystemExit, match="not the same"):
        script.kernel_times(lambda: None, 2)


def fake_profiler(script, monkeypatch, kernels):
    """Let the profiler see kernels (name, beginning), which last as many microseconds as they begin after."""
    events = [
        SimpleNamespace(
            name=name,
            device_type=script.DeviceType.CUDA,
            time_range=SimpleNamespace(start=start, elapsed_us=lambda start=start: start),
        )
        for name, start in kernels
    ]

    class Profiler:
        def __init__(self, **_):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def events(self):
            return events[::-1]

    monkeypatch.setattr(script, "profile", Profiler)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


def test_long_lists_are_checked_against_the_reference(benchmark):
    row = benchmark("long_lists").measure("cpu", 300, 100, 72, 20_000)
    assert row["pairs"] == 300 * 13 * 9


def test_a_fault_behind_the_boundary_of_long_lists_is_noticed(benchmark, monkeypatch):
    script = benchmark("long_lists")
    lists_of = script.lists_of

    def faulty(*args):
        lists = lists_of(*args)
        lists.flatten_ids[20_000:] = lists.flatten_ids[20_000:].flip(0)
        return lists

    monkeypatch.setattr(script, "lists_of", faulty)
    monkeypatch.setattr(script, "check_halves", lambda *_: [])
    with pytest.raises(GateError, match=r"picture: relative error .*; means2d: relative error"):
        script.measure("cpu", 300, 100, 72, 20_000)


def test_the_audits_power_is_measured_against_faults_that_it_would_miss_too(benchmark):
    script = benchmark("audit_power")
    call = script.drawn(script.OPERATORS[0], 33, torch.float32, 0)
    by, relative, floor = script._found(call, "1", script.ALL_FAULTS[0], 0)
    assert (by, relative) == ("adjoint", 1)
    by, relative, _ = script._found(call, "1", script._error(floor, 0), 0)
    assert relative == pytest.approx(floor, rel=0.1)
    assert by == "exact"  # missed by the first probe
    assert script._allclose(call.double(), "1", None)
    assert not script._allclose(call.double(), "1", script.ALL_FAULTS[0])
    assert script._gradcheck(script.drawn(script.OPERATORS[0], 5, torch.float64, 0), "1", None, False)
    assert not script._gradcheck(
        script.drawn(script.OPERATORS[0], 5, torch.float64, 0), "1", script.ALL_FAULTS[0], False
    )


def test_the_audits_tables_have_a_line_for_what_was_missed(benchmark):
    tables = benchmark("_audit_tables")
    row = {"fault": "x", "operator": "linear", "dtype": "float32", "size": 33, "runs": 5, "first": 4, "any": 5}
    rows = [
        {**row, "size_in_floors": 40.0},
        {**row, "size_in_floors": None, "first": 5},
        {**row, "size_in_floors": 2.0},
    ]
    assert [r["size_in_floors"] for r in tables.missed(rows)] == [40.0]
    assert [(r["floors"], r["first probe"]) for r in tables.by_size(rows)] == [
        ("1 to 3", 0.8),
        ("30 to 100", 0.8),
        ("100 and more", 1.0),
    ]


def test_mutants_differ_from_their_file_and_from_each_other(benchmark):
    script = benchmark("audit_mutants")
    file = script.AUDIT / "tolerance.py"
    found = list(script.mutants(file))
    assert len(found) > 50
    assert len({mutant.source for mutant in found} | {ast.unparse(ast.parse(file.read_text()))}) == len(found) + 1
    assert any("LAMBDA = 6.0" in mutant.change and "LAMBDA = 24.0" in mutant.source for mutant in found)


def test_a_mutant_runs_the_tests_that_execute_its_statement_its_files_own_first_and_slow_ones_last(benchmark):
    script, tests = benchmark("audit_mutants"), benchmark("_mutant_tests")
    file = script.AUDIT / "verdict.py"
    mutant = next(m for m in script.mutants(file) if "if verdict.miss_probability(1.0) > BLIND" in m.change)
    assert len(mutant.lines) == 1  # of the head alone
    lines = frozenset({(str(file), mutant.line)})
    known = [
        tests.Test("tests/audit/test_verdict.py::slow", 9.0, lines),
        tests.Test("tests/audit/test_x.py::second", 0.2, lines),
        tests.Test("tests/audit/test_x.py::first", 0.1, lines),
        tests.Test("tests/audit/test_verdict.py::own", 0.3, lines),
        tests.Test("tests/audit/test_verdict.py::elsewhere", 0.1, frozenset({(str(file), mutant.line + 1)})),
    ]
    names = [name.split("::")[1] for name in tests.plan(mutant, known)]
    assert names == ["own", "first", "second", "slow"]
    assert len(tests.plan(mutant, known[-1:])) == 1  # where none is known to execute it, all


def test_a_mutant_that_has_a_result_is_tried_again_only_on_request_and_if_it_survived(benchmark):
    script = benchmark("audit_mutants")
    found = list(script.mutants(script.AUDIT / "verdict.py"))
    rows = {found[0].key: {"outcome": "survived"}, found[1].key: {"outcome": "noticed"}}

    def chosen(**options):
        return script.chosen(found, rows, SimpleNamespace(**{"part": "1/1", "files": "", "again": False, **options}))

    assert chosen() == found[2:]
    assert chosen(again=True) == [found[0], *found[2:]]
    assert chosen(part="1/2") + chosen(part="2/2") == found[2::2] + found[3::2]
    assert chosen(files="tolerance") == []
    assert chosen(files="tolerance,verdict") == found[2:]
    reasons = {("src/lanewise/audit/verdict.py", found[0].change): "equal"}
    assert "why" not in script.row(found[0], "noticed", reasons)
    assert script.row(found[0], "survived", reasons)["why"] == "equal"
