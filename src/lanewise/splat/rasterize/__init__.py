"""Alpha compositing of projected Gaussians."""
