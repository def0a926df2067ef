"""Products of matrices and tensors: sums of products in each argument, so that every probe applies."""

from __future__ import annotations

from lanewise.audit.catalogue.table import op
from lanewise.audit.spec import Spec

SPECS: tuple[Spec, ...] = (
    op("linear", "F.linear(x, weight, bias)", "x: B C; weight: K C; bias: K", "B=24 C=20 K=12",
       linear="*", batch="x", work="B*C*K"),
    op("linear_no_bias", "F.linear(x, weight)", "x: B T C; weight: K C", "B=3 T=7 C=20 K=12",
       linear="*", batch="x", work="B*T*C*K"),
    op("bilinear", "F.bilinear(x, y, weight, bias)", "x: B C; y: B D; weight: K C D; bias: K", "B=9 C=7 D=5 K=6",
       linear="*", batch="x y", work="B*C*D*K"),
    op("mm", "a @ b", "a: M K; b: K N", "M=12 K=20 N=8", linear="*", batch="a", work="M*K*N"),
    op("mm_transposed", "a.mT @ b.mT", "a: K M; b: N K", "M=12 K=20 N=8", linear="*", work="M*K*N"),
    op("bmm", "torch.bmm(a, b)", "a: B M K; b: B K N", "B=3 M=12 K=20 N=8",
       linear="*", batch="a b", work="B*M*K*N"),
    op("matmul_broadcast", "a @ b", "a: B 1 M K; b: A K N", "B=3 A=2 M=6 K=9 N=5",
       linear="*", batch="a", work="A*B*M*K*N"),
    op("mv", "a @ x", "a: M K; x: K", "M=24 K=20", linear="*", batch="a"),
    op("dot", "torch.dot(x, y)", "x: N; y: N", "N=40", linear="*"),
    op("outer", "torch.outer(x, y)", "x: M; y: N", "M=24 N=20", linear="*", batch="x"),
    op("addmm", "torch.addmm(x, a, b, beta=beta, alpha=alpha)", "x: M N; a: M K; b: K N", "M=12 K=20 N=8",
       linear="*", batch="x a", options={"beta": (1, 0.5), "alpha": (1, -2)}, work="M*K*N"),
    op("addmm_row", "torch.addmm(x, a, b)", "x: N; a: M K; b: K N", "M=12 K=20 N=8",
       linear="*", batch="a", work="M*K*N"),
    op("addbmm", "torch.addbmm(x, a, b)", "x: M N; a: B M K; b: B K N", "B=3 M=12 K=20 N=8",
       linear="*", work="B*M*K*N"),
    op("baddbmm", "torch.baddbmm(x, a, b)", "x: B M N; a: B M K; b: B K N", "B=3 M=12 K=20 N=8",
       linear="*", batch="x a b", work="B*M*K*N"),
    op("addmv", "torch.addmv(x, a, y)", "x: M; a: M K; y: K", "M=24 K=20", linear="*", batch="x a"),
    op("addr", "torch.addr(x, a, b)", "x: M N; a: M; b: N", "M=24 N=20", linear="*", batch="x a"),
    op("einsum_contract", 'torch.einsum("bik,bkj,bj->bi", a, b, x)', "a: B M K; b: B K N; x: B N",
       "B=3 M=7 K=9 N=8", linear="*", batch="a b x", work="B*M*K*N"),
    op("einsum_attention", 'torch.einsum("bqhd,bkhd->bhqk", q, k)', "q: B Q A D; k: B K A D",
       "B=2 Q=9 K=11 A=3 D=8", linear="*", batch="q k", work="B*Q*K*A*D"),
    op("einsum_sum", 'torch.einsum("ij,ij->", x, y)', "x: M N; y: M N", "M=24 N=20", linear="*"),
    op("tensordot", "torch.tensordot(a, b, dims=([1, 2], [0, 2]))", "a: M K L; b: K N L", "M=9 K=7 L=5 N=8",
       linear="*", batch="a", work="M*K*L*N"),
    op("kron", "torch.kron(a, b)", "a: M N; b: K L", "M=5 N=4 K=6 L=3", linear="*", work="M*N*K*L"),
    op("multi_dot", "torch.linalg.multi_dot([a, b, c])", "a: M K; b: K N; c: N L", "M=9 K=14 N=7 L=5",
       linear="*", batch="a", work="M*K*N + M*N*L + K*N*L"),
    op("cross", "torch.linalg.cross(x, y)", "x: B 3; y: B 3", "B=24", linear="*", batch="x y"),
    op("vecdot", "torch.linalg.vecdot(x, y)", "x: B C; y: B C", "B=24 C=20", linear="*", batch="x y"),
    op("complex_mm", "torch.view_as_real(torch.view_as_complex(a) @ torch.view_as_complex(b))",
       "a: M K 2; b: K N 2", "M=12 K=20 N=8", linear="*", batch="a", dtypes=("float32", "float64"), work="4*M*K*N"),
)  # fmt: skip
