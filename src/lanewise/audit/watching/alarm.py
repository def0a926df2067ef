"""What a detector has to say, before it becomes a finding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lanewise.audit.finding import Finding
from lanewise.audit.watching.parameters import Parameters


@dataclass(frozen=True)
class Alarm:
    """Something wrong in a step of a run.

    Attributes:
        code: of the finding.
        parameter: name of the parameter it is about; "" when it is about none.
        step: in which it was seen.
        false_alarm: at most this probable in a healthy run, for one look.
        cause: what is suspected.
        evidence: numbers.
        place: how the module is called, where it is not the parameter's own.
        argument: whose gradient, where it is not the parameter's.
    """

    code: str
    parameter: str
    step: int
    false_alarm: float
    cause: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    place: str | None = None
    argument: str | None = None

    def finding(self, parameters: Parameters) -> Finding:
        """The finding that is told."""
        parameter = parameters.current().get(self.parameter)
        argument = self.argument or self.parameter.rpartition(".")[2]
        known = parameter is not None
        return Finding(
            self.code,
            self.place or parameters.described(self.parameter),
            argument,
            {argument: list(parameter.shape)} if known else {},
            str(parameter.dtype).removeprefix("torch.") if known else "",
            {"device": str(parameter.device)} if known else {},
            {"step": self.step, "false_alarm_probability": self.false_alarm, **self.evidence},
            cause=self.cause,
        )
