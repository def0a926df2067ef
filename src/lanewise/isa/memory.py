"""The address space, and what instructions do to it: loads, stores and atomics of global, buffer, scalar, LDS and
scratch memory.

Buffers lie at 64-bit addresses of the caller's choice, with nothing between them. An instruction turns its lanes'
addresses into byte positions of a `Space`; what follows is the same for all kinds of memory.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lanewise.isa import races
from lanewise.isa.errors import MemoryFault, UnsupportedInstruction
from lanewise.isa.parse import NULL, Instruction, Operand
from lanewise.isa.races import Shadow
from lanewise.isa.scalar import read, read64
from lanewise.isa.state import U64, D, F, I, I64, Layout, U, Waves

Run = Callable[[Waves], None]
Array = Any
GUARD = 64  # first bytes of a space, where lanes that are not active point


@dataclass
class Buffer:
    """An array in the kernel's memory.

    Attributes:
        array: contiguous; the kernel writes into it.
        address: of its first byte; None lets the memory choose.
        start: the argument points to element `start` of the array (it may lie outside).
    """

    array: np.ndarray
    address: int | None = None
    start: int = 0


class Space:
    """Bytes, seen as numbers of several widths, and the marks of the race detector."""

    def __init__(self, size: int, shadow: Shadow | None = None) -> None:
        self.bytes = np.zeros(-(-(size + 2 * GUARD) // 8) * 8, np.uint8)
        self.shadow = shadow
        self.views = {kind: self.bytes.view(kind) for kind in (np.uint8, np.uint16, U, U64, I, I64, F, D)}


class Memory:
    """Sparse 64-bit address space of the buffers given to `place`; `build` makes its space.

    Raises:
        MemoryFault: an access that is not inside one buffer, or not aligned.
    """

    def __init__(self) -> None:
        self.placed: list[tuple[int, np.ndarray]] = []  # address, uint8 view
        self._next = 0x7F00_0000_0000 >> 8  # above what 32 bits reach: dropped high halves show

    def place(self, data: np.ndarray, address: int | None = None) -> int:
        """Make bytes (uint8, contiguous) accessible; returns their address."""
        if address is None:
            address = self._next
            self._next = (address + data.nbytes + 0x1FFFF) & ~0xFFFF
        for other, there in self.placed:
            if address < other + there.nbytes and other < address + data.nbytes:
                raise MemoryFault(f"buffers at {address:#x} and {other:#x} overlap")
        self.placed.append((address, data))
        return address

    def build(self, group: np.ndarray) -> Space:
        """The space of all buffers, filled with what they hold. group: workgroup of every wave."""
        self.placed.sort(key=lambda item: item[0])
        self._bases = [address for address, _ in self.placed]
        self._sizes = [data.nbytes for _, data in self.placed]
        self._starts, size = [], GUARD
        for _, data in self.placed:
            self._starts.append(size)
            size += -(-data.nbytes // 64) * 64
        shadow = Shadow(group, "global memory", GUARD) if len(group) > 1 else None
        self.space = Space(size, shadow)
        for start, (_, data) in zip(self._starts, self.placed, strict=True):
            self.space.bytes[start : start + data.nbytes] = data
        return self.space

    def write_back(self) -> None:
        """What the kernel wrote, into the caller's arrays."""
        for start, (_, data) in zip(self._starts, self.placed, strict=True):
            if data.flags.writeable:
                data[...] = self.space.bytes[start : start + data.nbytes]

    def positions(self, addresses: Array, active: Array | None, size: int, align: int) -> Array:
        """Byte positions int64 in the space of uint64 addresses; 0 where not active (None: all are)."""
        if active is not None:
            if not active.any():
                return np.zeros(active.shape, I64)
            wanted = (
                addresses[active]
                if addresses.shape == active.shape
                else np.broadcast_to(addresses, active.shape)[active]
            )
        else:
            wanted = addresses
        low, high = int(wanted.min()), int(wanted.max())
        k = bisect.bisect_right(self._bases, low) - 1
        if align > 1 and (wanted & U64(align - 1)).any():
            raise MemoryFault(f"an access of {size} bytes at {low:#x} .. {high:#x} that is not aligned to {align}")
        if k >= 0 and high + size <= self._bases[k] + self._sizes[k]:
            shift = U64((self._starts[k] - self._bases[k]) & (1 << 64) - 1)
            where = (addresses + shift).view(I64)
            return where if active is None else np.where(active, where, 0)
        result = np.zeros(addresses.shape if active is None else active.shape, I64)
        found = np.empty(wanted.shape, I64)
        flat, out = wanted.ravel(), found.ravel()
        slots = np.searchsorted(np.array(self._bases, U64), flat, side="right") - 1
        for slot in np.unique(slots):
            mine = slots == slot
            offsets = flat[mine] - U64(self._bases[max(slot, 0)])
            if slot < 0 or (offsets > U64(max(self._sizes[slot] - size, 0))).any() or self._sizes[slot] < size:
                raise MemoryFault(self._message(flat[mine], slot, size))
            out[mine] = offsets.astype(I64) + self._starts[slot]
        if active is None:
            return out.reshape(wanted.shape)
        result[active] = out
        return result

    def position(self, address: int, size: int) -> int:
        """The same of one address, aligned to 4."""
        k = bisect.bisect_right(self._bases, address) - 1
        if k < 0 or address + size > self._bases[k] + self._sizes[k] or address & 3:
            return int(self.positions(np.array([address], U64), None, size, 4)[0])
        return self._starts[k] + address - self._bases[k]

    def _message(self, addresses: Array, slot: int, size: int) -> str:
        if slot < 0:
            return f"global access of {size} bytes at {int(addresses.min()):#x}, before every buffer"
        end = self._bases[slot] + self._sizes[slot]
        bad = addresses[addresses.astype(object) + size > end] if len(addresses) < 64 else addresses
        worst = int(np.max(bad))
        return (
            f"global access of {size} bytes at {worst:#x}, outside every buffer: the nearest before is "
            f"{self._bases[slot]:#x} .. {end:#x}"
        )


# ---- what is transferred


@dataclass(frozen=True)
class Width:
    """bytes: of one number; words: registers; signed; part: "" or which half of the register ("lo", "hi")."""

    bytes: int
    words: int = 1
    signed: bool = False
    part: str = ""

    @property
    def total(self) -> int:
        return self.bytes * (self.words if self.bytes == 4 else 1)

    @property
    def align(self) -> int:
        return self.bytes


def width(name: str) -> Width:
    """Of the ending of a load's or a store's name."""
    if m := re.fullmatch(r"dword(?:x(\d+))?|b(32|64|96|128|256|512)", name):
        return Width(4, int(m[1] or 1) if not m[2] else int(m[2]) // 32)
    part = "hi" if "d16_hi" in name else "lo" if "d16" in name else ""
    bare = re.sub(r"_?d16(_hi)?_?", "", name)
    if bare in ("ubyte", "u8", "byte", "b8"):
        return Width(1, part=part)
    if bare in ("sbyte", "i8"):
        return Width(1, signed=True, part=part)
    if bare in ("ushort", "u16", "short", "b16"):
        return Width(2, part=part)
    if bare in ("sshort", "i16"):
        return Width(2, signed=True, part=part)
    raise UnsupportedInstruction("opcode")


def _get(space: Space, where: Array, form: Width, word: int) -> Array:
    """uint32 of one register's worth."""
    if form.bytes > 1 and (where & (form.bytes - 1)).any():
        parts = [space.bytes[where + 4 * word + k].astype(U) << U(8 * k) for k in range(form.bytes)]
        x = np.bitwise_or.reduce(parts)
        return x if form.bytes == 4 or not form.signed else x.astype(np.uint16).view(np.int16).astype(I).view(U)
    if form.bytes == 4:
        return space.views[U][(where >> 2) + word]
    x = space.views[np.uint8][where] if form.bytes == 1 else space.views[np.uint16][where >> 1]
    if form.signed:
        return x.view(np.int8 if form.bytes == 1 else np.int16).astype(I).view(U)
    return x.astype(U)


def _read(space: Space, w: Waves, where: Array, active: Array | None, words: int) -> None:
    """Tell the race detector. Of an access that is not aligned, the first of the words it touches."""
    if space.shadow is not None:
        for k in range(words):
            space.shadow.note(races.READ, where + 4 * k if k else where, w.number, active)


def load(w: Waves, space: Space, where: Array, active: Array | None, row: int, form: Width) -> None:
    """Registers from `row` on = memory. Lanes past the end of a buffer point to the guard, which holds 0."""
    _read(space, w, where, active, form.words)
    values = [_get(space, where, form, k) for k in range(form.words)]
    for k, value in enumerate(values):
        if form.part == "lo":
            value = w.u[row] & U(0xFFFF0000) | value & U(0xFFFF)
        elif form.part == "hi":
            value = w.u[row] & U(0xFFFF) | value << U(16)
        w.put(row + k, value)


def store(w: Waves, space: Space, where: Array, active: Array | None, row: int, form: Width) -> None:
    """Memory = registers from `row` on."""
    shape = where.shape
    pick = (lambda x: x.flatten()) if active is None else (lambda x: x[active])
    at = pick(where)
    for k in range(form.words):
        value = pick(np.broadcast_to(w.u[row + k], shape))
        value = value >> U(16) if form.part == "hi" else value
        if form.bytes > 1 and (at & (form.bytes - 1)).any():  # not aligned: byte by byte, which the detector leaves out
            for j in range(form.bytes):
                space.bytes[at + 4 * k + j] = value >> U(8 * j) & U(255)
            continue
        if form.bytes == 4:
            cells, index = space.views[U], (at >> 2) + k
        else:
            kind = np.uint8 if form.bytes == 1 else np.uint16
            cells, index, value = space.views[kind], at >> (form.bytes - 1), value.astype(kind)
        cells[index] = value
        # Bytes and halves share words with their neighbours, which other waves may write: the detector leaves them out.
        if space.shadow is not None and form.bytes == 4:
            space.shadow.note(races.WRITE, where + 4 * k, w.number, active, value)


def _greater(old: Any, new: Any) -> Any:
    return new if new > old else old  # a NaN that is there stays


def _smaller(old: Any, new: Any) -> Any:
    return new if new < old else old


ATOMICS: dict[str, tuple[Any, Any]] = {
    "add": (np.add, U), "add_u32": (np.add, U), "add_x2": (np.add, U64), "add_u64": (np.add, U64),
    "sub": (np.subtract, U), "sub_u32": (np.subtract, U), "add_f32": (np.add, F), "add_f64": (np.add, D),
    "and": (np.bitwise_and, U), "and_b32": (np.bitwise_and, U), "or": (np.bitwise_or, U), "or_b32": (np.bitwise_or, U),
    "xor": (np.bitwise_xor, U), "xor_b32": (np.bitwise_xor, U), "umax": (np.maximum, U), "max_u32": (np.maximum, U),
    "smax": (np.maximum, I), "max_i32": (np.maximum, I), "umin": (np.minimum, U), "min_u32": (np.minimum, U),
    "smin": (np.minimum, I), "min_i32": (np.minimum, I), "swap": ("swap", U), "swap_b32": ("swap", U),
    "swap_x2": ("swap", U64), "swap_b64": ("swap", U64), "cmpswap": ("compare", U), "cmpswap_b32": ("compare", U),
    "cmpswap_x2": ("compare", U64), "cmpswap_b64": ("compare", U64), "umax_x2": (np.maximum, U64),
    "max_u64": (np.maximum, U64), "or_x2": (np.bitwise_or, U64), "or_b64": (np.bitwise_or, U64),
    "max_f32": (_greater, F), "min_f32": (_smaller, F), "fmax": (_greater, F), "fmin": (_smaller, F),
    "max_num_f32": (np.fmax, F), "min_num_f32": (np.fmin, F), "max_f64": (_greater, D), "min_f64": (_smaller, D),
}  # fmt: skip


def atomic(w: Waves, space: Space, where: Array, active: Array, data: int, result: int | None, name: str) -> None:
    """Read, change and write, lane after lane; `result` is the row that gets the old value."""
    fn, kind = ATOMICS[name]
    wide = kind in (U64, D)
    if space.shadow is not None:
        space.shadow.note(races.SWAP if fn == "compare" else races.ATOMIC, where, w.number, active)
    shape, cells = where.shape, space.views[kind]
    index = where[active] >> (3 if wide else 2)

    def operand(row: int) -> Array:
        x = w.get64(row, row + 1) if wide else w.u[row]
        return np.ascontiguousarray(np.broadcast_to(x, shape)[active]).view(kind)

    value = operand(data)
    if result is None and isinstance(fn, np.ufunc):
        fn.at(cells, index, value)
        return
    expected = operand(data + (2 if wide else 1)) if fn == "compare" else None
    old = np.empty(len(index), kind)
    for k, i in enumerate(index):
        old[k] = cells[i]
        if fn == "swap" or (expected is not None and cells[i] == expected[k]):
            cells[i] = value[k]
        elif expected is None:
            cells[i] = fn(cells[i], value[k])
    if result is not None:
        full = np.zeros(shape, U64 if wide else U)
        full[active] = old.view(U64 if wide else U)
        w.put64(result, full) if wide else w.put(result, full)


# ---- addresses

CACHE = ("glc", "slc", "dlc", "sc0", "sc1", "nt", "scope", "th")  # policies; only "return the old value" matters here
THS = (None, "TH_ATOMIC_RETURN", "TH_LOAD_NT", "TH_STORE_NT", "TH_LOAD_HT", "TH_STORE_HT", "TH_LOAD_LU")
Where = Callable[[Waves, int, int], tuple[Array, Array | None]]


def _returns(modifiers: dict[str, Any]) -> bool:
    policy = {key: modifiers.pop(key) for key in CACHE if key in modifiers}
    if policy.get("th") not in THS:
        raise UnsupportedInstruction(f"th:{policy['th']}")
    return "glc" in policy or "sc0" in policy or policy.get("th") == "TH_ATOMIC_RETURN"


def _active(w: Waves) -> Array | None:
    return None if w.full else w.active


def _global_address(v: Operand, s: Operand, offset: int, layout: Layout) -> Where:
    row, shift = layout.row(v), U64(offset & (1 << 64) - 1)
    if s.kind == "off" or s.index == NULL:
        if v.count != 2:
            raise UnsupportedInstruction("address of one register")
        base = None
    elif s.kind == "s" and v.count == 1:
        base = read64(layout, s)
    else:
        raise UnsupportedInstruction("address")

    def where(w: Waves, size: int, align: int) -> tuple[Array, Array | None]:
        address = w.get64(row, row + 1) if base is None else w.u[row] + base(w)[:, None]
        active = _active(w)
        return w.machine.memory.positions(address + shift, active, size, align), active

    return where


def _buffer_address(v: Operand, resource: Operand, s: Operand, offset: int, offen: bool, layout: Layout) -> Where:
    """Raw buffers: an access past `num_records` reads 0 and writes nothing."""
    if (v.kind in "va") != offen or resource.kind != "s" or resource.count != 4:
        raise UnsupportedInstruction("buffer address")
    row, number, extra = layout.row(v) if offen else -1, resource.index, read(layout, s)

    def where(w: Waves, size: int, align: int) -> tuple[Array, Array | None]:
        word1 = w.s[number + 1].astype(U64)
        if (word1 >> U64(16) & U64(0x3FFF)).any() or (word1 >> U64(31)).any():
            raise UnsupportedInstruction("a buffer with a stride or a swizzle")
        base = w.s[number] | (word1 & U64(0xFFFF)) << U64(32)
        soffset = extra(w).astype(U64)
        inside = (w.u[row].astype(U64) if offen else np.zeros((w.count, 1), U64)) + U64(offset)
        records = w.s[number + 2].astype(U64)
        valid = np.broadcast_to(inside + (soffset + U64(size))[:, None] <= records[:, None], w.active.shape)
        active = valid if w.full else valid & w.active
        address = np.broadcast_to(inside + (base + soffset)[:, None], w.active.shape)
        return w.machine.memory.positions(address, active, size, align), active

    return where


def _decode_access(kind: str, where: Where, rows: tuple[int, int, int | None]) -> Run:
    """kind: "load_b32", "store_dword", "atomic_add_f32"; rows: destination, data, row of an atomic's old value."""
    what, _, ending = kind.partition("_")
    target, data, old = rows
    if what == "atomic":
        if ending not in ATOMICS:
            raise UnsupportedInstruction("opcode")
        size = 8 if ATOMICS[ending][1] in (U64, D) else 4

        def update(w: Waves) -> None:
            at, active = where(w, size, size)
            atomic(w, w.machine.space, at, w.active if active is None else active, data, old, ending)

        return update
    form = width(ending)
    if what == "load":

        def get(w: Waves) -> None:
            at, active = where(w, form.total, 1)  # global memory takes any alignment
            load(w, w.machine.space, at, active, target, form)

        return get
    if what != "store":
        raise UnsupportedInstruction("opcode")

    def put(w: Waves) -> None:
        at, active = where(w, form.total, 1)
        store(w, w.machine.space, at, active, data, form)

    return put


def decode_global(ins: Instruction, layout: Layout) -> Run:
    """global_* and flat-free forms of them."""
    kind, o, modifiers = ins.opcode.removeprefix("global_"), ins.operands, ins.modifiers
    returns = _returns(modifiers)
    offset = modifiers.pop("offset", 0)
    what = kind.split("_")[0]
    if what == "load":
        shape = (0, 1, 2)
    elif what == "store" or not returns:
        shape = (1, 0, 2)
    else:
        shape = (2, 1, 3)
    if len(o) != shape[2] + 1:
        raise UnsupportedInstruction("operand count")
    where = _global_address(o[shape[1]], o[shape[2]], offset, layout)
    data = layout.row(o[shape[0]])
    old = layout.row(o[0]) if what == "atomic" and returns else None
    _check_count(kind, o[shape[0]])
    return _decode_access(kind, where, (data, data, old))


def decode_buffer(ins: Instruction, layout: Layout) -> Run:
    """buffer_* with a raw resource."""
    kind, o, modifiers = ins.opcode.removeprefix("buffer_"), ins.operands, ins.modifiers
    returns = _returns(modifiers)
    offset, offen = modifiers.pop("offset", 0), bool(modifiers.pop("offen", False))
    if len(o) != 4:
        raise UnsupportedInstruction("operand count")
    where = _buffer_address(o[1], o[2], o[3], offset, offen, layout)
    row = layout.row(o[0])
    _check_count(kind, o[0])
    return _decode_access(kind, where, (row, row, row if kind.startswith("atomic") and returns else None))


def _check_count(kind: str, o: Operand) -> None:
    what, _, ending = kind.partition("_")
    if what in ("load", "store") and (o.count != width(ending).words or o.kind not in "va"):
        raise UnsupportedInstruction("data operand")


def decode_scratch(ins: Instruction, layout: Layout) -> Run:
    """scratch_load/store: memory of a lane's own, for spills."""
    kind, o, modifiers = ins.opcode.removeprefix("scratch_"), ins.operands, ins.modifiers
    _returns(modifiers)
    offset = modifiers.pop("offset", 0)
    is_load = kind.startswith("load")
    v, data, s = (o[1], o[0], o[2]) if is_load else (o[0], o[1], o[2])
    base = None if s.kind == "off" else read(layout, s)
    row = layout.row(v) if v.kind == "v" else None
    lanes = np.arange(layout.wave)

    def where(w: Waves, size: int, align: int) -> tuple[Array, Array | None]:
        own = w.machine.scratch_bytes
        at = np.full(w.active.shape, offset, I64)
        if row is not None:
            at = at + w.u[row]
        if base is not None:
            at = at + base(w)[:, None]
        active = _active(w)
        if ((at < 0) | (at + size > own) | (at & (align - 1) != 0))[w.active].any():
            raise MemoryFault(f"scratch access outside a lane's {own} bytes")
        at = at + (w.number[:, None] * layout.wave + lanes) * own + GUARD
        return at if active is None else np.where(active, at, 0), active

    form = width(kind.partition("_")[2])
    target = layout.row(data)
    _check_count(kind, data)

    def run(w: Waves) -> None:
        at, active = where(w, form.total, form.align)
        if is_load:
            load(w, w.machine.scratch, at, active, target, form)
        else:
            store(w, w.machine.scratch, at, active, target, form)

    return run


def decode_scalar_load(ins: Instruction, layout: Layout) -> Run:
    """s_load_*: one address a wave."""
    o, modifiers = ins.operands, ins.modifiers
    form = width(ins.opcode.removeprefix("s_load_"))
    offset = U64(modifiers.pop("offset", 0) & (1 << 64) - 1)
    _returns(modifiers)
    if form.bytes != 4 or len(o) != 3:
        raise UnsupportedInstruction("opcode")
    base = read64(layout, o[1])
    more = None if o[2].kind == "c" else read(layout, o[2])
    if o[2].kind == "c":
        offset = U64(int(offset) + o[2].index & (1 << 64) - 1)
    first, n, words = o[0].index, form.words, np.arange(form.words)

    def run(w: Waves) -> None:
        address = base(w) + offset if more is None else base(w) + offset + more(w)
        memory, space = w.machine.memory, w.machine.space
        if w.count == 1:
            at = memory.position(int(address[0]), form.total)
            where, values = np.array([at]), space.views[U][at >> 2 : (at >> 2) + n][None]
        else:
            address = address if len(address) == w.count else np.broadcast_to(address, (w.count,))
            where = memory.positions(address, None, form.total, 4)
            values = space.views[U][(where >> 2)[:, None] + words]
        _read(space, w, where, None, n)
        w.put_scalars(first, values)

    return run


# ---- LDS


def decode_lds(ins: Instruction, layout: Layout) -> Run:
    """ds_read/write/load/store, their two-address forms, and ds_add/max/min/... (with and without the old value)."""
    kind, o, modifiers = ins.opcode.removeprefix("ds_"), ins.operands, ins.modifiers
    kind = re.sub(r"^read", "load", re.sub(r"^write", "store", kind))
    if m := re.fullmatch(r"(load|store)(2|_2addr)(st64|_stride64)?_(b32|b64)", kind):
        return _two_addresses(m[1], width(m[4]), 64 if m[3] else 1, o, modifiers, layout)
    offset = modifiers.pop("offset", 0)
    if m := re.fullmatch(r"(load|store)_(\w+)", kind):
        form, is_load = width(m[2]), m[1] == "load"
        if len(o) != 2:
            raise UnsupportedInstruction("operand count")
        address, data = layout.row(o[1 if is_load else 0]), layout.row(o[0 if is_load else 1])
        _check_count(kind, o[0 if is_load else 1])

        def run(w: Waves) -> None:
            at, active = _lds_positions(w, address, offset, form)
            if is_load:
                load(w, w.machine.lds, at, active, data, form)
            else:
                store(w, w.machine.lds, at, active, data, form)

        return run
    returns = "_rtn_" in kind
    name = kind.replace("_rtn", "")
    if name not in ATOMICS or len(o) != 2 + returns or name.startswith("cmp"):
        raise UnsupportedInstruction("opcode")
    address, data = layout.row(o[returns]), layout.row(o[1 + returns])
    old = layout.row(o[0]) if returns else None
    form = Width(8 if ATOMICS[name][1] in (U64, D) else 4)

    def update(w: Waves) -> None:
        at, active = _lds_positions(w, address, offset, form)
        atomic(w, w.machine.lds, at, w.active if active is None else active, data, old, name)

    return update


def _two_addresses(
    what: str, form: Width, stride: int, o: list[Operand], modifiers: dict[str, Any], layout: Layout
) -> Run:
    unit = form.total * stride
    offsets = [modifiers.pop("offset0", 0) * unit, modifiers.pop("offset1", 0) * unit]
    n = form.words
    if what == "load":
        if len(o) != 2 or o[0].count != 2 * n:
            raise UnsupportedInstruction("operand count")
        address, target = layout.row(o[1]), layout.row(o[0])

        def get(w: Waves) -> None:
            found = []
            for offset in offsets:
                at, active = _lds_positions(w, address, offset, form)
                _read(w.machine.lds, w, at, active, n)
                found += [_get(w.machine.lds, at, form, k) for k in range(n)]
            for k, value in enumerate(found):
                w.put(target + k, value)

        return get
    if len(o) != 3:
        raise UnsupportedInstruction("operand count")
    address, rows = layout.row(o[0]), [layout.row(o[1]), layout.row(o[2])]

    def put(w: Waves) -> None:
        for offset, row in zip(offsets, rows, strict=True):
            at, active = _lds_positions(w, address, offset, form)
            store(w, w.machine.lds, at, active, row, form)

    return put


def _lds_positions(w: Waves, row: int, offset: int, form: Width) -> tuple[Array, Array | None]:
    machine, active = w.machine, _active(w)
    at = w.u[row].astype(I64) + offset
    at = np.broadcast_to(at, w.active.shape)
    wrong = (at + form.total > machine.lds_bytes) | (at & (form.align - 1) != 0)
    if (wrong if active is None else wrong & active).any():
        raise MemoryFault(f"LDS access outside the workgroup's {machine.lds_bytes} bytes, or not aligned")
    at = at + (w.group * machine.lds_stride + GUARD)[:, None]
    return (at if active is None else np.where(active, at, 0)), active
