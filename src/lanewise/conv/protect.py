"""Replacing every convolution of a model, and saying which."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin

from lanewise.conv import module as ours
from lanewise.conv.functional import check_options

REPLACEMENTS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv1d: ours.Conv1d,
    nn.Conv2d: ours.Conv2d,
    nn.Conv3d: ours.Conv3d,
    nn.ConvTranspose1d: ours.ConvTranspose1d,
    nn.ConvTranspose2d: ours.ConvTranspose2d,
    nn.ConvTranspose3d: ours.ConvTranspose3d,
}
METHODS = ("forward", "_conv_forward", "__call__")  # whoever has one of their own convolves in their own way


@dataclass
class Protection:
    """What `protect` did.

    Attributes:
        replaced: names of the modules that convolve by Lanewise now, with what they are.
        left: names of the convolutions that stay as they were, with the reason.
    """

    replaced: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{len(self.replaced)} replaced, {len(self.left)} left as they were"]
        lines += [f"  replaced {name or '(the model)'}: {what}" for name, what in self.replaced.items()]
        lines += [f"  left     {name or '(the model)'}: {why}" for name, why in self.left.items()]
        return "\n".join(lines)


def protect(model: nn.Module, *, precision: str | None = None, window_bytes: int | None = None) -> Protection:
    """Replace every torch convolution in a model, in place.

    The modules themselves stay: their parameters, buffers, hooks, names and whoever holds them. Only their class
    changes, so that optimizers, state dicts and wrappers such as DistributedDataParallel need not know. Do it before
    `torch.compile`.

    Args:
        model: any module, also a convolution.
        precision: "fp32", "tf32" or None, for all of them; as of `conv2d`.
        window_bytes: for all of them; as of `conv2d`.

    Returns:
        what was replaced, and which convolutions were not, and why; print it.

    Raises:
        InputError: a precision or a window that is none.
    """
    check_options(precision, window_bytes)
    report = Protection()
    for name, part in model.named_modules():
        base = next((kind for kind in REPLACEMENTS if isinstance(part, kind)), None)
        if base is None:
            continue
        if isinstance(part, tuple(REPLACEMENTS.values())):
            report.left[name] = f"{type(part).__name__} is protected already"
        elif why := _reason(part, base):
            report.left[name] = why
        else:
            report.replaced[name] = f"{type(part).__name__}({part.extra_repr()})"
            part.__class__ = _protected(type(part), base)
            part.precision, part.window_bytes = precision, window_bytes  # type: ignore[assignment]
    return report


def _reason(part: nn.Module, base: type[nn.Module]) -> str:
    """Why a convolution cannot be replaced; "" when it can."""
    kind = type(part)
    if isinstance(part, LazyModuleMixin):
        return f"{kind.__name__} has no parameters before its first call: call the model once, then protect it"
    for method in METHODS:
        if getattr(kind, method) is not getattr(base, method) or method in vars(part):
            return f"{kind.__name__} has a {method} of its own: call lanewise.conv's functions in it"
    return ""


def _protected(kind: type[nn.Module], base: type[nn.Module]) -> type[nn.Module]:
    """Our class for torch's; for a class that adds to torch's (a parametrized module has one), one made of both."""
    replacement = REPLACEMENTS[base]
    return replacement if kind is base else type(kind.__name__, (replacement, kind), {"__module__": kind.__module__})
