"""Solves, factorizations and Fourier transforms."""

from __future__ import annotations

from lanewise.audit.catalogue.table import WIDE, op
from lanewise.audit.spec import Spec

_CUBE = "B*N**3"
_EYE = "torch.eye(N, dtype=x.dtype, device=x.device)"
_DIAGONAL = "torch.arange(1, N + 1, dtype=x.dtype, device=x.device).diag()"
_GOOD = f"x / N**0.5 + 3 * {_EYE}"  # far from singular
_POSITIVE = f"x @ x.mT / N + {_EYE}"  # symmetric, positive definite
_APART = f"0.1 * (x + x.mT) + {_DIAGONAL}"  # symmetric, eigenvalues about one apart

# Expression by name, of the matrices x [B, N, N]. Signs of eigenvectors and singular vectors are anybody's: squares.
_SQUARE = {
    "inv": f"torch.linalg.inv({_GOOD})",
    "det": f"torch.linalg.det(({_GOOD}) / 3)",
    "slogdet": f"torch.linalg.slogdet({_GOOD})[1]",
    "pinv_square": f"torch.linalg.pinv({_GOOD})",
    "lu": f"p, l, u = torch.linalg.lu({_GOOD})\nreturn l, u",
    "cholesky": f"torch.linalg.cholesky({_POSITIVE})",
    "cholesky_inverse": f"torch.cholesky_inverse(torch.linalg.cholesky({_POSITIVE}))",
    "eigh": f"values, vectors = torch.linalg.eigh({_APART})\nreturn values, vectors**2",
    "eigvalsh": f"torch.linalg.eigvalsh({_APART})",
    "matrix_exp": "torch.linalg.matrix_exp(x / N**0.5)",
    "matrix_power": "torch.linalg.matrix_power(x / N**0.5, 3)",
    "inv_power": f"torch.linalg.matrix_power({_GOOD}, -2)",
    "matrix_norm": 'torch.linalg.matrix_norm(x, "fro")',
    "matrix_norm_nuclear": f'torch.linalg.matrix_norm(0.1 * x + {_DIAGONAL}, "nuc")',
    "svdvals": f"torch.linalg.svdvals(0.1 * x + {_DIAGONAL})",
    "svd": f"u, s, vh = torch.linalg.svd(0.1 * x + {_DIAGONAL})\nreturn u**2, s, vh**2",
    "qr": f"q, r = torch.linalg.qr({_GOOD})\nreturn q, r",
}
# (expression, whether it is linear in y) by name, of matrices x [B, N, N] and y [B, N, K].
_SOLVE = {
    "solve": f"torch.linalg.solve({_GOOD}, y)",
    "solve_triangular": f"torch.linalg.solve_triangular(({_GOOD}).tril(), y, upper=False)",
    "solve_triangular_upper": f"torch.linalg.solve_triangular(({_GOOD}).triu().mT, y, upper=False)",
    "cholesky_solve": f"torch.cholesky_solve(y, torch.linalg.cholesky({_POSITIVE}))",
    "lu_solve": f"torch.linalg.lu_solve(*torch.linalg.lu_factor({_GOOD}), y)",
}
# Expression by name, of real x [B, N] seen as signals.
_REAL_SIGNALS = {
    "rfft": "torch.view_as_real(torch.fft.rfft(x, norm=norm))",
    "fft_of_real": "torch.view_as_real(torch.fft.fft(x, norm=norm))",
    "ihfft": "torch.view_as_real(torch.fft.ihfft(x, norm=norm).resolve_conj())",
    "rfft_irfft": "torch.fft.irfft(torch.fft.rfft(x, norm=norm), n=N, norm=norm)",
}
# Expression by name, of complex numbers x [B, M, N, 2].
_COMPLEX_SIGNALS = {
    "fft": "torch.view_as_real(torch.fft.fft(torch.view_as_complex(x), norm=norm))",
    "ifft": "torch.view_as_real(torch.fft.ifft(torch.view_as_complex(x), norm=norm))",
    "fft2": "torch.view_as_real(torch.fft.fft2(torch.view_as_complex(x), norm=norm))",
    "ifft2": "torch.view_as_real(torch.fft.ifft2(torch.view_as_complex(x), norm=norm))",
    "fftn": "torch.view_as_real(torch.fft.fftn(torch.view_as_complex(x), dim=(1, 2), norm=norm))",
    "fftshift": "torch.fft.fftshift(x, (1, 2))",
    "irfft": "torch.fft.irfft(torch.view_as_complex(x), norm=norm)",
    "irfft2": "torch.fft.irfft2(torch.view_as_complex(x), norm=norm)",
    "hfft": "torch.fft.hfft(torch.view_as_complex(x), norm=norm)",
}
_NORM = {"norm": ("backward", "ortho", "forward")}

SPECS: tuple[Spec, ...] = (
    *(op(name, source, "x: B N N", "B=3 N=7", batch="x", dtypes=WIDE, values=("normal",), work=_CUBE)
      for name, source in _SQUARE.items()),
    *(op(name, source, "x: B N N; y: B N K", "B=3 N=7 K=4", batch="x y", linear="y", dtypes=WIDE,
         values=("normal",), work=f"{_CUBE} + B*N*N*K") for name, source in _SOLVE.items()),
    op("qr_tall", "q, r = torch.linalg.qr(x)\nreturn q, r", "x: B N+M N", "B=3 N=5 M=4", batch="x", dtypes=WIDE,
       values=("normal",), work="B*(N+M)*N*N"),
    op("pinv", "torch.linalg.pinv(x)", "x: B N+M N", "B=3 N=5 M=9", batch="x", dtypes=WIDE, values=("normal",),
       work="B*(N+M)*N*N"),
    op("lstsq", "torch.linalg.lstsq(x, y)[0]", "x: B N+M N; y: B N+M K", "B=3 N=5 M=9 K=4", batch="x y", linear="y",
       dtypes=WIDE, values=("normal",), work="B*(N+M)*N*(N+K)"),
    op("svdvals_tall", "torch.linalg.svdvals(x)", "x: B N+M N", "B=3 N=5 M=9", batch="x", dtypes=WIDE,
       values=("normal",), work="B*(N+M)*N*N"),
    op("householder_product", "torch.linalg.householder_product(x, y)", "x: B N+M N; y: B N", "B=3 N=5 M=4",
       batch="x y", dtypes=WIDE, values=("normal",), work="B*(N+M)*N*N"),
    op("vander", "torch.linalg.vander(x, N=4)", "x: B N", "B=9 N=7", batch="x", dtypes=WIDE, values=("normal",)),
    *(op(name, source, "x: B N", "B=6 N=20", batch="x", linear="*", dtypes=WIDE, options=_NORM)
      for name, source in _REAL_SIGNALS.items()),
    *(op(name, source, "x: B M N 2", "B=3 M=5 N=8", batch="x", linear="*", dtypes=WIDE, options=_NORM)
      for name, source in _COMPLEX_SIGNALS.items()),
    op("stft", "torch.view_as_real(torch.stft(x, 16, 4, window=window, center=center, return_complex=True))",
       "x: B N; window: 16", "B=3 N=60", batch="x", linear="x window", dtypes=WIDE,
       options={"center": (True, False)}),
    op("istft", "torch.istft(torch.view_as_complex(x), 16, 4, window=window)", "x: B 9 N 2; window: 16", "B=3 N=12",
       batch="x", linear="x", dtypes=WIDE, constant={"window": "torch.rand({shape}, {on}) + 0.5"}),
)  # fmt: skip
