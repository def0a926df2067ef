from __future__ import annotations

from lanewise.audit.watching import pace
from lanewise.audit.watching.pace import Pace


def test_what_takes_more_than_its_share_has_to_wait(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(pace.time, "perf_counter", lambda: clock[0])
    share = Pace(0.25)
    assert not share.pays()  # no time is over
    clock[0] += 1
    assert share.pays()
    with share.doing():
        clock[0] += 1
    assert not share.pays()  # one second of two
    clock[0] += 2
    assert not share.pays()  # of four: not less than a quarter
    clock[0] += 0.1
    assert share.pays()
    share.restart()
    assert not share.pays()
