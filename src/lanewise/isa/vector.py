"""Vector arithmetic: one line an opcode.

`TABLE` maps an opcode, without "v_", to (result, sources, function). Letters of results and sources:

    u i f     32 bits as unsigned, signed, float          U I D    64 bits as unsigned, signed, double
    w h       16 bits as unsigned, as half                m        a lane mask (sources: VCC when it is not written)

The functions take and return arrays over (wave, lane); a numpy ufunc writes in place. A new opcode is one line here
and one line in its test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lanewise.isa import formulas as m
from lanewise.isa.errors import UnsupportedInstruction
from lanewise.isa.parse import EXEC, VCC, Instruction, Operand
from lanewise.isa.state import POISON, U64, D, F, I, I64, Layout, U, Waves

Run = Callable[[Waves], None]
Entry = tuple[str, str, Callable[..., Any]]

TABLE: dict[str, Entry] = {
    # float32
    "add_f32": ("f", "ff", np.add),
    "sub_f32": ("f", "ff", np.subtract),
    "subrev_f32": ("f", "ff", lambda a, b: b - a),
    "mul_f32": ("f", "ff", np.multiply),
    "fma_f32": ("f", "fff", m.fma),
    "fmaak_f32": ("f", "fff", m.fma),
    "fmamk_f32": ("f", "fff", m.fma),
    "rndne_f32": ("f", "f", np.rint),
    "floor_f32": ("f", "f", np.floor),
    "ceil_f32": ("f", "f", np.ceil),
    "trunc_f32": ("f", "f", np.trunc),
    "fract_f32": ("f", "f", m.fraction),
    "exp_f32": ("f", "f", np.exp2),
    "log_f32": ("f", "f", lambda a: np.log2(a.astype(D)).astype(F)),
    "rcp_f32": ("f", "f", m.reciprocal),
    "rcp_iflag_f32": ("f", "f", m.reciprocal),
    "rsq_f32": ("f", "f", lambda a: (1 / np.sqrt(a.astype(D))).astype(F)),
    "sqrt_f32": ("f", "f", np.sqrt),
    "sin_f32": ("f", "f", lambda a: np.sin(a.astype(D) * (2 * np.pi)).astype(F)),
    "cos_f32": ("f", "f", lambda a: np.cos(a.astype(D) * (2 * np.pi)).astype(F)),
    "frexp_mant_f32": ("f", "f", lambda a: np.where(np.isfinite(a), np.frexp(a)[0], a)),
    "frexp_exp_i32_f32": ("i", "f", lambda a: np.where(np.isfinite(a), np.frexp(a)[1], I(0))),
    "ldexp_f32": ("f", "fi", lambda a, b: np.ldexp(a, np.clip(b, -400, 400))),
    "div_fixup_f32": ("f", "fff", m.div_fixup),
    # conversions
    "cvt_f32_i32": ("f", "i", lambda a: a.astype(F)),
    "cvt_f32_u32": ("f", "u", lambda a: a.astype(F)),
    "cvt_i32_f32": ("i", "f", m.to_i32),
    "cvt_u32_f32": ("u", "f", m.to_u32),
    "cvt_f32_f16": ("f", "h", lambda a: a.astype(F)),
    "cvt_f16_f32": ("w", "f", m.half_bits),
    "cvt_f64_f32": ("D", "f", lambda a: a.astype(D)),
    "cvt_f32_f64": ("f", "D", lambda a: a.astype(F)),
    "cvt_f64_i32": ("D", "i", lambda a: a.astype(D)),
    "cvt_f64_u32": ("D", "u", lambda a: a.astype(D)),
    "cvt_i32_f64": ("i", "D", m.to_i32),
    "cvt_u32_f64": ("u", "D", m.to_u32),
    "cvt_pk_bf16_f32": ("u", "ff", lambda a, b: m.bfloat_bits(a) | m.bfloat_bits(b) << U(16)),
    "cvt_pk_f16_f32": ("u", "ff", lambda a, b: m.half_bits(a) | m.half_bits(b) << U(16)),
    **{f"cvt_f32_ubyte{k}": ("f", "u", lambda a, k=k: (a >> U(8 * k) & U(255)).astype(F)) for k in range(4)},
    # float64
    "add_f64": ("D", "DD", np.add),
    "mul_f64": ("D", "DD", np.multiply),
    "fma_f64": ("D", "DDD", m.fma64),
    "max_f64": ("D", "DD", m.largest),
    "min_f64": ("D", "DD", m.least),
    "max_num_f64": ("D", "DD", m.largest),
    "min_num_f64": ("D", "DD", m.least),
    "add_num_f64": ("D", "DD", np.add),
    "rcp_f64": ("D", "D", lambda a: 1 / a),
    "rsq_f64": ("D", "D", lambda a: 1 / np.sqrt(a)),
    "sqrt_f64": ("D", "D", np.sqrt),
    "floor_f64": ("D", "D", np.floor),
    "ceil_f64": ("D", "D", np.ceil),
    "trunc_f64": ("D", "D", np.trunc),
    "rndne_f64": ("D", "D", np.rint),
    "ldexp_f64": ("D", "Di", lambda a, b: np.ldexp(a, np.clip(b, -3000, 3000))),
    "div_fixup_f64": ("D", "DDD", m.div_fixup64),
    # whole numbers of 32 bits
    "mov_b32": ("u", "u", np.positive),
    "accvgpr_read_b32": ("u", "u", np.positive),
    "accvgpr_write_b32": ("u", "u", np.positive),
    "accvgpr_mov_b32": ("u", "u", np.positive),
    "not_b32": ("u", "u", np.invert),
    "bfrev_b32": ("u", "u", m.reverse_bits),
    "ffbl_b32": ("i", "u", m.count_trailing),
    "ctz_i32_b32": ("i", "u", m.count_trailing),
    "ffbh_u32": ("i", "u", m.count_leading),
    "clz_i32_u32": ("i", "u", m.count_leading),
    "add_u32": ("u", "uu", np.add),
    "sub_u32": ("u", "uu", np.subtract),
    "subrev_u32": ("u", "uu", lambda a, b: b - a),
    "and_b32": ("u", "uu", np.bitwise_and),
    "or_b32": ("u", "uu", np.bitwise_or),
    "xor_b32": ("u", "uu", np.bitwise_xor),
    "xnor_b32": ("u", "uu", lambda a, b: ~(a ^ b)),
    "lshlrev_b32": ("u", "uu", lambda a, b: b << (a & U(31))),
    "lshrrev_b32": ("u", "uu", lambda a, b: b >> (a & U(31))),
    "ashrrev_i32": ("i", "ui", lambda a, b: b >> (a & U(31)).view(I)),
    "max_i32": ("i", "ii", np.maximum),
    "min_i32": ("i", "ii", np.minimum),
    "max_u32": ("u", "uu", np.maximum),
    "min_u32": ("u", "uu", np.minimum),
    "max3_i32": ("i", "iii", lambda a, b, c: np.maximum(np.maximum(a, b), c)),
    "min3_i32": ("i", "iii", lambda a, b, c: np.minimum(np.minimum(a, b), c)),
    "max3_u32": ("u", "uuu", lambda a, b, c: np.maximum(np.maximum(a, b), c)),
    "min3_u32": ("u", "uuu", lambda a, b, c: np.minimum(np.minimum(a, b), c)),
    "med3_i32": ("i", "iii", lambda a, b, c: np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))),
    "med3_u32": ("u", "uuu", lambda a, b, c: np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))),
    "mul_lo_u32": ("u", "uu", np.multiply),
    "mul_hi_u32": ("u", "uu", lambda a, b: (a.astype(U64) * b >> U64(32)).astype(U)),
    "mul_hi_i32": ("i", "ii", lambda a, b: (a.astype(I64) * b >> I64(32)).astype(I)),
    "mul_u32_u24": ("u", "uu", lambda a, b: (a & U(0xFFFFFF)) * (b & U(0xFFFFFF))),
    "mul_i32_i24": ("i", "ii", lambda a, b: m.low24(a) * m.low24(b)),
    "mad_u32_u24": ("u", "uuu", lambda a, b, c: (a & U(0xFFFFFF)) * (b & U(0xFFFFFF)) + c),
    "mad_i32_i24": ("i", "iii", lambda a, b, c: m.low24(a) * m.low24(b) + c),
    "add3_u32": ("u", "uuu", lambda a, b, c: a + b + c),
    "and_or_b32": ("u", "uuu", lambda a, b, c: a & b | c),
    "or3_b32": ("u", "uuu", lambda a, b, c: a | b | c),
    "xor3_b32": ("u", "uuu", lambda a, b, c: a ^ b ^ c),
    "xad_u32": ("u", "uuu", lambda a, b, c: (a ^ b) + c),
    "lshl_add_u32": ("u", "uuu", lambda a, b, c: (a << (b & U(31))) + c),
    "add_lshl_u32": ("u", "uuu", lambda a, b, c: (a + b) << (c & U(31))),
    "lshl_or_b32": ("u", "uuu", lambda a, b, c: a << (b & U(31)) | c),
    "bfe_u32": ("u", "uuu", m.field),
    "bfe_i32": ("u", "uuu", m.signed_field),
    "bfi_b32": ("u", "uuu", lambda a, b, c: a & b | ~a & c),
    "bfm_b32": ("u", "uu", lambda a, b: ((U(1) << (a & U(31))) - U(1)) << (b & U(31))),
    "bcnt_u32_b32": ("u", "uu", lambda a, b: np.bitwise_count(a) + b),
    "alignbit_b32": ("u", "uuu", lambda a, b, c: (((a.astype(U64) << U64(32)) | b) >> (c & U(31))).astype(U)),
    "alignbyte_b32": ("u", "uuu", lambda a, b, c: (((a.astype(U64) << U64(32)) | b) >> U(8) * (c & U(3))).astype(U)),
    "perm_b32": ("u", "uuu", m.permute_bytes),
    "pack_b32_f16": ("u", "ww", lambda a, b: a | b << U(16)),
    "cndmask_b32": ("u", "uum", lambda a, b, c: np.where(c, b, a)),
    # 64 bits
    "mov_b64": ("U", "U", np.positive),
    "lshl_add_u64": ("U", "UuU", lambda a, b, c: (a << (b & U(7))) + c),
    "lshlrev_b64": ("U", "uU", lambda a, b: b << (a & U(63)).astype(U64)),
    "lshrrev_b64": ("U", "uU", lambda a, b: b >> (a & U(63)).astype(U64)),
    "ashrrev_i64": ("I", "uI", lambda a, b: b >> (a & U(63)).astype(I64)),
    "add_nc_u64": ("U", "UU", np.add),
    "sub_nc_u64": ("U", "UU", np.subtract),
    "mul_u64": ("U", "UU", np.multiply),
    # 16 bits
    "mov_b16": ("w", "w", np.positive),
    "and_b16": ("w", "ww", np.bitwise_and),
    "or_b16": ("w", "ww", np.bitwise_or),
    "xor_b16": ("w", "ww", np.bitwise_xor),
    "not_b16": ("w", "w", lambda a: ~a & U(0xFFFF)),
    "add_u16": ("w", "ww", lambda a, b: a + b & U(0xFFFF)),
    "sub_u16": ("w", "ww", lambda a, b: a - b & U(0xFFFF)),
    "mul_lo_u16": ("w", "ww", lambda a, b: a * b & U(0xFFFF)),
    "lshlrev_b16": ("w", "ww", lambda a, b: b << (a & U(15)) & U(0xFFFF)),
    "lshrrev_b16": ("w", "ww", lambda a, b: b >> (a & U(15))),
    "max_u16": ("w", "ww", np.maximum),
    "min_u16": ("w", "ww", np.minimum),
    "cndmask_b16": ("w", "wwm", lambda a, b, c: np.where(c, b, a)),
}
for _suffix in ("f32", "num_f32"):
    TABLE[f"max_{_suffix}"] = ("f", "ff", m.largest)
    TABLE[f"min_{_suffix}"] = ("f", "ff", m.least)
    TABLE[f"max3_{_suffix}"] = ("f", "fff", lambda a, b, c: m.largest(m.largest(a, b), c))
    TABLE[f"min3_{_suffix}"] = ("f", "fff", lambda a, b, c: m.least(m.least(a, b), c))
    TABLE[f"maxmin_{_suffix}"] = ("f", "fff", lambda a, b, c: m.least(m.largest(a, b), c))
    TABLE[f"minmax_{_suffix}"] = ("f", "fff", lambda a, b, c: m.largest(m.least(a, b), c))
    TABLE[f"med3_{_suffix}"] = ("f", "fff", m.median)
for _kind in ("i32", "u32"):
    _t = _kind[0]
    TABLE[f"maxmin_{_kind}"] = (_t, _t * 3, lambda a, b, c: np.minimum(np.maximum(a, b), c))
    TABLE[f"minmax_{_kind}"] = (_t, _t * 3, lambda a, b, c: np.maximum(np.minimum(a, b), c))
for _new, _old in {"add_nc_u32": "add_u32", "sub_nc_u32": "sub_u32", "subrev_nc_u32": "subrev_u32",
                   "add_nc_u16": "add_u16", "sub_nc_u16": "sub_u16"}.items():  # fmt: skip
    TABLE[_new] = TABLE[_old]

COMPARISONS: dict[str, Callable[..., Any]] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
    "ne": np.not_equal, "neq": np.not_equal, "lg": lambda a, b: (a < b) | (a > b),
    "o": lambda a, b: (a == a) & (b == b), "u": lambda a, b: (a != a) | (b != b),
    "nlt": lambda a, b: ~(a < b), "nle": lambda a, b: ~(a <= b), "ngt": lambda a, b: ~(a > b),
    "nge": lambda a, b: ~(a >= b), "nlg": lambda a, b: ~((a < b) | (a > b)),
}  # fmt: skip
COMPARED = {"f32": "f", "i32": "i", "u32": "u", "u64": "U", "i64": "I", "f64": "D", "u16": "w", "f16": "h"}

# Clamp of whole numbers: saturation.
SATURATING: dict[str, Callable[..., Any]] = {
    "sub_u32": lambda a, b: np.where(a < b, U(0), a - b),
    "add_u32": lambda a, b: np.where(a + b < a, U(0xFFFFFFFF), a + b),
}


def source(layout: Layout, o: Operand, letter: str) -> Callable[[Waves], np.ndarray]:
    """Function that reads an operand as the letter says."""
    if letter == "m":
        if o.kind == "c":
            bits = [o.index >> k & 1 for k in range(layout.wave)]
            constant = np.array([bits], bool)
            return lambda w: constant
        number = o.index
        return lambda w: w.mask(number)
    if o.kind == "off":
        raise UnsupportedInstruction("operand")
    if letter in "UID":
        return _source64(layout, o, letter)
    row = layout.row(o)
    if letter in "wh" or o.part:
        return _part(layout, o, letter)
    if letter != "f" and not o.plain:
        if letter == "u":  # v_cndmask_b32 and v_mov_b32 take the float modifiers
            return lambda w: m.modified_bits(w.u[row], o.negative, o.absolute)
        raise UnsupportedInstruction("source modifier on a whole number")
    if letter == "f":
        if o.negative and o.absolute:
            return lambda w: -np.abs(w.f[row])
        if o.negative:
            return lambda w: -w.f[row]
        return (lambda w: np.abs(w.f[row])) if o.absolute else (lambda w: w.f[row])
    return (lambda w: w.i[row]) if letter == "i" else (lambda w: w.u[row])


def _part(layout: Layout, o: Operand, letter: str) -> Callable[[Waves], np.ndarray]:
    row, part = layout.row(o), o.part
    if o.kind == "c" and o.real is not None and letter in "wh":  # an inline float constant in a 16-bit operand
        row = layout.row(Operand("c", int(np.float16(o.real).view(np.uint16))))
    width, k = (8, int(part[-1])) if part.startswith("BYTE") else (16, int(part[-1]) if part else 0)
    shift, ones, sign = U(width * k), U((1 << width) - 1), U(1 << (width - 1))

    def read(w: Waves) -> np.ndarray:
        x = w.u[row] >> shift & ones
        return (x ^ sign) - sign if o.signed else x

    if letter == "f" or (not o.plain and (o.negative or o.absolute) and letter != "h"):
        raise UnsupportedInstruction("source modifier on part of a register")
    if letter == "h":

        def half(w: Waves) -> np.ndarray:
            x = read(w).astype(np.uint16).view(np.float16)
            x = np.abs(x) if o.absolute else x
            return -x if o.negative else x

        return half
    return (lambda w: read(w).view(I)) if letter == "i" else read


def _source64(layout: Layout, o: Operand, letter: str) -> Callable[[Waves], np.ndarray]:
    if o.part:
        raise UnsupportedInstruction("part of a 64-bit operand")
    if o.kind == "c":
        if letter == "D":  # an inline float is the double; another constant is the high half
            value = np.array([[D(o.real) if o.real is not None else 0.0]], D)
            if o.real is None:
                signed = (o.index ^ 1 << 63) - (1 << 63)
                bits = signed if -16 <= signed <= 64 else (o.index & 0xFFFFFFFF) << 32
                value = np.array([[bits & (1 << 64) - 1]], U64).view(D)
            value = -value if o.negative else value
            return lambda w: value
        if o.real is not None:
            raise UnsupportedInstruction("float constant in a 64-bit operand")
        constant = np.array([[o.index]], U64)
        constant = constant.view(I64) if letter == "I" else constant
        return lambda w: constant
    if o.count != 2:
        raise UnsupportedInstruction(f"64-bit operand of {o.count} registers")
    row = layout.row(o)
    if letter == "U":
        return lambda w: w.get64(row, row + 1)
    if letter == "I":
        return lambda w: w.get64(row, row + 1).view(I64)

    def double(w: Waves) -> np.ndarray:
        x = w.get64(row, row + 1).view(D)
        x = np.abs(x) if o.absolute else x
        return -x if o.negative else x

    return double


def destination(layout: Layout, o: Operand, letter: str) -> Callable[[Waves, np.ndarray], None]:
    """Function that writes a result."""
    if o.kind not in "va" or o.negative or o.absolute:
        raise UnsupportedInstruction("vector destination")
    row = layout.row(o)
    if letter in "UID":
        if o.count != 2:
            raise UnsupportedInstruction("64-bit destination")
        return lambda w, x: w.put64(row, x)
    if letter == "w":
        if o.part == "WORD_1":
            return lambda w, x: w.put(row, w.u[row] & U(0xFFFF) | x << U(16))
        if o.part or layout.generation >= 10:  # the other half stays
            return lambda w, x: w.put(row, w.u[row] & U(0xFFFF0000) | x)
    elif o.part:
        raise UnsupportedInstruction("part of a destination")
    return lambda w, x: w.put(row, x)


def decode(ins: Instruction, layout: Layout) -> Run:
    """The vector instruction as a function of the waves.

    Raises:
        UnsupportedInstruction: an opcode, operand or modifier that is not modelled.
    """
    name, operands, modifiers = ins.opcode.removeprefix("v_"), list(ins.operands), ins.modifiers
    if name.startswith("cmp"):
        return _compare(name, operands, layout)
    if name in ("fmac_f32", "fmac_f64", "fmac_dx9_zero_f32"):
        if name.startswith("fmac_dx9"):
            raise UnsupportedInstruction("opcode")
        name, operands = (
            name.replace("fmac", "fma"),
            [*operands, Operand(operands[0].kind, operands[0].index, operands[0].count)],
        )
    if name in _SPECIAL:
        return _SPECIAL[name](operands, modifiers, layout)
    if name not in TABLE:
        raise UnsupportedInstruction("opcode")
    result, sources, fn = TABLE[name]
    if "m" in sources and len(operands) == len(sources):
        operands.append(Operand("s", VCC, 2))
    if len(operands) != len(sources) + 1:
        raise UnsupportedInstruction("operand count")
    if name not in ("cndmask_b32", "mov_b32") and any(
        (o.negative or o.absolute) and letter in "uiwUI" for o, letter in zip(operands[1:], sources, strict=True)
    ):
        raise UnsupportedInstruction("source modifier on a whole number")
    if modifiers.pop("clamp", False):
        fn = _clamped(name, fn, result)
    if "mul" in modifiers or "div" in modifiers:
        factor = F(modifiers.pop("mul")) if "mul" in modifiers else F(1 / modifiers.pop("div"))
        inner = fn
        fn = lambda *a: inner(*a) * factor  # noqa: E731
    return _compose(layout, operands, result, sources, fn)


def _compose(layout: Layout, operands: list[Operand], result: str, sources: str, fn: Callable[..., Any]) -> Run:
    """Read the sources, compute, write."""
    plain = all(o.plain for o in operands) and isinstance(fn, np.ufunc) and set(result + sources) <= set("uif")
    if plain:
        return _in_place(layout, operands, result, sources, fn)
    write = destination(layout, operands[0], result)
    reads = [source(layout, o, letter) for o, letter in zip(operands[1:], sources, strict=True)]
    if len(reads) == 1:
        (a,) = reads
        return lambda w: write(w, fn(a(w)))
    if len(reads) == 2:
        a, b = reads
        return lambda w: write(w, fn(a(w), b(w)))
    a, b, c = reads
    return lambda w: write(w, fn(a(w), b(w), c(w)))


def _in_place(layout: Layout, operands: list[Operand], result: str, sources: str, fn: Any) -> Run:
    """A ufunc on whole registers: no temporary where all lanes are active."""
    destination(layout, operands[0], result)  # checks it
    d, *rows = [layout.row(o) for o in operands]
    kind = {"u": "u", "i": "i", "f": "f"}
    if len(set(result + sources)) > 1:
        raise UnsupportedInstruction("mixed types in place")
    attribute = kind[result]

    if len(rows) == 1:
        (a,) = rows

        def unary(w: Waves) -> None:
            r = getattr(w, attribute)
            if w.full and w.write is None:
                fn(r[a], out=r[d])
            else:
                w.put(d, fn(r[a], out=w.results[result]))

        return unary
    if len(rows) == 2:
        a, b = rows

        def binary(w: Waves) -> None:
            r = getattr(w, attribute)
            if w.full and w.write is None:
                fn(r[a], r[b], out=r[d])
            else:
                w.put(d, fn(r[a], r[b], out=w.results[result]))

        return binary
    a, b, c = rows

    def ternary(w: Waves) -> None:
        r = getattr(w, attribute)
        if w.full and w.write is None:
            fn(r[a], r[b], r[c], out=r[d])
        else:
            w.put(d, fn(r[a], r[b], r[c], out=w.results[result]))

    return ternary


def _clamped(name: str, fn: Callable[..., Any], result: str) -> Callable[..., Any]:
    if name.replace("_nc_", "_") in SATURATING:
        return SATURATING[name.replace("_nc_", "_")]
    if result not in "fD":
        raise UnsupportedInstruction("clamp")
    zero, one = (F(0), F(1)) if result == "f" else (D(0), D(1))
    return lambda *a: np.fmin(np.fmax(fn(*a), zero), one)


def _compare(name: str, operands: list[Operand], layout: Layout) -> Run:
    """v_cmp_<condition>_<type> dst, a, b; v_cmpx writes EXEC too."""
    kind, condition, of = name.split("_")
    x = kind == "cmpx"
    if of not in COMPARED:
        raise UnsupportedInstruction("compare")
    letters = COMPARED[of] * 2
    fn = COMPARISONS.get(condition)
    if condition == "class" and of == "f32":
        fn, letters = m.has_class, "fu"
    if fn is None or (condition in ("lg", "o", "u") and of[0] != "f"):
        raise UnsupportedInstruction("compare")
    targets = [o.index for o in operands[:-2]]
    if x and (len(operands) not in (2, 3)) or not x and len(operands) != 3 or any(o.kind != "s" for o in operands[:-2]):
        raise UnsupportedInstruction("operand count")
    a, b = (source(layout, o, letter) for o, letter in zip(operands[-2:], letters, strict=True))
    if x:
        targets.append(EXEC)

    def compare(w: Waves) -> None:
        result = fn(a(w), b(w))
        for target in targets:
            w.put_mask(target, result)

    return compare


# ---- opcodes with two results, or whose operands follow rules of their own


def _carry(operands: list[Operand], name: str, layout: Layout) -> Run:
    """d, carry-out, a, b (, carry-in): additions and subtractions with carry."""
    subtract, takes = "sub" in name, "_ci_" in name or name.startswith(("addc", "subb"))
    if len(operands) != 4 + takes or operands[1].kind != "s":
        raise UnsupportedInstruction("operand count")
    a, b = (source(layout, o, "u") for o in operands[2:4])
    if "rev" in name:
        a, b = b, a
    carry = source(layout, operands[4], "m") if takes else None
    write, out = destination(layout, operands[0], "u"), operands[1].index

    def run(w: Waves) -> None:
        x, y = a(w).astype(I64), b(w)
        r = x - y if subtract else x + y
        if carry is not None:
            r = r - carry(w) if subtract else r + carry(w)
        over = (r < 0) | (r > 0xFFFFFFFF)
        write(w, r.astype(U))
        w.put_mask(out, over)

    return run


def _mad64(operands: list[Operand], signed: bool, layout: Layout) -> Run:
    """d[2], carry-out, a, b, c[2]: a b + c."""
    letters = "ii" if signed else "uu"
    a, b = (source(layout, o, letter) for o, letter in zip(operands[2:4], letters, strict=True))
    c, write, out = source(layout, operands[4], "U"), destination(layout, operands[0], "U"), operands[1].index

    def run(w: Waves) -> None:
        x = a(w)
        product = (x.astype(I64) * b(w)).view(U64) if signed else x.astype(U64) * b(w)
        addend = c(w)
        total = product + addend
        if signed:  # bit 64 of the sum of the two, sign-extended
            p, q, t = (y.view(I64) for y in (product, addend, total))
            overflow = ((p ^ t) & (q ^ t)) < 0
            carry = (t < 0) ^ overflow
        else:
            carry = total < product
        write(w, total)
        w.put_mask(out, carry)

    return run


def _div_scale(operands: list[Operand], letter: str, layout: Layout) -> Run:
    reads = [source(layout, o, letter) for o in operands[2:5]]
    write, out = destination(layout, operands[0], letter), operands[1].index

    def run(w: Waves) -> None:
        value, scaled = m.div_scale(*(read(w) for read in reads))
        write(w, np.broadcast_to(value, w.active.shape))
        w.put_mask(out, np.broadcast_to(scaled, w.active.shape))

    return run


def _div_fmas(operands: list[Operand], letter: str, layout: Layout) -> Run:
    reads = [source(layout, o, letter) for o in operands[1:4]]
    write = destination(layout, operands[0], letter)
    return lambda w: write(w, m.div_fmas(*(read(w) for read in reads), w.mask(VCC)))


def _packed(operands: list[Operand], modifiers: dict[str, Any], layout: Layout, fn: Callable[..., Any]) -> Run:
    """v_pk_*_f32: two results, each of whose sources is a low or a high register."""
    n = len(operands) - 1
    low, high = modifiers.pop("op_sel", [0] * n), modifiers.pop("op_sel_hi", [1] * n)
    negative = modifiers.pop("neg_lo", [0] * n), modifiers.pop("neg_hi", [0] * n)
    halves = []
    for select, negate in zip((low, high), negative, strict=True):
        halves.append(
            [
                source(layout, _half_of(o, s, layout, g), "f")
                for o, s, g in zip(operands[1:], select, negate, strict=True)
            ]
        )
    row = layout.row(operands[0])
    if operands[0].count != 2:
        raise UnsupportedInstruction("packed destination")

    def run(w: Waves) -> None:
        first = fn(*(read(w) for read in halves[0]))
        second = fn(*(read(w) for read in halves[1]))
        w.put(row, first)
        w.put(row + 1, second)

    return run


def _half_of(o: Operand, select: int, layout: Layout, negate: int = 0) -> Operand:
    """The low or the high register of a packed operand.

    A constant's high half is the constant again: LLVM counts on it on gfx90a, gfx94x and gfx950.
    """
    if not o.plain:
        raise UnsupportedInstruction("source modifier on a packed operand")
    if o.kind == "c":
        word = Operand("c", o.index & 0xFFFFFFFF)
    elif o.count == 1 and select:
        raise UnsupportedInstruction("high half of one register")
    else:
        word = o.word(select if o.count == 2 else 0)
    word.negative = bool(negate)
    return word


def _pk_mov(operands: list[Operand], modifiers: dict[str, Any], layout: Layout) -> Run:
    low, high = modifiers.pop("op_sel", [0, 0])
    modifiers.pop("op_sel_hi", None)
    a, b = (
        source(layout, _half_of(operands[1], low, layout), "u"),
        source(layout, _half_of(operands[2], high, layout), "u"),
    )
    row = layout.row(operands[0])

    def run(w: Waves) -> None:
        first, second = a(w).copy(), b(w).copy()
        w.put(row, first)
        w.put(row + 1, second)

    return run


def _bitop3(operands: list[Operand], modifiers: dict[str, Any], layout: Layout) -> Run:
    table = modifiers.pop("bitop3", 0)
    reads = [source(layout, o, "u") for o in operands[1:4]]
    row = layout.row(operands[0])
    return lambda w: w.put(row, m.bitop3(table, *(read(w) for read in reads)))


_SPECIAL: dict[str, Callable[[list[Operand], dict[str, Any], Layout], Run]] = {
    **{
        name: (lambda o, _, layout, name=name: _carry(o, name, layout))
        for name in ("add_co_u32", "add_co_ci_u32", "addc_co_u32", "sub_co_u32", "sub_co_ci_u32", "subb_co_u32",
                     "subrev_co_u32", "subrev_co_ci_u32", "subbrev_co_u32")
    },
    **{name: (lambda o, _, layout: _mad64(o, False, layout)) for name in ("mad_u64_u32", "mad_co_u64_u32")},
    **{name: (lambda o, _, layout: _mad64(o, True, layout)) for name in ("mad_i64_i32", "mad_co_i64_i32")},
    "div_scale_f32": lambda o, _, layout: _div_scale(o, "f", layout),
    "div_scale_f64": lambda o, _, layout: _div_scale(o, "D", layout),
    "div_fmas_f32": lambda o, _, layout: _div_fmas(o, "f", layout),
    "div_fmas_f64": lambda o, _, layout: _div_fmas(o, "D", layout),
    "pk_add_f32": lambda o, mods, layout: _packed(o, mods, layout, np.add),
    "pk_mul_f32": lambda o, mods, layout: _packed(o, mods, layout, np.multiply),
    "pk_fma_f32": lambda o, mods, layout: _packed(o, mods, layout, m.fma),
    "pk_mov_b32": _pk_mov,
    "bitop3_b32": _bitop3,
}  # fmt: skip
