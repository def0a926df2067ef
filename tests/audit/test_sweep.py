from dataclasses import replace
from itertools import islice

import pytest

from lanewise.audit.catalogue import catalogue
from lanewise.audit.examine import Result
from lanewise.audit.spec import Input, Spec
from lanewise.audit.sweep import LARGE_WORK, Plan, Sweep

SPEC = Spec("f", "2 * x", (Input("x", "B C"),), {"B": 8, "C": 6}, options={"k": (1, 2)}, setup="# not torch's")


def cases(plan=None, count=400, spec=SPEC):
    return [case for _, case in islice(Sweep([spec], plan or Plan()), count)]


def test_the_usual_case_comes_first_and_no_case_twice():
    found = cases()
    assert found[0] == Sweep([SPEC], Plan()).base(SPEC)
    assert len(set(found)) == len(found)


def test_everything_varies_alone_early():
    found = cases(count=60)
    for name in ("dtype", "layout", "cotangent", "values", "options"):
        alone = [c for c in found if getattr(c, name) != getattr(found[0], name)]
        assert alone, name
    sizes = {dict(c.sizes)["B"] for c in found}
    assert {31, 32, 33, 63, 64, 65} <= sizes


def test_everything_varies_together_later():
    last = cases()[-60:]
    assert any(len(c.setting) > 3 for c in last)


def test_the_same_seed_is_the_same_sweep_and_another_is_not():
    assert cases() == cases()
    assert cases() != cases(Plan(seed=1))


def test_limits_of_grids_bytes_and_elements_are_crossed_where_there_is_memory():
    found = cases(Plan(memory=2**40, window=2**20))
    elements = [dict(c.sizes)["B"] * dict(c.sizes)["C"] for c in found]
    assert any(n > 2**31 for n in elements)
    assert any(2**18 < n <= 2**18 + 8 for n in elements)  # 2^20 bytes of fp32, by one row
    assert any(dict(c.sizes)["B"] == 65536 for c in found)


def test_what_needs_too_much_memory_is_kept_apart_with_a_reason():
    sweep = Sweep([SPEC], Plan(memory=2**20))
    found = [case for _, case in islice(sweep, 200)]
    assert max(sweep.memory(SPEC, case) for case in found) <= 2**20
    assert sweep.too_large
    assert "GiB of memory" in sweep.too_large[0].reason


def test_a_size_that_is_refused_again_and_again_is_left_alone():
    sweep = Sweep([SPEC], Plan())
    found = []
    for _, case in islice(sweep, 300):
        changed = dict(case.sizes)["C"] != 6
        found.append(changed)
        sweep.tell(Result(case, "skipped" if changed else "passed", "the forward refuses: no" if changed else ""))
    assert any(found)
    assert not any(found[-100:])


@pytest.mark.parametrize(("compile", "share"), [(False, 0.1), (True, 0.3)])
def test_a_catalogue_gets_programs_of_several_operators_too(compile, share):
    points = list(islice(Sweep(catalogue("torch"), Plan(compile=compile)), 130))
    chained = [case for spec, case in points if spec.chained]
    assert len(chained) >= share * len(points)
    assert all(case.compiled is compile for case in chained)


def test_every_operator_has_a_case_before_any_has_two():
    specs = [replace(SPEC, name=f"f{number}") for number in range(30)]
    first, second = (list(islice(Sweep(specs, Plan(seed=seed)), 30)) for seed in (0, 1))
    assert {spec.name for spec, _ in first} == {spec.name for spec in specs}
    assert [spec.name for spec, _ in first] != [spec.name for spec, _ in second]


def test_what_takes_too_many_steps_is_not_tried_or_kept_apart():
    spec = replace(SPEC, work="B*C**3")
    sweep = Sweep([spec], Plan(memory=2**34))
    cases = [case for _, case in islice(sweep, 300)]
    assert max(dict(c.sizes)["B"] * dict(c.sizes)["C"] ** 3 for c in cases) <= LARGE_WORK["cpu"]
    assert any("multiply-adds" in result.reason for result in sweep.too_large)
