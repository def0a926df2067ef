"""a * b + c rounded once, as numpy ufuncs: LLVM's fma for the host's processor, or its exact library function."""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba.extending import intrinsic


def _intrinsic(function: Any) -> Any:
    return intrinsic(function)


@_intrinsic
def _fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = context.get_value_type(signature.return_type)
        function = builder.module.declare_intrinsic("llvm.fma", [kind], ir.FunctionType(kind, [kind] * 3))
        return builder.call(function, arguments)

    return a(a, b, c), generate


def _of(kind: str) -> Any:
    def fma(a: Any, b: Any, c: Any) -> Any:
        return _fma(a, b, c)

    made = numba.vectorize([f"{kind}({kind},{kind},{kind})"])(fma)
    return getattr(made, "ufunc", made)


fma: Any
fma64: Any
fma, fma64 = _of("float32"), _of("float64")
