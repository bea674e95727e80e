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

# The vectors without a test for each of the GPUs, by the reason.
NOT_ON_GPUS = {
    "layouts have no memory": (
        "V161 V162 V164 V165 V166 V167 V169 V170 V171 V173 V174 V175 V177 V178 V179 V180 V182 V183 V185 V186 V188 "
        "V189 V191 V193 V194 V196 V197 V198 V210"),
    "files are mapped for the CPU": (
        "V047 V048 V049 V052 V053 V117 V118 V120 V122 V123 V124 V126 V127 V129 V130 V226"),
    "texts that name devices, and processes that have other devices": (
        "V106 V107 V108 V109 V111 V112 V114 V115 V116"),
    "arrays of NumPy and torch, or the CPU's own memory": (
        "V028 V029 V030 V031 V033 V035 V038 V039 V040 V041 V044 V062 V063 V080 V096 V137 V141 V142 V145 V200 V201 V205 V208"),
    "one test has both APIs": "V099 V100 V103 V105 V153",
}

# The files whose vectors are counted.
FILES = (test_vectors_core, test_vectors_driver, test_vectors_files, test_vectors_layout,
         test_vectors_views)


def all_numbers():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "vectors.tsv")
    with open(path, encoding="utf-8") as file:
        return {line.split("\t")[0] for line in file if line[0] == "V"}


class Vectors(unittest.TestCase):
    def test_each_has_a_test(self):
        self.assertEqual(len(FILES), 5)
        numbers = all_numbers()
        self.assertEqual(len(numbers), 179)
        self.assertEqual(set(vectors.held), numbers)

    def test_each_has_tests_for_all_devices_or_a_reason(self):
        without = [number for numbers in NOT_ON_GPUS.values() for number in numbers.split()]
        self.assertEqual(len(without), len(set(without)))
        self.assertEqual({number for number, devices in vectors.held.items() if not devices}, set(without))
        for number, devices in vectors.held.items():
            with self.subTest(number=number):
                self.assertIn(devices, (set(), set(vectors.GPUS), set(vectors.ALL)))


if __name__ == "__main__":
    unittest.main()
