"""Executes AMD machine code, as assembly text, with no AMD GPU.

program = load(text)                       # decodes everything
program.run((12,), [x, out, 17], waves=4)  # numpy arrays are written in place
"""

from lanewise.isa.errors import MemoryFault, RaceError, StepLimitError, UnsupportedInstruction, WaitError
from lanewise.isa.memory import Buffer, Memory
from lanewise.isa.program import Program, Run, load

__all__ = [
    "Buffer",
    "Memory",
    "MemoryFault",
    "Program",
    "RaceError",
    "Run",
    "StepLimitError",
    "UnsupportedInstruction",
    "WaitError",
    "load",
]
