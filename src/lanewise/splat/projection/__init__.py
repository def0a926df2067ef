"""EWA projection of 3-D Gaussians to the image plane."""
