"""The loss between rendered pictures and photographs."""

from lanewise.train.photometric.op import photometric_loss, ssim

__all__ = ["photometric_loss", "ssim"]
