"""Every kernel, and every configuration that training launches, is in some case. Nothing is compiled or run here."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from balls import write_capture

from lanewise.prove.cases import cases
from lanewise.prove.configurations import LARGE, dry, of_large_launches, recorded
from lanewise.prove.launches import Configuration, kernels, short
from lanewise.train import TrainConfig
from lanewise.train.data import load_data
from lanewise.train.observer import Silent
from lanewise.train.run_folder import RunFolder
from lanewise.train.trainer import Trainer

pytest.importorskip("triton")


@pytest.fixture(scope="module")
def by_case() -> dict[str, set[Configuration]]:
    return recorded(cases())


def test_cases_launch_what_they_declare(by_case: dict[str, set[Configuration]]):
    assert len({case.name for case in cases()}) == len(cases())
    for case in cases():
        assert {config.name for config in by_case[case.name]} == set(case.kernels), case.name


def test_every_kernel_of_the_product_has_a_case_and_a_quick_one():
    names = {short(kernel) for kernel in kernels()}
    assert len(names) == len(kernels()) >= 18
    for chosen in (cases(), [case for case in cases() if case.quick]):
        assert {name for case in chosen for name in case.kernels} == names


def test_large_launches_are_derived_from_all_that_name_them(by_case: dict[str, set[Configuration]]):
    large = of_large_launches(set().union(*by_case.values()))
    assert {config.name for config in large} == set(LARGE)
    assert not large & set().union(*by_case.values())
    for config in large:
        names = dict(config.signature)
        assert any(all(names[k] == t for k, t in types.items()) for types in LARGE[config.name])


SETTINGS = {
    "plain": {},
    "antialiased": {"antialiased": True},
    "absolute gradients": {"absgrad": True},
    "random background": {"random_background": True},
    "two pictures": {"batch_size": 2},
    "no similarity": {"ssim_weight": 0.0},
    "selective": {"selective_adam": True},
    "third degree": {"sh_degree": 3, "sh_degree_interval": 1},
}


@pytest.mark.parametrize("settings", SETTINGS)
def test_what_training_launches_is_proved(settings: str, by_case: dict[str, set[Configuration]], tmp_path: Path):
    options = {"sh_degree": 1, "sh_degree_interval": 2, **SETTINGS[settings]}
    config = TrainConfig(steps=40, random_points=33, refine_start=1, refine_every=4, backend="triton", **options)
    launched: list[Configuration] = []
    run = RunFolder(tmp_path / "run")
    run.prepare()
    data = load_data(write_capture(tmp_path / "balls"), config)
    with dry(launched):
        trainer = Trainer(data, config, run, torch.device("cpu"), Silent())
        for _ in range(5):
            trainer._advance()
    assert {"project", "composite_backward", "gradient", "observe"} <= {c.name.split(".")[1] for c in launched}
    missing = set(launched) - set().union(*by_case.values())
    assert not missing, "\n".join(sorted(f"{c.name} {c.label}" for c in missing))
