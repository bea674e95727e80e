/* SPDX-License-Identifier: MIT */
/* format/pickle.h - a pickle read as data, by a machine that executes nothing.
 *
 * A pickle is a program for a stack machine: "push this text", "make a dict of the values on the
 * stack", "call this Python function".  Here a fixed set of these instructions is known: those that
 * torch.save writes for tensors and plain values.  A fixed set of names of functions and classes is
 * known, too; each stands for a value below, not for a call.  Everything else is refused,
 * instructions by their number and names by their name.
 *
 * A lenient machine makes an opaque value where another one refuses a name, a call or a set: a
 * value that says why it cannot be read, and keeps the state that an object would have got.  Nothing
 * is called there, either.
 *
 * Protocols 2 to 5.  Nothing recurses.  Memory: at most HOIST__PICKLE_FACTOR times the pickle's
 * bytes, and 64 KiB, counted as it is taken; a pickle that needs more is refused (torch.save's own
 * files need about 10 times).  Work that one object can cause in many places counts as if it took
 * memory: each value that is visited, each byte of a name that is copied.
 *
 * Threads: one user at a time.
 */
#ifndef HOIST_FORMAT_PICKLE_H
#define HOIST_FORMAT_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "format/arena.h"
#include "hoist/dtype.h"

#define HOIST__PICKLE_FACTOR 32
#define HOIST__PICKLE_VISIT_BYTES 8 /* counted for a visit of a value */

enum hoist__pickle_kind {
	HOIST__PICKLE_MARK, /* on the stack only: the beginning of a list of arguments */
	HOIST__PICKLE_NONE,
	HOIST__PICKLE_BOOL,
	HOIST__PICKLE_INT,
	HOIST__PICKLE_FLOAT,
	HOIST__PICKLE_TEXT, /* bytes of the pickle: may contain NULs, and need not be UTF-8 */
	HOIST__PICKLE_LIST,
	HOIST__PICKLE_TUPLE,
	HOIST__PICKLE_DICT,
	HOIST__PICKLE_GLOBAL,	   /* one of the known names */
	HOIST__PICKLE_STORAGE,	   /* struct hoist__torch_storage */
	HOIST__PICKLE_TENSOR,	   /* struct hoist__torch_tensor */
	HOIST__PICKLE_BYTES,	   /* as TEXT, of any bytes */
	HOIST__PICKLE_NUMPY_DTYPE, /* struct hoist__torch_numpy_dtype */
	HOIST__PICKLE_OPAQUE,	   /* struct hoist__torch_opaque: in a lenient machine only */
	HOIST__PICKLE_OTHER,	   /* a device, an integer above 64 bits: never looked at */
};

struct hoist__pickle_value {
	uint8_t kind;
	uint8_t dtype; /* GLOBAL: of a storage class or a dtype; FLOAT: the type it was saved as */
	uint32_t n;    /* TEXT, BYTES: how many; GLOBAL: which one, an enum hoist__torch_global */
	union {
		int64_t integer; /* BOOL, INT */
		double real;
		const char *text;
		struct hoist__pickle_object *object; /* LIST, TUPLE, DICT; NULL: the empty tuple */
		const struct hoist__torch_storage *storage;
		const struct hoist__torch_tensor *tensor;
		struct hoist__torch_numpy_dtype *numpy_dtype;
		struct hoist__torch_opaque *opaque;
	} u;
};

/* The state that an instruction gives to a dict later. */
enum hoist__pickle_state {
	HOIST__PICKLE_NO_STATE,
	HOIST__PICKLE_ATTRIBUTES, /* an OrderedDict: its state is passed over */
	HOIST__PICKLE_ITEMS	  /* a Namespace: the state's items become its own */
};

/* The items of a list, tuple or dict (key, value, key, value), in the order they came. */
struct hoist__pickle_chunk {
	struct hoist__pickle_chunk *next;
	size_t n;
	struct hoist__pickle_value values[];
};

struct hoist__pickle_object {
	struct hoist__pickle_chunk *first;
	struct hoist__pickle_chunk *last;
	enum hoist__pickle_state state;
	bool open; /* used by a walk over the values */
};

struct hoist__pickle {
	const char *file; /* for messages, quoted */
	const unsigned char *bytes;
	size_t n;
	bool lenient;
	size_t at;     /* the next byte */
	size_t op_at;  /* the instruction being executed */
	uint64_t left; /* memory that may still be taken */
	struct hoist__arena arena;
	struct hoist__pickle_value *stack;
	size_t depth;
	size_t stack_room;
	struct hoist__pickle_value *memo;
	size_t n_memo;
	size_t memo_room;
};

/* Runs the whole pickle; @pickle has file, bytes, n and lenient.  *ret is the resulting object.  It
 * lives until hoist__pickle_close(), and no longer than the bytes.
 * Returns: 0; -EBADMSG; -ENOTSUP; -ENOMEM. */
int hoist__pickle_run(struct hoist__pickle *pickle, struct hoist__pickle_value *ret);
void hoist__pickle_close(struct hoist__pickle *pickle);

/* --- shared by the files that read a pickle --- */

/* Sets the text for the instruction being executed; returns @err. */
int hoist__pickle_fail(const struct hoist__pickle *pickle, int err, const char *format, ...)
	HOIST__PRINTF(3, 4);

/* Counts @bytes of memory.
 * Returns: 0; -EBADMSG if they are too many. */
int hoist__pickle_charge(struct hoist__pickle *pickle, size_t bytes);

/* Takes counted memory from the arena.
 * Returns: 0; -EBADMSG; -ENOMEM. */
int hoist__pickle_alloc(struct hoist__pickle *pickle, size_t bytes, void *ret);

/* Pushes a value.
 * Returns: 0; -EBADMSG (too much memory); -ENOMEM. */
int hoist__pickle_push(struct hoist__pickle *pickle, struct hoist__pickle_value value);

/* Checks that @n values are on the stack, above its last mark.
 * Returns: 0; -EBADMSG. */
int hoist__pickle_need(const struct hoist__pickle *pickle, size_t n);

/* Counts the values above the last mark.  At least @below (0 or 1) values must be below the mark.
 * Returns: 0; -EBADMSG. */
int hoist__pickle_to_mark(const struct hoist__pickle *pickle, size_t below, size_t *ret);

/* Copy the last value to that place of the memo, or push the value from there.  Places are taken in
 * order, as Python's pickler does: so the memo needs no more room than the pickle has bytes.
 * Returns: 0; -EBADMSG; -ENOMEM. */
int hoist__pickle_memo_put(struct hoist__pickle *pickle, uint64_t at);
int hoist__pickle_memo_get(struct hoist__pickle *pickle, uint64_t at);

/* Makes a new empty list or dict. */
int hoist__pickle_object(struct hoist__pickle *pickle, enum hoist__pickle_kind kind,
			 struct hoist__pickle_value *ret);

/* Appends the @n items at @values to a list, tuple or dict. */
int hoist__pickle_append(struct hoist__pickle *pickle, struct hoist__pickle_object *object,
			 const struct hoist__pickle_value *values, size_t n);

/* Appends the items of @from, another list, tuple or dict, or the same one. */
int hoist__pickle_append_all(struct hoist__pickle *pickle, struct hoist__pickle_object *object,
			     const struct hoist__pickle_object *from);

/* --- instructions that make values of names: pickle-make.c --- */

/* Executes the instruction @op, if it is one of these.
 * Returns: 0; 1 (another instruction); -EBADMSG; -ENOTSUP; -ENOMEM. */
int hoist__pickle_make(struct hoist__pickle *pickle, unsigned op);

/* Returns the next @n bytes; NULL, with the text, if the pickle ends before. */
const unsigned char *hoist__pickle_take(struct hoist__pickle *pickle, uint64_t n);

/* Returns the items of a tuple, which are in one piece; *n is how many. */
const struct hoist__pickle_value *hoist__pickle_items(const struct hoist__pickle_value *tuple,
						      size_t *n);

#endif
