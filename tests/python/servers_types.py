# SPDX-License-Identifier: MIT
"""The stubs of the modules that import a server, beside test_types.py, which leaves these out where it is missing."""

import unittest

from test_types import Stubs  # noqa: F401  pylint: disable=unused-import

if __name__ == "__main__":
    unittest.main()
