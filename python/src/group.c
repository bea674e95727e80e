/* SPDX-License-Identifier: MIT */
/* The extension's part of hoist.group_look().  The contract is in python/src/module.h. */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_MEMBERS = 128 }; /* of a group */

struct look {
	struct {
		hoist_group_member is;
		char address[80];
	} members[MOST_MEMBERS];
	size_t n;
};

static int note(void *context, const hoist_group_member *member)
{
	struct look *look = context;
	look->members[look->n].is = *member;
	(void)snprintf(look->members[look->n].address, sizeof look->members[0].address, "%s",
		       member->address);
	return ++look->n == MOST_MEMBERS;
}

/* [(id, address, has_files, begun, bytes, done_bytes, storage_bytes, received_bytes, sent_bytes,
 * rank, n_ranks)] */
static PyObject *members(const struct look *look)
{
	PyObject *list = PyList_New((Py_ssize_t)look->n);
	for (size_t i = 0; i < look->n && list != NULL; i++) {
		const hoist_group_member *m = &look->members[i].is;
		PyObject *item = Py_BuildValue(
			"(KsOOKKKKKII)", (unsigned long long)m->id, look->members[i].address,
			m->has_files ? Py_True : Py_False, m->begun ? Py_True : Py_False,
			(unsigned long long)m->bytes, (unsigned long long)m->done_bytes,
			(unsigned long long)m->storage_bytes, (unsigned long long)m->received_bytes,
			(unsigned long long)m->sent_bytes, m->rank, m->n_ranks);
		if (item == NULL || PyList_SetItem(list, (Py_ssize_t)i, item) < 0)
			Py_CLEAR(list);
	}
	return list;
}

static PyObject *group_look(PyObject *self, PyObject *group)
{
	struct group_option of = {0};
	PyObject *ret = NULL;
	struct look *look = calloc(1, sizeof *look);
	int err;
	(void)self;
	if (look == NULL) {
		(void)PyErr_NoMemory();
	} else if (hoist_py_read_group(group, &of) == 0) {
		HOIST_PY_WAITING(err = hoist_group_look(&of.group, note, look));
		ret = err < 0 ? hoist_py_fail(err) : members(look);
	}
	hoist_py_drop_group(&of);
	free(look);
	return ret;
}

static PyMethodDef functions[] = {
	{"group_look", group_look, METH_O, NULL},
	{NULL, NULL, 0, NULL},
};

int hoist_py_add_group(PyObject *module)
{
	return PyModule_AddFunctions(module, functions);
}
