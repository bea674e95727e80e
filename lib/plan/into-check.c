/* SPDX-License-Identifier: MIT */
/* Checks of the buffers that a load reads into.
 * The contract is in lib/plan/into.h. */
#include "config.h"

#include <stdio.h>

#include "lib/buffer/buffer-private.h"
#include "lib/copy/copy.h"
#include "lib/plan/into.h"

/* The text of a failure costs more than all checks do. */
static bool is_sound(hoist_buffer *buffer)
{
	return hoist__buffer_check_writable(buffer, "the buffer") == 0 &&
	       hoist__storage_has_access(buffer->storage) && buffer->bit == 0 &&
	       (buffer->elements == 0 || !hoist__buffer_overlaps_itself(buffer));
}

static int check_buffer(const struct hoist_load_into *given, const char *where, size_t i)
{
	char what[320];
	if (is_sound(given->buffer))
		return 0;
	(void)snprintf(what, sizeof what, "%sinto[%zu]: the buffer for \"%.200s\"", where, i,
		       given->tensor);
	int err = hoist__buffer_check_writable(given->buffer, what);
	if (err < 0)
		return err;
	if (!hoist__storage_has_access(given->buffer->storage))
		return hoist__fail(-ENOTSUP,
				   "%s has memory that neither the CPU nor a device may touch, as "
				   "its resource says",
				   what);
	if (given->buffer->bit != 0)
		return hoist__fail(-EINVAL, "%s begins within a byte; give a view that does not",
				   what);
	return hoist__fail(-EINVAL,
			   "%s has elements that overlap, or may, by its strides (a stride of 0, "
			   "say); give a buffer in which each element has a place",
			   what);
}

static int check_list(const hoist_load_into *given, size_t n, const char *where)
{
	int err = 0;
	for (size_t i = 0; err == 0 && i < n; i++) {
		if (given[i].tensor == NULL)
			return hoist__fail(-EINVAL, "%sinto[%zu].tensor is NULL", where, i);
		err = check_buffer(&given[i], where, i);
	}
	return err;
}

/* Buffers of the caller's exclude all that says where tensors go. */
int hoist__into_check(const hoist_load_options *o, const hoist_load_target *asked,
		      const char *where)
{
	if (asked->n_into == 0 && asked->into == NULL)
		return 0;
	if (asked->n_into == 0 || asked->into == NULL)
		return hoist__fail(-EINVAL, "%sn_into is %zu, and into is %s; give both", where,
				   asked->n_into, asked->into == NULL ? "NULL" : "not NULL");
	if (asked->n_into >= UINT32_MAX)
		return hoist__fail(-EINVAL, "%sn_into is %zu; it is below %u", where, asked->n_into,
				   UINT32_MAX);
	if (asked->tensors != NULL || asked->dtype != HOIST_DTYPE_INVALID ||
	    asked->memory != NULL || o->n_replicas > 0)
		return hoist__fail(-EINVAL,
				   "%sinto names the tensors, and its buffers have memory and "
				   "dtypes; leave tensors, dtype, memory and replicas unset",
				   where);
	if ((o->flags & HOIST_LOAD_STREAM) != 0)
		return hoist__fail(-EINVAL,
				   "%sa load in place (into) has nothing to give: its buffers are "
				   "the caller's already; load without HOIST_LOAD_STREAM, and wait "
				   "for the load",
				   where);
	return check_list(asked->into, asked->n_into, where);
}
