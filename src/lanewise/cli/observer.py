"""Showing a training run: one live line in a terminal, plain lines every hundred steps elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from lanewise.cli.console import console, duration, number, say, show_panel, size, warn

if TYPE_CHECKING:
    from rich.console import Console

    from lanewise.audit.finding import Finding
    from lanewise.train import Observer, StepRecord

PLAIN_EVERY = 100  # steps between two lines where there is no terminal


@contextlib.contextmanager
def observer_for_this_place(sh_degree: int) -> Iterator[Observer]:
    """The observer that suits the standard output of this moment; `sh_degree` is the highest degree of the run."""
    out = console()
    if not out.is_terminal:
        yield PlainObserver(sh_degree)
        return
    observer = LiveObserver(sh_degree, out)
    try:
        yield observer
    finally:
        observer.stop()


class PlainObserver:
    """Lines for a log file."""

    def __init__(self, sh_degree: int) -> None:
        self.sh_degree = sh_degree
        self.steps = 0

    def on_check(self, done: int, total: int) -> None:
        """Print a line every hundred photographs, and at the end."""
        if done % PLAIN_EVERY == 0 or done == total:
            say(f"checked {done}/{total} photographs")

    def on_start(self, info: dict[str, Any]) -> None:
        """Show what will be trained with."""
        self.steps = info["steps"]
        show_start(info, self.sh_degree)

    def on_compile(self, done: int, total: int) -> None:
        """Print a line at the beginning."""
        if done == 0:
            say(f"compiling kernels for {total} kinds of steps; a second run finds them compiled")

    def on_step(self, record: StepRecord) -> None:
        """Print every hundredth step."""
        if record.step % PLAIN_EVERY == 0 or record.step == self.steps:
            say("  ".join((f"step {record.step}/{self.steps}", *described(record))))

    def on_eval(self, result: dict[str, Any]) -> None:
        """Print the figures of the held-out views."""
        say(evaluation_line(result))

    def on_finding(self, finding: Finding) -> None:
        """Warn."""
        step = finding.evidence.get("step")
        warn(f"{finding} in step {step}: {finding.cause}. `lanewise explain {finding.code}` says more")

    def on_done(self, summary: dict[str, Any]) -> None:
        """Say nothing: the command shows the summary."""


class LiveObserver(PlainObserver):
    """One line at the bottom of the terminal, redrawn a few times a second."""

    def __init__(self, sh_degree: int, out: Console) -> None:
        super().__init__(sh_degree)
        self.live = Live(console=out, refresh_per_second=5, transient=True)

    def on_check(self, done: int, total: int) -> None:
        """Start the line with the first photograph, and count on it."""
        self.live.start()
        self._draw(done, total, "photographs checked")

    def on_start(self, info: dict[str, Any]) -> None:
        """Show what will be trained with, above the line."""
        self.live.stop()
        super().on_start(info)
        self.live.start()
        self._draw(0, self.steps, "first steps")

    def on_compile(self, done: int, total: int) -> None:
        """Count on the line."""
        self._draw(done, total, f"compiling kernels {done}/{total}")

    def on_step(self, record: StepRecord) -> None:
        """Replace the line."""
        self._draw(record.step, self.steps, "  ".join(described(record)))

    def on_eval(self, result: dict[str, Any]) -> None:
        """Print the figures above the line."""
        self.live.console.print(evaluation_line(result))

    def stop(self) -> None:
        """Give the terminal back."""
        self.live.stop()

    def _draw(self, done: int, total: int, text: str) -> None:
        line = Table.grid(padding=(0, 1))
        line.add_row(ProgressBar(total=total, completed=done, width=20), f"{done}/{total}", text)
        self.live.update(line)


def described(record: StepRecord) -> list[str]:
    """The parts of a step's line."""
    return [
        f"loss {record.loss:.4f}",
        f"PSNR {number(record.psnr)}",
        f"{record.gaussians:,} Gaussians",
        f"{number(record.its_per_s, 1)} it/s",
        size(record.memory_bytes),
        f"ETA {duration(record.eta_s)}",
    ]


def evaluation_line(result: dict[str, Any]) -> str:
    """The line of an evaluation."""
    what = "held-out" if result["split"] == "test" else "training"
    return f"step {result['step']}: {what} PSNR {number(result['psnr'])} dB, SSIM {number(result['ssim'], 4)}"


def optimizer_bytes(gaussians: int, sh_degree: int) -> int:
    """Bytes that Gaussians take in training: value, gradient and Adam's two moments of 11 + 3 (degree + 1)^2 floats."""
    return gaussians * (11 + 3 * (sh_degree + 1) ** 2) * 4 * 4


def show_start(info: dict[str, Any], sh_degree: int) -> None:
    """The panel before the first step."""
    held_out = (
        f"{info['test_views']} held out" if info["test_views"] else "none held out: the training ones are measured"
    )
    resumed = {} if info["resumed_from"] is None else {"resumed from step": f"{info['resumed_from']:,}"}
    start, million = optimizer_bytes(info["gaussians"], sh_degree), optimizer_bytes(1_000_000, sh_degree)
    rows = {
        "run": info["run"],
        "capture": info["capture"],
        "device, backend": f"{info['device']}, {info['backend']}",
        "images": f"{info['train_views']} to train on, {held_out}",
        "resolution": f"{info['width']} x {info['height']}",
        "Gaussians at the start": f"{info['gaussians']:,}",
        "their memory": f"{size(start)} in training; {size(million)} for each further million",
        "steps": f"{info['steps']:,}",
        **resumed,
    }
    show_panel("training", rows)
    for warning in info["warnings"]:
        warn(warning)
