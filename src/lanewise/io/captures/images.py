"""Image files: their size, their pixels and their masks.

The stored pixels count: an EXIF orientation is not applied, since neither COLMAP nor Nerfstudio applies it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import PIL.Image
from numpy.typing import NDArray
from PIL.Image import Resampling

from lanewise.errors import InputError


def is_file(path: Path) -> bool:
    """Whether there is such a file; a name that cannot be one (too long, a zero byte) is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def image_size(path: Path) -> tuple[int, int]:
    """Width and height in pixels from the file's header.

    Raises:
        InputError: the file is missing or no image.
    """
    with _opened(path) as image:
        return image.size


def has_transparency(path: Path) -> bool:
    """Whether the file's header announces an alpha channel or a transparent colour.

    Raises:
        InputError: the file is missing or no image.
    """
    with _opened(path) as image:
        return _has_alpha(image)


def decode_image(path: Path, width: int, height: int) -> NDArray[np.uint8]:
    """Pixels [height, width, 3], or [height, width, 4] with straight alpha where some pixel is not opaque.

    A larger file is reduced by area averaging, which weighs colours with their alpha.

    Raises:
        InputError: the file is missing, truncated or no image that can be shown in 8 bits.
    """
    with _opened(path) as image:
        pixels = np.asarray(_resized(_eight_bit(image, path), width, height))
    return pixels[..., :3] if pixels.shape[2] == 4 and pixels[..., 3].min() == 255 else pixels


def decode_mask(path: Path, width: int, height: int) -> NDArray[np.bool_]:
    """Which pixels count [height, width]: those that are not 0 in the file, after reduction in all pixels averaged.

    Raises:
        InputError: the file is missing, truncated or no image.
    """
    with _opened(path) as image:
        grey = image if image.mode in ("F", "I") or image.mode.startswith("I;16") else image.convert("L")
        counts = PIL.Image.fromarray((np.asarray(grey) != 0).astype(np.uint8) * 255)
    return np.asarray(_resized(counts, width, height)) == 255


@contextmanager
def _opened(path: Path) -> Iterator[PIL.Image.Image]:
    """The image at `path`; whatever its decoder raises, on opening or later, becomes an error that names the file."""
    if not is_file(path):
        raise InputError(
            str(path),
            got="no such file",
            expected="an image of the capture",
            fix="put the file there, name the image folder with --images, or remove the image from the capture",
        )
    try:
        with PIL.Image.open(path) as image:
            yield image
    except InputError:
        raise
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error, ... on damaged files
        raise InputError(
            str(path),
            got=f"an unreadable image ({str(error) or type(error).__name__})",
            expected="a whole PNG, JPEG or other image that Pillow reads",
            fix="copy the file again, or remove it from the capture",
        ) from error


def _eight_bit(image: PIL.Image.Image, path: Path) -> PIL.Image.Image:
    """The image in mode RGB or RGBA."""
    if image.mode == "I" or image.mode.startswith("I;16"):  # 16-bit grey; Pillow's own conversion clips at 255
        values = np.clip(np.asarray(image), 0, 65535).astype(np.uint32)
        return PIL.Image.fromarray(((values + 128) // 257).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise InputError(
            str(path), got="floating-point pixels", expected="8 or 16 bits", fix="convert the image to PNG or JPEG"
        )
    return image.convert("RGBA" if _has_alpha(image) else "RGB")


def _has_alpha(image: PIL.Image.Image) -> bool:
    return image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info


def _resized(image: PIL.Image.Image, width: int, height: int) -> PIL.Image.Image:
    """The image reduced by area averaging, in one pass with one rounding where a whole factor divides both sides."""
    if image.size == (width, height):
        return image
    factor = image.width // width
    if factor >= 1 and image.size == (width * factor, height * factor):
        return image.reduce(factor)
    return image.resize((width, height), Resampling.BOX)
