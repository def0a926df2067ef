"""Calls that the tests of the audit look at: healthy operators of both kinds, small."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import nn

from lanewise.audit.call import Call
from lanewise.audit.probes.directions import begin, draw

BATCH = {"0": 0, "output": 0}
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def values(*shape, seed=0, kind="normal", dtype=torch.float32):
    """Random values of a kind: "normal", "one-sided", "positive", "huge"."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))
    return {"one-sided": x.relu(), "positive": x.abs() + 0.1, "huge": 16 * x}.get(kind, x).to(dtype)


def linear(n=40, m=30, k=50, **options):
    """x [n, k] and weight [m, k]."""
    x, w = values(n, k, **options), values(m, k, **options)
    return Call(F.linear, (x, w), linear=("0", "1"), batch=BATCH)


def convolution(**options):
    """Images [4, 3, 9, 8] and a kernel [5, 3, 3, 3]."""
    return Call(
        F.conv2d, (values(4, 3, 9, 8, **options), values(5, 3, 3, 3, **options)), linear=("0", "1"), batch=BATCH
    )


def embedding(**options):
    """300 rows of a table [7, 20]. On the CPU torch sums 16-bit rows in 16 bits, so the call says so."""
    index = torch.randint(0, 7, (300,), generator=torch.Generator().manual_seed(0))
    call = Call(F.embedding, (index, values(7, 20, **options)), wrt=("1",), linear=("1",), batch=BATCH)
    dtype = options.get("dtype", torch.float32)
    return call if dtype == torch.float32 else replace(call, accumulation=dtype)


def layer_norm(n=30, k=40, **options):
    """Rows [n, k]."""
    return Call(F.layer_norm, (values(n, k, **options), (k,)), batch=BATCH)


def softmax(**options):
    """Rows [30, 20]."""
    return Call(F.softmax, (values(30, 20, **options),), {"dim": -1}, batch=BATCH)


def block(**options):
    """A small network, by input and parameters."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 20), nn.GELU(), nn.Linear(20, 5))
    return Call(net.to(options.get("dtype", torch.float32)), (values(16, 12, **options),), batch=BATCH)


CALLS = (linear, convolution, embedding, layer_norm, softmax, block)


def half_norm(n):
    """Norms [2] of order 4 of rows of n halves. From 900,000 elements on they pass 40, and their third powers, by which
    the backward pass divides, the range of the dtype: of 2,000,000 the gradient is zero where 3e-5 is right."""
    return Call(lambda x: torch.linalg.vector_norm(x, 4, -1), (values(2, n, dtype=torch.float16),))


def trial_of(call, argument="1"):
    """The trial of an argument's gradient, and three directions from seed 0."""
    trial = begin(call, argument, "adjoint")
    return trial, draw(trial, 3, 0)
