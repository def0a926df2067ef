"""What the product launches: every `kernel[grid](...)` goes through one door of Triton's, where it can be looked at."""

from __future__ import annotations

import contextlib
import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lanewise.splat import _backend

# Where kernels live; all modules named kernels*.py below are looked through.
PACKAGES = ("lanewise.splat", "lanewise.train", "lanewise.conv")
BEST = "bf16x6"  # what fp32 is multiplied by on a GPU that is not known yet; `compile.as_launched` puts in the target's
OPTIONS = ("num_warps", "num_stages", "enable_fp_fusion")  # what a launch may say to the compiler


@dataclass(frozen=True)
class Configuration:
    """A kernel as it is compiled: its constants, what it says to the compiler, and the kinds of its arguments.

    Attributes:
        kernel: module and name of the function, "lanewise.splat.sh.kernels:harmonics".
        signature: types of the arguments by name, in their order: "*fp32", "i32", "fp32", "constexpr".
        constants: values of the constants by name; None for an argument that is not there.
        options: what is said to the compiler, by name.
        attributes: what Triton's JIT knows about an argument, by its place: (("tt.divisibility", 16), ...).
    """

    kernel: str
    signature: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Any], ...]
    options: tuple[tuple[str, Any], ...]
    attributes: tuple[tuple[int, tuple[tuple[str, int], ...]], ...]

    @property
    def name(self) -> str:
        """The kernel as people call it: package and function, "sh.harmonics"."""
        module, function = self.kernel.split(":")
        return f"{module.split('.')[-2]}.{function}"

    @property
    def label(self) -> str:
        """What tells this configuration from the kernel's others."""
        parts = [f"{k}={int(v) if isinstance(v, bool) else v}" for k, v in self.constants if v is not None]
        parts += [f"no {k}" for k, v in self.constants if v is None]
        parts += [f"{k}:{t}" for k, t in self.signature if t in ("*i64", "i64", "*fp64", "*i16")]
        parts += [f"{k}={int(v) if isinstance(v, bool) else v}" for k, v in self.options]
        known = {place for place, pairs in self.attributes if ("tt.divisibility", 16) in pairs}
        unaligned = [k for place, (k, t) in enumerate(self.signature) if t.startswith("*") and place not in known]
        parts += [f"unaligned {k}" for k in unaligned if self.attributes]
        parts.append("attributes" if self.attributes else "plain")
        return " ".join(parts)

    def plain(self) -> Configuration:
        """The same without what the JIT knows: what is launched on addresses that 16 does not divide or on tensors of
        2 GiB and more."""
        return Configuration(self.kernel, self.signature, self.constants, self.options, ())

    def function(self) -> Any:
        """The kernel."""
        module, name = self.kernel.split(":")
        return getattr(importlib.import_module(module), name)


Handler = Callable[[Any, tuple[int, int, int], Mapping[str, Any], Mapping[str, Any]], None]


@contextlib.contextmanager
def launches_go_to(handler: Handler) -> Iterator[None]:
    """In the block, kernels take CPU tensors, and every launch calls handler(kernel, grid, arguments by name, options)
    in the place of a GPU."""
    from triton.runtime.jit import JITFunction

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **named: Any) -> None:
        names = kernel.arg_names
        options = {k: v for k, v in named.items() if k not in names}
        arguments = dict(zip(names, args, strict=False)) | {k: v for k, v in named.items() if k in names}
        x, y, z = (*grid, 1, 1)[:3]
        handler(kernel, (x, y, z), {name: arguments[name] for name in names}, options)

    before = JITFunction.run
    JITFunction.run = run  # pyright: ignore[reportAttributeAccessIssue]
    _backend.emulated = True
    try:
        yield
    finally:
        JITFunction.run = before
        _backend.emulated = False


def configuration(kernel: Any, arguments: Mapping[str, Any], options: Mapping[str, Any]) -> Configuration:
    """How Triton's JIT would compile a launch for an AMD GPU. (For NVIDIA it knows the same, but pointer ranges.)"""
    binder, backend = _binder(kernel)
    bound, specialization, _ = binder(**arguments, **options)
    signature = tuple(zip(bound, (kind for kind, _ in specialization), strict=True))
    attributes = []
    for place, (kind, known) in enumerate(specialization):
        if isinstance(known, str) and kind != "constexpr" and (pairs := backend.parse_attr(known)):
            attributes.append((place, tuple((str(k), int(v)) for k, v in pairs)))
    # Triton takes the number 1 for a constant where it specializes on whole numbers.
    constants = tuple((name, bound[name]) for name, kind in signature if kind == "constexpr")
    kept = tuple(sorted((k, v) for k, v in options.items() if k in OPTIONS))
    name = f"{kernel.fn.__module__}:{kernel.fn.__name__}"
    return Configuration(name, signature, constants, kept, tuple(attributes))


@functools.cache
def _binder(kernel: Any) -> tuple[Any, Any]:
    """Triton's own analysis of the arguments of a launch, and the backend that it asks."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import make_backend
    from triton.runtime.jit import create_function_from_signature

    backend = make_backend(GPUTarget("hip", "gfx942", 64))
    return create_function_from_signature(kernel.signature, kernel.params, backend), backend


def kernels() -> list[str]:
    """All kernels of the product that are launched: the `@triton.jit` functions in modules named kernels*.py whose name
    has no underscore, and that no other of them calls."""
    from triton.runtime.jit import JITFunction

    found, called = {}, set()
    for package in map(importlib.import_module, PACKAGES):
        for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not info.name.rpartition(".")[2].startswith("kernels"):
                continue
            for name, value in vars(importlib.import_module(info.name)).items():
                if isinstance(value, JITFunction) and value.fn.__module__ == info.name and not name.startswith("_"):
                    found[f"{info.name}:{name}"] = value
                    called |= set(value.fn.__code__.co_names) - {name}
    return sorted(name for name in found if name.partition(":")[2] not in called)


def short(kernel: str) -> str:
    """ "sh.harmonics" of "lanewise.splat.sh.kernels:harmonics"."""
    module, function = kernel.split(":")
    return f"{module.split('.')[-2]}.{function}"
