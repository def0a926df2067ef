"""A procedural capture with known cameras, so that the whole path can be tried without photographs."""

from lanewise.demo.capture import write_capture

__all__ = ["write_capture"]
