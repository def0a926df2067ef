"""One family of exceptions. Every message says, in this order: argument, what came, what was expected, why, fix."""

from __future__ import annotations


class LanewiseError(Exception):
    """Base of every error that Lanewise raises on purpose.

    The command line prints the message without a traceback and exits with `exit_code`.
    """

    exit_code = 2


class InputError(LanewiseError, ValueError):
    """An argument, a file or an option is not usable.

    Args:
        argument: the name of the argument, file or option.
        got: what came (a shape, a dtype, a value, the content of a file).
        expected: what would have been accepted.
        why: the reason behind the rule, where it is not obvious.
        fix: what the user can do.
    """

    def __init__(
        self, argument: str, *, got: object, expected: object, why: str | None = None, fix: str | None = None
    ) -> None:
        self.argument, self.got, self.expected, self.why, self.fix = argument, got, expected, why, fix
        text = f"{argument}: got {got}, expected {expected}."
        if why:
            text += f" Why: {why.rstrip('.')}."
        if fix:
            text += f" Fix: {fix.rstrip('.')}."
        super().__init__(text)


class UnsupportedError(LanewiseError, NotImplementedError):
    """A feature that stands in a signature but is not there in this version, or not on this device."""

    def __init__(self, feature: str, *, why: str, fix: str | None = None) -> None:
        self.feature, self.why, self.fix = feature, why, fix
        text = f"{feature} is not supported: {why.rstrip('.')}."
        if fix:
            text += f" Fix: {fix.rstrip('.')}."
        super().__init__(text)


class DeviceError(LanewiseError, RuntimeError):
    """A device that is there cannot be used: its driver does not start, it was lost, or somebody else has all of it."""

    exit_code = 5  # nothing ran

    def __init__(self, device: str, *, why: str, fix: str | None = None) -> None:
        self.device, self.why, self.fix = device, why, fix
        text = f"{device} cannot be used: {why.rstrip('.')}."
        if fix:
            text += f" Fix: {fix.rstrip('.')}."
        super().__init__(text)


class MissingDependencyError(LanewiseError, ImportError):
    """An optional package is not installed; the message names the command that installs it."""

    def __init__(self, package: str, *, needed_for: str, install: str) -> None:
        self.package, self.needed_for, self.install = package, needed_for, install
        super().__init__(f"{package} is not installed; it is needed for {needed_for}. Fix: {install}")


class StorageError(LanewiseError, OSError):
    """A file could not be written or read back: full disk, no permission, damaged content."""

    def __init__(self, path: object, *, problem: str, fix: str | None = None) -> None:
        self.path, self.problem, self.fix = path, problem, fix
        text = f"{path}: {problem.rstrip('.')}."
        if fix:
            text += f" Fix: {fix.rstrip('.')}."
        super().__init__(text)
