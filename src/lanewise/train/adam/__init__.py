"""Adam's step over rows, in place."""

from lanewise.train.adam.op import adam_coefficients, adam_step

__all__ = ["adam_coefficients", "adam_step"]
