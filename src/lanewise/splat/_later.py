"""Options that stand in `rasterization`'s signature for a later version: refused by name, never ignored."""

from __future__ import annotations

from lanewise.errors import InputError, UnsupportedError

CAMERA_MODELS = ("pinhole", "ortho", "fisheye", "ftheta")


def refuse_what_is_not_there_yet(*, camera_model: str, **options: object) -> None:
    """Raise an UnsupportedError for the first option that is set.

    Args:
        camera_model: any but "pinhole" is refused.
        options: by name; None and False are not set.
    """
    if camera_model not in CAMERA_MODELS:
        raise InputError(
            "camera_model", got=repr(camera_model), expected=f"one of {', '.join(map(repr, CAMERA_MODELS))}"
        )
    if camera_model != "pinhole":
        raise UnsupportedError(
            f"camera_model={camera_model!r}",
            why="this version projects pinhole cameras",
            fix="undistort the images to a pinhole camera (lanewise sfm --undistort)",
        )
    for name, value in options.items():
        if value is None or value is False:
            continue
        # gsplat's rolling_shutter is an enumeration whose GLOBAL member means "none".
        if name == "rolling_shutter" and getattr(value, "name", value) == "GLOBAL":
            continue
        shown = repr(value) if isinstance(value, bool) else "..."
        raise UnsupportedError(f"{name}={shown}", why="it comes in a later version", fix=f"leave {name} at its default")
