"""`lanewise sfm IMAGES --out DIR`, and `lanewise sfm --undistort CAPTURE --out DIR`."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import tyro

from lanewise.cli.console import CommonOptions, say, show_panel, warn, write_json
from lanewise.errors import InputError
from lanewise.io.captures.sfm import SfmOptions, reconstruct
from lanewise.io.captures.undistort import undistort


@dataclass(kw_only=True)
class Options(CommonOptions):
    """Find the cameras of a folder of photographs with COLMAP, or undistort a COLMAP capture; needs the extra [colmap].

    The result is a new capture of undistorted images, ready for `lanewise train`. What is read is never written into.

    Examples:
      lanewise sfm photos --out capture
      lanewise sfm frames --out capture --matching sequential
      lanewise sfm --undistort capture --out undistorted
    """

    images: tyro.conf.Positional[Path | None] = None
    """Folder of photographs."""
    undistort: Path | None = None
    """Undistort this COLMAP capture instead."""
    out: Path | None = None
    """The capture folder to make; it must be new or empty."""
    reconstruction: SfmOptions = field(default_factory=SfmOptions)
    """How to reconstruct."""


def run(options: Options) -> int:
    """Make the capture and say what is in it; photographs that could not be registered are a warning."""
    if options.out is None or (options.images is None) == (options.undistort is None):
        raise InputError(
            "IMAGES, --undistort, --out",
            got="too few or too many of them",
            expected="lanewise sfm IMAGES --out DIR, or lanewise sfm --undistort CAPTURE --out DIR",
        )
    if options.undistort is not None:
        capture = undistort(options.undistort, options.out)
    else:
        assert options.images is not None
        report = partial(say, style="dim")
        capture = reconstruct(options.images, options.out, options.reconstruction, report=report)
    facts = {
        "images": len(capture.views),
        "sizes": sorted({f"{view.width}x{view.height}" for view in capture.views}),
        "points": 0 if capture.points is None else len(capture.points),
    }
    show_panel(f"capture {options.out}", {**facts, "sizes": ", ".join(facts["sizes"])})
    for warning in capture.warnings:
        warn(warning)
    say(f"next: lanewise train {options.out} --out RUN")
    write_json(options.json, {"capture": options.out, **facts, "warnings": capture.warnings})
    return 0
