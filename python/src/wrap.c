/* SPDX-License-Identifier: MIT */
/* Buffer: over memory that Python objects own.  The contract is in python/src/module.h.
 *
 * The end of such memory comes in any thread, hoist's own included.  The function that drops the
 * owner takes the GIL.  An interpreter that ends lets no other thread have it: the thread would end
 * in the midst of hoist's work, and who waits for that work would wait for good.  So end_drops(),
 * which the end of the interpreter calls, waits until no thread is in that function, and from then
 * on only its own thread drops owners.  The others leave them, as the process ends.  In a child of
 * fork, the others are gone.
 */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "module.h"

/* The objects that a buffer needs, and a function to call at its end; each may be NULL. */
typedef struct hoist_py_owner {
	Py_buffer view; /* view.obj NULL: none */
	PyObject *kept;
	PyObject *release;
} owner;

static void free_owner(owner *o)
{
	if (o->release != NULL) {
		PyObject *none = PyObject_CallNoArgs(o->release);
		if (none == NULL)
			PyErr_WriteUnraisable(o->release);
		Py_XDECREF(none);
	}
	if (o->view.obj != NULL)
		PyBuffer_Release(&o->view);
	Py_XDECREF(o->kept);
	Py_XDECREF(o->release);
	free(o);
}

static atomic_int n_dropping;
static _Thread_local int n_dropping_here;
static atomic_bool is_ending;
static pthread_t ending; /* the thread that ends the interpreter */

static bool may_drop(void)
{
	return Py_IsInitialized() && (!is_ending || pthread_equal(pthread_self(), ending));
}

/* A function that an owner gave may take long: the wait has an end. */
PyObject *hoist_py_end_drops(PyObject *module, PyObject *none)
{
	const struct timespec step = {0, 1000000};
	(void)module;
	(void)none;
	ending = pthread_self();
	is_ending = true;
	Py_BEGIN_ALLOW_THREADS;
	for (int i = 0; i < 10000 && n_dropping > 0; i++)
		(void)nanosleep(&step, NULL);
	Py_END_ALLOW_THREADS;
	return Py_NewRef(Py_None);
}

static void drop_now(void *context)
{
	PyGILState_STATE state = PyGILState_Ensure();
	PyObject *type;
	PyObject *value;
	PyObject *trace;
	/* The thread may be dropping a buffer while an exception passes. */
	PyErr_Fetch(&type, &value, &trace);
	free_owner(context);
	PyErr_Restore(type, value, trace);
	PyGILState_Release(state);
}

static void drop_owner(void *context)
{
	n_dropping++;
	n_dropping_here++;
	if (may_drop())
		drop_now(context);
	n_dropping_here--;
	n_dropping--;
}

/* A child of fork has one thread. */
static void forget_other_threads(void)
{
	n_dropping = n_dropping_here;
}

int hoist_py_watch_forks(void)
{
	static bool watched;
	if (!watched && pthread_atfork(NULL, NULL, forget_other_threads) != 0) {
		(void)PyErr_NoMemory();
		return -1;
	}
	watched = true;
	return 0;
}

int hoist_py_visit_owner(owner *o, visitproc visit, void *arg)
{
	Py_VISIT(o->view.obj);
	Py_VISIT(o->kept);
	Py_VISIT(o->release);
	return 0;
}

bool hoist_py_owner_calls(const owner *o)
{
	return o->release != NULL;
}

static owner *make_owner(PyObject *kept, PyObject *release)
{
	owner *o = calloc(1, sizeof *o);
	if (o == NULL)
		return (owner *)PyErr_NoMemory();
	o->kept = kept == Py_None ? NULL : Py_XNewRef(kept);
	o->release = release == Py_None ? NULL : Py_XNewRef(release);
	return o;
}

/* The memory stays the caller's: nothing is called. */
static PyObject *give_up(owner *o, int err)
{
	PyObject *ret = hoist_py_fail(err);
	Py_CLEAR(o->release);
	PyObject *type;
	PyObject *value;
	PyObject *trace;
	PyErr_Fetch(&type, &value, &trace);
	free_owner(o);
	PyErr_Restore(type, value, trace);
	return ret;
}

/* --- Python's buffer protocol --- */

/* The dtype of a letter of the struct module's, in the machine's byte order. */
static int dtype_of_format(const char *format, Py_ssize_t itemsize, hoist_dtype *ret)
{
	static const struct {
		const char *letters;
		hoist_dtype by_size[4]; /* 1, 2, 4, 8 bytes */
	} kinds[] = {
		{"?", {HOIST_BOOL}},
		{"bhilqn", {HOIST_I8, HOIST_I16, HOIST_I32, HOIST_I64}},
		{"BHILQNc", {HOIST_U8, HOIST_U16, HOIST_U32, HOIST_U64}},
		{"efd", {0, HOIST_F16, HOIST_F32, HOIST_F64}},
	};
	const char *f = format == NULL ? "B" : format;
	if (*f == '@' || *f == '=' || *f == '<')
		f++;
	if (f[0] == 'Z' && (f[1] == 'f' || f[1] == 'd') && f[2] == 0) {
		*ret = f[1] == 'f' ? HOIST_C64 : HOIST_C128;
		return 0;
	}
	int size = itemsize == 1 ? 0 : itemsize == 2 ? 1 : itemsize == 4 ? 2 : 3;
	for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
		if (f[0] != 0 && f[1] == 0 && strchr(kinds[k].letters, f[0]) != NULL &&
		    itemsize <= 8 && kinds[k].by_size[size] != 0) {
			*ret = kinds[k].by_size[size];
			return 0;
		}
	PyErr_Format(PyExc_TypeError, "hoist has no dtype for elements of the format \"%s\"",
		     format == NULL ? "" : format);
	return -1;
}

/* Shape and strides of @view, and the bytes that it covers before and from its first element. */
static int extents_of(const Py_buffer *view, int64_t *shape, int64_t *strides,
		      hoist_buffer_source *source)
{
	int64_t low = 0;
	int64_t high = view->itemsize;
	bool is_empty = false;
	if (view->ndim > HOIST_MAX_RANK) {
		PyErr_Format(PyExc_ValueError, "%d axes; hoist has %d at most", view->ndim,
			     HOIST_MAX_RANK);
		return -1;
	}
	for (int a = 0; a < view->ndim; a++) {
		shape[a] = view->shape[a];
		is_empty = is_empty || shape[a] == 0;
		if (shape[a] > 1 && view->strides[a] % view->itemsize != 0) {
			PyErr_SetString(PyExc_ValueError,
					"a stride is no multiple of the element's size: copy the "
					"array first");
			return -1;
		}
		strides[a] = view->strides[a] / view->itemsize;
		int64_t reach = (shape[a] - 1) * view->strides[a];
		low += reach < 0 ? reach : 0;
		high += reach > 0 ? reach : 0;
	}
	source->address = (uintptr_t)view->buf;
	source->bytes = is_empty ? 0 : (size_t)high;
	source->bytes_before = is_empty ? 0 : (size_t)-low;
	source->is_read_only = view->readonly;
	return 0;
}

static PyObject *wrap_view(PyTypeObject *type, owner *o, PyObject *name)
{
	hoist_buffer_source source = {.size = sizeof source, .release = drop_owner, .context = o};
	int64_t shape[HOIST_MAX_RANK];
	int64_t strides[HOIST_MAX_RANK];
	hoist_buffer *ret = NULL;
	hoist_dtype dtype;
	if (extents_of(&o->view, shape, strides, &source) < 0 ||
	    (name == Py_None ? dtype_of_format(o->view.format, o->view.itemsize, &dtype)
			     : hoist_py_dtype(name, &dtype)) < 0) {
		free_owner(o);
		return NULL;
	}
	if (hoist_dtype_bits(dtype) != 8 * (size_t)o->view.itemsize) {
		PyErr_Format(PyExc_ValueError, "%s has %u bits, the elements %zd bytes",
			     hoist_dtype_name(dtype), hoist_dtype_bits(dtype), o->view.itemsize);
		free_owner(o);
		return NULL;
	}
	int err = hoist_device_open("cpu", &source.device);
	bool is_c = PyBuffer_IsContiguous(&o->view, 'C');
	if (err == 0)
		err = hoist_buffer_wrap(&source, dtype, o->view.ndim, shape, is_c ? NULL : strides,
					&ret);
	hoist_device_unref(source.device);
	return err < 0 ? give_up(o, err) : hoist_py_owned_buffer(type, ret, o);
}

PyObject *hoist_py_of_ml_dtypes(PyObject *array, PyObject *type, PyObject *copy)
{
	PyObject *kind;
	PyObject *value;
	PyObject *trace;
	PyErr_Fetch(&kind, &value, &trace);
	PyObject *arguments = PyTuple_Pack(3, array, type, copy);
	PyObject *ret = arguments == NULL ? NULL : hoist_py_call("of_ml_dtypes", arguments);
	Py_XDECREF(arguments);
	if (ret == Py_None) {
		Py_CLEAR(ret);
		PyErr_Restore(kind, value, trace);
		return NULL;
	}
	Py_XDECREF(kind);
	Py_XDECREF(value);
	Py_XDECREF(trace);
	return ret;
}

PyObject *hoist_py_from_buffer(PyObject *type, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"", "dtype", NULL};
	PyObject *object;
	PyObject *name = Py_None;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|O:from_buffer", names, &object, &name))
		return NULL;
	owner *o = make_owner(NULL, NULL);
	if (o == NULL)
		return NULL;
	if (PyObject_GetBuffer(object, &o->view, PyBUF_RECORDS) < 0) {
		PyErr_Clear();
		if (PyObject_GetBuffer(object, &o->view, PyBUF_RECORDS_RO) < 0) {
			free(o);
			return name == Py_None ? hoist_py_of_ml_dtypes(object, type, Py_False)
					       : NULL;
		}
	}
	return wrap_view((PyTypeObject *)type, o, name);
}

/* --- addresses --- */

PyObject *hoist_py_from_address(PyObject *type, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"address", "nbytes",	    "dtype",  "shape",
				"strides", "nbytes_before", "device", "owner",
				"release", "read_only",	    NULL};
	hoist_buffer_source source = {.size = sizeof source, .release = drop_owner};
	unsigned long long address;
	Py_ssize_t before = 0;
	Py_ssize_t bytes;
	PyObject *name;
	PyObject *extents;
	PyObject *steps = Py_None;
	PyObject *spec = Py_None;
	PyObject *kept = Py_None;
	PyObject *release = Py_None;
	int64_t shape[HOIST_MAX_RANK];
	int64_t strides[HOIST_MAX_RANK];
	hoist_dtype dtype;
	hoist_buffer *ret = NULL;
	int err;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "KnOO|$OnOOOp:from_address", names,
					 &address, &bytes, &name, &extents, &steps, &before, &spec,
					 &kept, &release, &source.is_read_only))
		return NULL;
	int rank = hoist_py_extents(extents, shape);
	if (rank < 0 || hoist_py_dtype(name, &dtype) < 0)
		return NULL;
	if (bytes < 0 || before < 0 ||
	    (steps != Py_None && hoist_py_extents(steps, strides) != rank)) {
		if (!PyErr_Occurred())
			PyErr_SetString(PyExc_ValueError,
					"bytes below 0, or another number of strides than axes");
		return NULL;
	}
	if (spec != Py_None && hoist_py_device_arg(spec, &source.device) < 0)
		return NULL;
	source.address = (uintptr_t)address;
	source.bytes = (size_t)bytes;
	source.bytes_before = (size_t)before;
	owner *o = make_owner(kept, release);
	source.context = o;
	if (o != NULL)
		HOIST_PY_WAITING(err = hoist_buffer_wrap(&source, dtype, rank, shape,
							 steps == Py_None ? NULL : strides, &ret));
	hoist_device_unref(source.device);
	if (o == NULL)
		return NULL;
	return err < 0 ? give_up(o, err) : hoist_py_owned_buffer((PyTypeObject *)type, ret, o);
}

/* --- the CUDA Array Interface --- */

PyObject *hoist_py_get_cai(PyObject *self, void *closure)
{
	HOIST_PY_LOCK(self);
	hoist_py_buffer_object *o = (hoist_py_buffer_object *)self;
	hoist_cai cai = {.size = sizeof cai};
	hoist_stream *own = NULL;
	intptr_t number = -1;
	int err;
	(void)closure;
	/* A stream that the interface has no number for is waited for. */
	if (hoist_buffer_stream(o->buffer, &own) == 0 &&
	    hoist_stream_to_dlpack(own, &number) == 0 && number == 0 &&
	    hoist_py_await_stream(own) < 0)
		return NULL;
	HOIST_PY_USING(o, err = hoist_buffer_to_cai(o->buffer, &cai));
	if (err == -ENOTSUP) { /* no attribute: a consumer then asks for another interface */
		PyErr_SetString(PyExc_AttributeError, hoist_error());
		return NULL;
	}
	if (err < 0)
		return hoist_py_fail(err);
	PyObject *shape = hoist_py_tuple(cai.rank, cai.shape);
	PyObject *strides =
		cai.has_strides ? hoist_py_tuple(cai.rank, cai.strides) : Py_NewRef(Py_None);
	PyObject *stream = cai.has_stream ? PyLong_FromSsize_t(cai.stream) : Py_NewRef(Py_None);
	return Py_BuildValue("{s:i,s:s,s:(KN),s:N,s:N,s:N}", "version", 3, "typestr", cai.typestr,
			     "data", (unsigned long long)cai.data,
			     PyBool_FromLong(cai.is_read_only), "shape", shape, "strides", strides,
			     "stream", stream);
}

/* hoist.buffer.read_cai() has checked and unpacked the dictionary. */
PyObject *hoist_py_from_cai(PyObject *type, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"", "stream", "sync", NULL};
	PyObject *object;
	PyObject *on = Py_None;
	PyObject *shape;
	PyObject *strides;
	PyObject *number;
	const char *typestr;
	unsigned long long data;
	int sync = 1;
	hoist_stream *stream;
	hoist_cai cai = {.size = sizeof cai};
	hoist_cai_owner released = {drop_owner, NULL};
	hoist_buffer *ret = NULL;
	int err;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|$Op:from_cuda_array_interface", names,
					 &object, &on, &sync) ||
	    hoist_py_stream_arg(on, &stream) < 0)
		return NULL;
	PyObject *fields = hoist_py_delegate(object, "read_cai", NULL);
	if (fields == NULL)
		return NULL;
	bool is_right =
		PyArg_ParseTuple(fields, "isKiOOiO", &cai.version, &typestr, &data,
				 &cai.is_read_only, &shape, &strides, &cai.has_mask, &number) != 0;
	cai.rank = is_right ? hoist_py_extents(shape, cai.shape) : -1;
	cai.has_strides = is_right && strides != Py_None;
	is_right = cai.rank >= 0 &&
		   (!cai.has_strides || hoist_py_extents(strides, cai.strides) == cai.rank);
	cai.has_stream = is_right && number != Py_None;
	if (cai.has_stream)
		cai.stream = (intptr_t)PyLong_AsSsize_t(number);
	if (is_right) {
		cai.data = (uintptr_t)data;
		strncpy(cai.typestr, typestr, sizeof cai.typestr - 1);
	}
	Py_DECREF(fields);
	if (!is_right && !PyErr_Occurred())
		PyErr_SetString(PyExc_ValueError, "another number of strides than axes");
	released.context = PyErr_Occurred() ? NULL : make_owner(object, NULL);
	if (released.context == NULL)
		return NULL;
	HOIST_PY_WAITING(err = hoist_buffer_from_cai(&cai, &released, stream,
						     sync ? 0 : HOIST_CAI_NO_SYNC, &ret));
	return err < 0 ? give_up(released.context, err)
		       : hoist_py_owned_buffer((PyTypeObject *)type, ret, released.context);
}
