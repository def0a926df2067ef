"""Writing a file so that a reader sees either the old content or the new one, never a part."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from lanewise.errors import StorageError


@contextlib.contextmanager
def atomic_write(path: Path | str) -> Iterator[BinaryIO]:
    """A binary stream whose content appears at `path` when the block ends without an error, and not before.

    The bytes go to a temporary file in the same folder, are flushed to the disk, and replace `path` in one step. The
    previous file stays as it was when anything goes wrong, a full disk and a killed process included.

    Raises:
        StorageError: the folder is missing or not writable, or the disk is full.
    """
    path = Path(path)
    temporary: str | None = None
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # noqa: PTH101  mkstemp makes files that only their owner can read
        os.replace(temporary, path)  # noqa: PTH105
        temporary = None
        _sync_folder(path.parent)
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise storage_error(path, error) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108


def make_folder(path: Path | str) -> None:
    """Make a folder and those above it; one that is there stays.

    Raises:
        StorageError: it cannot be made.
    """
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(path, error) from error


def storage_error(path: Path | str, error: OSError) -> StorageError:
    """The `StorageError` that tells a user what `error` means for the file `path`, and what helps."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(
            path, problem="the disk is full; the file was not written", fix="free some space, or choose another folder"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorageError(path, problem="no permission to write here", fix="choose a folder that you may write to")
    if error.errno == errno.EEXIST:
        return StorageError(path, problem="there is a file of this name", fix="choose another folder")
    there = next((folder for folder in Path(path).absolute().parents if folder.exists()), Path("/"))
    if error.errno in (errno.ENOENT, errno.ENOTDIR) and not there.is_dir():
        return StorageError(path, problem=f"{there} is a file, not a folder", fix="choose another folder")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return StorageError(path, problem="the folder does not exist", fix=f"mkdir -p {Path(path).parent}")
    return StorageError(path, problem=f"could not be written ({error.strerror or error})")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    # The new name is durable only once the folder is; some file systems cannot sync a folder, and then that is that.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
