/* SPDX-License-Identifier: MIT */
/* The options of a load, from Python.  The contract is in python/src/options.h. */
#include "options.h"

#include <stdlib.h>

static int no_memory(void)
{
	PyErr_NoMemory();
	return -1;
}

/* --- a destination --- */

static void drop_destination(struct destination *d)
{
	hoist_py_free_texts(d->tensors, d->target.n_tensors);
	hoist_py_free_texts(d->slice_names, d->target.n_slices);
	hoist_py_free_texts(d->into_names, d->target.n_into);
	free(d->slices);
	free(d->into);
	HOIST_PY_WAITING(hoist_device_unref(d->target.device));
}

/* @list: None, or a list of (tensor, axis, rank, n_ranks, begin, end). */
static int read_slices(PyObject *list, struct destination *d)
{
	if (list == Py_None)
		return 0;
	Py_ssize_t n = PySequence_Size(list);
	if (n < 0)
		return -1;
	d->slices = calloc((size_t)n + 1, sizeof *d->slices);
	d->slice_names = calloc((size_t)n + 1, sizeof *d->slice_names);
	if (d->slices == NULL || d->slice_names == NULL)
		return no_memory();
	d->target.slices = d->slices;
	d->target.n_slices = (size_t)n;
	for (Py_ssize_t i = 0; i < n; i++) {
		hoist_load_slice *s = &d->slices[i];
		PyObject *name;
		long long begin;
		long long end;
		PyObject *item = PySequence_GetItem(list, i);
		int err = item == NULL || !PyArg_ParseTuple(item, "OiiiLL:slice", &name, &s->axis,
							    &s->rank, &s->n_ranks, &begin, &end)
				  ? -1
				  : hoist_py_text(name, &d->slice_names[i]);
		Py_XDECREF(item);
		if (err < 0)
			return -1;
		s->tensor = d->slice_names[i];
		s->begin = begin;
		s->end = end;
	}
	return 0;
}

/* @list: None, or a list of (tensor, Buffer).  The Buffers are added to *@buffers, and are in use.
 */
static int read_into(PyObject *list, struct destination *d, PyObject **buffers)
{
	if (list == Py_None)
		return 0;
	Py_ssize_t n = PySequence_Size(list);
	if (n < 0 || (*buffers == NULL && (*buffers = PyList_New(0)) == NULL))
		return -1;
	d->into = calloc((size_t)n + 1, sizeof *d->into);
	d->into_names = calloc((size_t)n + 1, sizeof *d->into_names);
	if (d->into == NULL || d->into_names == NULL)
		return no_memory();
	d->target.into = d->into;
	d->target.n_into = (size_t)n;
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *name;
		PyObject *buffer;
		PyObject *item = PySequence_GetItem(list, i);
		int err = item == NULL || !PyArg_ParseTuple(item, "OO:into", &name, &buffer)
				  ? -1
				  : hoist_py_text(name, &d->into_names[i]);
		d->into[i].tensor = d->into_names[i];
		if (err == 0 &&
		    (hoist_py_buffer_arg(buffer) == NULL || PyList_Append(*buffers, buffer) < 0))
			err = -1;
		if (err == 0)
			d->into[i].buffer = hoist_py_use_buffer(buffer);
		Py_XDECREF(item);
		if (err < 0)
			return -1;
	}
	return 0;
}

static int read_destination(PyObject *const from[6], struct destination *d, PyObject **buffers)
{
	size_t n;
	d->target.size = sizeof d->target;
	if ((from[0] != Py_None && hoist_py_device_arg(from[0], &d->target.device) < 0) ||
	    hoist_py_stream_arg(from[1], &d->target.stream) < 0 ||
	    hoist_py_texts(from[2], &d->tensors, &n) < 0)
		return -1;
	d->target.tensors = (const char *const *)d->tensors;
	d->target.n_tensors = n;
	if (read_slices(from[3], d) < 0 || read_into(from[5], d, buffers) < 0)
		return -1;
	return from[4] == Py_None ? 0 : hoist_py_dtype(from[4], &d->target.dtype);
}

/* @list: None, or a list of (device, stream, tensors, slices, dtype, into). */
static int read_targets(PyObject *list, struct load_options *ret)
{
	if (list == Py_None)
		return 0;
	Py_ssize_t n = PySequence_Size(list);
	if (n < 0)
		return -1;
	ret->targets = calloc((size_t)n + 1, sizeof *ret->targets);
	ret->known = calloc((size_t)n + 1, sizeof *ret->known);
	if (ret->targets == NULL || ret->known == NULL)
		return no_memory();
	ret->n_targets = (size_t)n;
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *from[6];
		PyObject *item = PySequence_GetItem(list, i);
		int err =
			item == NULL || !PyArg_ParseTuple(item, "OOOOOO:target", &from[0], &from[1],
							  &from[2], &from[3], &from[4], &from[5])
				? -1
				: read_destination(from, &ret->targets[i], &ret->buffers);
		Py_XDECREF(item);
		if (err < 0)
			return -1;
		ret->known[i] = &ret->targets[i].target;
	}
	ret->options.targets = ret->known;
	ret->options.n_targets = (size_t)n;
	return 0;
}

/* --- the group --- */

/* @group: None, or (name, rank, n_ranks, timeout in nanoseconds, secret or None). */
int hoist_py_read_group(PyObject *group, struct group_option *ret)
{
	PyObject *name;
	PyObject *secret;
	unsigned long long timeout;
	if (group == Py_None)
		return 0;
	if (!PyArg_ParseTuple(group, "OIIKO:group", &name, &ret->group.rank, &ret->group.n_ranks,
			      &timeout, &secret) ||
	    hoist_py_text(name, &ret->name) < 0 ||
	    (secret != Py_None && hoist_py_text(secret, &ret->secret) < 0))
		return -1;
	ret->group.size = sizeof ret->group;
	ret->group.name = ret->name;
	ret->group.timeout_ns = timeout;
	ret->group.secret = ret->secret;
	return 0;
}

void hoist_py_drop_group(struct group_option *group)
{
	free(group->name);
	free(group->secret);
}

/* --- all --- */

/* The single destination's fields are those of the options. */
static void take_destination(struct load_options *ret)
{
	hoist_load_options *o = &ret->options;
	const hoist_load_target *t = &ret->single.target;
	o->device = t->device;
	o->stream = t->stream;
	o->tensors = t->tensors;
	o->n_tensors = t->n_tensors;
	o->slices = t->slices;
	o->n_slices = t->n_slices;
	o->dtype = t->dtype;
	o->into = t->into;
	o->n_into = t->n_into;
}

int hoist_py_read_options(PyObject *args, PyObject *keywords, struct load_options *ret)
{
	static char *names[] = {"checkpoint",	"device", "stream",  "tensors",	     "slices",
				"dtype",	"into",	  "engine",  "io",	     "budget",
				"flags",	"map",	  "depth",   "tensor_align", "chunk_bytes",
				"window_bytes", "order",  "targets", "group",	     NULL};
	hoist_load_options *o = &ret->options;
	PyObject *from[6] = {Py_None, Py_None, Py_None, Py_None, Py_None, Py_None};
	PyObject *budget = Py_None, *order = Py_None, *targets = Py_None, *group = Py_None;
	int engine = 0, io = 0, map = 0;
	Py_ssize_t depth = 0, align = 0, chunk = 0, window = 0;
	o->size = sizeof *o;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|$OOOOOOiiOIinnnnOOO:Load", names,
					 &ret->checkpoint, &from[0], &from[1], &from[2], &from[3],
					 &from[4], &from[5], &engine, &io, &budget, &o->flags, &map,
					 &depth, &align, &chunk, &window, &order, &targets, &group))
		return -1;
	if (depth < 0 || depth > UINT16_MAX || align < 0 || chunk < 0 || window < 0) {
		PyErr_SetString(PyExc_ValueError,
				"depth, tensor_align, chunk_bytes and window_bytes are 0 or more, "
				"and depth is below 65536");
		return -1;
	}
	o->engine = (enum hoist_engine)engine;
	o->io = (enum hoist_io)io;
	o->map = (enum hoist_map)map;
	o->depth = (unsigned)depth;
	o->tensor_align = (size_t)align;
	o->chunk_bytes = (size_t)chunk;
	o->window_bytes = (size_t)window;
	if (hoist_py_budget_arg(budget, &o->budget) < 0 ||
	    hoist_py_texts(order, &ret->order, &o->n_order) < 0)
		return -1;
	o->order = (const char *const *)ret->order;
	if (read_destination(from, &ret->single, &ret->buffers) < 0 ||
	    read_targets(targets, ret) < 0 || hoist_py_read_group(group, &ret->group) < 0)
		return -1;
	take_destination(ret);
	return 0;
}

void hoist_py_drop_options(struct load_options *o)
{
	hoist_py_free_texts(o->order, o->options.n_order);
	drop_destination(&o->single);
	for (size_t t = 0; t < o->n_targets; t++)
		drop_destination(&o->targets[t]);
	free(o->targets);
	free(o->known);
	hoist_py_drop_group(&o->group);
	if (o->buffers != NULL)
		hoist_py_leave_all(o->buffers);
	Py_CLEAR(o->buffers);
}
