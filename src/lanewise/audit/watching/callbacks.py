"""`watch` inside other people's training loops: a callback for Lightning, and one for Hugging Face's Trainer."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

from torch import nn

from lanewise.audit.watching.watcher import Watch, watch
from lanewise.errors import MissingDependencyError


class _Running:
    """A watch that begins when a training run does and ends with it, however that ends."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self.watch: Watch | None = None

    def begin(self, model: nn.Module, step: int) -> None:
        """Watch this model from this step on; steps of whatever optimizer holds its parameters count."""
        self.end()
        self.watch = watch(model, step=step, **self._options)

    def end(self) -> None:
        """Take all hooks away; `watch` keeps what was found."""
        if self.watch is not None:
            self.watch.close()


def lightning_callback(**options: Any) -> Any:
    """A `lightning.pytorch.Callback` that watches the run: `Trainer(callbacks=[lightning_callback(every=25)])`.

    Args:
        options: of `watch`, without the model, the optimizer and the step.

    Returns:
        the callback; its attribute `running.watch` has the findings.

    Raises:
        MissingDependencyError: neither lightning nor pytorch_lightning is installed.
    """
    base = _first_of("lightning.pytorch", "pytorch_lightning", install="pip install lightning").Callback

    class WatchCallback(base):
        """Watches the run."""

        def __init__(self) -> None:
            super().__init__()
            self.running = _Running(options)

        def __reduce__(self) -> Any:  # processes that are spawned watch for themselves
            return functools.partial(lightning_callback, **options), ()

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self.running.begin(pl_module, trainer.global_step)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            self.running.end()

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            self.running.end()

    return WatchCallback()


def transformers_callback(**options: Any) -> Any:
    """A `transformers.TrainerCallback` that watches the run: `Trainer(..., callbacks=[transformers_callback()])`.

    The Trainer tells nobody when training ends by an exception: then `running.end()` takes the hooks away (and the next
    run with the same callback does).

    Args:
        options: of `watch`, without the model, the optimizer and the step.

    Returns:
        the callback; its attribute `running.watch` has the findings.

    Raises:
        MissingDependencyError: transformers is not installed.
    """
    base = _first_of("transformers", install="pip install transformers").TrainerCallback

    class WatchCallback(base):
        """Watches the run."""

        def __init__(self) -> None:
            super().__init__()
            self.running = _Running(options)

        def __reduce__(self) -> Any:  # a copy watches for itself
            return functools.partial(transformers_callback, **options), ()

        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            self.running.begin(model, state.global_step)

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.running.end()

    return WatchCallback()


def _first_of(*names: str, install: str) -> ModuleType:
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name not in (name, name.partition(".")[0]):
                raise
    package = names[0].partition(".")[0]
    raise MissingDependencyError(package, needed_for="watching its training runs", install=install)
