/* SPDX-License-Identifier: MIT */
/* python/src/options.h - the options of a load, and the memory that they point to.
 *
 * python/hoist/load.py has checked and normalised what the program gave: lists of tuples, Buffers,
 * numbers.  The extension copies texts and keeps nothing of Python's: Buffers and Streams are
 * borrowed from the call's arguments, and libhoist takes its own references when the load starts.
 */
#ifndef HOIST_PYTHON_OPTIONS_H
#define HOIST_PYTHON_OPTIONS_H

#include "module.h"

#include <hoist/group.h>

/* A destination: its fields point to the arrays beside it. */
struct destination {
	hoist_load_target target; /* its device is a reference of its own */
	char **tensors;
	hoist_load_slice *slices;
	char **slice_names;
	hoist_load_into *into;
	char **into_names;
};

/* The group of a load or a checkpoint, and its texts. */
struct group_option {
	hoist_group group;
	char *name; /* NULL: there is no group */
	char *secret;
};

struct load_options {
	hoist_load_options options;
	PyObject *checkpoint; /* borrowed */
	char **order;
	struct destination single; /* that of the options themselves */
	struct destination *targets;
	const hoist_load_target **known; /* those of `targets` that were read */
	size_t n_targets;
	/* A list of the Buffers of all targets' `into`, which are in use; NULL: there are none. */
	PyObject *buffers;
	struct group_option group;
};

/* Reads the arguments of hoist._hoist.Load into @ret, which is all zeros.  Returns: 0; -1 with an
 * exception.  hoist_py_drop_options() is due in both cases. */
int hoist_py_read_options(PyObject *args, PyObject *keywords, struct load_options *ret);
void hoist_py_drop_options(struct load_options *options);

/* Reads None, or the tuple of python/hoist/groups.py, into @ret, which is all zeros.  Returns: 0;
 * -1 with an exception.  hoist_py_drop_group() is due in both cases. */
int hoist_py_read_group(PyObject *group, struct group_option *ret);
void hoist_py_drop_group(struct group_option *group);

#endif
