"""How Gaussians come and go while a scene is trained."""

from lanewise.train.strategy.base import Changes, Strategy
from lanewise.train.strategy.default import DefaultStrategy

__all__ = ["Changes", "DefaultStrategy", "Strategy"]
