"""Convolution that is right at every size."""
