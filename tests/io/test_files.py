"""Atomic writes: all of a file or none of it."""

import errno
import stat

import pytest

from lanewise.errors import StorageError
from lanewise.io import files
from lanewise.io.files import atomic_write, storage_error


def test_content_appears_at_the_end_and_not_before(tmp_path):
    target = tmp_path / "a.bin"
    target.write_bytes(b"old")
    with atomic_write(target) as stream:
        stream.write(b"new content")
        stream.flush()
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"new content"
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]


def test_an_error_inside_keeps_the_old_file_and_leaves_nothing_behind(tmp_path):
    target = tmp_path / "a.bin"
    target.write_bytes(b"old")

    def write():
        with atomic_write(target) as stream:
            stream.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert target.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]


def test_the_file_is_readable_as_the_umask_says(tmp_path):
    with atomic_write(tmp_path / "a.bin") as stream:
        stream.write(b"x")
    assert stat.S_IMODE((tmp_path / "a.bin").stat().st_mode) == 0o666 & ~files._umask()


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "the disk is full"),
        (errno.EACCES, "no permission to write here"),
        (errno.EROFS, "no permission to write here"),
        (errno.ENOENT, "the folder does not exist"),
        (errno.EIO, "could not be written"),
    ],
)
def test_every_reason_has_its_own_message(number, text):
    error = storage_error("run/scene.ply", OSError(number, "reason"))
    assert isinstance(error, StorageError)
    assert text in str(error)
    assert str(error).startswith("run/scene.ply: ")
