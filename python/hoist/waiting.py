# SPDX-License-Identifier: MIT
"""Waiting for a descriptor: in steps between which signals are handled, and in event loops."""

import _thread
import os
import select
import sys

from . import _hoist

_STEP_S = 0.05


def in_thread(call):
    """The result of a call that may wait for long, in the main thread.

    Python handles signals in the main thread: another thread calls, and Ctrl-C ends the wait for that
    thread.  The call ends in its own time then, and its result is dropped.
    """
    # While the interpreter ends, another thread would not run, and nobody would wake this one.
    if _thread.get_native_id() != os.getpid() or sys.is_finalizing():
        return call()
    end = [None, None]  # the result; the exception
    try:
        done = _thread.allocate_lock()
        done.acquire()
        _thread.start_new_thread(_hoist.run_in_thread, (call, end, done.release))
    except RuntimeError:  # no thread is to be had, as at the interpreter's end
        return call()
    # A signal that comes just before the wait begins, or that the kernel gives to another thread, does
    # not end the wait: its handler runs between two steps.
    while not done.acquire(timeout=_STEP_S):
        pass
    ret, error = end
    try:
        if error is not None:
            raise error
        return ret
    finally:
        del end, error  # the traceback has this frame


def poll(fd, timeout_ns):
    """Waits until `fd` is readable, or the time is over.  A signal's handler runs at once."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    poller.poll(timeout_ns / 1e6)


def _in_trio():
    trio = sys.modules.get("trio")
    if trio is None:
        return None
    try:
        trio.lowlevel.current_trio_token()
    except RuntimeError:
        return None
    return trio


async def _readable_in_asyncio(fd, timeout):
    import asyncio  # pylint: disable=import-outside-toplevel  # takes as long as all of hoist
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def ready():
        if not future.done():
            future.set_result(None)

    timer = None if timeout is None else loop.call_later(timeout, ready)
    loop.add_reader(fd, ready)
    try:
        await future
    finally:
        loop.remove_reader(fd)
        if timer is not None:
            timer.cancel()


async def readable(fd, timeout=None):
    """Waits until `fd` is readable, or `timeout` seconds are over: in asyncio's event loop or in
    trio's, with or without anyio.

    The wait is for a duplicate, so several tasks may wait for one descriptor, and its owner may
    close it meanwhile.
    """
    own = os.dup(fd)
    try:
        trio = _in_trio()
        if trio is None:
            await _readable_in_asyncio(own, timeout)
        else:
            with trio.move_on_after(float("inf") if timeout is None else timeout):
                await trio.lowlevel.wait_readable(own)
    finally:
        os.close(own)
