/* SPDX-License-Identifier: MIT */
/* python/src/module.h - the extension hoist._hoist: objects over libhoist's.
 *
 *   module.c      the module: its types, its functions, where exceptions come from
 *   convert.c     shapes, dtypes, texts and slices, from Python and back
 *   device.c      Device, Budget
 *   stream.c      Stream, Event
 *   waits.c       waits that Ctrl-C ends
 *   flag.c        Flag: a number in memory that streams wait for
 *   accelerators.c  functions about devices that a machine has, or pretends to have
 *   buffer.c      Buffer: making, views, copies
 *   fields.c      Buffer: properties
 *   copies.c      Buffer: copies, fills, the only element
 *   index.c       Buffer: parts by index
 *   exchange.c    Buffer: the buffer protocol and DLPack
 *   exchange-table.c  Buffer, StridedMemoryView: DLPack's table of functions
 *   wrap.c        Buffer: over memory that Python objects own
 *   mmap.c        Buffer: over files
 *   memory.c      Memory: resources; buffers of other processes
 *   layout.c, layout-views.c  StridedLayout
 *   checkpoint.c  Checkpoint
 *   job.c         Job: the part that Load and Save have in common
 *   load.c        Load
 *   options.c     the options of a load (options.h)
 *   cache.c       Image, and the cache's functions
 *   doctor.c      what hoist.doctor() asks
 *   forecast.c    what hoist.plan() asks
 *   save.c        Save
 *
 * Each object holds one reference to the object of libhoist that it stands for, and drops the
 * reference when it ends.  All that parses options or offers convenience is in Python
 * (python/hoist); the extension knows include/hoist only, and is written on the limited API of
 * CPython 3.11.
 *
 * The GIL is released around every call of libhoist that can wait, the drops of references
 * included: they may call back into Python, where the memory is another library's.
 *
 * Without the GIL (free-threaded CPython, whose full API is used): a method of a mutable object
 * begins with HOIST_PY_LOCK(), a critical section of that object.  The section has the GIL's rules
 * for the one object: it is let go of in HOIST_PY_WAITING(), in calls of Python code, and where the
 * thread blocks.  So a method reads the object's pointer, uses the pointer, and makes objects of
 * what it found without such a call in between, or counts itself in n_uses, which close() heeds.
 * n_uses of another object than the locked one is counted first (hoist_py_use_buffer(),
 * hoist_py_use_checkpoint()), and its pointer read then.  Below, "under the lock" means this
 * section, and the GIL where there is one.
 *
 * Reference cycles: memory that a Python object owns keeps that object from C, where Python's
 * collector does not look.  A Buffer shows the collector that reference while nobody but the
 * Buffer, and loads that keep the Buffer, hold the storage.  While a view, an export or a capture
 * shares the storage, the object counts as used, and a cycle through the object stays.
 *
 * Identity: one Device object for each device of libhoist, kept for good, and one Stream object for
 * each stream while the object lives: `a is b` tells whether two are the same.  Objects stand in
 * the slots that libhoist has for bindings (hoist/user.h).  Code that finds an object there and
 * takes a reference holds hoist_py_slots; so does the destructor, which empties the slot first.  A
 * call that returns the buffer that it was given returns its object, and so does a load in place,
 * of memory that a Python object owns.
 *
 * Classes of Python may inherit from Buffer: views have the class of the buffer that they are views
 * of, copies are of the class Buffer.
 *
 * Failures: hoist_py_fail() raises the exception for libhoist's last failure in this thread.
 * python/hoist/errors.py chooses the class.
 */
#ifndef HOIST_PYTHON_MODULE_H
#define HOIST_PYTHON_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <stdint.h>

#include <hoist/cai.h>
#include <hoist/compat.h>
#include <hoist/dlpack.h>
#include <hoist/element.h>
#include <hoist/hoist.h>
#include <hoist/layout.h>
#include <hoist/mmap.h>
#include <hoist/user.h>

/* Types are made once, by the module's only interpreter: a sub-interpreter is refused. */
extern PyTypeObject *hoist_py_device_type, *hoist_py_stream_type, *hoist_py_budget_type,
	*hoist_py_buffer_type, *hoist_py_checkpoint_type;
extern PyTypeObject *hoist_py_event_type, *hoist_py_flag_type, *hoist_py_layout_type;

/* --- failures --- */

/* Raises the exception for @err, with the text of this thread's last failure.  Returns: NULL. */
PyObject *hoist_py_fail(int err);

/* As hoist_py_fail(), with a text of the extension's own. */
PyObject *hoist_py_fail_text(int err, const char *text);

/* --- conversion: each returns 0, or -1 with an exception --- */

int hoist_py_dtype(PyObject *name, hoist_dtype *ret);
PyObject *hoist_py_dtype_name(hoist_dtype dtype);

/* @extents: a sequence of integers, or one integer.  Returns: their number; -1. */
int hoist_py_extents(PyObject *extents, int64_t ret[HOIST_MAX_RANK]);
PyObject *hoist_py_tuple(int n, const int64_t *values);

/* A strdup()ed copy of a str; NULL: None. */
int hoist_py_text(PyObject *text, char **ret);

/* @seq: None, or a sequence of str.  *@ret: an array of copies; NULL: None. */
int hoist_py_texts(PyObject *seq, char ***ret, size_t *n);
void hoist_py_free_texts(char **texts, size_t n);

/* --- objects --- */

/* The Device object of @device; takes the reference to @device, even if it fails. */
PyObject *hoist_py_device(hoist_device *device);

/* @object: a Device, a spec, or None (the CPU).  *@ret: a new reference. */
int hoist_py_device_arg(PyObject *object, hoist_device **ret);

uint64_t hoist_py_now_ns(void);

/* Waits, in the main thread, for the work that is queued now, and lets Python handle signals
 * meanwhile.  The next wait reports a failure of the work.  Returns: 0; -1 with an exception of a
 * signal's handler. */
int hoist_py_await_stream(hoist_stream *stream);
int hoist_py_await_event(hoist_event *event);

/* hoist_stream_query(), without the GIL where the call may block. */
int hoist_py_query(hoist_stream *stream);

/* Calls @self.NAME(), which may wait for long, in another thread if this is the main thread, which
 * lets Python handle signals meanwhile. */
PyObject *hoist_py_in_thread(PyObject *self, const char *name);

/* As hoist_py_await_stream(), for the stream of the Buffer @self. */
int hoist_py_await_buffer(PyObject *self);
/* The same for each Buffer of a list. */
int hoist_py_await_buffers(PyObject *list);

/* As hoist_py_await_stream(), for the streams that a copy between two Buffers waits for: without
 * @stream both Buffers' own; with @stream that one, where the copy blocks. */
int hoist_py_await_copy(PyObject *to, PyObject *from, hoist_stream *stream);
/* The same for a copy to new memory on @stream. */
int hoist_py_await_copy_to(PyObject *self, hoist_stream *stream);

/* The Stream object of @stream; takes the reference to @stream, even if it fails. */
PyObject *hoist_py_stream(hoist_stream *stream);

/* @object: a Stream, another library's stream, or None.  *@ret: borrowed, valid while @object is
 * there; NULL: None. */
int hoist_py_stream_arg(PyObject *object, hoist_stream **ret);
int hoist_py_budget_arg(PyObject *object, hoist_budget **ret);

/* The Buffer over @buffer, whose reference it takes, even if it fails. */
PyObject *hoist_py_buffer(hoist_buffer *buffer);

/* As hoist_py_buffer(), of @type, a Buffer or a class that inherits from it. */
PyObject *hoist_py_buffer_of(PyTypeObject *type, hoist_buffer *buffer);

/* Calls hoist.buffer.NAME(...); @arguments: a tuple or NULL. */
PyObject *hoist_py_call(const char *name, PyObject *arguments);

/* Calls hoist.buffer.NAME(@self, ...); @arguments: a tuple or NULL. */
PyObject *hoist_py_delegate(PyObject *self, const char *name, PyObject *arguments);

/* @object's buffer, borrowed; NULL with a TypeError. */
hoist_buffer *hoist_py_buffer_arg(PyObject *object);

/* The buffer of the Buffer @object, borrowed, which may be closed: close() is refused until
 * hoist_py_leave_buffer(). */
hoist_buffer *hoist_py_use_buffer(PyObject *object);
void hoist_py_leave_buffer(PyObject *object);

/* The checkpoint of a Checkpoint, borrowed: close() is refused until hoist_py_leave_checkpoint().
 * Returns: NULL with an exception: @object is closed, or none. */
hoist_checkpoint *hoist_py_use_checkpoint(PyObject *object);
void hoist_py_leave_checkpoint(PyObject *object);

/* --- threads --- */

#ifdef Py_GIL_DISABLED
static inline void hoist_py_end_section(PyCriticalSection *section)
{
	PyCriticalSection_End(section);
}
/* Locks @object, as described above, to the end of the block. */
#define HOIST_PY_LOCK(object)                                                                      \
	PyCriticalSection hoist_py_section __attribute__((cleanup(hoist_py_end_section)));         \
	PyCriticalSection_Begin(&hoist_py_section, (PyObject *)(object))
#else
#define HOIST_PY_LOCK(object) (void)(object)
#endif

/* Guards the slots for bindings: held for a few instructions, in which nothing is waited for. */
extern pthread_mutex_t hoist_py_slots;

/* For an object that is found by hoist_py_try_ref() later. */
static inline void hoist_py_enable_try_ref(PyObject *object)
{
#ifdef Py_GIL_DISABLED
	PyUnstable_EnableTryIncRef(object);
#else
	(void)object;
#endif
}

/* Takes a reference to an object of which the caller has none.  Returns: false: the object ends. */
static inline bool hoist_py_try_ref(PyObject *object)
{
#ifdef Py_GIL_DISABLED
	return PyUnstable_TryIncRef(object) != 0;
#else
	if (Py_REFCNT(object) == 0)
		return false;
	Py_INCREF(object);
	return true;
#endif
}

int hoist_py_add_device_types(PyObject *module);
int hoist_py_add_stream_types(PyObject *module);
int hoist_py_add_flag_type(PyObject *module);
int hoist_py_add_layout_type(PyObject *module);
int hoist_py_add_memory_type(PyObject *module);
int hoist_py_add_accelerators(PyObject *module);
int hoist_py_add_buffer_type(PyObject *module);
int hoist_py_add_checkpoint_type(PyObject *module);
int hoist_py_add_job_type(PyObject *module);
int hoist_py_add_load_type(PyObject *module);
int hoist_py_add_cache(PyObject *module);
int hoist_py_add_doctor(PyObject *module);
int hoist_py_add_waits(PyObject *module);
int hoist_py_add_forecast(PyObject *module);
int hoist_py_add_group(PyObject *module);

/* (name, dtype, shape, nbytes, file, offset, strides or None), of @type, which is tuple or inherits
 * from it. */
PyObject *hoist_py_tensor_tuple(PyTypeObject *type, const hoist_tensor_info *info);
int hoist_py_add_save_type(PyObject *module);

/* Makes a type of the module's and adds it under its name.  Returns: NULL with an exception. */
PyTypeObject *hoist_py_add_type(PyObject *module, PyType_Spec *spec);
PyTypeObject *hoist_py_add_subtype(PyObject *module, PyType_Spec *spec, PyTypeObject *base);

/* Frees an object whose fields have ended, and its type's reference. */
void hoist_py_free_object(PyObject *self);

/* The finalizer of a type whose function for the collector is @clear: keeps the exception that is
 * set. */
void hoist_py_finalize(PyObject *self, inquiry clear);

/* --- job.c, for the types in load.c and save.c --- */

/* The functions of libhoist for one kind of job, and what is said of it. */
struct hoist_py_job_kind {
	const char *closed; /* "the load was closed" */
	const char *used;   /* close() is refused: another thread waits */
	void (*cancel)(void *job);
	void (*destroy)(void *job);
	int (*wait)(void *job);
	bool (*is_done)(void *job);
	int (*fd)(void *job);
	void (*progress)(const void *job, uint64_t *done, uint64_t *total);
};
extern const struct hoist_py_job_kind hoist_py_load_kind, hoist_py_save_kind;

/* The beginning of each object that is a job.  All such objects are in one list, so that the
 * interpreter's end can stop their jobs. */
typedef struct hoist_py_job {
	PyObject_HEAD const struct hoist_py_job_kind *kind; /* NULL: not in the list */
	_Atomic(void *) job; /* hoist_load or hoist_save; NULL: closed; changed under the lock */
	atomic_int n_uses;   /* calls that run without the GIL: close() is refused meanwhile */
	pid_t process;	     /* that made the job */
	char *folder;	/* that was made for the files of a save, and goes with the job unless there
			 * are files in it; NULL */
	PyObject *kept; /* objects whose memory the job uses: dropped behind its end; NULL: none */
	bool is_in_place; /* `kept` is a list of Buffers, whose n_loads count the job */
	struct hoist_py_job *before, *after; /* in the list of all objects */
} hoist_py_job;

/* Adds a type that inherits from Job. */
PyTypeObject *hoist_py_add_job_kind(PyObject *module, PyType_Spec *spec);

/* Gives @job to @self, once. */
void hoist_py_job_begin(hoist_py_job *self, const struct hoist_py_job_kind *kind, void *job);

/* One more (1) or one less (-1) load in place holds the Buffers of a list. */
void hoist_py_count_loads(PyObject *buffers, int change);

/* Raises ClosedError for a closed job.  Returns: the hoist_load or hoist_save, borrowed; NULL. */
void *hoist_py_open_job(PyObject *self);

/* Ends the job, if it was not closed.  Returns: 0; -1 with an exception: another thread waits. */
int hoist_py_close_job(hoist_py_job *self);

/* As hoist_py_close_job(), at the object's end. */
void hoist_py_end_job(hoist_py_job *self);

/* --- fields.c, index.c, exchange.c and wrap.c, for the type in buffer.c --- */

typedef struct hoist_py_buffer_object {
	PyObject_HEAD _Atomic(hoist_buffer *) buffer; /* changes while Memory.grow() runs */
	atomic_int n_uses;   /* calls that run without the GIL, and views of the buffer protocol:
			      * close() is refused meanwhile */
	bool is_unordered;   /* exports and views by the CPU do not wait for the buffer's stream */
	atomic_uint n_loads; /* loads in place that hold the buffer */
	/* The Python objects that the memory needs (wrap.c), which the storage holds; NULL: none.
	 * The owner is there while the storage is: views have it, too. */
	struct hoist_py_owner *owner;
} hoist_py_buffer_object;

/* As hoist_py_buffer_of(), of memory that Python objects own.  The object is the only one of its
 * class for the buffer. */
PyObject *hoist_py_owned_buffer(PyTypeObject *type, hoist_buffer *buffer,
				struct hoist_py_owner *owner);

/* For the traversal of a Buffer: the references of the owner. */
int hoist_py_visit_owner(struct hoist_py_owner *owner, visitproc visit, void *arg);
/* Whether a function is called at the end of the memory. */
bool hoist_py_owner_calls(const struct hoist_py_owner *owner);

/* Raises ClosedError for a closed buffer.  Returns: the buffer, borrowed; NULL. */
hoist_buffer *hoist_py_open_buffer(PyObject *self);
/* Is neither a call without the GIL nor a view of the buffer protocol at work with the buffer?
 * Returns: 0; -1 with BufferError. */
int hoist_py_check_unused(PyObject *self);
/* hoist_py_leave_buffer() of all Buffers of a list. */
void hoist_py_leave_all(PyObject *buffers);

/* The object of a view of @self's buffer: of @self's class.  *@view is taken, even if it fails. */
PyObject *hoist_py_view(PyObject *self, int err, hoist_buffer *const *view);

extern PyGetSetDef hoist_py_buffer_fields[];

PyObject *hoist_py_subscript(PyObject *self, PyObject *key);

/* An integer or a slice.  Returns: 0; -1 with an exception. */
int hoist_py_one_index(PyObject *item, hoist_slice *ret);

/* A number of Python's or NumPy's.  Returns: 0; -1 with an exception. */
int hoist_py_number(PyObject *value, hoist_number *ret);
PyObject *hoist_py_number_object(hoist_number number);

/* Buffer._set(index, value, toward_zero): one element, by integers alone. */
PyObject *hoist_py_set_element(PyObject *self, PyObject *args);

PyObject *hoist_py_to(PyObject *self, PyObject *where);
PyObject *hoist_py_copy(PyObject *self, PyObject *args, PyObject *keywords);
PyObject *hoist_py_copy_from(PyObject *self, PyObject *args, PyObject *keywords);
PyObject *hoist_py_fill(PyObject *self, PyObject *args, PyObject *keywords);
PyObject *hoist_py_fork(PyObject *none, PyObject *args, PyObject *keywords);
PyObject *hoist_py_tobytes(PyObject *self, PyObject *none);
PyObject *hoist_py_item(PyObject *self, PyObject *none);
PyObject *hoist_py_index(PyObject *self);
PyObject *hoist_py_int(PyObject *self);
PyObject *hoist_py_float(PyObject *self);
int hoist_py_bool(PyObject *self);

/* Buffer._with_layout(layout, dtype), in layout-views.c. */
PyObject *hoist_py_with_layout(PyObject *self, PyObject *args);

PyObject *hoist_py_mmap(PyObject *type, PyObject *args, PyObject *keywords);
PyObject *hoist_py_load_max(PyObject *type, PyObject *args);
PyObject *hoist_py_flush(PyObject *self, PyObject *none);

/* @array has refused to export its memory, and the exception is set: if it is a NumPy array of one
 * of ml_dtypes' types, there is a Buffer over its bits.  Returns: NULL with an exception. */
PyObject *hoist_py_of_ml_dtypes(PyObject *array, PyObject *type, PyObject *copy);

/* end_drops(): at the end of the interpreter. */
PyObject *hoist_py_end_drops(PyObject *module, PyObject *none);
/* So that a child of fork does not wait for threads of its parent.  Returns: 0; -1 with
 * MemoryError. */
int hoist_py_watch_forks(void);

PyObject *hoist_py_from_buffer(PyObject *type, PyObject *args, PyObject *keywords);
PyObject *hoist_py_from_address(PyObject *type, PyObject *args, PyObject *keywords);
PyObject *hoist_py_from_cai(PyObject *type, PyObject *args, PyObject *keywords);
PyObject *hoist_py_get_cai(PyObject *self, void *closure);
int hoist_py_store(PyObject *self, PyObject *key, PyObject *value);

int hoist_py_getbuffer(PyObject *self, Py_buffer *view, int flags);
void hoist_py_releasebuffer(PyObject *self, Py_buffer *view);
PyObject *hoist_py_to_dlpack(PyObject *self, PyObject *args, PyObject *keywords);
/* A capsule without a version over a buffer on the host that nobody writes to: nothing is waited
 * for. */
PyObject *hoist_py_capsule(hoist_buffer *buffer);
PyObject *hoist_py_dlpack_device(PyObject *self, PyObject *none);
/* Whether the tensor must not be written to.  Takes NULL. */
bool hoist_py_is_read_only_tensor(const struct DLManagedTensorVersioned *tensor);
/* The BufferError for such a tensor, and a consumer that might write to it. */
void hoist_py_refuse_read_only(void);
/* Sets Buffer's `__dlpack_c_exchange_api__`, and adds what sets a view's.  Returns: 0; -1 with an
 * exception. */
int hoist_py_add_exchange_tables(PyObject *module);
PyObject *hoist_py_from_dlpack(PyObject *type, PyObject *args, PyObject *keywords);

/* A call of libhoist on the open buffer or job of an object that is locked, which stays open
 * meanwhile. */
#define HOIST_PY_USING(self, call)                                                                 \
	do {                                                                                       \
		atomic_fetch_add(&(self)->n_uses, 1);                                              \
		HOIST_PY_WAITING(call);                                                            \
		atomic_fetch_sub(&(self)->n_uses, 1);                                              \
	} while (0)

/* A function with keywords, as a table of methods takes it. */
#define HOIST_PY_KEYWORDS(function) ((PyCFunction)(void (*)(void))(function))

/* Calls of libhoist that may wait. */
#define HOIST_PY_WAITING(call)                                                                     \
	do {                                                                                       \
		Py_BEGIN_ALLOW_THREADS call;                                                       \
		Py_END_ALLOW_THREADS                                                               \
	} while (0)

#endif
