/* SPDX-License-Identifier: MIT */
/* Checkpoints made from a seed: tensors, elements, digests, and files written without hoist. */
#include "config.h"

#include "tests/soak/model.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#define CHUNK 65536 /* bytes that are made at a time */

static const struct type {
	hoist_dtype dtype;
	const char *safetensors;
	unsigned item;
} types[] = {{HOIST_F32, "F32", 4}, {HOIST_F16, "F16", 2}, {HOIST_BF16, "BF16", 2},
	     {HOIST_I8, "I8", 1},   {HOIST_I64, "I64", 8}, {HOIST_F64, "F64", 8}};
#define N_TYPES (sizeof types / sizeof types[0])

static const struct type *type_of(hoist_dtype dtype)
{
	for (size_t i = 0; i < N_TYPES; i++)
		if (types[i].dtype == dtype)
			return &types[i];
	NEVER("a dtype of the models");
	return NULL;
}

bool soak_converts(hoist_dtype dtype)
{
	return dtype == HOIST_F32 || dtype == HOIST_F16 || dtype == HOIST_BF16;
}

size_t soak_item(hoist_dtype dtype)
{
	return type_of(dtype)->item;
}

static void make_tensor(uint64_t *state, size_t t, uint64_t seed, struct soak_tensor *ret)
{
	const struct type *type = &types[soak_mix(++*state) % N_TYPES];
	int64_t most = (soak_mix(++*state) % 4 == 0 ? 500000 : 30000) / type->item;
	(void)snprintf(ret->name, sizeof ret->name, "t%02zu.%05x", t, (unsigned)(seed & 0xfffff));
	ret->dtype = type->dtype;
	ret->rank = 1 + (int)(soak_mix(++*state) % SOAK_MOST_RANK);
	ret->elements = 1;
	for (int a = 0; a < ret->rank; a++) {
		int64_t limit = a == ret->rank - 1 ? most : most < 9 ? most : 9;
		ret->shape[a] = 1 + (int64_t)(soak_mix(++*state) % (uint64_t)limit);
		most /= ret->shape[a];
		most = most > 0 ? most : 1;
		ret->elements *= ret->shape[a];
	}
	if (ret->rank > 1 && soak_mix(++*state) % 3 == 0) { /* many short rows */
		int64_t last = ret->shape[ret->rank - 1];
		ret->shape[ret->rank - 1] = ret->shape[0];
		ret->shape[0] = last;
	}
	ret->bytes = (size_t)ret->elements * type->item;
}

void soak_model_make(uint64_t seed, struct soak_model *ret)
{
	uint64_t state = soak_mix(seed);
	*ret = (struct soak_model){.seed = seed};
	ret->n = 1 + soak_mix(++state) % SOAK_MOST_TENSORS;
	for (size_t t = 0; t < ret->n; t++)
		make_tensor(&state, t, seed, &ret->tensors[t]);
}

struct soak_box soak_whole(const struct soak_tensor *tensor)
{
	struct soak_box box = {.begin = {0}};
	memcpy(box.end, tensor->shape, sizeof box.end);
	return box;
}

/* --- elements --- */

static uint64_t word(const struct soak_model *model, size_t t, int64_t index)
{
	return soak_mix(model->seed * 31 + t * UINT64_C(0x100000001b3) + ((uint64_t)index << 8));
}

/* A whole number from -128 to 127 as the bits of each float. */
static uint32_t f32_bits(int value)
{
	float f = (float)value;
	uint32_t bits;
	memcpy(&bits, &f, sizeof bits);
	return bits;
}

static uint16_t f16_bits(int value)
{
	uint32_t bits = f32_bits(value);
	if (value == 0)
		return 0;
	int exponent = (int)(bits >> 23 & 0xff) - 127 + 15;
	return (uint16_t)(bits >> 31 << 15 | (uint32_t)exponent << 10 | (bits >> 13 & 0x3ff));
}

static void put_element(hoist_dtype as, int8_t value, void *out)
{
	uint32_t wide = f32_bits(value);
	uint16_t narrow = (uint16_t)(wide >> 16);
	double twice = value;
	switch (as) {
	case HOIST_F32:
		memcpy(out, &wide, sizeof wide);
		break;
	case HOIST_BF16:
		memcpy(out, &narrow, sizeof narrow);
		break;
	case HOIST_F16:
		narrow = f16_bits(value);
		memcpy(out, &narrow, sizeof narrow);
		break;
	case HOIST_F64:
		memcpy(out, &twice, sizeof twice);
		break;
	default:
		memcpy(out, &value, sizeof value);
	}
}

void soak_fill(const struct soak_model *model, size_t t, hoist_dtype as, int64_t first, int64_t n,
	       void *out)
{
	unsigned char *to = out;
	unsigned item = type_of(as)->item;
	CHECK(as == model->tensors[t].dtype ||
	      (soak_converts(as) && soak_converts(model->tensors[t].dtype)));
	for (int64_t i = first; i < first + n; i++, to += item) {
		if (as == HOIST_I64) {
			uint64_t value = word(model, t, i);
			memcpy(to, &value, sizeof value);
			continue;
		}
		uint64_t eight = word(model, t, i / 8); /* one byte of it for each element */
		put_element(as, (int8_t)(eight >> i % 8 * 8), to);
	}
}

void soak_digest(const struct soak_model *model, size_t t, unsigned char ret[16])
{
	const struct soak_tensor *tensor = &model->tensors[t];
	unsigned char *bytes = malloc(tensor->bytes);
	CHECK(bytes != NULL);
	soak_fill(model, t, tensor->dtype, 0, tensor->elements, bytes);
	XXH128_canonicalFromHash((XXH128_canonical_t *)(void *)ret,
				 XXH3_128bits(bytes, tensor->bytes));
	free(bytes);
}

/* --- comparing --- */

static XXH128_hash_t digest_of_box(const struct soak_model *model, size_t t, hoist_dtype as,
				   const struct soak_box *box)
{
	const struct soak_tensor *tensor = &model->tensors[t];
	size_t item = type_of(as)->item;
	int64_t index[SOAK_MOST_RANK] = {0};
	int last = tensor->rank - 1;
	bool empty = false;
	unsigned char *chunk = malloc(CHUNK);
	XXH3_state_t *state = XXH3_createState();
	CHECK(chunk != NULL && state != NULL);
	CHECK(XXH3_128bits_reset(state) == XXH_OK);
	for (int a = 0; a <= last; a++) {
		index[a] = box->begin[a];
		empty |= box->begin[a] >= box->end[a];
	}
	while (!empty && index[0] < box->end[0]) {
		int64_t flat = 0;
		for (int a = 0; a <= last; a++)
			flat = flat * tensor->shape[a] + index[a];
		int64_t n = box->end[last] - index[last];
		n = n < (int64_t)(CHUNK / item) ? n : (int64_t)(CHUNK / item);
		soak_fill(model, t, as, flat, n, chunk);
		CHECK(XXH3_128bits_update(state, chunk, (size_t)n * item) == XXH_OK);
		index[last] += n;
		for (int a = last; a > 0 && index[a] == box->end[a]; a--) {
			index[a] = box->begin[a];
			index[a - 1]++;
		}
	}
	XXH128_hash_t digest = XXH3_128bits_digest(state);
	(void)XXH3_freeState(state);
	free(chunk);
	return digest;
}

bool soak_is(const struct soak_model *model, size_t t, hoist_dtype as, const struct soak_box *box,
	     hoist_buffer *buffer)
{
	const struct soak_tensor *tensor = &model->tensors[t];
	size_t bytes = soak_item(as);
	CHECK(buffer != NULL && hoist_buffer_dtype(buffer) == as);
	CHECK(hoist_buffer_rank(buffer) == tensor->rank);
	for (int a = 0; a < tensor->rank; a++) {
		CHECK(hoist_buffer_shape(buffer)[a] == box->end[a] - box->begin[a]);
		bytes *= (size_t)(box->end[a] - box->begin[a]);
	}
	CHECK(hoist_buffer_bytes(buffer) == bytes);
	unsigned char *out = malloc(bytes + 1);
	CHECK(out != NULL);
	OK(hoist_buffer_copy_out(buffer, out, bytes));
	bool same = XXH128_isEqual(XXH3_128bits(out, bytes), digest_of_box(model, t, as, box));
	free(out);
	soak_count(SOAK_N_digests, 1);
	soak_count(SOAK_N_bytes, bytes);
	return same;
}

void soak_check(const struct soak_model *model, size_t t, hoist_dtype as,
		const struct soak_box *box, hoist_buffer *buffer)
{
	if (soak_is(model, t, as, box, buffer))
		return;
	(void)fprintf(stderr,
		      "tensor %s of the model %#" PRIx64 " is wrong, dtype %d as %d, on %s\n",
		      model->tensors[t].name, model->seed, (int)model->tensors[t].dtype, (int)as,
		      hoist_device_spec(hoist_buffer_device(buffer)));
	NEVER("the bytes are the model's");
}

void soak_check_whole(const struct soak_model *model, size_t t, hoist_buffer *buffer)
{
	struct soak_box box = soak_whole(&model->tensors[t]);
	soak_check(model, t, model->tensors[t].dtype, &box, buffer);
}

/* --- files --- */

static void write_data(FILE *file, const struct soak_model *model)
{
	for (size_t t = 0; t < model->n; t++) {
		const struct soak_tensor *tensor = &model->tensors[t];
		unsigned char *bytes = malloc(tensor->bytes);
		CHECK(bytes != NULL);
		soak_fill(model, t, tensor->dtype, 0, tensor->elements, bytes);
		CHECK(fwrite(bytes, tensor->bytes, 1, file) == 1);
		free(bytes);
	}
}

void soak_write(const struct soak_model *model, const char *path)
{
	char header[4096];
	char temporary[600];
	size_t at = 0;
	int n = snprintf(header, sizeof header,
			 "{\"__metadata__\":{\"" SOAK_SEED_KEY "\":\"%" PRIu64 "\"}", model->seed);
	for (size_t t = 0; t < model->n; t++) {
		const struct soak_tensor *tensor = &model->tensors[t];
		n += snprintf(header + n, sizeof header - (size_t)n,
			      ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", tensor->name,
			      type_of(tensor->dtype)->safetensors);
		for (int a = 0; a < tensor->rank; a++)
			n += snprintf(header + n, sizeof header - (size_t)n, "%s%" PRId64,
				      a > 0 ? "," : "", tensor->shape[a]);
		n += snprintf(header + n, sizeof header - (size_t)n,
			      "],\"data_offsets\":[%zu,%zu]}", at, at + tensor->bytes);
		at += tensor->bytes;
	}
	n += snprintf(header + n, sizeof header - (size_t)n, "}");
	CHECK((size_t)n < sizeof header);
	(void)snprintf(temporary, sizeof temporary, "%s.new", path);
	FILE *file = fopen(temporary, "w");
	uint64_t length = (uint64_t)n;
	CHECK(file != NULL && fwrite(&length, sizeof length, 1, file) == 1);
	CHECK(fwrite(header, length, 1, file) == 1);
	write_data(file, model);
	CHECK(fclose(file) == 0 && rename(temporary, path) == 0);
}

bool soak_model_read(const char *text, struct soak_model *ret)
{
	char *end = NULL;
	if (text == NULL)
		return false;
	uint64_t seed = strtoull(text, &end, 10);
	if (end == text || *end != '\0')
		return false;
	soak_model_make(seed, ret);
	return true;
}

void soak_check_list(hoist_checkpoint *checkpoint, const struct soak_model *model)
{
	CHECK(hoist_checkpoint_n_tensors(checkpoint) == model->n);
	for (size_t t = 0; t < model->n; t++) {
		const struct soak_tensor *tensor = &model->tensors[t];
		hoist_tensor_info info = {.size = sizeof info};
		size_t index = SIZE_MAX;
		OK(hoist_checkpoint_find(checkpoint, tensor->name, &index));
		OK(hoist_checkpoint_tensor(checkpoint, index, &info));
		CHECK(info.dtype == tensor->dtype && info.rank == tensor->rank);
		CHECK(info.bytes == tensor->bytes && info.strides == NULL);
		for (int a = 0; a < info.rank; a++)
			CHECK(info.shape[a] == tensor->shape[a]);
	}
}
