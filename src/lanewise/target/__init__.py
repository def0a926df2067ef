"""What the hardware is: the one source of wave widths, byte windows and precisions, for host code and for launch
choices."""

from lanewise.target.detect import detect
from lanewise.target.table import TARGETS, Target, compiles, find, float_atomics

__all__ = ["TARGETS", "Target", "compiles", "detect", "find", "float_atomics"]
