# SPDX-License-Identifier: MIT
"""Records of memory that loads in place have filled, and the ranges of addresses that they are of."""

import os
import random
import unittest

import hoist
from hoist import held

SEED = int(os.environ.get("HOIST_TEST_SEED", random.randrange(1 << 30)))


class Ranges(unittest.TestCase):
    """Beside a table that says for each address whose record it is."""

    def test_random(self):
        rng = random.Random(SEED)
        for _ in range(30):
            kept, owner, at = held.Held(), [None] * 64, {}
            for step in range(60):
                begin = rng.randrange(60)
                end = begin + rng.randint(0, 4)
                gone = {record for record in owner[begin:end] if record is not None}
                put = False
                if rng.random() < 0.1:
                    gone = {record for record in at.values() if record % 3 == 0}
                    kept.prune(lambda record: record % 3 == 0)
                elif begin == end or rng.random() < 0.4:
                    kept.drop([(begin, end)])
                else:
                    kept.put([(begin, end, step)])
                    put = True
                owner = [None if record in gone else record for record in owner]
                at = {first: record for first, record in at.items() if record not in gone}
                if put:
                    owner[begin:end], at[begin] = [step] * (end - begin), step
                self.assertEqual({first: kept.find(first) for first in range(64)
                                  if kept.find(first) is not None}, at, f"seed {SEED}")
                self.assertEqual(len(kept), len(at))

    def test_the_range_of_a_buffer(self):
        whole = hoist.Buffer("f32", (8, 6))
        for buffer, first, last in ((whole, 0, 47), (whole[2:4], 12, 23), (whole[:, 1:3], 1, 44),
                                    (whole[::-1, ::-1], 0, 47), (whole[1, 5], 11, 11)):
            self.assertEqual(held.range_of(buffer),
                             (whole.address + 4 * first, whole.address + 4 * last + 4))
        self.assertEqual(len(set(held.range_of(whole[3:3]))), 1)


if __name__ == "__main__":
    unittest.main()
