# SPDX-License-Identifier: MIT
"""The specification's vectors of StridedLayout: V161 to V198."""

from hoist.core import StridedLayout
from vectors import vectors

Layout, vector = vectors("Vectors_layout")
dense = StridedLayout.dense


def check(t, layout, shape, strides, offset=0):
    t.assertEqual((layout.shape, layout.strides, layout.slice_offset), (shape, strides, offset))


def refused(t, *calls, kind=ValueError):
    for call in calls:
        t.assertRaises(kind, call)


@vector("V161")
def orders(t):
    t.assertEqual(dense((5, 3, 7), 1, "C").strides, (21, 7, 1))
    t.assertEqual(dense((5, 3, 7), 1, "F").strides, (1, 5, 15))
    one = dense((5, 3, 7), 1, (2, 0, 1))
    t.assertEqual((one.strides, one.stride_order), ((3, 1, 15), (2, 0, 1)))
    t.assertEqual((one.is_contiguous_any, one.is_contiguous_c, one.is_contiguous_f),
                  (True, False, False))


@vector("V162")
def bounds(t):
    one = dense((5, 4), 4)
    t.assertEqual((one.offset_bounds, one.min_offset, one.max_offset, one.required_size_in_bytes()),
                  ((0, 19), 0, 19, 80))


@vector("V164")
def reversed_twice(t):
    one = dense((13,), 4)[::-1][1:-1][::-1]
    check(t, one, (11,), (1,), 1)
    t.assertEqual((one.is_contiguous_c, one.is_dense), (True, False))


@vector("V165")
def steps(t):
    one = dense((13,), 4)[2:-3:2]
    check(t, one, (4,), (2,), 2)
    t.assertEqual(one.required_size_in_bytes(), 36)


@vector("V166")
def negative_steps(t):
    one = dense((13,), 4)[-3:2:-2]
    check(t, one, (4,), (-2,), 10)
    check(t, one[1:3], (2,), (-2,), 8)


@vector("V167")
def two_axes(t):
    check(t, dense((3, 5), 4)[:2][:, 3:], (2, 2), (5, 1), 3)


@vector("V169")
def integers(t):
    one = dense((11, 12, 3), 4)
    check(t, one[:, 0, :-1], (11, 2), (36, 1), 0)
    check(t, one[0, 1, 2], (), (), 5)
    t.assertEqual(one[0, 1, 2].required_size_in_bytes(), 24)
    check(t, one[-2], (12, 3), (3, 1), 324)


@vector("V170")
def wrong_indices(t):
    one, two = dense((11, 12, 3), 4), dense((3, 5), 4)
    refused(t, lambda: one[0, 1, 5], lambda: one[-42], lambda: two[:, ::0],
            lambda: two[:, :-1, :2])
    refused(t, lambda: one["abc"], lambda: one[...], kind=TypeError)


@vector("V171")
def offsets_in_bytes(t):
    for order, offset in (("C", 3), ("F", 15)):
        one = dense((5, 7), 2, order)[:-2, 3:]
        t.assertEqual((one.slice_offset, one.slice_offset_in_bytes), (offset, 2 * offset))


@vector("V173")
def wrong_axes(t):
    one = dense((2, 3, 4), 4)
    refused(t, *(lambda axes=axes: one.permuted(axes)
                 for axes in ((0, 1), (1, 0, 1), (1, 3, 0), (1, -2000, 0))))


@vector("V174")
def rank_0_and_1(t):
    check(t, dense((), 4).reshaped((1,)), (1,), (1,))
    check(t, dense((), 4).reshaped((-1,)), (1,), (1,))
    check(t, dense((1,), 4).reshaped(()), (), ())


@vector("V175")
def other_volumes(t):
    check(t, dense((0,), 4).reshaped((1, -1)), (1, 0), (0, 0))
    refused(t, lambda: dense((12,), 4).reshaped((11,)), lambda: dense((0,), 4).reshaped((0, -1)),
            lambda: dense((7, 0, 5), 4).reshaped((5, 0, -1)))


@vector("V177")
def permuted_then_reshaped(t):
    one = dense((2, 3, 2), 4).permuted((1, 2, 0))
    check(t, one.reshaped((6, 2)), (6, 2), (1, 6))
    refused(t, lambda: one.reshaped((2, 6)), lambda: one.reshaped((12,)))


@vector("V178")
def reversed_then_reshaped(t):
    one = dense((10, 10, 10), 4)
    check(t, one[::-1, ::-1, ::-1].reshaped((1000,)), (1000,), (-1,), 999)
    two = one[::-1, ::-1, :]
    check(t, two.reshaped((100, 10)), (100, 10), (-10, 1), 990)
    refused(t, lambda: two.reshaped((10, 100)), lambda: one[::-1, :, ::-1].reshaped((1000,)))


@vector("V179")
def sliced_then_reshaped(t):
    one = dense((12, 4), 4)[:, :-1]
    check(t, one.reshaped((6, 2, 3)), (6, 2, 3), (8, 4, 1))
    refused(t, lambda: one.reshaped((6, 6)))
    check(t, dense((13, 3), 4)[1:, :].reshaped((6, 6)), (6, 6), (6, 1), 3)


@vector("V180")
def extents_to_find_out(t):
    one = dense((7, 6, 5), 4)
    t.assertEqual(one.reshaped((70, -1)).shape, (70, 3))
    refused(t, *(lambda shape=shape: one.reshaped(shape)
                 for shape in ((71, -1), (71, -2), (-1, 6, -1), (-2, -1, -1))))
    refused(t, lambda: one.reshaped(42), kind=TypeError)


@vector("V182")
def flattened_ranges(t):
    one = dense((5, 1, 2, 4, 3), 4)[:, :, :, :, ::-2]
    check(t, one.flattened(), (40, 2), (3, -2), 2)
    t.assertEqual(one.flattened_axis_mask(), 0b01110)
    for first, last, shape, strides in ((0, 2, (10, 4, 2), (12, 3, -2)),
                                        (1, 2, (5, 2, 4, 2), (24, 12, 3, -2)),
                                        (1, 3, (5, 8, 2), (24, 3, -2)),
                                        (1, 4, (5, 8, 2), (24, 3, -2))):
        check(t, one.flattened(first, last), shape, strides, 2)


@vector("V183")
def flattened_reversed(t):
    one = dense((5, 2, 4, 3), 4)[:, ::-1]
    check(t, one.flattened(), (5, 2, 12), (24, -12, 1), 12)
    two = dense((5, 7, 4, 3), 4)[:, ::-1, ::-1]
    check(t, two.flattened(), (5, 28, 3), (84, -3, 1), two.slice_offset)
    t.assertEqual((one.flattened_axis_mask(), two.flattened_axis_mask()), (0b1000, 0b0100))


@vector("V185")
def joint_masks(t):
    one, two = dense((5, 7, 13, 2), 4, (3, 1, 2, 0)), StridedLayout((3, 5, 11, 1), None, 4)
    mask = one.flattened_axis_mask() & two.flattened_axis_mask()
    check(t, one.flattened(mask=mask), (5, 91, 2), (1, 5, 455))
    check(t, two.flattened(mask=mask), (3, 55, 1), (55, 1, 1))


@vector("V186")
def joint_masks_of_two_orders(t):
    one, two = dense((2, 7, 13, 5), 4), dense((11, 1, 3, 5), 4, (2, 3, 0, 1))
    mask = one.flattened_axis_mask() & two.flattened_axis_mask()
    t.assertEqual(one.flattened(mask=mask).shape, (14, 65))
    check(t, two.flattened(mask=mask), (11, 15), (1, 11))


@vector("V188")
def new_axes(t):
    check(t, dense((), 4).unsqueezed(0), (1,), (1,))
    check(t, dense((7,), 4).unsqueezed(0), (1, 7), (7, 1))
    check(t, dense((7,), 4).unsqueezed(1), (7, 1), (1, 1))
    one = StridedLayout((2, 3), None, 4)
    refused(t, lambda: one.unsqueezed(9), lambda: one.unsqueezed((0, 0)))
    t.assertIs(one.unsqueezed(()), one)
    t.assertIsNone(one.unsqueezed(()).strides)


@vector("V189")
def largest_items(t):
    t.assertEqual(dense((12,), 1).max_compatible_itemsize(), 4)
    t.assertEqual(dense((12,), 4).max_compatible_itemsize(), 16)
    t.assertEqual(dense((16, 5, 4, 6), 2).max_compatible_itemsize(), 4)
    t.assertEqual(dense((16, 5, 4, 6), 2, "F").max_compatible_itemsize(axis=0), 16)
    t.assertEqual(dense((11, 5, 9), 2)[:, :, -1:].max_compatible_itemsize(), 2)


@vector("V191")
def repacked(t):
    one = dense((5, 4), 4)
    for itemsize, shape in ((2, (5, 8)), (8, (5, 2)), (16, (5, 1))):
        t.assertEqual(one.repacked(itemsize).shape, shape)
    t.assertEqual(one.repacked(16, keep_dim=False).shape, (5,))


@vector("V193")
def wrong_items(t):
    one = dense((5, 4), 8)
    refused(t, lambda: one.max_compatible_itemsize(0), lambda: one.max_compatible_itemsize(axis=9),
            lambda: one.max_compatible_itemsize(4))
    t.assertEqual(StridedLayout((3,), (5,), 8).max_compatible_itemsize(), 8)


@vector("V194")
def broadcast(t):
    one = dense((), 4).broadcast_to((17, 1, 5))
    check(t, one, (17, 1, 5), (0, 0, 0))
    t.assertFalse(one.is_unique)
    check(t, dense((5, 11), 4)[1:-1, ::-1].broadcast_to((7, 3, 11)), (7, 3, 11), (0, 11, -1), 21)
    check(t, dense((5, 11), 4)[-1:,].broadcast_to((4, 13, 11)), (4, 13, 11), (0, 0, 1), 44)


@vector("V196")
def made_dense(t):
    check(t, dense((5, 11), 4)[::-1, 3:10].to_dense(), (5, 7), (7, 1))
    for one in (dense((5, 11), 4)[::-1, 3:10], dense((3, 4), 4, "F")[1:], dense((2, 3), 4)):
        for order in ("K", "C", "F"):
            made = one.to_dense(order)
            t.assertTrue(made.is_dense)
            t.assertEqual((made.offset_bounds, made.required_size_in_bytes()),
                          ((0, one.volume - 1), one.volume * 4))
            is_same = one.slice_offset == 0 and {"K": one.is_contiguous_any, "C": one.is_contiguous_c,
                                                 "F": one.is_contiguous_f}[order]
            t.assertEqual(made is one, is_same)


@vector("V197")
def no_order(t):
    refused(t, lambda: StridedLayout.dense_like(dense((2, 3), 4), "X"))


@vector("V198")
def equality(t):
    one = dense((5, 3, 7), 4)
    t.assertEqual(one, dense((5, 3, 7), 4))
    t.assertEqual(hash(one), hash(dense((5, 3, 7), 4)))
    for other in (dense((5, 3, 8), 4), None, "5, 3, 7", 105, (5, 3, 7)):
        t.assertNotEqual(one, other)
    t.assertNotEqual(StridedLayout((2, 3), None, 4), dense((2, 3), 4))
