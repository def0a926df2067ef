"""How good a scene is: renders held-out photographs and compares."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from lanewise.io.captures import View
from lanewise.io.files import atomic_write, make_folder
from lanewise.io.scene import Gaussians
from lanewise.train.data import Batch, TrainingData, load_batch
from lanewise.train.photometric import ssim
from lanewise.train.photometric.reference import WINDOW
from lanewise.train.render import Rasterizer
from lanewise.train.run_folder import write_text

ERROR_GAIN = 4  # absolute errors are shown this many times brighter


def psnr(render: Tensor, target: Tensor, mask: Tensor | None = None) -> float:
    """Peak signal-to-noise ratio of pictures with values in 0..1, dB; 100 when they are (nearly) equal.

    Args:
        render, target: [..., H, W, 3].
        mask: bool [..., H, W], False for pixels that do not count.
    """
    return psnr_on_device(render, target, mask).item()


def psnr_on_device(render: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """As `psnr`, a float64 scalar on the device: nothing waits for it."""
    squared = (render - target).square()  # [..., H, W, 3]
    if mask is None:
        error = squared.mean()
    else:
        error = (squared * mask[..., None]).sum() / (mask.sum().clamp_min(1) * squared.shape[-1])
    return -10 * torch.log10(error.clamp_min(1e-10)).double()


@torch.no_grad()
def evaluate(
    gaussians: Gaussians, data: TrainingData, renderer: Rasterizer, *, step: int, folder: Path | None = None
) -> dict[str, Any]:
    """Compare renders with the held-out photographs, or with the training ones when none are held out.

    Renders are clamped to 0..1. SSIM is null for a picture smaller than its window. The baseline is the training
    photograph whose camera centre is nearest, resized where sizes differ: what a scene must beat to be worth anything.

    Args:
        gaussians: the scene.
        data: the capture.
        renderer: how to render.
        step: completed steps, for the record.
        folder: where to write metrics.json, per_image.csv and <name>.png (truth | render | absolute error times 4).

    Returns:
        `step, split` ("test" or "train"), `views`, the means `psnr, ssim, baseline_psnr`, `lpips` (null: not computed),
        `gaussians`, and `per_image`: a list of `name, psnr, ssim, baseline_psnr`.

    Raises:
        StorageError: the folder cannot be written.
    """
    views = data.test or data.train
    names = picture_names(views)
    device = gaussians.means.device
    rows = []
    for view in views:
        truth = load_batch(data, [view], device)
        render = _render(gaussians, truth, data, renderer)
        row = {"name": view.name, **_compare(render, truth), "baseline_psnr": _baseline(view, truth, data)}
        rows.append(row)
        if folder is not None:
            _write_picture(folder / names[view.name], truth.rgb[0], render[0])
    result = {
        "step": step,
        "split": "test" if data.test else "train",
        "views": len(rows),
        **{key: _mean([row[key] for row in rows]) for key in ("psnr", "ssim", "baseline_psnr")},
        "lpips": None,
        "lpips_status": "not computed",
        "gaussians": len(gaussians),
        "per_image": rows,
    }
    if folder is not None:
        _write_tables(folder, result)
    return result


def picture_names(views: Sequence[View]) -> dict[str, str]:
    """File name of the picture of each view by the view's name: folders joined by `__`, the suffix replaced by .png.

    Where two views differ in the suffix alone, it stays.
    """
    stems = [PurePosixPath(view.name).with_suffix("").as_posix() for view in views]
    chosen = [stem if stems.count(stem) == 1 else view.name for stem, view in zip(stems, views, strict=True)]
    return {view.name: name.replace("/", "__") + ".png" for name, view in zip(chosen, views, strict=True)}


def _render(gaussians: Gaussians, truth: Batch, data: TrainingData, renderer: Rasterizer) -> Tensor:
    height, width = truth.rgb.shape[1:3]
    background = truth.rgb.new_tensor([data.background])
    colors, _, _ = renderer(
        gaussians.tensors(),
        truth.viewmats,
        truth.Ks,
        width,
        height,
        sh_degree=gaussians.sh_degree,
        backgrounds=background,
    )
    return colors.clamp(0, 1)


def _compare(render: Tensor, truth: Batch) -> dict[str, float | None]:
    large_enough = min(render.shape[1:3]) >= WINDOW
    return {
        "psnr": psnr(render, truth.rgb, truth.mask),
        "ssim": ssim(render, truth.rgb, truth.mask).item() if large_enough else None,
    }


def _baseline(view: View, truth: Batch, data: TrainingData) -> float | None:
    """PSNR of the nearest training photograph; None when the only one is the view itself."""
    others = [other for other in data.train if other is not view]
    if not others:
        return None
    centre = _centre(view)
    nearest = min(others, key=lambda other: float(np.linalg.norm(_centre(other) - centre)))
    rgb = data.photos[nearest].rgb.to(truth.rgb.device)[None]
    if rgb.shape != truth.rgb.shape:
        rgb = torch.nn.functional.interpolate(
            rgb.permute(0, 3, 1, 2), size=truth.rgb.shape[1:3], mode="bilinear", antialias=True
        ).permute(0, 2, 3, 1)
    return psnr(rgb, truth.rgb, truth.mask)


def _centre(view: View) -> np.ndarray:
    rotation, translation = view.viewmat[:3, :3], view.viewmat[:3, 3]
    return -rotation.T @ translation


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _write_picture(path: Path, truth: Tensor, render: Tensor) -> None:
    error = ((truth - render).abs() * ERROR_GAIN).clamp(max=1)
    strip = torch.cat([truth, render, error], dim=1)  # [H, 3 W, 3]
    pixels = (strip * 255).round().to(torch.uint8).cpu().numpy()
    make_folder(path.parent)
    with atomic_write(path) as stream:
        Image.fromarray(pixels).save(stream, format="PNG", compress_level=1)


def _write_tables(folder: Path, result: dict[str, Any]) -> None:
    make_folder(folder)
    table = io.StringIO()
    writer = csv.DictWriter(table, fieldnames=["name", "psnr", "ssim", "baseline_psnr"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(result["per_image"])
    write_text(folder / "per_image.csv", table.getvalue())
    write_text(folder / "metrics.json", json.dumps(result, indent=2) + "\n")
