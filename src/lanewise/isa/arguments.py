"""What a launch hands to a kernel: its argument segment, with those that the compiler appends."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lanewise.errors import InputError
from lanewise.isa.memory import Buffer, Memory
from lanewise.isa.parse import Argument

if TYPE_CHECKING:
    from lanewise.isa.program import Program


def pack(program: Program, given: Sequence[Any], memory: Memory, grid: tuple[int, ...], waves: int) -> np.ndarray:
    """The kernel argument segment, uint8; arrays are placed in `memory`.

    Raises:
        InputError: arguments that do not fit the kernel's.
    """
    size = max([a.offset + a.size for a in program.arguments] + [program.descriptor.get("kernarg_size", 0), 8])
    packed = np.zeros(size, np.uint8)
    visible = [a for a in program.arguments if not a.kind.startswith("hidden")]
    if not program.arguments:
        raise InputError("kernel", got="no metadata", expected="an .amdgpu_metadata section with its arguments")
    if len(given) > len(visible):
        raise InputError("arguments", got=len(given), expected=f"at most {len(visible)}")
    if any(a.kind == "by_value" for a in visible[len(given) :]):  # pointers that a compiler appends may stay null
        raise InputError("arguments", got=len(given), expected=f"the kernel's {len(visible)}")
    placed: dict[tuple[int, int], int] = {}
    for argument, value in zip(visible, given, strict=False):
        encoded = _encode(argument, value, memory, placed)
        packed[argument.offset : argument.offset + argument.size] = np.frombuffer(encoded, np.uint8)
    hidden = {
        "hidden_group_size_x": waves * program.wave, "hidden_group_size_y": 1, "hidden_group_size_z": 1,
        "hidden_grid_dims": 3 if grid[2] > 1 else 2 if grid[1] > 1 else 1,
        **{f"hidden_block_count_{axis}": n for axis, n in zip("xyz", grid, strict=True)},
    }  # fmt: skip
    for argument in program.arguments:
        if argument.kind in hidden:
            encoded = int(hidden[argument.kind]).to_bytes(argument.size, "little")
            packed[argument.offset : argument.offset + argument.size] = np.frombuffer(encoded, np.uint8)
    packed.flags.writeable = False
    return packed


def _encode(argument: Argument, value: Any, memory: Memory, placed: dict[tuple[int, int], int]) -> bytes:
    if argument.kind == "global_buffer":
        if value is None:
            return bytes(argument.size)
        buffer = value if isinstance(value, Buffer) else Buffer(value)
        array = buffer.array
        if not isinstance(array, np.ndarray) or not array.flags.c_contiguous:
            raise InputError("arguments", got=type(array).__name__, expected="a contiguous numpy array")
        key = array.__array_interface__["data"][0], array.nbytes
        if key not in placed:
            placed[key] = memory.place(array.reshape(-1).view(np.uint8), buffer.address)
        address = placed[key] + buffer.start * array.itemsize
        return (address & (1 << 64) - 1).to_bytes(argument.size, "little")
    if isinstance(value, (float, np.floating)):
        return struct.pack("<f" if argument.size == 4 else "<d", value)
    return (int(value) & (1 << 8 * argument.size) - 1).to_bytes(argument.size, "little")
