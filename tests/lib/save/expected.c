/* SPDX-License-Identifier: MIT */
/* The tensors that a save was given, as packed bytes, and the comparison of files with them. */
#include "config.h"

#include "tests/lib/save/expected.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/load-random.h"

uint64_t round_seed;
size_t n_expected;
static struct expected expected[MOST_TENSORS];

hoist_dtype_info info_of(hoist_dtype dtype)
{
	hoist_dtype_info info = {.size = sizeof info};
	OK(hoist_dtype_get_info(dtype, &info));
	return info;
}

void pack(struct expected *e, const unsigned char *from, size_t first, const int64_t *strides)
{
	size_t bits = info_of(e->dtype).bits;
	int64_t index[MOST_RANK] = {0};
	for (size_t to = 0; to < e->n * 8 / bits * bits; to += bits) {
		int64_t at = (int64_t)first;
		for (int k = 0; k < e->rank; k++)
			at += index[k] * strides[k] * (int64_t)bits;
		if (bits % 8 == 0)
			memcpy(e->bytes + to / 8, from + at / 8, bits / 8);
		for (size_t b = 0; bits % 8 != 0 && b < bits; b++)
			if ((from[((size_t)at + b) / 8] >> ((size_t)at + b) % 8 & 1) != 0)
				e->bytes[(to + b) / 8] |= (unsigned char)(1u << (to + b) % 8);
		int k = e->rank - 1;
		for (; k >= 0 && ++index[k] == e->shape[k]; k--)
			index[k] = 0;
		if (k < 0)
			break;
	}
}

struct expected *new_expected(hoist_dtype dtype, int rank, const int64_t *shape, size_t n)
{
	static const char *const odd[] = {"", "*", "[a-z]", "\"\\/", "\xc3\xa9", " ?", "\n"};
	struct expected *e = &expected[n_expected];
	CHECK(n_expected < MOST_TENSORS && rank <= MOST_RANK);
	*e = (struct expected){.dtype = dtype, .rank = rank, .n = n};
	if (rank > 0)
		memcpy(e->shape, shape, (size_t)rank * sizeof *shape);
	(void)snprintf(e->name, sizeof e->name, "t%zu%s", n_expected, odd[below(7)]);
	e->bytes = calloc(n + 1, 1);
	CHECK(e->bytes != NULL);
	n_expected++;
	return e;
}

void forget_expected(void)
{
	while (n_expected > 0)
		free(expected[--n_expected].bytes);
}

unsigned char *read_at(const char *path, uint64_t offset, size_t n)
{
	unsigned char *bytes = malloc(n + 1);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(bytes != NULL && fd >= 0);
	for (size_t at = 0; at < n;) {
		ssize_t got = pread(fd, bytes + at, n - at, (off_t)(offset + at));
		CHECK(got > 0);
		at += (size_t)got;
	}
	close(fd);
	return bytes;
}

/* --- reading it back --- */

static void differs(const struct expected *e, const unsigned char *got)
{
	size_t at = 0;
	while (got[at] == e->bytes[at])
		at++;
	fprintf(stderr, "seed %llu: \"%s\" differs at byte %zu of %zu\n",
		(unsigned long long)round_seed, e->name, at, e->n);
	exit(1);
}

/* The name as JSON has it. */
static void quote(const char *name, char *to)
{
	for (; *name != '\0'; name++) {
		if (*name == '"' || *name == '\\')
			*to++ = '\\';
		if (*name == '\n')
			to += sprintf(to, "\\u000a");
		else
			*to++ = *name;
	}
	*to = '\0';
}

void check_safetensors(const char *path, size_t *next)
{
	struct saved saved;
	OK(saved_read(path, &saved));
	while (*next < n_expected) {
		const struct expected *e = &expected[*next];
		char shape[100] = "";
		char name[80];
		char key[100];
		int n = 0;
		quote(e->name, name);
		(void)snprintf(key, sizeof key, "\"%s\":{", name);
		if (strstr(saved.header, key) == NULL)
			break;
		for (int k = 0; k < e->rank; k++)
			n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%lld",
				      k > 0 ? "," : "", (long long)e->shape[k]);
		const unsigned char *got =
			saved_tensor(&saved, name, info_of(e->dtype).safetensors, shape, e->n);
		if (memcmp(got, e->bytes, e->n) != 0)
			differs(e, got);
		++*next;
	}
	saved_free(&saved);
}

void check_checkpoint(hoist_checkpoint *checkpoint, bool has_names)
{
	CHECK(hoist_checkpoint_n_tensors(checkpoint) == n_expected);
	for (size_t i = 0; i < n_expected; i++) {
		const struct expected *e = &expected[i];
		hoist_tensor_info tensor = {.size = sizeof tensor};
		hoist_file_info file = {.size = sizeof file};
		size_t index = 0;
		if (has_names)
			OK(hoist_checkpoint_find(checkpoint, e->name, &index));
		OK(hoist_checkpoint_tensor(checkpoint, index, &tensor));
		OK(hoist_checkpoint_file(checkpoint, tensor.file, &file));
		CHECK(tensor.dtype == e->dtype && tensor.rank == e->rank && tensor.bytes == e->n);
		CHECK(e->rank == 0 ||
		      memcmp(tensor.shape, e->shape, (size_t)e->rank * sizeof *e->shape) == 0);
		CHECK(tensor.strides == NULL || e->n == 0);
		unsigned char *got = read_at(file.path, tensor.offset, e->n);
		if (memcmp(got, e->bytes, e->n) != 0)
			differs(e, got);
		free(got);
	}
}
