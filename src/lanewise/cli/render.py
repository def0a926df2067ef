"""`lanewise render RUN`: held-out views and an orbit, as PNG."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from lanewise.cli.console import CommonOptions, progress, say, warn, write_json
from lanewise.cli.orbit import orbit_viewmats

if TYPE_CHECKING:
    from lanewise.cli.run_scene import RunScene
    from lanewise.io.captures import View


@dataclass(kw_only=True)
class Options(CommonOptions):
    """Render a run's held-out views, and an orbit around its scene, as PNG.

    Examples:
      lanewise render run
      lanewise render run --orbit 60 --out frames
    """

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The run folder."""
    out: Path | None = None
    """Folder for the pictures; `renders` in the run folder when not given."""
    orbit: int = 0
    """Number of frames on a circle around the scene, besides the held-out views."""
    capture: Path | None = None
    """Where the capture is now, when it has been moved since the training."""


def run(options: Options) -> int:
    """Write the pictures; the exit code is 5 when there is nothing to render."""
    from lanewise.cli.run_scene import RunScene, save_png
    from lanewise.io.files import make_folder

    scene = RunScene.open(options.run, options.capture)
    out = options.out or options.run / "renders"
    wanted = list(pictures(scene, options.orbit))
    if not wanted:
        warn("the run has no held-out views; --orbit N renders a circle around the scene")
        write_json(options.json, {"run": options.run, "pictures": []})
        return 5
    written = []
    with progress("rendering") as step:
        for done, (name, view) in enumerate(wanted, 1):
            path = out / name
            make_folder(path.parent)
            save_png(path, scene.picture(view))
            written.append(path)
            step(done, len(wanted))
    say(f"{len(written)} pictures in {out}")
    write_json(options.json, {"run": options.run, "pictures": written})
    return 0


def pictures(scene: RunScene, orbit: int) -> Iterator[tuple[str, View]]:
    """Name of the file and camera of every picture."""
    import numpy as np

    from lanewise.train.evaluation import picture_names

    names = picture_names(scene.data.test)
    for view in scene.data.test:
        yield f"held_out/{names[view.name]}", view
    if orbit:
        views = scene.data.train
        for index, viewmat in enumerate(orbit_viewmats(np.stack([view.viewmat for view in views]), orbit)):
            yield f"orbit/{index:04d}.png", replace(views[0], viewmat=viewmat)
