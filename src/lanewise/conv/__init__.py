"""Convolution whose gradients are right at every size."""

from lanewise.conv.plan import Slice, plan
from lanewise.conv.problem import Problem

__all__ = ["Problem", "Slice", "plan"]
