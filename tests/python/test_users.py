# SPDX-License-Identifier: MIT
"""What a new user of the package types, and must see: tests/users/python-user.sh, with this interpreter."""

import os
import subprocess
import sys
import unittest

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
SCRIPT = os.path.join(TOP, "tests", "users", "python-user.sh")


class NewUser(unittest.TestCase):
    @unittest.skipUnless(os.path.exists(SCRIPT), "tests/users is not here")
    def test_session(self):
        run = subprocess.run(["sh", SCRIPT], env={**os.environ, "PYTHON": sys.executable, "abs_top_srcdir": TOP,
                                                  "srcdir": os.path.join(TOP, "tests")},
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             check=False)
        print(run.stdout)
        self.assertEqual(run.returncode, 0, "the end of the session is above")


if __name__ == "__main__":
    unittest.main()
