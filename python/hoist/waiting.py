# SPDX-License-Identifier: MIT
"""Waiting for a descriptor: in steps between which signals are handled, and in event loops."""

import os
import select
import sys


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


async def _readable_in_asyncio(fd):
    import asyncio  # pylint: disable=import-outside-toplevel  # takes as long as all of hoist
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def ready():
        if not future.done():
            future.set_result(None)

    loop.add_reader(fd, ready)
    try:
        await future
    finally:
        loop.remove_reader(fd)


async def readable(fd):
    """Waits until `fd` is readable: in asyncio's event loop or in trio's, with or without anyio.

    The wait is for a duplicate, so several tasks may wait for one descriptor, and its owner may
    close it meanwhile.
    """
    own = os.dup(fd)
    try:
        trio = _in_trio()
        if trio is not None:
            await trio.lowlevel.wait_readable(own)
        else:
            await _readable_in_asyncio(own)
    finally:
        os.close(own)
