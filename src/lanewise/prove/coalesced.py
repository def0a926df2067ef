"""Triton's passes up to coalescing, run once for all targets that they do the same for.

Coalescing gathers, for each access to memory, all that it hangs together with: half of what a large kernel takes to
compile. It asks the IR, the waves of a program and the lanes of a wave, never the target (in Triton 3.9: its code calls
nothing that tells the target's name). So what it leaves is kept in Triton's cache by just these, and a target that asks
for the same goes on from there. The machine code is that of a compilation from the source, byte by byte; which source
line an instruction is said to come from may differ, because Triton writes no lines of loops' variables.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

KEY = "coalesced once"  # in Triton's cache, kernels that were compiled like this are beside the others
FILE = "coalesced.ttgir"


@contextlib.contextmanager
def coalesced_once() -> Iterator[None]:
    """In the block Triton (3.9) compiles like this."""
    from triton import knobs

    with mock.patch.object(knobs.runtime, "add_stages_inspection_hook", _change_stages):
        yield


def _change_stages(backend: Any = None, stages: Any = None, options: Any = None, *_: Any) -> tuple[str, str] | None:
    """What Triton calls before it asks its cache, without arguments, and before it compiles."""
    if backend is None:
        return KEY, KEY
    finish = stages["ttgir"]
    asked = (backend.get_target_name(options), options.num_warps, backend.target.warp_size, options.num_ctas)
    stages["ttgir"] = lambda module, metadata: _to_gpu_ir(module, metadata, asked, finish)
    return None


def _to_gpu_ir(module: Any, metadata: Any, asked: tuple[str, int, int, int], finish: Callable[[Any, Any], Any]) -> Any:
    """Triton IR to GPU IR: the first two passes taken from the cache, the others run.

    Args:
        asked: the target's name, waves of a program, lanes of a wave, programs of a cluster.
        finish: Triton's own stage.

    Raises:
        RuntimeError: the stage does not begin with these two passes.
    """
    from triton._C.libtriton import ir, passes

    begun = _begun(module, asked)
    left_out = []

    def leave_out(name: str) -> Callable[..., None]:
        return lambda manager, *arguments: left_out.append((name, manager.get_pipeline_str(), arguments))

    with (
        mock.patch.object(passes.ttir, "add_convert_to_ttgpuir", leave_out("convert")),
        mock.patch.object(passes.ttgpuir, "add_coalesce", leave_out("coalesce")),
    ):
        made = finish(begun, metadata)
    nothing = ir.pass_manager(module.context).get_pipeline_str()
    if left_out != [("convert", nothing, asked), ("coalesce", nothing, ())]:
        raise RuntimeError(f"Triton's passes begin otherwise than with converting and coalescing: {left_out}")
    return made


def _begun(module: Any, asked: tuple[str, int, int, int]) -> Any:
    """A module after the first two passes, for the target that is asked for."""
    from triton import __version__
    from triton._C.libtriton import ir, passes
    from triton.runtime.cache import get_cache_manager

    name, *numbers = asked
    kept = get_cache_manager(hashlib.sha256(repr((__version__, str(module), numbers)).encode()).hexdigest())
    path = kept.get_file(FILE)
    if path is None:
        manager = ir.pass_manager(module.context)
        passes.ttir.add_convert_to_ttgpuir(manager, *asked)
        passes.ttgpuir.add_coalesce(manager)
        manager.run(module, FILE)
        path = kept.put(str(module), FILE, binary=False)
    begun = ir.parse_mlir_module(path, module.context)
    begun.context = module.context
    begun.set_attr("ttg.target", ir.builder(module.context).get_string_attr(name))
    return begun
