/* SPDX-License-Identifier: MIT */
/* format/npy.h - NumPy's arrays in files.
 *
 *   0  u8[6]  93 "NUMPY"        6  u8 major (1, 2, 3), u8 minor (0)
 *   8  u16 (major 1) or u32 bytes of the header; the header: a Python literal,
 *      {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }, spaces, '\n'
 *      the array's bytes
 *
 * An array in a file of its own has no name; it gets the one that numpy.savez gives to an array
 * without one: "arr_0".  Column-major arrays (fortran_order) get strides.
 *
 * 'descr' is a type character and bytes, as "<f4", or the name of a dtype.  NumPy writes too
 * little of the types that ml_dtypes adds: only bfloat16 becomes '<V2' and only float8_e5m2
 * '<f1', and these are read as such (as JAX does); '<V1' may be any of a dozen and is refused, as
 * are '|V2' (raw bytes: NumPy's own void), big-endian numbers, structured dtypes, objects and
 * text, each by its name.  A file must end where its array does: further bytes would be
 * passed over in silence (NumPy reads the first of several arrays).
 *
 * Memory: the header twice, and it has at most 1 MiB.
 */
#ifndef HOIST_FORMAT_NPY_H
#define HOIST_FORMAT_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/layout.h"
#include "format/arena.h"
#include "format/format.h"
#include "format/zip.h"

#define HOIST__NPY_NAME "arr_0"

/* --- an archive of arrays, as numpy.savez makes it ---
 *
 * Entry NAME.npy is a tensor called NAME.  Entries of other names are passed over, but unless the
 * archive is empty, one .npy must be there.  Compressed entries are refused
 * (numpy.savez_compressed). */

/* --- shared by the files that read arrays --- */

/* Reads the array at [@at, @end) of the file into @tensor, except its name.  @what names the
 * array in messages, as `m.npz: entry "a.npy"`.  Shape and strides go to @arena.
 * Returns: 0; -EBADMSG; -ENOTSUP (a dtype that hoist does not have); -ENOMEM; the reader's
 *   error. */
int hoist__npy_read(struct hoist__window *window, const char *what, uint64_t at, uint64_t end,
		    struct hoist__arena *arena, struct hoist__tensor *tensor);

/* The content of a header. */
struct hoist__npy_header {
	hoist_dtype dtype;
	bool fortran_order;
	int rank;
	int64_t shape[HOIST__MAX_RANK];
};

/* Reads the literal, whose first byte is @base in the file.
 * Returns: 0; -EBADMSG; -ENOTSUP. */
int hoist__npy_literal(const char *what, const char *text, size_t bytes, uint64_t base,
		       struct hoist__npy_header *ret);

#endif
