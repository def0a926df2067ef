"""Processes: values come back, crashes and hangs do no harm."""

import os
import signal
import sys
import types
from pathlib import Path

import pytest

from lanewise.audit.isolate import Isolator
from lanewise.errors import DeviceError


@pytest.fixture(scope="module", autouse=True)
def importable():
    """Another process imports these functions as `tests.audit.test_isolate`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[2])
        yield


def add(shared, number):
    return shared + number


def die(shared, number):
    os.kill(os.getpid(), signal.SIGSEGV)


def hang(shared, number):
    signal.pause()


def talk(shared, number):
    os.write(1, b"not a message")
    print("nor this")
    return number


def fail(shared, number):
    raise RuntimeError("broken")


class Fatal(int):
    fatal = True


def last_of_its_process(shared, number):
    return Fatal(os.getpid())


def process(shared, number):
    return os.getpid()


def usable_unless_spoiled(shared, device):
    if "spoils_forks" in sys.modules:
        raise RuntimeError(f"{device} error: initialization error")


def usable_only_in(shared, device):
    if os.getpid() != shared:
        raise RuntimeError("another process has all of the device")


def usable_nowhere(shared, device):
    raise RuntimeError(f"no {device}-capable device is detected")


def usable_until_there_is(shared, device):
    if Path(shared).exists():
        raise RuntimeError(f"the {device} device fell off the bus")


def usable(shared, device):
    pass


def modules(shared, *names):
    return [name in sys.modules for name in names]


def environment(shared, name):
    return os.environ.get(name)


@pytest.fixture
def spoiler(tmp_path, monkeypatch):
    """A module after whose import forked processes cannot use the device, as `usable_unless_spoiled` sees it."""
    (tmp_path / "spoils_forks.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    return "spoils_forks"


@pytest.fixture(scope="module")
def isolator():
    with Isolator(40, group=3) as isolator:
        assert (isolator.mode, isolator.note) == ("process", "")
        yield isolator


def test_a_value_comes_back(isolator):
    assert isolator.run(add, 2, timeout=60).value == 42


def test_what_is_printed_does_not_get_between_the_messages(isolator):
    assert isolator.run(talk, 7, timeout=60).value == 7


def test_a_crash_is_told_and_the_others_run(isolator):
    ends = list(isolator.run_all([(add, (1,)), (die, (0,)), (add, (2,)), (add, (3,))], timeout=60))
    assert [end.how for end in ends] == ["done", "crashed", "done", "done"]
    assert [end.value for end in ends] == [41, None, 42, 43]
    assert "SIGSEGV" in ends[1].reason


def test_a_hang_is_ended_and_the_others_run(isolator):
    ends = list(isolator.run_all([(hang, (0,)), (add, (2,))], timeout=1))
    assert [end.how for end in ends] == ["hung", "done"]


def test_an_exception_of_the_task_names_itself(isolator):
    end = isolator.run(fail, 0, timeout=60)
    assert end.how == "crashed"
    assert "RuntimeError: broken" in end.reason


def test_tasks_share_a_process_until_one_is_fatal(isolator):
    tasks = [(process, (0,)), (last_of_its_process, (0,)), (process, (0,))]
    first, second, third = (end.value for end in isolator.run_all(tasks, timeout=60))
    assert first == second != third
    assert first != os.getpid()


def test_who_stops_listening_ends_what_is_under_way(isolator):
    ends = isolator.run_all([(add, (1,)), (hang, (0,)), (hang, (0,))], timeout=600)
    assert next(ends).value == 41
    ends.close()
    assert isolator.run(add, 2, timeout=60).value == 42


def test_what_cannot_be_sent_is_forked_and_the_report_says_so():
    number = 40
    with Isolator(lambda: number) as isolator:
        assert isolator.mode == "fork"
        assert "forked from this process" in isolator.note
        assert isolator.run(lambda shared: (shared() + 2, os.getpid()), timeout=60).value[0] == 42
        assert isolator.run(lambda shared: os.getpid(), timeout=60).value != os.getpid()
        assert isolator.run(lambda shared: os.kill(os.getpid(), signal.SIGSEGV), timeout=60).how == "crashed"


def test_on_an_accelerator_what_cannot_be_sent_runs_here_and_the_report_says_so():
    with Isolator(lambda: 0, device="cuda", check=usable) as isolator:
        assert isolator.mode == "inline"
        assert "in this process" in isolator.note
        assert isolator.run(lambda shared: os.getpid(), timeout=60).value == os.getpid()


def test_what_the_other_process_cannot_import_is_forked(monkeypatch):
    """As functions of a test file are that pytest has loaded by its path."""
    module = types.ModuleType("loaded_by_its_path")
    exec("def triple(x):\n    return 3 * x", module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with Isolator(module.triple) as isolator:
        assert isolator.mode == "fork"
        assert "No module named 'loaded_by_its_path'" in isolator.note
        assert isolator.run(lambda shared: shared(14), timeout=60).value == 42


def test_what_spoils_the_device_for_forked_processes_is_not_imported_before_them(spoiler):
    with Isolator(40, device="cuda", preload=(spoiler,), check=usable_unless_spoiled) as isolator:
        assert isolator.mode == "process"
        assert isolator.run(add, 2, timeout=60).value == 42
        assert isolator.run(modules, spoiler, "torch._dynamo", timeout=60).value == [False, True]
        assert "spoils_forks" in isolator.note
        assert "cuda error: initialization error" in isolator.note
        assert isolator.unusable() is None


def test_what_harms_nobody_is_imported_before_and_nothing_is_said(spoiler):
    with Isolator(40, device="cuda", preload=(spoiler,), check=usable) as isolator:
        assert isolator.run(modules, spoiler, timeout=60).value == [True]
        assert isolator.note == ""


def test_a_device_that_only_this_process_can_use_is_used_here_and_the_report_says_so():
    with Isolator(os.getpid(), device="cuda", check=usable_only_in) as isolator:
        assert isolator.mode == "inline"
        assert "in this process" in isolator.note
        assert "another process has all of the device" in isolator.note


@pytest.mark.parametrize("shared", [40, lambda: 40], ids=["sent", "here"])
def test_a_device_that_nobody_can_use_is_an_error(shared):
    with pytest.raises(DeviceError, match=r"cuda cannot be used: .*no cuda-capable device.*Fix: ") as raised:
        Isolator(shared, device="cuda", check=usable_nowhere)
    assert raised.value.exit_code == 5


def test_a_device_that_is_lost_on_the_way_is_noticed(tmp_path):
    lost = tmp_path / "lost"
    with Isolator(str(lost), device="cuda", check=usable_until_there_is) as isolator:
        assert isolator.unusable() is None
        lost.touch()
        assert "fell off" in (isolator.unusable() or "")


@pytest.mark.parametrize(("set_by_the_user", "seen"), [(None, "1"), ("0", "0")])
def test_forked_processes_ask_for_devices_without_starting_the_driver(monkeypatch, set_by_the_user, seen):
    name = "PYTORCH_NVML_BASED_CUDA_CHECK"
    monkeypatch.delenv(name, raising=False)
    if set_by_the_user is not None:
        monkeypatch.setenv(name, set_by_the_user)
    with Isolator(40) as isolator:
        assert isolator.run(environment, name, timeout=60).value == seen
