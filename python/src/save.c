/* SPDX-License-Identifier: MIT */
/* Save: one asynchronous save.  The contract is in python/src/module.h.
 *
 * Sources: the save keeps, beside libhoist's references, the Python objects whose memory it writes.
 * They are dropped after the save has ended, by a thread that has the GIL: so memory of another
 * library is never given back from a thread of libhoist's.  A Buffer is added as a view of it: if
 * the program closes the Buffer meanwhile, the view keeps the memory.  The collector of cycles sees
 * the sources: a source may have an attribute that is the save. */
#include <stdlib.h>

#include "module.h"

#include <hoist/cai.h>

typedef struct object {
	hoist_py_job job; /* kept: a list, the sources */
} object;

static PyObject *none_or_fail(int err)
{
	return err < 0 ? hoist_py_fail(err) : Py_NewRef(Py_None);
}

/* --- making and ending --- */

static PyObject *save_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"path",	  "format",	 "engine", "io",
				"budget", "shard_bytes", "flags",  NULL};
	hoist_save_options o = {.size = sizeof o};
	hoist_save *save = NULL;
	PyObject *path = NULL;
	PyObject *budget = Py_None;
	unsigned long long shard = 0;
	int engine = 0, io = 0, err;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "O&|$ziiOKI:Save", names,
					 PyUnicode_FSConverter, &path, &o.format, &engine, &io,
					 &budget, &shard, &o.flags))
		return NULL;
	o.engine = (enum hoist_engine)engine;
	o.io = (enum hoist_io)io;
	o.shard_bytes = shard;
	allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
	object *self =
		hoist_py_budget_arg(budget, &o.budget) < 0 ? NULL : (object *)allocate(type, 0);
	if (self != NULL) {
		self->job.kind = &hoist_py_save_kind;
		self->job.kept = PyList_New(0);
		err = hoist_save_create(PyBytes_AsString(path), &o, &save);
		if (err == 0)
			hoist_py_job_begin(&self->job, &hoist_py_save_kind, save);
		if (self->job.kept == NULL || err < 0) {
			if (!PyErr_Occurred())
				hoist_py_fail(err);
			Py_CLEAR(self);
		}
	}
	Py_DECREF(path);
	return (PyObject *)self;
}

static int save_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE(self));
	Py_VISIT(((object *)self)->job.kept);
	return 0;
}

/* The job may still write from the memory of the sources: it ends first. */
static int save_clear(PyObject *self)
{
	if (hoist_py_close_job((hoist_py_job *)self) < 0)
		PyErr_Clear(); /* a thread that waits has a reference, so this is no garbage */
	return 0;
}

static void save_dealloc(PyObject *self)
{
	PyObject_GC_UnTrack(self);
	hoist_py_end_job((hoist_py_job *)self);
	hoist_py_free_object(self);
}

/* (path): this folder was made for the files. */
static PyObject *save_made_folder(PyObject *self, PyObject *args)
{
	HOIST_PY_LOCK(self);
	PyObject *path;
	hoist_py_job *job = &((object *)self)->job;
	if (!PyArg_ParseTuple(args, "O&:_made_folder", PyUnicode_FSConverter, &path))
		return NULL;
	if (hoist_py_open_job(self) == NULL) {
		Py_DECREF(path);
		return NULL;
	}
	free(job->folder);
	job->folder = strdup(PyBytes_AsString(path));
	Py_DECREF(path);
	return job->folder == NULL ? PyErr_NoMemory() : Py_NewRef(Py_None);
}

/* --- filling --- */

/* Adds @buffer, whose reference it takes.  @source lives as long as the save. */
static PyObject *add(PyObject *self, const char *name, hoist_buffer *buffer, PyObject *source)
{
	HOIST_PY_LOCK(self);
	PyObject *kept = hoist_py_open_job(self) == NULL ? NULL : ((object *)self)->job.kept;
	int err = kept == NULL ? -1 : PyList_Append(kept, source);
	hoist_save *save = err < 0 ? NULL : hoist_py_open_job(self);
	if (save != NULL) {
		err = hoist_save_add(save, name, buffer);
		if (err < 0)
			hoist_py_fail(err);
	}
	HOIST_PY_WAITING(hoist_buffer_unref(buffer));
	return err < 0 || save == NULL ? NULL : Py_NewRef(Py_None);
}

static PyObject *save_add(PyObject *self, PyObject *args)
{
	const char *name;
	PyObject *source;
	hoist_buffer *view = NULL;
	if (!PyArg_ParseTuple(args, "sO:_add", &name, &source))
		return NULL;
	if (hoist_py_buffer_arg(source) == NULL)
		return NULL;
	(void)hoist_py_use_buffer(source);
	hoist_buffer *buffer = hoist_py_open_buffer(source);
	int err = buffer == NULL ? 0 : hoist_buffer_slice(buffer, 0, NULL, &view);
	hoist_py_leave_buffer(source);
	if (buffer == NULL)
		return NULL;
	return err < 0 ? hoist_py_fail(err) : add(self, name, view, source);
}

/* The fields of a hoist_buffer_source, and shape and strides, that describe @view's memory. */
struct place {
	hoist_buffer_source source;
	int64_t shape[HOIST_MAX_RANK];
	int64_t strides[HOIST_MAX_RANK];
};

/* Returns: 0; -1 with an exception. */
static int place_of(const Py_buffer *view, hoist_dtype dtype, struct place *ret)
{
	hoist_dtype_info info = {.size = sizeof info};
	uint64_t before = 0, after = (uint64_t)view->itemsize;
	bool is_empty = false;
	(void)hoist_dtype_get_info(dtype, &info);
	if (view->ndim > HOIST_MAX_RANK || view->itemsize * 8 != (Py_ssize_t)info.bits) {
		PyErr_Format(PyExc_TypeError, "elements of %zd bytes on %d axes are no %s",
			     view->itemsize, view->ndim, info.name);
		return -1;
	}
	for (int a = 0; a < view->ndim; a++) {
		ret->shape[a] = view->shape[a];
		ret->strides[a] = view->strides[a] / view->itemsize;
		if (view->strides[a] % view->itemsize != 0 && view->shape[a] > 1) {
			PyErr_SetString(PyExc_BufferError,
					"strides that are no multiple of an element; save a copy");
			return -1;
		}
		is_empty |= view->shape[a] == 0;
		const int64_t far = view->strides[a] * (view->shape[a] - 1);
		*(far < 0 ? &before : &after) += (uint64_t)(far < 0 ? -far : far);
	}
	ret->source = (hoist_buffer_source){
		.size = sizeof ret->source,
		.address = is_empty ? 0 : (uintptr_t)view->buf,
		.bytes = is_empty ? 0 : (size_t)after,
		.bytes_before = is_empty ? 0 : (size_t)before,
		.is_read_only = 1,
	};
	return 0;
}

/* The place of the bytes of @view as elements of @shape, in C order.  Returns: the rank; -1. */
static int place_of_bytes(const Py_buffer *view, PyObject *shape, struct place *ret)
{
	ret->source = (hoist_buffer_source){
		.size = sizeof ret->source,
		.address = view->len == 0 ? 0 : (uintptr_t)view->buf,
		.bytes = (size_t)view->len,
		.is_read_only = 1,
	};
	return hoist_py_extents(shape, ret->shape);
}

/* (name, source, dtype, shape=None): host memory, which the source keeps.  With a shape, the memory
 * is contiguous, and the source may be an array of a type that has no format: its bytes are asked
 * for. */
static PyObject *save_add_memory(PyObject *self, PyObject *args)
{
	const char *name;
	PyObject *source;
	PyObject *type;
	PyObject *shape = Py_None;
	hoist_dtype dtype;
	struct place place;
	Py_buffer view;
	hoist_buffer *buffer = NULL;
	if (!PyArg_ParseTuple(args, "sOO|O:_add_memory", &name, &source, &type, &shape) ||
	    hoist_py_dtype(type, &dtype) < 0)
		return NULL;
	const bool is_bytes = shape != Py_None;
	if (PyObject_GetBuffer(source, &view, is_bytes ? PyBUF_SIMPLE : PyBUF_FULL_RO) < 0)
		return NULL;
	int rank = is_bytes				? place_of_bytes(&view, shape, &place)
		   : place_of(&view, dtype, &place) < 0 ? -1
							: view.ndim;
	PyBuffer_Release(&view);
	if (rank < 0)
		return NULL;
	int err;
	HOIST_PY_WAITING(err = hoist_buffer_wrap(&place.source, dtype, rank, place.shape,
						 is_bytes ? NULL : place.strides, &buffer));
	return err < 0 ? hoist_py_fail(err) : add(self, name, buffer, source);
}

/* (name, object, typestr, address, shape, strides or None, stream or None): an object with
 * `__cuda_array_interface__`. */
static PyObject *save_add_cai(PyObject *self, PyObject *args)
{
	hoist_cai cai = {.size = sizeof cai, .version = 3, .is_read_only = 1};
	const char *name;
	const char *typestr;
	PyObject *source, *extents, *strides, *stream;
	unsigned long long address;
	hoist_buffer *buffer = NULL;
	int err;
	if (!PyArg_ParseTuple(args, "sOsKOOO:_add_cai", &name, &source, &typestr, &address,
			      &extents, &strides, &stream))
		return NULL;
	if (strlen(typestr) >= sizeof cai.typestr) {
		PyErr_Format(PyExc_TypeError, "hoist has no type %s", typestr);
		return NULL;
	}
	memcpy(cai.typestr, typestr, strlen(typestr) + 1);
	cai.data = (uintptr_t)address;
	cai.rank = hoist_py_extents(extents, cai.shape);
	cai.has_strides = strides != Py_None;
	if (cai.rank < 0 ||
	    (cai.has_strides && hoist_py_extents(strides, cai.strides) != cai.rank)) {
		if (!PyErr_Occurred())
			PyErr_SetString(PyExc_ValueError, "strides and shape differ in length");
		return NULL;
	}
	cai.has_stream = stream != Py_None;
	cai.stream = cai.has_stream ? PyLong_AsSsize_t(stream) : 0;
	if (PyErr_Occurred())
		return NULL;
	HOIST_PY_WAITING(err = hoist_buffer_from_cai(&cai, NULL, NULL, 0, &buffer));
	return err < 0 ? hoist_py_fail(err) : add(self, name, buffer, source);
}

/* (name, checkpoint, index): a tensor of a checkpoint. */
static PyObject *save_add_tensor(PyObject *self, PyObject *args)
{
	HOIST_PY_LOCK(self);
	const char *name;
	PyObject *from;
	Py_ssize_t index;
	if (!PyArg_ParseTuple(args, "sOn:_add_tensor", &name, &from, &index))
		return NULL;
	hoist_checkpoint *checkpoint = hoist_py_use_checkpoint(from);
	if (checkpoint == NULL)
		return NULL;
	hoist_save *save = hoist_py_open_job(self);
	int err = save == NULL ? 0 : hoist_save_add_tensor(save, name, checkpoint, (size_t)index);
	hoist_py_leave_checkpoint(from);
	return save == NULL ? NULL : none_or_fail(err);
}

static PyObject *save_metadata(PyObject *self, PyObject *args)
{
	HOIST_PY_LOCK(self);
	const char *key;
	const char *value;
	if (!PyArg_ParseTuple(args, "ss:metadata", &key, &value))
		return NULL;
	hoist_save *save = hoist_py_open_job(self);
	return save == NULL ? NULL : none_or_fail(hoist_save_metadata(save, key, value));
}

static PyObject *save_metadata_of(PyObject *self, PyObject *from)
{
	HOIST_PY_LOCK(self);
	hoist_checkpoint *checkpoint = hoist_py_use_checkpoint(from);
	if (checkpoint == NULL)
		return NULL;
	hoist_save *save = hoist_py_open_job(self);
	int err = save == NULL ? 0 : hoist_save_metadata_of(save, checkpoint);
	hoist_py_leave_checkpoint(from);
	return save == NULL ? NULL : none_or_fail(err);
}

/* --- running --- */

static PyObject *save_start(PyObject *self, PyObject *none)
{
	HOIST_PY_LOCK(self);
	int err;
	hoist_save *save = hoist_py_open_job(self);
	(void)none;
	if (save == NULL)
		return NULL;
	HOIST_PY_USING((hoist_py_job *)self, err = hoist_save_start(save));
	return none_or_fail(err);
}

static PyObject *save_report(PyObject *self, PyObject *none)
{
	HOIST_PY_LOCK(self);
	hoist_save_report r = {.size = sizeof r};
	hoist_save *save = hoist_py_open_job(self);
	(void)none;
	if (save == NULL)
		return NULL;
	int err = hoist_save_get_report(save, &r);
	if (err < 0)
		return hoist_py_fail(err);
#define U(field) #field, (unsigned long long)r.field
	return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:s,s:s,s:s}", U(bytes),
			     U(n_tensors), U(n_files), U(ns), U(cpu_ns), U(sync_ns),
			     U(direct_bytes), U(cached_bytes), U(straight_bytes),
			     U(staging_peak_bytes), U(budget_bytes), "engine", r.engine,
			     "engine_reason", r.engine_reason, "io_reason", r.io_reason);
#undef U
}

static PyObject *get_format(PyObject *self, void *closure)
{
	HOIST_PY_LOCK(self);
	hoist_save *save = hoist_py_open_job(self);
	(void)closure;
	return save == NULL ? NULL : PyUnicode_FromString(hoist_save_format(save));
}

/* --- the type --- */

static PyMethodDef methods[] = {
	{"_report", save_report, METH_NOARGS, NULL},
	{"_made_folder", save_made_folder, METH_VARARGS, NULL},
	{"_add", save_add, METH_VARARGS, NULL},
	{"_add_memory", save_add_memory, METH_VARARGS, NULL},
	{"_add_cai", save_add_cai, METH_VARARGS, NULL},
	{"_add_tensor", save_add_tensor, METH_VARARGS, NULL},
	{"_metadata", save_metadata, METH_VARARGS, NULL},
	{"_metadata_of", save_metadata_of, METH_O, NULL},
	{"_start", save_start, METH_NOARGS, NULL},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef fields[] = {
	{"_format", get_format, NULL, NULL, NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
	{Py_tp_new, (void *)save_new},
	{Py_tp_dealloc, (void *)save_dealloc},
	{Py_tp_traverse, (void *)save_traverse},
	{Py_tp_clear, (void *)save_clear},
	{Py_tp_methods, methods},
	{Py_tp_getset, fields},
	{0, NULL},
};

static PyType_Spec type = {
	.name = "hoist._hoist.Save",
	.basicsize = sizeof(object),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
	.slots = slots,
};

int hoist_py_add_save_type(PyObject *module)
{
	if (PyModule_AddIntConstant(module, "SAVE_DIGEST", HOIST_SAVE_DIGEST) < 0 ||
	    PyModule_AddIntConstant(module, "SAVE_NO_SYNC", HOIST_SAVE_NO_SYNC) < 0 ||
	    PyModule_AddIntConstant(module, "SAVE_NO_REPLACE", HOIST_SAVE_NO_REPLACE) < 0)
		return -1;
	return hoist_py_add_job_kind(module, &type) == NULL ? -1 : 0;
}
