"""Files below one directory, and no way out of it.

Lives here: opening by steps from the root's descriptor, each refusing a symbolic link, so that neither `..` nor a link,
nor one put there a moment ago, leads outside; whole reads and atomic writes. Not here: what the model asks for
(`files.py`). Links are refused wherever they lead: to follow one safely cannot be told from following one that has just
been exchanged.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from perdure import errors
from perdure.agent import ToolError

MAX_FILE = 10 * 2**20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Root:
    """A directory and what is below it. Paths are relative to it; every refusal is a `ToolError`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises `ConfigError` where there is no such directory."""
        self.path = Path(path).absolute()
        if not self.path.is_dir():
            raise errors.ConfigError(f"{self.path} is no directory")

    @contextmanager
    def directory(self, parts: tuple[str, ...], *, create: bool = False) -> Generator[int, None, None]:
        """A descriptor of the directory at these steps below the root."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for number, part in enumerate(parts):
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=descriptor)
                with _words("/".join(parts[: number + 1]), descriptor, part):
                    below = os.open(part, _DIRECTORY, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)

    def read(self, path: str) -> bytes:
        """The whole file."""
        *above, name = steps(path, to_file=True)
        with self.directory(tuple(above)) as directory, _words(path, directory, name):
            descriptor = os.open(name, _FILE, dir_fd=directory)
            with os.fdopen(descriptor, "rb") as file:
                about = os.fstat(descriptor)
                if not stat.S_ISREG(about.st_mode):
                    raise ToolError(f"{path} is no regular file")
                if about.st_size > MAX_FILE:
                    raise ToolError(f"{path} has {about.st_size} bytes; at most {MAX_FILE} can be read")
                return file.read(MAX_FILE)

    def write(self, path: str, data: bytes) -> bool:
        """Put a file in place whole, durable and with the old one's permissions; whether it is new."""
        if len(data) > MAX_FILE:
            raise ToolError(f"{len(data)} bytes are too many; at most {MAX_FILE} can be written")
        *above, name = steps(path, to_file=True)
        with self.directory(tuple(above), create=True) as directory, _words(path, directory, name):
            mode = _mode_of(path, name, directory)
            scratch = f".{name[:200]}.{secrets.token_hex(4)}"
            try:
                descriptor = os.open(
                    scratch,
                    os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
                    0o666,
                    dir_fd=directory,
                )
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                    file.flush()
                    if mode is not None:
                        os.fchmod(descriptor, stat.S_IMODE(mode))
                    os.fsync(descriptor)
                os.replace(scratch, name, src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(scratch, dir_fd=directory)
                raise
            os.fsync(directory)
            return mode is None


def steps(path: str, *, to_file: bool = False) -> tuple[str, ...]:
    """The steps of a relative path. Raises `ToolError` for one that could lead out of the root."""
    if "\0" in path:
        raise ToolError("A path holds no NUL")
    if path.startswith(("/", "~")):
        raise ToolError(f"{path} is not relative to the working directory; only paths below it can be used")
    found = tuple(part for part in path.split("/") if part not in {"", "."})
    if ".." in found:
        raise ToolError(f"{path} leads upward with ..; only paths below the working directory can be used")
    if to_file and not found:
        raise ToolError(f"{path!r} names no file")
    return found


def _mode_of(path: str, name: str, directory: int) -> int | None:
    """The mode of the regular file that a write would replace, None where there is none."""
    try:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise ToolError(f"{path} is {'a symbolic link' if stat.S_ISLNK(mode) else 'no regular file'}: not replaced")
    return mode


@contextmanager
def _words(path: str, directory: int, name: str) -> Generator[None, None, None]:
    """Say an operating system's error in words for the model."""
    try:
        yield
    except FileNotFoundError:
        raise ToolError(f"There is no {path}") from None
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR} and _is_link(directory, name):
            raise ToolError(f"{path} is a symbolic link, and those are not followed") from None
        raise ToolError(f"{path}: {error.strerror or error}") from None


def _is_link(directory: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False
