"""The planted causes do what the report's arithmetic says, and nothing else."""

from __future__ import annotations

import pytest
import torch
from splat_scenes import random_scene

from lanewise.demo.incidents.lanes import CAUSES, BrokenRenderer, broken_projection, broken_rasterization, second_halves
