from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanewise.errors import InputError
from lanewise.train import TrainConfig

FIELDS = [field.name for field in dataclasses.fields(TrainConfig)]


def test_defaults_are_those_of_the_standard_trainer():
    config = TrainConfig()
    config.validate()
    expected: dict[str, Any] = {
        "steps": 30_000, "batch_size": 1, "test_every": 8, "sh_degree": 3, "sh_degree_interval": 1000,
        "init_opacity": 0.1, "init_scale": 1.0, "ssim_weight": 0.2, "means_lr": 1.6e-4, "means_lr_final": 0.01,
        "means_lr_decay_steps": 30_000, "scales_lr": 5e-3, "opacities_lr": 5e-2, "quats_lr": 1e-3, "sh0_lr": 2.5e-3,
        "shN_lr": 1.25e-4, "prune_opa": 0.005, "grow_grad2d": 2e-4, "grow_scale3d": 0.01, "grow_scale2d": 0.05,
        "prune_scale3d": 0.1, "prune_scale2d": 0.15, "refine_scale2d_stop": 0, "refine_start": 500,
        "refine_stop": 15_000, "refine_every": 100, "reset_every": 3000, "pause_refine_after_reset": 0,
        "absgrad": False, "revised_opacity": False,
    }  # fmt: skip
    assert {name: getattr(config, name) for name in expected} == expected


@given(
    steps=st.integers(1, 10**6),
    ssim_weight=st.floats(0, 1),
    means_lr=st.floats(0, 1),
    background=st.none() | st.tuples(*[st.floats(0, 1)] * 3),
    eval_at=st.lists(st.integers(1, 10**6)).map(tuple),
    images=st.none() | st.text(min_size=1),
)
def test_yaml_round_trip_is_exact(**values: Any):
    config = TrainConfig(**values)
    assert TrainConfig.from_yaml(config.to_yaml()) == config


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_is_checked(name: str):
    with pytest.raises(InputError, match=f"^{name}: got .*, expected "):
        dataclasses.replace(TrainConfig(), **{name: object()}).validate()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0), ("steps", True), ("steps", 1.5), ("sh_degree", 5), ("ssim_weight", 1.1),
        ("means_lr", float("nan")), ("scales_lr", -1e-3), ("init_opacity", 1.0), ("prune_opa", 0.0),
        ("background", (0.0, 2.0, 0.0)), ("background", (0.0, 0.0)), ("log_every", 11), ("keep_checkpoints", 1),
        ("backend", "cuda"), ("eval_at", (0,)), ("max_gaussians", 0), ("pause_refine_after_reset", 3000),
    ],
)  # fmt: skip
def test_values_out_of_range_are_refused(name: str, value: object):
    with pytest.raises(InputError, match=f"^{name}: "):
        dataclasses.replace(TrainConfig(), **{name: value}).validate()


def test_unknown_field_names_the_file():
    with pytest.raises(InputError, match=r"^run/config.yaml: got unknown field stepz, expected fields of TrainConfig"):
        TrainConfig.from_yaml("stepz: 3", source="run/config.yaml")


@pytest.mark.parametrize("text", ["- 1\n- 2\n", "", "steps: [1", "steps: !!python/object:os.system {}"])
def test_what_is_not_a_mapping_is_refused(text: str):
    with pytest.raises(InputError, match=r"^config: .* expected a YAML mapping"):
        TrainConfig.from_yaml(text)
