"""What a densification strategy sums up from step to step."""

from lanewise.train.strategy.statistics.op import observe

__all__ = ["observe"]
