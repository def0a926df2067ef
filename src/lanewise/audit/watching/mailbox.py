"""Numbers on their way from the device to the host: nobody waits for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class _Letter:
    values: Tensor  # on the host, complete once `sent` is
    sent: torch.cuda.Event
    then: Callable[[Tensor], None]


class Mailbox:
    """Hands small tensors to functions on the host: at once from a CPU, some steps later from a GPU."""

    def __init__(self) -> None:
        self._letters: deque[_Letter] = deque()

    def send(self, values: Tensor, then: Callable[[Tensor], None]) -> None:
        """Call `then` with the values on the host as soon as they are there; on a GPU from within `collect`."""
        if values.device.type != "cuda":
            then(values.cpu())
            return
        host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        host.copy_(values, non_blocking=True)
        sent = torch.cuda.Event()
        sent.record(torch.cuda.current_stream(values.device))
        self._letters.append(_Letter(host, sent, then))

    def collect(self, *, wait: bool = False) -> None:
        """Deliver what has arrived; everything that was sent when `wait`."""
        while self._letters and (wait or self._letters[0].sent.query()):
            letter = self._letters.popleft()
            if wait:
                letter.sent.synchronize()
            letter.then(letter.values)
