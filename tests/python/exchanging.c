/* SPDX-License-Identifier: MIT */
/* tests/python/exchanging.c - a consumer of DLPack's exchange table, which knows the table from the
 * standard alone (version 1.3), for test_exchange.py: `ctypes.PyDLL`.  Each function takes the
 * pointer of the capsule "dlpack_exchange_api", and returns 0, or NULL for an object, or -1 with an
 * exception. */
#include <stdint.h>
#include <stdio.h>
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
