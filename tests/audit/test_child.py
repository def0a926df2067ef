"""One forked process: what it says arrives whole, and its end is told for what it was."""

import io
import os
import signal

from lanewise.audit.child import in_child, receive, send


def ends_of(*functions, timeout=60.0):
    return list(in_child(lambda: 40, lambda: [(function, ()) for function in functions], timeout=timeout))


def test_messages_arrive_whole_and_an_end_in_the_middle_is_the_end():
    stream = io.BytesIO()
    send(stream, b"first")
    send(stream, b"")
    whole = stream.getvalue()
    stream.seek(0)
    assert [receive(stream), receive(stream), receive(stream)] == [b"first", b"", None]
    assert receive(io.BytesIO(whole[:10])) is None


def test_values_come_in_order_from_one_process():
    ends = ends_of(lambda shared: shared + 2, lambda shared: os.getpid(), lambda shared: os.getpid())
    assert ends[0].value == 42
    assert ends[1].value == ends[2].value != os.getpid()


def test_nothing_is_told_after_the_task_that_ended_the_process():
    ends = ends_of(lambda shared: shared, lambda shared: os.kill(os.getpid(), signal.SIGSEGV), lambda shared: shared)
    assert [end.how for end in ends] == ["done", "crashed"]
    assert "SIGSEGV" in ends[1].reason


def test_what_it_said_last_is_in_the_reason():
    def complain(shared):
        os.write(2, b"first\nlast words\n")
        os._exit(3)

    (end,) = ends_of(complain)
    assert (end.how, end.reason) == ("crashed", "the process ended with exit code 3: last words")
