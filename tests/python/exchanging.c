/* SPDX-License-Identifier: MIT */
/* tests/python/exchanging.c - a consumer of DLPack's exchange table, which knows the table from the
 * standard alone (version 1.3), for test_exchange.py: `ctypes.PyDLL`.  Each function takes the
 * pointer of the capsule "dlpack_exchange_api", and returns 0, or NULL for an object, or -1 with an
 * exception. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct device {
	int32_t type, id;
};
struct dtype {
	uint8_t code, bits;
	uint16_t lanes;
};
struct tensor {
	void *data;
	struct device device;
	int32_t ndim;
	struct dtype dtype;
	int64_t *shape, *strides;
	uint64_t byte_offset;
};
struct managed {
	uint32_t major, minor;
	void *context;
	void (*deleter)(struct managed *self);
	uint64_t flags;
	struct tensor tensor;
};
struct table {
	uint32_t major, minor;
	struct table *previous;
	int (*allocate)(struct tensor *prototype, struct managed **ret, void *context,
			void (*set_error)(void *context, const char *kind, const char *text));
	int (*from_object)(void *object, struct managed **ret);
	int (*to_object)(struct managed *tensor, void **ret);
	int (*borrow)(void *object, struct tensor *ret);
	int (*current_stream)(int32_t type, int32_t id, void **ret);
};

/* Adds @what to each float of the object, in place. */
int add(const struct table *table, void *object, float what);
int add(const struct table *table, void *object, float what)
{
	struct tensor t;
	if (table->borrow(object, &t) < 0)
		return -1;
	if (t.device.type != 1 || t.dtype.code != 2 || t.dtype.bits != 32 || t.dtype.lanes != 1 ||
	    t.ndim != 2)
		return -2;
	char *data = (char *)t.data + t.byte_offset;
	for (int64_t i = 0; i < t.shape[0]; i++)
		for (int64_t k = 0; k < t.shape[1]; k++)
			((float *)(void *)data)[i * t.strides[0] + k * t.strides[1]] += what;
	return 0;
}

/* The object of a tensor that was exported and imported; *flags: the tensor's. */
void *around(const struct table *table, void *object, uint64_t *flags);
void *around(const struct table *table, void *object, uint64_t *flags)
{
	struct managed *tensor;
	void *ret;
	if (table->from_object(object, &tensor) < 0)
		return NULL;
	*flags = tensor->flags;
	return table->to_object(tensor, &ret) < 0 ? NULL : ret;
}

/* Exports the object, and drops the tensor. */
int drop(const struct table *table, void *object);
int drop(const struct table *table, void *object)
{
	struct managed *tensor;
	if (table->from_object(object, &tensor) < 0)
		return -1;
	tensor->deleter(tensor);
	return 0;
}

/* Gives a tensor of more lanes than hoist has to the table, which must drop it. */
static int n_dropped;
static void count_drop(struct managed *self)
{
	(void)self;
	n_dropped++;
}
int refuse(const struct table *table, int *dropped);
int refuse(const struct table *table, int *dropped)
{
	static int64_t shape[1] = {1}, strides[1] = {1};
	static float data[4];
	static struct managed tensor = {.major = 1, .minor = 3};
	void *object;
	tensor.deleter = count_drop;
	tensor.tensor = (struct tensor){data, {1, 0}, 1, {2, 32, 4}, shape, strides, 0};
	n_dropped = 0;
	int err = table->to_object(&tensor, &object);
	*dropped = n_dropped;
	return err;
}

/* Writes @n bytes, which must be an element's, over the object's first element, by @write. */
int write_first(const struct table *table, void *object, const void *value, size_t n,
		int (*write)(uint64_t to, const void *value, size_t n));
int write_first(const struct table *table, void *object, const void *value, size_t n,
		int (*write)(uint64_t to, const void *value, size_t n))
{
	struct tensor t;
	if (table->borrow(object, &t) < 0)
		return -1;
	if (t.dtype.bits != n * 8 || t.dtype.lanes != 1)
		return -2;
	return write((uintptr_t)t.data + t.byte_offset, value, n);
}

/* The object over 1 x 4 elements of the consumer's own memory, which lasts until n_dropped counts.
 */
static void drop_own(struct managed *self)
{
	n_dropped++;
	free(self->context);
	free(self);
}
void *lend(const struct table *table, uint64_t address, int32_t device_type, uint8_t code,
	   uint8_t bits);
void *lend(const struct table *table, uint64_t address, int32_t device_type, uint8_t code,
	   uint8_t bits)
{
	static const int64_t layout[4] = {1, 4, 4, 1};
	struct managed *own = calloc(1, sizeof *own);
	int64_t *room = malloc(sizeof layout);
	void *ret;
	if (own == NULL || room == NULL)
		abort();
	memcpy(room, layout, sizeof layout);
	*own = (struct managed){.major = 1, .minor = 3, .context = room, .deleter = drop_own};
	own->tensor = (struct tensor){(void *)(uintptr_t)address,
				      {device_type, 0},
				      2,
				      {code, bits, 1},
				      room,
				      room + 2,
				      0};
	return table->to_object(own, &ret) < 0 ? NULL : ret;
}

/* Those of lend()'s tensors, and of refuse()'s last one, that were dropped. */
int dropped(void);
int dropped(void)
{
	return n_dropped;
}

static void note(void *context, const char *kind, const char *text)
{
	(void)snprintf(context, 200, "%s: %s", kind, text);
}

/* *@ret: an object over new memory of @n elements of @bits.  @error, of 200 bytes, gets a failure
 * of the allocation, which raises nothing: 1. */
int make(const struct table *table, int32_t device_type, int64_t n, uint8_t bits, char *error,
	 void **ret);
int make(const struct table *table, int32_t device_type, int64_t n, uint8_t bits, char *error,
	 void **ret)
{
	struct tensor like = {
		.device = {device_type, 0}, .ndim = 1, .dtype = {2, bits, 1}, .shape = &n};
	struct managed *tensor;
	if (table->allocate(&like, &tensor, error, note) < 0)
		return 1;
	return table->to_object(tensor, ret);
}

int stream(const struct table *table, int32_t type, int32_t id, void **ret);
int stream(const struct table *table, int32_t type, int32_t id, void **ret)
{
	return table->current_stream(type, id, ret);
}
