"""A function of somebody's file or module, with the example of its inputs that stands beside it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor

from lanewise.audit.infer import spec_of
from lanewise.audit.spec import Spec
from lanewise.errors import InputError

FORMS = "FILE.py:NAME, package.module:NAME, torch or lanewise"


def load(target: str) -> Spec:
    """The operator that "FILE.py:NAME" or "package.module:NAME" names.

    NAME_inputs is a tuple or list of arguments, a dictionary of keyword arguments, one tensor, or a function that
    returns one of these.

    Raises:
        InputError: there is no such file, module or name, it is no function, or there are no inputs.
    """
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise InputError("target", got=repr(target), expected=FORMS)
    module = _module(place, target)
    fn = _attribute(module, name, target)
    if not callable(fn):
        raise InputError("target", got=f"{name}, a {type(fn).__name__}", expected="a function or module")
    inputs = getattr(module, f"{name}_inputs", None)
    if inputs is None:
        raise InputError(
            "target",
            got=f"{name} without an example of its inputs",
            expected=f"{name}_inputs in the same file",
            fix=f"{name}_inputs = (torch.randn(8, 16), torch.randn(4, 16))",
        )
    inputs = inputs() if callable(inputs) else inputs
    if isinstance(inputs, Mapping):
        return spec_of(fn, kwargs=inputs, name=name)
    args: Any = (inputs,) if isinstance(inputs, Tensor) else inputs
    return spec_of(fn, tuple(args), name=name)


def _module(place: str, target: str) -> ModuleType:
    if place.endswith(".py"):
        path = Path(place)
        if not path.is_file():
            raise InputError("target", got=repr(target), expected=f"a file at {path}")
        # By its name, so that other processes can import it too.
        sys.path.insert(0, str(path.resolve().parent))
        place = path.stem
    elif "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does: modules of the folder one is in
    try:
        return importlib.import_module(place)
    except Exception as error:  # whatever the file raises
        why = f"{type(error).__name__}: {error}"
        raise InputError("target", got=repr(target), expected=f"a module {place} that imports", why=why) from None


def _attribute(module: ModuleType, name: str, target: str) -> Any:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            names = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
            raise InputError("target", got=repr(target), expected=f"one of {', '.join(names[:12]) or 'its functions'}")
        found = getattr(found, part)
    return found
