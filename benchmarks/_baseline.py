"""A trainer as people write it around gsplat 1.5.3: its rasterizer and DefaultStrategy, torch for everything else.

The photographs stay on the GPU as float32, SSIM is a convolution of torch's, the optimizers are torch's fused Adam, one
a parameter. Settings, schedule and first Gaussians are those of `lanewise.train`, from the same `TrainConfig`, but for
the opacities, which gsplat 1.5.3 never resets (in `step % reset_every == 0 & step > 0` the `&` binds first). With
`fused` our loss and our optimizer step take the place of torch's, so that what is left is the renderer's and the
strategy's share.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import gsplat  # pyright: ignore[reportMissingImports] (the peer, where it is installed)
import torch
import torch.nn.functional as F
from gsplat.strategy import DefaultStrategy  # pyright: ignore[reportMissingImports]
from torch import Tensor

from lanewise.io.captures import View
from lanewise.train.adam import adam_coefficients, adam_step
from lanewise.train.config import TrainConfig
from lanewise.train.data import TrainingData, initial_gaussians
from lanewise.train.evaluation import psnr
from lanewise.train.photometric import photometric_loss, ssim

BETAS, EPS = (0.9, 0.999), 1e-15
WINDOW, SIGMA = 11, 1.5
WARMUP = 3  # runs of a step's parts before the clock starts: compilers, torch's memory pool


class Views(NamedTuple):
    """Photographs and cameras on the GPU: rgb [V, H, W, 3], viewmats [V, 4, 4], Ks [V, 3, 3], float32."""

    rgb: Tensor
    viewmats: Tensor
    Ks: Tensor


def load_views(data: TrainingData, views: Sequence[View]) -> Views:
    """Decode photographs of one size in parallel, and put them on the GPU."""
    with ThreadPoolExecutor() as pool:
        rgb = torch.stack(list(pool.map(lambda view: data.photos[view].rgb, views)))
    cameras = (torch.stack([torch.as_tensor(getattr(v, name)) for v in views]) for name in ("viewmat", "K"))
    return Views(rgb.cuda(), *(x.float().cuda() for x in cameras))


class FusedAdam(torch.optim.Optimizer):
    """Our optimizer step behind torch's interface, which gsplat's strategy works on."""

    def __init__(self, parameter: Tensor, rate: float, decay: float, steps: int) -> None:
        super().__init__([parameter], {"lr": rate})
        table = [adam_coefficients(rate * decay**i, i + 1, BETAS) for i in range(steps)]
        self._coefficients = torch.tensor(table, dtype=torch.float32, device=parameter.device)  # [steps, 2]
        self._taken = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Take a step with the gradient at hand; `closure` is of torch's interface, and not called."""
        (parameter,) = self.param_groups[0]["params"]
        state = self.state[parameter]
        if not state:
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        coefficients = self._coefficients[self._taken]
        moments = state["exp_avg"], state["exp_avg_sq"]
        adam_step(parameter, parameter.grad, *moments, coefficients, betas=BETAS, eps=EPS)
        self._taken += 1


class Baseline:
    """One training.

    Args:
        data: the capture.
        train, test: its photographs on the GPU.
        config: settings; what gsplat's strategy has under another name is passed on.
        fused: with our loss and optimizer step instead of torch's.
    """

    def __init__(self, data: TrainingData, train: Views, test: Views, config: TrainConfig, fused: bool) -> None:
        torch.manual_seed(config.seed)
        self.train, self.test, self.config = train, test, config
        self.height, self.width = train.rgb.shape[1:3]
        self.background = torch.tensor([data.background], device="cuda")
        first = initial_gaussians(data, config, torch.Generator().manual_seed(config.seed))
        self.params = {k: torch.nn.Parameter(x.cuda()) for k, x in first.tensors().items()}
        decay = config.means_lr_final ** (1 / config.means_lr_decay_steps)
        self.optimizers, self.schedule = self._optimizers(data.scene_scale, decay, fused)
        self.loss = fused_loss if fused else TorchLoss()
        self.strategy = DefaultStrategy(
            refine_start_iter=config.refine_start,
            refine_stop_iter=config.refine_stop,
            refine_every=config.refine_every,
            reset_every=config.reset_every,
            grow_grad2d=config.grow_grad2d,
        )
        self.strategy.check_sanity(self.params, self.optimizers)
        self.state = self.strategy.initialize_state(scene_scale=data.scene_scale)

    def run(self) -> dict[str, Any]:
        """Train and evaluate: psnr, ssim (means over the views held out), views, gaussians, seconds, warmup_seconds."""
        begin = time.perf_counter()
        self._warm_up()
        torch.cuda.synchronize()
        start, order = time.perf_counter(), []
        for index in range(self.config.steps):
            order = order or torch.randperm(len(self.train.rgb)).tolist()
            self._step(index, order.pop())
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        return self._evaluate() | {"seconds": seconds, "warmup_seconds": start - begin}

    def _step(self, index: int, view: int) -> None:
        degree = min(index // self.config.sh_degree_interval, self.config.sh_degree)
        picture, info = self._render(self.train, view, degree)
        self.strategy.step_pre_backward(self.params, self.optimizers, self.state, index, info)
        self.loss(picture, self.train.rgb[view : view + 1], self.config.ssim_weight).backward()
        for optimizer in self.optimizers.values():
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if self.schedule:
            self.schedule.step()
        self.strategy.step_post_backward(self.params, self.optimizers, self.state, index, info, packed=False)

    def _render(self, views: Views, view: int, degree: int) -> tuple[Tensor, dict[str, Any]]:
        """The picture [1, H, W, 3] of a view, and gsplat's meta."""
        p = self.params
        picture, _, info = gsplat.rasterization(
            p["means"],
            p["quats"],
            p["scales"].exp(),
            p["opacities"].sigmoid(),
            torch.cat([p["sh0"], p["shN"]], 1),
            views.viewmats[view : view + 1],
            views.Ks[view : view + 1],
            self.width,
            self.height,
            sh_degree=degree,
            packed=False,
            backgrounds=self.background,
        )
        return picture, info

    def _optimizers(
        self, scene_scale: float, decay: float, fused: bool
    ) -> tuple[dict[str, torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler | None]:
        """One Adam a parameter; the rate of the means decays, by a schedule where the optimizer is torch's."""
        rates = {name: getattr(self.config, f"{name}_lr") for name in self.params}
        rates["means"] *= scene_scale
        if fused:
            decays = {name: decay if name == "means" else 1.0 for name in self.params}
            steps = self.config.steps + WARMUP
            return {k: FusedAdam(p, rates[k], decays[k], steps) for k, p in self.params.items()}, None
        adams: dict[str, torch.optim.Optimizer] = {
            name: torch.optim.Adam([parameter], lr=rates[name], betas=BETAS, eps=EPS, fused=True)
            for name, parameter in self.params.items()
        }
        return adams, torch.optim.lr_scheduler.ExponentialLR(adams["means"], gamma=decay)

    def _warm_up(self) -> None:
        """Compile and load what the steps will call, without taking one."""
        target = self.train.rgb[:1]
        for degree in (*range(self.config.sh_degree + 1), *[self.config.sh_degree] * WARMUP):
            picture, _ = self._render(self.train, 0, degree)
            self.loss(picture, target, self.config.ssim_weight).backward()
        for name, parameter in self.params.items():
            copy = torch.nn.Parameter(parameter.detach().clone())
            copy.grad, parameter.grad = parameter.grad, None
            if isinstance(self.optimizers[name], FusedAdam):
                FusedAdam(copy, 0.0, 1.0, 1).step()
            else:
                torch.optim.Adam([copy], fused=True).step()

    @torch.no_grad()
    def _evaluate(self) -> dict[str, Any]:
        pictures = [self._render(self.test, i, self.config.sh_degree)[0].clamp(0, 1) for i in range(len(self.test.rgb))]
        pairs = list(zip(pictures, self.test.rgb[:, None], strict=True))
        return {
            "psnr": sum(psnr(a, b) for a, b in pairs) / len(pairs),
            "ssim": sum(ssim(a, b).item() for a, b in pairs) / len(pairs),
            "views": len(pairs),
            "gaussians": len(self.params["means"]),
        }


class TorchLoss:
    """(1 - w) L1 + w (1 - SSIM), its windows by torch's convolution."""

    def __init__(self) -> None:
        x = torch.arange(WINDOW, device="cuda") - WINDOW // 2
        g = torch.exp(-(x**2) / (2 * SIGMA**2))
        g = g / g.sum()
        self.window = (g[:, None] * g).expand(3, 1, WINDOW, WINDOW).contiguous()

    def __call__(self, picture: Tensor, target: Tensor, weight: float) -> Tensor:
        """The loss of pictures [1, H, W, 3]."""
        a, b = picture.permute(0, 3, 1, 2), target.permute(0, 3, 1, 2)
        return (1 - weight) * (a - b).abs().mean() + weight * (1 - self._ssim(a, b))

    def _ssim(self, a: Tensor, b: Tensor) -> Tensor:
        mean_a, mean_b, aa, bb, ab = (F.conv2d(x, self.window, groups=3) for x in (a, b, a * a, b * b, a * b))
        var_a, var_b, covariance = aa - mean_a**2, bb - mean_b**2, ab - mean_a * mean_b
        c1, c2 = 0.01**2, 0.03**2
        luminance = (2 * mean_a * mean_b + c1) / (mean_a**2 + mean_b**2 + c1)
        return (luminance * (2 * covariance + c2) / (var_a + var_b + c2)).mean()


def fused_loss(picture: Tensor, target: Tensor, weight: float) -> Tensor:
    """The same by our operator."""
    return photometric_loss(picture, target, ssim_weight=weight)
