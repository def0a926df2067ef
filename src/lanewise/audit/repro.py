"""A script that shows a finding with nothing but torch."""

from __future__ import annotations

import inspect
import io
import os
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from lanewise.audit.case import Case
from lanewise.audit.infer import Operator
from lanewise.audit.spec import PREAMBLE, Spec
from lanewise.io.files import atomic_write, make_folder

CRASH = "crash"  # in place of a probe's name
PLAIN = {"float64": 1e-10, "float32": 1e-4, "bfloat16": 5e-2, "float16": 1e-2}  # relative errors far above rounding

_HEAD = '''"""{title}

Exits with 1 when the fault is there and with 0 when it is not. {seen}
"""

import sys

{preamble}
torch.manual_seed({seed})
print(f"torch {{torch.__version__}}, {device}: {{{device_name}}}")

{definition}

{inputs}

inputs = {{{pairs}}}
'''

_GRADIENT = '''
def gradient(function, inputs, v=None, of={leaves}):
    """(outputs, cotangents, gradient with respect to {argument}) of one forward and one backward pass."""
    leaves = {{name: value.detach().requires_grad_(name in of) for name, value in inputs.items()}}
    out = function(**leaves)
    out = [y for y in (out if isinstance(out, (tuple, list)) else (out,)) if y.requires_grad]
    v = [cotangent(y, {seed} + number) for number, y in enumerate(out)] if v is None else v
    found = torch.autograd.grad(out, [leaves[name] for name in of], v, allow_unused=True)
    return out, v, found[of.index("{argument}")]


def cotangent(out, seed):
    v = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed)).to(out)
    {lay_out}


def together(tensors):
    return torch.cat([x.detach().double().flatten() for x in tensors])
'''

_COTANGENT = {
    "contiguous": "return v",
    "strided": "return torch.stack([v, torch.full_like(v, float('nan'))], -1)[..., 0]",
    "transposed": "order = list(reversed(range(v.dim())))\n    return v.permute(order).contiguous().permute(order)",
    "channels_last": "return v.movedim(1, -1).contiguous().movedim(-1, 1) if v.dim() > 2 else v",
    "expanded": "return v[:1].expand(v.shape) if v.dim() else v",
    "ones": "return v.new_ones(()).expand(v.shape)  # what sum().backward() gives",
}

_RUNS = {
    "compiled": """
out, v, got = gradient(torch.compile(operator), inputs)
expected_out, _, expected = gradient(operator, inputs, [x.clone(memory_format=torch.contiguous_format) for x in v])
got, expected = together([got, *out]), together([expected, *expected_out])  # gradient and outputs
""",
    "repeats": """
_, v, expected = gradient(operator, inputs)
got = max((gradient(operator, inputs, v)[2] for _ in range(20)), key=lambda g: (g - expected).abs().max())
""",
    "beside": """
# The gradient alone, and beside those of all other arguments.
_, v, expected = gradient(operator, inputs)
got = gradient(operator, inputs, v, {every})[2]
""",
    "layout": """
out, v, got = gradient(operator, inputs)
plain = {name: value.contiguous() for name, value in inputs.items()}
_, _, expected = gradient(operator, plain, [x.contiguous() for x in v])
""",
    "adjoint": """
# The operator is affine in {argument}: for every u, <gradient, u> = <v, f(u) - f(0)>. Only the right side is forward.
_, v, g = gradient(operator, inputs)
got, expected = [], []
for number in range(8):
    u = torch.randn(g.shape, generator=torch.Generator().manual_seed(number)).to(g)
    with torch.no_grad():
        ends = [operator(**{{**inputs, "{argument}": x}}) for x in (u, torch.zeros_like(u))]
        image = [together(y if isinstance(y, (tuple, list)) else (y,)) for y in ends]
    got.append((g.double() * u.double()).sum())
    expected.append((together(v) * (image[0] - image[1])).sum())
got, expected = torch.stack(got), torch.stack(expected)
""",
    "crash": """
_, _, got = gradient(operator, inputs)
expected = got
""",
    "truth": """
out, v, got = gradient(operator, inputs)
double = {name: value.double() if value.is_floating_point() else value for name, value in inputs.items()}
_, _, expected = gradient(operator, double, [x.double() for x in v])
""",
    "differences": """
# Central differences of the forward along random directions, in float64.
double = {{name: value.double() if value.is_floating_point() else value for name, value in inputs.items()}}
_, v, g = gradient(operator, double)
got, expected = [], []
for number in range(8):
    u = torch.randn(g.shape, generator=torch.Generator().manual_seed(number)).to(g)
    with torch.no_grad():
        ends = [operator(**{{**double, "{argument}": double["{argument}"] + h * u}}) for h in (1e-6, -1e-6)]
        up, down = [together(y if isinstance(y, (tuple, list)) else (y,)) for y in ends]
    got.append((g * u).sum())
    expected.append((together(v) * (up - down) / 2e-6).sum())
got, expected = torch.stack(got), torch.stack(expected)
""",
}

_END = """
got, expected = got.double().cpu(), expected.double().cpu()
error = (torch.linalg.vector_norm(got - expected) / torch.linalg.vector_norm(expected)).item()
worst = (got - expected).abs().nan_to_num(nan=float("inf")).flatten().argmax()
print(f"got {{got.flatten()[worst]:.6g}}, expected {{expected.flatten()[worst]:.6g}} at the worst element")
print(f"relative error {{error:.3g}}; rounding does not explain more than {limit}")
sys.exit(0 if error <= {limit} else 1)
"""


@dataclass(frozen=True)
class Repro:
    """A script that shows a finding.

    Attributes:
        source: the script.
        files: what it reads, by name (a user's own tensors or module).
        verified: whether it was run and did show the fault; None when it was not run.
    """

    source: str
    files: dict[str, bytes] = field(default_factory=dict, repr=False)
    verified: bool | None = None

    def __str__(self) -> str:
        return self.source

    def write(self, folder: Path | str, name: str = "repro.py") -> Path:
        """Write the script and what it reads into a folder.

        Raises:
            StorageError: that is not possible.
        """
        make_folder(folder)
        for file, content in {name: self.source.encode(), **self.files}.items():
            with atomic_write(Path(folder) / file) as stream:
                stream.write(content)
        return Path(folder) / name

    def verify(self, timeout: float = 120.0) -> Repro:
        """The same, having been run in a process of its own."""
        path = os.pathsep.join(str(Path(place).resolve()) for place in sys.path)
        with tempfile.TemporaryDirectory() as folder:
            script = self.write(folder)
            try:
                done = subprocess.run(
                    [sys.executable, script.name],
                    cwd=folder,
                    env={**os.environ, "PYTHONPATH": path},
                    capture_output=True,
                    timeout=timeout,
                    text=True,
                )
            except subprocess.TimeoutExpired:
                return self
        wrong = done.returncode == 1 and "relative error" in done.stdout
        shown = wrong or done.returncode < 0 or "illegal memory access" in done.stderr
        return replace(self, verified=shown)


def make(spec: Spec, case: Case, argument: str, probe: str, title: str) -> list[Repro]:
    """Scripts that may show that the gradient of `argument` is wrong, the most telling first.

    Raises:
        Exception: whatever pickling raises where a user's object cannot be written to a file.
    """
    ways = [way for way, fits in _ways(spec, case, argument, probe).items() if fits]
    return [_script(spec, case, argument, way, title) for way in ways]


def _ways(spec: Spec, case: Case, argument: str, probe: str) -> dict[str, bool]:
    if probe == CRASH:
        return {"crash": True}
    layout = case.layout != "contiguous" or case.cotangent != "contiguous"
    return {
        "compiled": case.compiled,
        "repeats": probe == "repeats",
        "beside": probe == "repeats" and len(spec.differentiable) > 1,
        "layout": layout,
        "adjoint": argument in spec.linear or probe == "adjoint",
        "truth": True,
        "differences": True,
    }


def _script(spec: Spec, case: Case, argument: str, way: str, title: str) -> Repro:
    definition, files = _definition(spec, case)
    alone = argument in spec.differentiable and not case.compiled  # as the probes do
    leaves = (argument,) if alone else spec.differentiable
    argument = argument if argument in spec.differentiable else spec.differentiable[0]  # of an output, or of a crash
    if case.values == "example" and spec.example is not None:
        files["inputs.pt"] = _saved({n: t.cpu() for n, t in spec.example.items()})
        lines = ['made = torch.load("inputs.pt")']
        pairs = f"**{{name: value.to({case.device!r}) for name, value in made.items()}}"
    else:
        lines = case.input_lines(spec)
        pairs = ", ".join(f'"{t.name}": {t.variable}' for t in spec.inputs)
    name = "torch.cuda.get_device_name()" if case.device.startswith("cuda") else "'processor'"
    seen = f"Seen with torch {torch.__version__} on {case.device}."
    head = _HEAD.format(
        title=title,
        seen=seen,
        preamble=PREAMBLE.rstrip(),
        seed=case.seed,
        device=case.device,
        device_name=name,
        definition=definition.rstrip(),
        inputs="\n".join((*case.flags, *lines)),
        pairs=pairs,
    )
    run = _RUNS[way]
    run = run.format(argument=argument) if "{argument}" in run else run.replace("{every}", repr(spec.differentiable))
    lay_out = _COTANGENT[case.cotangent]
    gradient = _GRADIENT.format(argument=argument, leaves=leaves, seed=case.seed, lay_out=lay_out)
    return Repro(head + gradient + run + _END.format(limit=PLAIN[case.dtype]), files)


def _definition(spec: Spec, case: Case) -> tuple[str, dict[str, bytes]]:
    """The lines that define `operator`, and the files that they read."""
    if spec.function is None:
        setup = f"{spec.setup}\n\n" if spec.setup else ""
        return f"{setup}{spec.definition(case.names)}", {}
    operator = spec.function
    assert isinstance(operator, Operator)
    lines, files = _user_function(operator.fn)
    if not operator.parameters and not operator.buffers and all(type(a).__name__ == "_Slot" for a in operator.args):
        places = ", ".join(f'inputs.pop("{slot.name}")' for slot in operator.args)
        others = "".join(f", {k}={v!r}" for k, v in operator.kwargs.items() if type(v).__name__ != "_Slot")
        call = f"def operator(**inputs):\n    return fn({places}{', ' if places else ''}**inputs{others})"
        return f"{lines}\n\n\n{call}", files
    # Modules, and arguments with structure, are called as the audit calls them.
    files["operator.pt"] = _saved(operator)
    return 'operator = torch.load("operator.pt", weights_only=False)  # needs lanewise to be installed', files


def _user_function(fn: Any) -> tuple[str, dict[str, bytes]]:
    module, name = getattr(fn, "__module__", None), getattr(fn, "__qualname__", "")
    if module and module != "__main__" and name.isidentifier():
        folder = Path(inspect.getsourcefile(fn) or ".").resolve().parent
        path = "" if "site-packages" in str(folder) or "." in module else f"sys.path.insert(0, {str(folder)!r})\n"
        return f"{path}from {module} import {name} as fn", {}
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    if file and name.isidentifier() and "__name__" in Path(file).read_text():  # a script that may be imported
        return f"import runpy\n\nfn = runpy.run_path({str(Path(file).resolve())!r})[{name!r}]", {}
    try:
        source = textwrap.dedent(inspect.getsource(fn))
    except (OSError, TypeError):
        source = f"def {name if name.isidentifier() else 'function'}(*args, **kwargs): ...  # put your function here"
    bare = name.rsplit(".", 1)[-1]
    return f"{source}\n\nfn = {bare if bare.isidentifier() else 'function'}", {}


def _saved(value: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()
