import re
from dataclasses import replace

import pytest
import torch

from lanewise.audit.case import Case
from lanewise.audit.compose import LINKS, chain


@pytest.mark.parametrize("seed", range(60))
def test_chains_run_and_are_differentiable(seed):
    spec = chain(seed)
    assert chain(seed) == spec
    case = Case(spec.name, tuple(spec.sizes.items()), seed=seed)
    outputs = case.call(spec).graph()[1]
    assert outputs
    assert all(out.requires_grad and out.isfinite().all() for out in outputs)


def test_every_link_is_drawn():
    sources = "\n".join(chain(seed).source for seed in range(2000))
    for link in LINKS:
        beginning = re.escape(link.expression[:40].format(y="Y", z="Z", p="P"))
        assert re.search(re.sub("[YZP]", r"\\w+", beginning), sources), link


def test_the_seed_of_a_chain_decides_its_inputs():
    spec = chain(3)
    case = Case(spec.name, tuple(spec.sizes.items()))
    assert not torch.equal(case.inputs(spec)["x"], replace(case, seed=1).inputs(spec)["x"])
