"""What the emulator raises."""

from __future__ import annotations

from lanewise.errors import LanewiseError


class UnsupportedInstruction(LanewiseError, NotImplementedError):  # noqa: N818 - a name that says what it is
    """An opcode, an operand or a modifier that is not modelled, or a use of one that is not."""


class MemoryFault(LanewiseError, IndexError):  # noqa: N818
    """An access outside every buffer, or outside the workgroup's LDS, or not aligned."""


class RaceError(LanewiseError, RuntimeError):
    """Two waves touch the same word, one of them writes it, and no barrier orders them."""


class StepLimitError(LanewiseError, RuntimeError):
    """The program ran longer than its limit: most likely it does not end."""


class WaitError(LanewiseError, RuntimeError):
    """A register is used before the wait that its load needs."""
