# SPDX-License-Identifier: MIT
"""Python's cyclic collector, which waits while many objects are made that all stay.

The collector visits all objects anew each time that their number has grown by a quarter: a third
of the time in which 100,000 tensors become torch tensors, and nothing is found.
"""

import gc


class Paused:
    """The collector does not begin by itself within `with`.

    Several threads may be within: the collector is on again once the thread that found it on leaves.
    """

    def __enter__(self):
        self._was_on = gc.isenabled()
        gc.disable()

    def __exit__(self, *_):
        if self._was_on:
            gc.enable()
