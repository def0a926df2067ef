"""The pytest plugin: a fixture that fails a test with the findings of an audit.

    def test_gradients(audit_gradients):
        audit_gradients(my_operator, (torch.randn(8, 16), torch.randn(4, 16)))

Imports nothing heavy: it is loaded in every pytest session where Lanewise is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from lanewise.audit.report import Report


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the fixture."""
    group = parser.getgroup("lanewise", "audits of gradients (lanewise)")
    group.addoption(
        "--audit-budget", default="10s", help="for each audit, such as 10s, 2m or '50 cases' (default: 10s)"
    )
    group.addoption("--audit-device", default=None, help="where audits run; where the tensors are without this")
    group.addoption("--audit-seed", type=int, default=0, help="of inputs, order and probes (default: 0)")


@pytest.fixture
def audit_gradients(request: pytest.FixtureRequest) -> Callable[..., Report]:
    """`lanewise.audit.audit`, with the budget, device and seed of the command line as defaults.

    The test fails when there are findings, and when no probe could tell; the report is returned.
    """
    option = request.config.getoption

    def check(fn: Callable[..., Any], args: Any = (), kwargs: Any = None, **options: Any) -> Report:
        from lanewise.audit import audit
        from lanewise.audit.report.console import text

        defaults = {"budget": option("audit_budget"), "device": option("audit_device"), "seed": option("audit_seed")}
        report = audit(fn, args, kwargs, **{**defaults, **options})
        if not report.ok:
            pytest.fail(text(report), pytrace=False)
        return report

    return check
