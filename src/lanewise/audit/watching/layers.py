"""The layers of torch whose gradients `watch` can probe: what each computes, by torch's functions, and where it is cut.

A probe runs the layer as it is, at its full size, in its own precision. The truth beside it needs only a part: entries
of the batch along which the layer acts independently (channels, for a batch norm), in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lanewise.audit.call import OUTPUT

_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)


@dataclass(frozen=True)
class Kind:
    """What is known about a kind of layer.

    Attributes:
        reference: of the module, its input and its parameters by name; None where the layer's own forward pass, run in
            float64, is the truth.
        linear: arguments in which the layer is affine.
        batch: of the module and its input the dimensions along which both may be cut (`Call.batch`); None: not at all.
        work: multiplications that an element of the input takes part in, of the module.
        refuse: why a module of this kind cannot be probed; None when it can.
    """

    reference: Callable[..., Tensor] | None = None
    linear: tuple[str, ...] = ()
    batch: Callable[[nn.Module, Tensor], dict[str, int] | None] = lambda module, x: None
    work: Callable[[Any], int] = lambda module: 16
    refuse: Callable[[Any], str | None] = lambda module: None


def kind_of(module: nn.Module) -> Kind | None:
    """The kind that a module is of; None for a module that nothing is known about."""
    known = (kind for classes, kind in _KINDS.items() if isinstance(module, classes))
    return next(known, None) or _by_name(module)


def _by_name(module: nn.Module) -> Kind | None:
    """The kind of a layer that libraries write themselves, by the names of its classes and what it has.

    One that computes something else after all (Gemma adds 1 to the weight) its forward pass gives away, and is skipped.
    """
    names, own = [kind.__name__ for kind in type(module).__mro__], {name for name, _ in module.named_parameters()}
    if own == {"weight"} and any(n.endswith(("RMSNorm", "T5LayerNorm")) for n in names):
        return _WRITTEN_RMS_NORM if isinstance(_epsilon(module), float) else None
    return _TRANSPOSED_LINEAR if own == {"weight", "bias"} and "Conv1D" in names else None


def parametrized(module: nn.Module) -> bool:
    """Whether a parameter of the module is computed from others (weight norm, LoRA)."""
    return hasattr(module, "parametrizations") or not isinstance(
        getattr(module, "weight", None), (nn.Parameter, type(None))
    )


def _linear(module: Any, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.linear(input, weight, bias)


def _conv(module: Any, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    padding = module.padding
    if module.padding_mode != "zeros":
        input = F.pad(input, module._reversed_padding_repeated_twice, mode=module.padding_mode)
        padding = 0
    convolve = _CONV[len(module.kernel_size)]
    return convolve(input, weight, bias, module.stride, padding, module.dilation, module.groups)


def _transposed(module: Any, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    m = module
    convolve = _TRANSPOSED[len(m.kernel_size)]
    return convolve(input, weight, bias, m.stride, m.padding, m.output_padding, m.groups, m.dilation)


def _batch_norm(module: Any, input: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    if module.training or module.running_mean is None:
        return F.batch_norm(input, None, None, weight, bias, True, 0.0, module.eps)
    mean, var = module.running_mean.to(input), module.running_var.to(input)
    return F.batch_norm(input, mean, var, weight, bias, False, 0.0, module.eps)


def _instance_norm(module: Any, input: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    if module.training or not module.track_running_stats:
        return F.instance_norm(input, None, None, weight, bias, True, 0.0, module.eps)
    mean, var = module.running_mean.to(input), module.running_var.to(input)
    return F.instance_norm(input, mean, var, weight, bias, False, 0.0, module.eps)


def _layer_norm(module: Any, input: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    return F.layer_norm(input, module.normalized_shape, weight, bias, module.eps)


def _rms_norm(module: Any, input: Tensor, weight: Tensor | None = None) -> Tensor:
    # Without `eps` torch takes the machine's epsilon of the dtype, which float64 must not.
    eps = torch.finfo(torch.float32).eps if module.eps is None else module.eps
    return F.rms_norm(input, module.normalized_shape, weight, eps)


def _epsilon(module: Any) -> Any:
    names = ("variance_epsilon", "eps", "epsilon")
    return next((getattr(module, name) for name in names if hasattr(module, name)), None)


def _written_rms_norm(module: Any, input: Tensor, weight: Tensor) -> Tensor:
    return weight * (input * torch.rsqrt(input.square().mean(-1, keepdim=True) + _epsilon(module)))


def _transposed_linear(module: Any, input: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return input @ weight + bias


def _group_norm(module: Any, input: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    return F.group_norm(input, module.num_groups, weight, bias, module.eps)


def _embedding(module: Any, input: Tensor, weight: Tensor) -> Tensor:
    if module.padding_idx is not None:  # whose row is not to learn
        row = torch.arange(len(weight), device=weight.device) == module.padding_idx
        weight = torch.where(row[:, None], weight.detach(), weight)
    return F.embedding(input, weight)


def _longest(trailing: Callable[[Any], int]) -> Callable[[nn.Module, Tensor], dict[str, int] | None]:
    """Cut along the longest of the leading dimensions, of which all but so many last ones are independent."""

    def batch(module: nn.Module, x: Tensor) -> dict[str, int] | None:
        leading = x.shape[: x.dim() - trailing(module)]
        if not leading:
            return None
        dim = max(range(len(leading)), key=lambda d: leading[d])
        return {"input": dim, OUTPUT: dim}

    return batch


def _entries(spatial: int) -> Callable[[nn.Module, Tensor], dict[str, int] | None]:
    """Cut along the first dimension, where the input has one besides its channels and so many others."""

    def batch(module: Any, x: Tensor) -> dict[str, int] | None:
        dims = spatial if spatial >= 0 else len(module.kernel_size)
        return {"input": 0, OUTPUT: 0} if x.dim() >= dims + 2 else None

    return batch


def _channels(module: nn.Module, x: Tensor) -> dict[str, int] | None:
    """Cut along the channels, parameters included."""
    if not module.training and getattr(module, "running_mean", None) is not None:
        return {"input": 0, OUTPUT: 0} if x.dim() > 1 else None
    return {"input": 1, OUTPUT: 1} | {name: 0 for name, p in module.named_parameters() if p is not None}


def _padding_row(module: Any) -> str | None:
    if module.max_norm is not None or module.scale_grad_by_freq:
        return "max_norm and scale_grad_by_freq give a gradient that is no derivative"
    return "its gradient is sparse" if module.sparse else None


def _attention(module: Any) -> str | None:
    return "dropout inside draws other numbers in float64" if module.training and module.dropout > 0 else None


_ALL = ("input", "weight", "bias")
_AFFINE = ("weight", "bias")
_CONV_WORK: Callable[[Any], int] = lambda m: m.weight.numel() // m.in_channels  # noqa: E731
_NORM_DIMS: Callable[[Any], int] = lambda m: len(m.normalized_shape)  # noqa: E731

_KINDS: Mapping[tuple[type[nn.Module], ...], Kind] = {
    (nn.Linear,): Kind(_linear, _ALL, _longest(lambda m: 1), lambda m: m.out_features),
    (nn.Conv1d, nn.Conv2d, nn.Conv3d): Kind(_conv, _ALL, _entries(-1), _CONV_WORK),
    (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d): Kind(_transposed, _ALL, _entries(-1), _CONV_WORK),
    (nn.SyncBatchNorm,): Kind(refuse=lambda m: "it talks to other processes"),
    _BATCH_NORMS: Kind(_batch_norm, _AFFINE, _channels),
    _INSTANCE_NORMS: Kind(_instance_norm, _AFFINE, _entries(1)),
    (nn.LayerNorm,): Kind(_layer_norm, _AFFINE, _longest(_NORM_DIMS)),
    (nn.RMSNorm,): Kind(_rms_norm, ("weight",), _longest(_NORM_DIMS)),
    (nn.GroupNorm,): Kind(_group_norm, _AFFINE, _entries(0)),
    (nn.Embedding,): Kind(_embedding, (), _longest(lambda m: 0), lambda m: m.embedding_dim, _padding_row),
    (nn.MultiheadAttention,): Kind(refuse=_attention),
}

_WRITTEN_RMS_NORM = Kind(_written_rms_norm, ("weight",), _longest(lambda m: 1))
_TRANSPOSED_LINEAR = Kind(_transposed_linear, _ALL, _longest(lambda m: 1), lambda m: m.weight.shape[1])  # GPT-2's

ACTIVATIONS = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Softplus, nn.Softsign),
    *(nn.Tanh, nn.Sigmoid, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.Softmax, nn.LogSoftmax),
)  # probed where a gradient vanishes in one, and not in turn
