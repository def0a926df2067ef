"""Splat scenes as PLY files in the layout of the 3DGS paper's code, which every viewer and editor reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from plyfile import PlyData, PlyElement, PlyParseError

from lanewise.errors import InputError
from lanewise.io.files import atomic_write
from lanewise.io.scene import Gaussians

_REST_OF_DEGREE = {0: 0, 9: 1, 24: 2, 45: 3, 72: 4}  # number of f_rest properties -> degree: 3 ((degree + 1)^2 - 1)
_FIXED = ("x", "y", "z", "f_dc_0", "f_dc_1", "f_dc_2", "opacity", "scale_0", "scale_1", "scale_2")
_ROTATION = ("rot_0", "rot_1", "rot_2", "rot_3")


def save_ply(path: Path | str, gaussians: Gaussians) -> None:
    """Write a scene as a binary little-endian float32 PLY file.

    The properties of a vertex are `x y z nx ny nz f_dc_0..2 f_rest_* opacity scale_0..2 rot_0..3`: logarithmic scales,
    opacity logits, quaternions wxyz, and the higher spherical-harmonics coefficients with the colour channel slowest
    (all of red, then green, then blue). The normals are zero: the layout has them, nobody reads them.

    Args:
        path: the file; an existing one is replaced in one step, or kept when the new one cannot be written.
        gaussians: N Gaussians, float32, on any device.

    Raises:
        InputError: a value is NaN, or infinite where that has no meaning.
        StorageError: the disk is full or the folder is not writable.
    """
    columns = _columns(gaussians)
    _refuse_non_finite(columns, Path(path), fix="the scene has diverged; export an earlier checkpoint")
    dtype = np.dtype([(name, "<f4") for name in columns])
    table = np.empty((len(gaussians), len(columns)), np.float32)  # [N, properties]
    for index, column in enumerate(columns.values()):
        table[:, index] = column
    vertices = PlyElement.describe(table.view(dtype)[:, 0], "vertex")
    with atomic_write(path) as stream:
        PlyData([vertices], byte_order="<").write(stream)


def load_ply(path: Path | str) -> Gaussians:
    """Read a scene from a PLY file of the 3DGS layout: ASCII or binary, properties in any order, SH degree 0..4.

    Properties that the layout does not know are ignored, and normals may be missing.

    Returns:
        float32 Gaussians on the CPU.

    Raises:
        InputError: the file is missing, is not a PLY file, is cut off, lacks a property, or holds NaN.
    """
    path = Path(path)
    vertices = _read_vertices(path)
    names = vertices.dtype.names or ()
    if missing := [name for name in (*_FIXED, *_ROTATION) if name not in names]:
        packed = "packed_position" in names
        raise InputError(
            str(path),
            got=f"a PLY file without {', '.join(missing)}",
            expected="the properties of a 3DGS scene (x y z, f_dc_*, f_rest_*, opacity, scale_*, rot_*)",
            why="it is a compressed splat file" if packed else None,
            fix="convert it to an uncompressed PLY file" if packed else "give the PLY file of a splat scene",
        )
    rest = [name for name in names if name.startswith("f_rest_")]
    if len(rest) not in _REST_OF_DEGREE or set(rest) != {f"f_rest_{i}" for i in range(len(rest))}:
        raise InputError(
            str(path),
            got=f"{len(rest)} f_rest_* properties",
            expected="f_rest_0 onwards, 0, 9, 24, 45 or 72 of them",
            why="a spherical-harmonics degree of 0..4 has so many coefficients beyond the first, for three channels",
        )
    columns = {
        name: _as_float32(vertices, name, path)
        for name in (*_FIXED, *_ROTATION, *(f"f_rest_{i}" for i in range(len(rest))))
    }
    _refuse_non_finite(columns, path, fix="export the scene again, or remove these Gaussians in an editor")

    def stack(*names: str) -> torch.Tensor:
        return torch.from_numpy(np.stack([columns[name] for name in names], axis=1))  # [N, len(names)]

    n, per_channel = len(vertices), len(rest) // 3
    higher = (
        stack(*(f"f_rest_{i}" for i in range(len(rest)))).reshape(n, 3, per_channel).transpose(1, 2).contiguous()
        if rest
        else torch.zeros(n, 0, 3)
    )
    return Gaussians(
        means=stack("x", "y", "z"),
        quats=stack(*_ROTATION),
        scales=stack("scale_0", "scale_1", "scale_2"),
        opacities=torch.from_numpy(columns["opacity"]),
        sh0=stack("f_dc_0", "f_dc_1", "f_dc_2").reshape(n, 1, 3),
        shN=higher,
    )


def _columns(gaussians: Gaussians) -> dict[str, np.ndarray]:
    """Property name -> float32 values [N], in the order of the file."""
    host = {name: t.detach().cpu().to(torch.float32).numpy() for name, t in gaussians.tensors().items()}
    columns = {name: host["means"][:, i] for i, name in enumerate("xyz")}
    zeros = np.zeros(len(gaussians), np.float32)
    columns |= dict.fromkeys(("nx", "ny", "nz"), zeros)
    columns |= {f"f_dc_{i}": host["sh0"][:, 0, i] for i in range(3)}
    rest = host["shN"].transpose(0, 2, 1).reshape(len(gaussians), -1 if len(gaussians) else host["shN"].shape[1] * 3)
    columns |= {f"f_rest_{i}": rest[:, i] for i in range(rest.shape[1])}
    columns["opacity"] = host["opacities"]
    columns |= {f"scale_{i}": host["scales"][:, i] for i in range(3)}
    columns |= {f"rot_{i}": host["quats"][:, i] for i in range(4)}
    return columns


def _read_vertices(path: Path) -> np.ndarray:
    if not path.is_file():
        got = "a folder" if path.is_dir() else "nothing there"
        raise InputError(str(path), got=got, expected="a PLY file", fix="check the path")
    try:
        with path.open("rb") as stream:
            if stream.read(4).rstrip(b"\r\n") != b"ply":
                raise InputError(str(path), got="another kind of file", expected="a PLY file (it starts with `ply`)")
        ply = PlyData.read(path)
    except InputError:
        raise
    except PermissionError as error:
        raise InputError(str(path), got="no permission to read it", expected="a readable file") from error
    # plyfile raises its own errors for what it foresees, and NumPy's for a header whose counts or text make no sense.
    except (PlyParseError, ValueError, OverflowError, MemoryError, OSError, IndexError, KeyError) as error:
        raise InputError(
            str(path),
            got=f"a PLY file that cannot be read ({error})",
            expected="a complete PLY file",
            fix="copy or export the file again: it is cut off or damaged",
        ) from error
    if "vertex" not in ply:
        raise InputError(str(path), got="a PLY file without vertices", expected="an element named vertex")
    return ply["vertex"].data


def _as_float32(vertices: np.ndarray, name: str, path: Path) -> np.ndarray:
    column = vertices[name]
    if column.dtype.kind not in "fiu":
        raise InputError(str(path), got=f"a list as property {name}", expected="one number a vertex")
    with np.errstate(over="ignore"):  # a double beyond float32 becomes infinite, which is refused by name just after
        return np.array(column, dtype=np.float32)  # a copy: the file is mapped, and may be replaced while we live


def _refuse_non_finite(columns: dict[str, np.ndarray], path: Path, *, fix: str) -> None:
    # An infinite opacity logit has a meaning: the opacity is exactly 0 or 1.
    bad = {
        name: count
        for name, values in columns.items()
        if (count := int((np.isnan(values) if name == "opacity" else ~np.isfinite(values)).sum()))
    }
    if bad:
        listed = ", ".join(f"{count} in {name}" for name, count in list(bad.items())[:6])
        raise InputError(str(path), got=f"NaN or infinite values ({listed})", expected="finite numbers", fix=fix)
