"""`lanewise info PATH`: what is in a capture, a run or a splat file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from lanewise.cli.console import CommonOptions, number, show_panel, size, warn, write_json
from lanewise.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from lanewise.io.scene import Gaussians


@dataclass(kw_only=True)
class Options(CommonOptions):
    """Say what is in a capture, a run or a splat file: counts, sizes, extents, warnings. Nothing is changed.

    Examples:
      lanewise info photos
      lanewise info run
      lanewise info run/scene.ply --json -
    """

    path: tyro.conf.Positional[Path]
    """Folder of a capture, folder of a run, or a .ply file."""


def run(options: Options) -> int:
    """Describe the path; bad content raises `InputError`."""
    path = options.path
    if path.is_file():
        kind, facts, warnings = "splat file", *describe_ply(path)
    elif (path / "config.yaml").is_file():
        kind, facts, warnings = "run", *describe_run(path)
    elif path.is_dir():
        kind, facts, warnings = "capture", *describe_capture(path)
    else:
        raise InputError(
            str(path), got="nothing there", expected="a capture, a run or a .ply file", fix="check the path"
        )
    show_panel(f"{kind} {path}", {name.replace("_", " "): _shown(value) for name, value in facts.items()})
    for warning in warnings:
        warn(warning)
    write_json(options.json, {"kind": kind, "path": path, **facts, "warnings": warnings})
    return 0


def describe_capture(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Facts and warnings of a capture folder."""
    import numpy as np

    from lanewise.io.captures import load_capture

    capture = load_capture(path)
    sizes = Counter((view.width, view.height) for view in capture.views)
    centres = np.stack([-view.viewmat[:3, :3].T @ view.viewmat[:3, 3] for view in capture.views])  # [V, 3] world
    facts: dict[str, Any] = {
        "format": capture.format,
        "images": len(capture.views),
        "sizes": [f"{w}x{h} ({n})" for (w, h), n in sizes.most_common()],
        "masks": sum(view.mask_path is not None for view in capture.views),
        "training_views": len(capture.train_views()),
        "held_out_views": len(capture.test_views()),
        "split": "the format's own" if capture.has_own_split else "every 8th image by file name is held out",
        "cameras_extent": extent(centres),
        "points": 0 if capture.points is None else len(capture.points),
    }
    if capture.points is not None and len(capture.points):
        facts["points_extent"] = extent(capture.points)
    return facts, list(capture.warnings)


def describe_ply(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Facts and warnings of a splat file."""
    from lanewise.io.ply import load_ply

    gaussians = load_ply(path)
    return {**describe_gaussians(gaussians), "file_size": size(path.stat().st_size)}, _scene_warnings(gaussians)


def describe_gaussians(gaussians: Gaussians) -> dict[str, Any]:
    """Counts, extents and typical values of a scene."""
    facts: dict[str, Any] = {"gaussians": len(gaussians), "sh_degree": gaussians.sh_degree}
    if len(gaussians):
        facts["extent"] = extent(gaussians.means.numpy())
        facts["median_opacity"] = gaussians.opacities.sigmoid().median().item()
        facts["median_size"] = gaussians.scales.exp().amax(dim=1).median().item()
    return facts


def describe_run(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Facts and warnings of a run folder, finished or not."""
    from lanewise.train import RunFolder

    folder = RunFolder(path)
    config, checkpoint, records = folder.config(), folder.latest_checkpoint(), folder.metrics()
    finished = (path / "summary.json").is_file()
    facts: dict[str, Any] = {
        "capture": folder.capture_path(),
        "steps_wanted": config.steps,
        "steps_done": records[-1]["step"] if records else 0,
        "newest_checkpoint": None if checkpoint is None else checkpoint.name,
        "finished": finished,
    }
    if checkpoint is not None or folder.scene_path.is_file():
        facts |= describe_gaussians(folder.scene())
    if finished:
        known = {name: value for name, value in folder.summary().items() if not isinstance(value, (dict, list))}
        facts |= {name: value for name, value in known.items() if name not in facts}
    warnings = [] if finished else [f"the run is not finished; `lanewise train --resume {path}` goes on"]
    if not folder.capture_path().is_dir():
        warnings.append(f"the capture {folder.capture_path()} has gone; --capture tells other commands where it is now")
    return facts, warnings


def extent(points: np.ndarray) -> dict[str, list[float]]:
    """Smallest and largest coordinates of points [P, 3], world units."""
    return {"min": points.min(axis=0).tolist(), "max": points.max(axis=0).tolist()}


def _scene_warnings(gaussians: Gaussians) -> list[str]:
    warnings = []
    if not len(gaussians):
        warnings.append("the scene is empty")
    if zero := int((gaussians.quats.norm(dim=1) == 0).sum()):
        warnings.append(f"{zero} rotations are zero quaternions; they have no direction and render as nothing")
    return warnings


def _shown(value: Any) -> str:
    if isinstance(value, dict) and value.keys() == {"min", "max"}:
        return " x ".join(f"[{number(a)}, {number(b)}]" for a, b in zip(value["min"], value["max"], strict=True))
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return number(value) if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
