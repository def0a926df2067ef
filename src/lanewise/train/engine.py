"""Running planned steps on a device, a few at a time, with as few words between host and device as there can be."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lanewise.train.config import TrainConfig
from lanewise.train.data import TrainingData
from lanewise.train.evaluation import psnr_on_device
from lanewise.train.graph import CaptureError, Graphs
from lanewise.train.lists import Capacity, Lists
from lanewise.train.optimizer import NAMES, GaussianOptimizer
from lanewise.train.photos import DevicePhotos, HostPhotos
from lanewise.train.plan import Outcome, Plan
from lanewise.train.render import Rasterizer, Renderer
from lanewise.train.step import DIVERGED, WARM_UP, Controls, Kind, Picture, TrainingStep
from lanewise.train.strategy import Strategy
from lanewise.train.watching import TrainingWatch

RESIDENT = 0.5  # part of the free device memory that photographs may take for good
MOST_FAILURES = 3  # to capture a step, one after another; then graphs are given up
STREAMED_STEPS = 4  # most steps of a flight whose photographs are streamed


@dataclass(frozen=True)
class _Flight:
    plans: Sequence[Plan]
    names: tuple[str, ...]  # of the parameters that take steps
    report: Tensor  # [6] float64 on the host: skip, done, needed (2), loss, psnr
    events: tuple[torch.cuda.Event, torch.cuda.Event] | None  # before and after


class Engine:
    """Takes flights of steps: `launch` queues one, `settle` waits for the oldest and tells what became of it.

    On a GPU with the library's own renderer nothing in a flight waits for the device, steps are captured into graphs,
    and two flights may be in the air, so that the device never waits for the host either. The lists of Gaussians then
    have a capacity. A step whose lists do not fit changes nothing, nor do those launched after it; `settle` notices,
    makes room, and gives their plans back.

    Args:
        data, config, optimizer, strategy, renderer, device: of the run.
        watch: over its gradients; None for none.
    """

    def __init__(
        self,
        data: TrainingData,
        config: TrainConfig,
        optimizer: GaussianOptimizer,
        strategy: Strategy,
        renderer: Rasterizer,
        device: torch.device,
        watch: TrainingWatch | None = None,
    ) -> None:
        self._watch = watch
        self.data, self.config, self.optimizer, self.strategy = data, config, optimizer, strategy
        self.renderer, self.device = renderer, device
        on_gpu = device.type == "cuda"
        self.lists: Lists | None = None  # where nothing waits to learn how long they have to be
        if isinstance(renderer, Renderer) and renderer.takes_capacity(optimizer.params["means"]):
            self.lists = Lists(renderer, data, device)
        self.longest = config.log_every if on_gpu or self.lists else 1
        self.depth = 2 if self.lists else 1
        if on_gpu:
            budget = int(RESIDENT * torch.cuda.mem_get_info(device)[0])
            photos = DevicePhotos(data, device, budget, STREAMED_STEPS * config.batch_size)
            self.longest = self.longest if photos.resident else min(self.longest, STREAMED_STEPS)
        else:
            photos = HostPhotos(data, device)
        self.photos = photos
        self.controls = Controls(config.batch_size, self.longest, device)
        self._step = TrainingStep(config, photos, optimizer, strategy, renderer, self.controls)
        self._graphs: Graphs[Picture] | None = None
        if on_gpu and self.lists and config.cuda_graph:
            self._graphs = Graphs(device)
        self._why_no_graph: str | None = None
        self._failures = 0  # to capture a step, one after another
        self._flights: deque[_Flight] = deque()
        self._reports = [torch.zeros(6, dtype=torch.float64, pin_memory=on_gpu) for _ in range(2)]
        self._memory: tuple[int, ...] = ()  # where the tensors were that the present graphs and lists are for
        self._stream = torch.cuda.Stream(device) if on_gpu else None
        self._times = dict.fromkeys(("device", "launch", "wait", "fit"), 0.0)
        self._counts = dict.fromkeys(("steps", "overflows", "repeated_steps"), 0)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Inside the block the device's work is on a stream of its own, as capturing demands."""
        if self._stream is None:
            yield
            return
        outside = torch.cuda.current_stream(self.device)
        self._stream.wait_stream(outside)
        try:
            with torch.cuda.device(self.device), torch.cuda.stream(self._stream):
                yield
        finally:
            outside.wait_stream(self._stream)

    def start_at(self, step: int) -> None:
        """So many steps are completed."""
        self.controls.done.fill_(step)

    @property
    def in_the_air(self) -> int:
        """Flights that were launched and not settled."""
        return len(self._flights)

    def warm_up(self, step: int, tell: Callable[[int, int], None]) -> float:
        """Take every kind of step that the run needs once with `skip` raised, which compiles its kernels.

        Args:
            step: steps that are completed.
            tell: called with (compiled, total) before the first and after every kind.

        Returns:
            seconds that it took; 0 where there is nothing to compile.
        """
        if self.lists is None or self._stream is None or not len(self.optimizer):
            return 0.0
        begin = time.perf_counter()
        self.controls.skip.fill_(WARM_UP)
        self.optimizer.ready()
        watched = self.strategy.watches(step)
        if watched:
            self.strategy.prepare(len(self.optimizer), self.device)
        kinds = [(view, degree) for view in self._masked_and_not() for degree in self._degrees(step)]
        for number, (view, degree) in enumerate(kinds):
            tell(number, len(kinds))
            backgrounds = torch.zeros(self.config.batch_size, 3)
            plan = Plan(step, (view,) * self.config.batch_size, degree, backgrounds)
            self.lists.fit(self.optimizer.params, plan)
            (slots,) = self.photos.reserve([plan.views])
            self.controls.write([([0.0] * (2 * len(NAMES)), backgrounds, plan.views, slots)])
            self.photos.load(plan.views, slots)
            size = (self.data.train[view].height, self.data.train[view].width)
            self._step(step, Kind(size, degree, watched, self.lists.capacity))
            self._stream.synchronize()
        tell(len(kinds), len(kinds))
        self.controls.skip.zero_()
        return time.perf_counter() - begin

    def timing(self) -> dict[str, Any]:
        """Where the time of the steps went, in milliseconds a step where not said otherwise, and what was counted.

        `device` is from the first to the last kernel of a flight; `launch` is the host's work for it, `wait` how long
        the host then waited, and `fit` (a part of `launch`) looking at new Gaussians; `capture_ms` is for one capture.
        """
        graphs = self._graphs
        if graphs is None and not self._why_no_graph:
            how = "off"
        else:
            how = "on" if graphs is not None else f"off: {self._why_no_graph}"
        steps = max(self._counts["steps"], 1)
        return {
            "cuda_graph": how,
            "photographs": self.photos.how,
            **{f"{name}_ms": round(1e3 * seconds / steps, 4) for name, seconds in self._times.items()},
            "captures": graphs.captures if graphs else 0,
            "capture_ms": round(1e3 * graphs.seconds / max(graphs.captures, 1), 3) if graphs else 0.0,
            "replays": graphs.replays if graphs else 0,
            **self._counts,
            "capacity": list(self._capacity or ()),
        }

    # --- flights

    def launch(self, plans: Sequence[Plan]) -> None:
        """Queue steps, at most `longest`, with one degree of harmonics, between which the Gaussians stay the same."""
        begin = time.perf_counter()
        watched = self.strategy.watches(plans[0].index)
        if watched:
            self.strategy.prepare(len(self.optimizer), self.device)
        if self.optimizer.on_device:
            self.optimizer.ready()
        names = self._moving(plans[0].sh_degree)
        slots = self.photos.reserve([plan.views for plan in plans])
        announced = [self._announce(plan, names) for plan in plans]
        self._notice_changes(plans[0])
        rows = zip(announced, plans, slots, strict=True)
        self.controls.write([(told, plan.backgrounds, plan.views, places) for told, plan, places in rows])
        events = self._events()
        picture = None
        for plan, places in zip(plans, slots, strict=True):
            self.photos.load(plan.views, places)
            picture = self._run(plan, watched)
        assert picture is not None
        report = self._report(picture)
        if events is not None:
            events[1].record()
        self._flights.append(_Flight(plans, names, report, events))
        self._times["launch"] += time.perf_counter() - begin

    def settle(self) -> Outcome:
        """Wait for the oldest flight."""
        flight = self._flights.popleft()
        begin = time.perf_counter()
        if flight.events is not None:
            flight.events[1].synchronize()
            self._times["device"] += flight.events[0].elapsed_time(flight.events[1]) / 1e3
        self._times["wait"] += time.perf_counter() - begin
        skip, done, *needed, loss, psnr = flight.report.tolist()
        if self.lists is not None:
            self.lists.saw(needed)
        self._counts["steps"] += len(flight.plans)
        if not skip:
            return Outcome(int(done), loss, psnr)
        if skip == DIVERGED:
            return Outcome(int(done), loss, psnr, diverged=int(done))
        return Outcome(int(done), loss, psnr, repeat=self._make_room(flight, int(done)))

    def _make_room(self, flight: _Flight, done: int) -> tuple[Plan, ...]:
        """Have longer lists, and undo on the host what the steps from number `done` on would have done."""
        flights = [flight, *self._flights]
        self._flights.clear()
        self._counts["steps"] += sum(len(each.plans) for each in flights[1:])
        needed = self.controls.needed.tolist()  # waits for the later steps: they were rendered too
        lost = [(plan, each.names) for each in flights for plan in each.plans if plan.index >= done]
        for _, names in lost:
            self.optimizer.take_back(names)
        assert self.lists is not None
        self.lists.enlarge(needed)
        if self._graphs is not None:
            self._graphs.clear()
        self.controls.skip.zero_()
        self._counts["overflows"] += 1
        self._counts["repeated_steps"] += len(lost)
        return tuple(plan for plan, _ in lost)

    # --- steps

    def _run(self, plan: Plan, watched: bool) -> Picture:
        view = self.data.train[plan.views[0]]
        kind = Kind((view.height, view.width), plan.sh_degree, watched, self._capacity)
        if self._watch is not None and (self._graphs is None or self._watch.looks(plan.index)):
            return self._step(plan.index, kind, self._watch)
        if self._graphs is not None and len(self.optimizer):
            try:
                picture = self._graphs(kind, lambda: self._step(plan.index, kind))
                self._failures = 0
                return picture
            except CaptureError as error:
                self._give_up_graphs(error)
        return self._step(plan.index, kind)

    def _give_up_graphs(self, error: CaptureError) -> None:
        """Go on without graphs, unless a step that is launched by itself may have cured it: that compiles kernels."""
        self._failures += 1
        if self._failures < MOST_FAILURES:
            return
        self._graphs, self._why_no_graph = None, str(error)
        warnings.warn(
            f"the training step could not be captured into a graph ({error}): steps are launched one by one, which is "
            "slower and gives the same results",
            stacklevel=2,
        )

    @property
    def _capacity(self) -> Capacity | None:
        return None if self.lists is None else self.lists.capacity

    def _notice_changes(self, plan: Plan) -> None:
        """Where Gaussians have come or gone, forget the graphs and fit the lists."""
        memory = (len(self.optimizer), *self.optimizer.addresses(), *self.strategy.addresses())
        if self.lists is None or memory == self._memory:
            return
        assert not self._flights  # whose steps may be running still
        begin = time.perf_counter()
        if self._graphs is not None:
            self._graphs.clear()
        self.lists.fit(self.optimizer.params, plan)
        self._memory = memory
        self.controls.needed.zero_()
        self._times["fit"] += time.perf_counter() - begin

    def _moving(self, sh_degree: int) -> tuple[str, ...]:
        """The parameters that a step with harmonics to this degree changes."""
        if not self.optimizer.on_device or not len(self.optimizer):
            return ()
        return NAMES if sh_degree > 0 else tuple(name for name in NAMES if name != "shN")

    def _announce(self, plan: Plan, names: tuple[str, ...]) -> list[float]:
        return self.optimizer.announce(plan.index, names) if self.optimizer.on_device else [0.0] * (2 * len(NAMES))

    def _report(self, picture: Picture) -> Tensor:
        """What the host is told after a flight, on its way."""
        controls = self.controls
        psnr = psnr_on_device(picture.render.clamp(0, 1), picture.target, picture.mask)
        told = (controls.skip, controls.done, controls.needed, controls.loss, psnr)
        self._reports.reverse()
        self._reports[0].copy_(torch.cat([value.reshape(-1).double() for value in told]), non_blocking=True)
        return self._reports[0]

    def _events(self) -> tuple[torch.cuda.Event, torch.cuda.Event] | None:
        if self._stream is None:
            return None
        events = (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
        events[0].record()
        return events

    def _masked_and_not(self) -> list[int]:
        """A training view with a mask and one without, where there are such."""
        first: dict[bool, int] = {}
        for number, view in enumerate(self.data.train):
            first.setdefault(view.mask_path is not None, number)
        return list(first.values())

    def _degrees(self, step: int) -> range:
        """Degrees of harmonics that the run comes to from this step on."""
        config = self.config
        reached = (min(index // config.sh_degree_interval, config.sh_degree) for index in (step, config.steps - 1))
        first, last = reached
        return range(first, last + 1)
