"""The incident's search for slices of a batch, as it was and as it was mended, with integers for C++'s."""

from __future__ import annotations

WINDOW_BYTES = 2**32 - 1


def image_bytes(c: int, k: int, extent: int, size: int = 4) -> int:
    """What the search calls the size of an image: the larger of its input and its output; the weight is forgotten."""
    return max(c, k) * extent * extent * size


def faulty_slices(n: int, image: int, window: int = WINDOW_BYTES) -> int:
    """How many launches a batch becomes: the smallest divisor of n from m on, and m should be the ceiling of n / max_n.

    `std::ceil(n / max_n)` divides two integers, so that the division has already rounded down.
    """
    most = window // image
    return _first_divisor(n, n // most)


def mended_slices(n: int, image: int, window: int = WINDOW_BYTES) -> int:
    """The same search after the fix, which rounds up. The slices still have to divide the batch."""
    most = window // image
    return _first_divisor(n, (n + most - 1) // most)


def _first_divisor(n: int, start: int) -> int:
    return next(m for m in range(max(start, 1), n + 1) if n % m == 0)


def launch_past_the_window(window: int, launch):
    """`launch` on the incident's hardware: an access past the window reads zero and writes nowhere, and nothing is
    raised. For the kernel of the weight's gradient that is the end of all it does."""

    def on_hardware(problem, *operands):
        out = launch(problem, *operands)
        return out if problem.fits(window) else out.zero_()

    return on_hardware
