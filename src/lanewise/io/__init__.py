"""Scenes, captures and splat files on disk."""
