/* SPDX-License-Identifier: MIT */
/* python/src/layout.h - the type StridedLayout, in layout.c and layout-views.c.
 *
 * A StridedLayout is a hoist_layout: a value, which never changes.
 */
#ifndef HOIST_PYTHON_LAYOUT_H
#define HOIST_PYTHON_LAYOUT_H

#include "module.h"

typedef struct layout_object {
	PyObject_HEAD hoist_layout layout;
} layout_object;

/* @self's layout; @self must be a StridedLayout. */
hoist_layout *hoist_py_layout_of(PyObject *self);

/* A new object, to be filled through *@ret. */
PyObject *hoist_py_new_layout(hoist_layout **ret);

/* @made, if the call that filled it gave no error; else NULL with the exception. */
PyObject *hoist_py_made_layout(PyObject *made, int err);

/* Extents from a sequence alone: else a TypeError that names @what.  Returns: their number; -1. */
int hoist_py_sequence(PyObject *value, int64_t ret[HOIST_MAX_RANK], const char *what);

/* Axes from an integer or a sequence.  Returns: their number; -1. */
int hoist_py_axes(PyObject *value, int ret[HOIST_MAX_RANK]);

/* Methods of the type. */
PyObject *hoist_py_layout_subscript(PyObject *self, PyObject *key);
PyObject *hoist_py_layout_permuted(PyObject *self, PyObject *value);
PyObject *hoist_py_layout_reshaped(PyObject *self, PyObject *extents);
PyObject *hoist_py_layout_broadcast_to(PyObject *self, PyObject *extents);
PyObject *hoist_py_layout_squeezed(PyObject *self, PyObject *none);
PyObject *hoist_py_layout_unsqueezed(PyObject *self, PyObject *value);
PyObject *hoist_py_layout_flattened(PyObject *self, PyObject *args, PyObject *keywords);
PyObject *hoist_py_layout_repacked(PyObject *self, PyObject *args, PyObject *keywords);
PyObject *hoist_py_layout_max_itemsize(PyObject *self, PyObject *args, PyObject *keywords);

#endif
