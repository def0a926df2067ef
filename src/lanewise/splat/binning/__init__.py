"""Front-to-back lists of the Gaussians that every tile sees."""
