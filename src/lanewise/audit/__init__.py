"""Find silently wrong gradients."""
