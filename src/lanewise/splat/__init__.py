"""Differentiable Gaussian splatting."""

from lanewise.splat.binning.op import bin_gaussians
from lanewise.splat.projection.op import project_gaussians
from lanewise.splat.rasterize.op import rasterize_to_pixels
from lanewise.splat.render import rasterization
from lanewise.splat.sh.op import spherical_harmonics

__all__ = ["bin_gaussians", "project_gaussians", "rasterization", "rasterize_to_pixels", "spherical_harmonics"]
