"""The vector opcodes, without "v_": (result, sources, function). A new opcode is one line here and one in its test.

Letters of results and sources:

    u i f     32 bits as unsigned, signed, float          U I D    64 bits as unsigned, signed, double
    w h       16 bits as unsigned, as half                m        a lane mask (sources: VCC when it is not written)

The functions take and return arrays over (wave, lane); a numpy ufunc writes in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lanewise.isa import formulas as m
from lanewise.isa.state import I64, U64, D, F, I, U

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
    "dot2c_f32_f16": ("f", "uuf", m.dot2),
    "madak_f32": ("f", "fff", lambda a, b, c: a * b + c),
    "madmk_f32": ("f", "fff", lambda a, b, c: a * b + c),
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
    "cvt_u32_u16": ("u", "w", np.positive),
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
    "bcnt_u32_b32": ("u", "uu", lambda a, b: m.count_bits(a) + b),
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
