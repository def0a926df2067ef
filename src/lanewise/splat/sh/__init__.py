"""Real spherical harmonics."""
