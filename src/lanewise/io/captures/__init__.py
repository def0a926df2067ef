"""Captures: photographs with their cameras, in the layouts of COLMAP, Nerfstudio and Blender."""
