# SPDX-License-Identifier: MIT
"""Every vector of the specification has a test here, or a reason."""

import os
import unittest

import test_vectors_core
import test_vectors_driver
import test_vectors_files
import test_vectors_layout
import test_vectors_views
import vectors

# The vectors that cannot hold, and why.
NOT_HELD = {
    "V090": "torch for the CPU takes no tensors of devices, and the emulated ones need none of its "
            "kernels",
}

# The vectors of which a part does not hold, and which.
PARTLY = {
    "V144": "managed memory exports as such: the place is (13, 0), as newer releases of cuda.core say",
    "V222": "as_slice::<i32> names a type at the call; Python's buffers have one type, their own",
}

# The files whose vectors are counted.
FILES = (test_vectors_core, test_vectors_driver, test_vectors_files, test_vectors_layout,
         test_vectors_views)


def all_numbers():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "vectors.tsv")
    with open(path, encoding="utf-8") as file:
        return {line.split("\t")[0] for line in file if line[0] == "V"}


class Vectors(unittest.TestCase):
    def test_each_has_a_test_or_a_reason(self):
        self.assertEqual(len(FILES), 5)
        numbers = all_numbers()
        self.assertEqual(len(numbers), 179)
        self.assertEqual(vectors.held | set(NOT_HELD), numbers)
        self.assertEqual(vectors.held & set(NOT_HELD), set())
        self.assertLessEqual(set(PARTLY), vectors.held)


if __name__ == "__main__":
    unittest.main()
