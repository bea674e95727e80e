/* SPDX-License-Identifier: MIT */
/* mkcheckpoint - writes safetensors checkpoints for tests, quickstart and
 * benchmarks.  It shares no code with hoist, so that what hoist reads was
 * written by somebody else.
 *
 * Bytes are a function of the seed, the tensor's number and the position, so
 * that the same arguments always give the same files.  A file is streamed: the
 * memory needed is one buffer and one header. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/mkcheckpoint-options.h"

#define BUFFER_BYTES ((size_t)4 << 20)

struct tensor {
	char name[96];
	const struct dtype *dtype;
	int rank;
	uint64_t shape[2];
	uint64_t bytes;
	unsigned shard;
};

/* From so many tensors on, names are short: the format's headers have at most 100 MB. */
#define MANY 500000u

/* The name of tensor @i of @n and its weight: its share of all the bytes. */
static uint64_t name_tensor(size_t i, size_t n, char *name, size_t bytes)
{
	static const struct role {
		const char *name;
		uint64_t weight;
	} roles[] = {
		{"input_layernorm", 1},		 {"mlp.down_proj", 2816},
		{"mlp.gate_proj", 2816},	 {"mlp.up_proj", 2816},
		{"post_attention_layernorm", 1}, {"self_attn.k_proj", 256},
		{"self_attn.o_proj", 1024},	 {"self_attn.q_proj", 1024},
		{"self_attn.v_proj", 256},
	};
	if (i == 0 || i == n - 1) {
		snprintf(name, bytes, i == 0 ? "model.embed_tokens.weight" : "lm_head.weight");
		return 8000;
	}
	if (i == n - 2) {
		snprintf(name, bytes, "model.norm.weight");
		return 1;
	}
	const struct role *role = &roles[(i - 1) % 9];
	if (n >= MANY)
		snprintf(name, bytes, "layers.%zu", i);
	else
		snprintf(name, bytes, "model.layers.%zu.%s.weight", (i - 1) / 9, role->name);
	return role->weight;
}

/* Gives @tensor a shape of about @bytes.  A unit is the fewest elements that
 * are whole bytes: 2 of 4 bits, 4 of 6 bits. */
static void shape_tensor(const struct options *o, struct tensor *tensor, uint64_t bytes, bool flat)
{
	uint64_t unit = tensor->dtype->bits == 4 ? 2 : tensor->dtype->bits == 6 ? 4 : 1;
	uint64_t unit_bytes = unit * tensor->dtype->bits / 8;
	uint64_t units = bytes / unit_bytes;
	if (units == 0)
		units = 1;
	uint64_t columns = 1;
	while (!flat && o->columns == 0 && columns < 4096 && columns * columns * 4 <= units)
		columns *= 2;
	if (!flat && o->columns > 0 && o->columns / unit <= units)
		columns = o->columns / unit;
	uint64_t rows = units / columns;
	if (o->odd) {
		columns = columns > 1 ? columns - 1 : 1;
		rows |= 1;
	}
	tensor->rank = flat ? 1 : 2;
	tensor->shape[0] = flat ? rows * unit : rows;
	tensor->shape[1] = columns * unit;
	tensor->bytes = rows * columns * unit_bytes;
	if (o->empty) {
		tensor->shape[0] = 0;
		tensor->bytes = 0;
	}
}

/* Tensors that only --dtypes all has: rank 0, no elements, a name beyond ASCII. */
static void make_special(struct tensor *tensor, size_t i)
{
	if (i == 1) {
		*tensor = (struct tensor){.name = "model.gr\xc3\xb6\xc3\x9f"
						  "e",
					  .dtype = &dtypes[7],
					  .bytes = 8};
	} else {
		*tensor = (struct tensor){.name = "model.layers.0.lora_A.weight",
					  .dtype = &dtypes[2],
					  .rank = 2,
					  .shape = {0, 16}};
	}
}

static struct tensor *make_tensors(const struct options *o)
{
	size_t n = o->n_tensors;
	struct tensor *tensors = calloc(n + 1, sizeof *tensors);
	if (tensors == NULL)
		fail("no memory for %zu tensors", n);
	uint64_t total = 0;
	for (size_t i = 0; i < n; i++) {
		uint64_t weight = name_tensor(i, n, tensors[i].name, sizeof tensors[i].name);
		total += o->equal ? 2 : weight;
	}
	for (size_t i = 0; i < n; i++) {
		uint64_t weight = name_tensor(i, n, tensors[i].name, sizeof tensors[i].name);
		weight = o->equal ? 2 : weight; /* 1 makes a tensor flat */
		/* In floating point: the product may exceed 64 bits. */
		double share = (double)o->bytes * (double)weight / (double)total;
		tensors[i].dtype = o->dtypes[i % o->n_dtypes];
		shape_tensor(o, &tensors[i], (uint64_t)share, weight == 1);
		if (o->all && !o->empty && n >= 3 && (i == 1 || i == 2))
			make_special(&tensors[i], i);
	}
	return tensors;
}

/* Consecutive tensors share a shard; each gets about the same bytes, and at
 * least one tensor. */
static uint64_t deal_shards(const struct options *o, struct tensor *tensors)
{
	uint64_t total = 0;
	uint64_t done = 0;
	unsigned shard = 0;
	bool used = false;
	for (size_t i = 0; i < o->n_tensors; i++)
		total += tensors[i].bytes;
	for (size_t i = 0; i < o->n_tensors; i++) {
		double target = (double)total * (shard + 1) / o->shards;
		unsigned left = o->shards - 1 - shard;
		if (used && left > 0 && ((double)done >= target || o->n_tensors - i <= left))
			shard++;
		used = true;
		tensors[i].shard = shard;
		done += tensors[i].bytes;
	}
	return total;
}

/* splitmix64's finaliser over a counter: any position without what is before. */
static uint64_t random_word(uint64_t x)
{
	x *= UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static void write_all(int fd, const char *path, const void *data, size_t bytes)
{
	const char *at = data;
	while (bytes > 0) {
		ssize_t n = write(fd, at, bytes);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			fail("writing %s: %s", path,
			     n < 0 ? strerror(errno) : "nothing was written");
		at += n;
		bytes -= (size_t)n;
	}
}

static void write_tensor(int fd, const char *path, const struct tensor *tensor, uint64_t stream,
			 uint64_t *buffer)
{
	/* A bool is 0 or 1; every pattern is a value of the other types. */
	bool is_bool = strcmp(tensor->dtype->name, "BOOL") == 0;
	uint64_t mask = is_bool ? UINT64_C(0x0101010101010101) : UINT64_MAX;
	for (uint64_t done = 0; done < tensor->bytes;) {
		uint64_t left = tensor->bytes - done;
		size_t bytes = left < BUFFER_BYTES ? (size_t)left : BUFFER_BYTES;
		uint64_t word = stream + done / 8;
		for (size_t i = 0; i < (bytes + 7) / 8; i++)
			buffer[i] = random_word(word + i) & mask;
		write_all(fd, path, buffer, bytes);
		done += bytes;
	}
}

struct text {
	char *data;
	size_t bytes;
	FILE *to;
};

static void text_open(struct text *text)
{
	text->to = open_memstream(&text->data, &text->bytes);
	if (text->to == NULL)
		fail("no memory for a header");
}

static void text_close(struct text *text)
{
	if (fclose(text->to) != 0)
		fail("no memory for a header");
}

static void print_tensor(FILE *to, const struct tensor *tensor, uint64_t offset)
{
	fprintf(to, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", tensor->name, tensor->dtype->name);
	for (int i = 0; i < tensor->rank; i++)
		fprintf(to, "%s%" PRIu64, i > 0 ? "," : "", tensor->shape[i]);
	fprintf(to, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", offset,
		offset + tensor->bytes);
}

/* The header of tensors[first, last).  --odd lists them from last to first. */
static void print_header(const struct options *o, const struct tensor *tensors, size_t first,
			 size_t last, FILE *to)
{
	uint64_t offset = 0;
	fputs("{\"__metadata__\":{\"format\":\"pt\"}", to);
	if (!o->odd) {
		for (size_t i = first; i < last; offset += tensors[i++].bytes)
			print_tensor(to, &tensors[i], offset);
	} else {
		for (size_t i = first; i < last; i++)
			offset += tensors[i].bytes;
		for (size_t i = last; i-- > first;) {
			offset -= tensors[i].bytes;
			print_tensor(to, &tensors[i], offset);
		}
	}
	fputc('}', to);
	fflush(to);
}

static int create_file(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0)
		fail("creating %s: %s", path, strerror(errno));
	return fd;
}

static void close_file(int fd, const char *path)
{
	if (close(fd) < 0)
		fail("writing %s: %s", path, strerror(errno));
}

static void write_file(const struct options *o, const struct tensor *tensors, size_t first,
		       size_t last, const char *path, uint64_t *buffer)
{
	struct text header;
	text_open(&header);
	print_header(o, tensors, first, last, header.to);
	/* Writers pad to 8; --odd makes the length odd, so that no tensor is aligned. */
	while (o->odd ? header.bytes % 2 == 0 : header.bytes % 8 != 0) {
		fputc(' ', header.to);
		fflush(header.to);
	}
	text_close(&header);
	unsigned char prefix[8];
	for (int i = 0; i < 8; i++)
		prefix[i] = (unsigned char)((uint64_t)header.bytes >> (8 * i));
	int fd = create_file(path);
	write_all(fd, path, prefix, sizeof prefix);
	write_all(fd, path, header.data, header.bytes);
	for (size_t i = first; i < last; i++)
		write_tensor(fd, path, &tensors[i],
			     random_word(o->seed + (uint64_t)i * 2654435761u), buffer);
	close_file(fd, path);
	free(header.data);
}

static void shard_name(const struct options *o, unsigned shard, char *out, size_t bytes)
{
	if (o->shards == 1)
		snprintf(out, bytes, "model.safetensors");
	else
		snprintf(out, bytes, "model-%05u-of-%05u.safetensors", shard + 1, o->shards);
}

static void write_index(const struct options *o, const struct tensor *tensors, uint64_t total,
			const char *path)
{
	struct text index;
	text_open(&index);
	fprintf(index.to,
		"{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n  \"weight_map\": {",
		total);
	for (size_t i = 0; i < o->n_tensors; i++) {
		char shard[64];
		shard_name(o, tensors[i].shard, shard, sizeof shard);
		fprintf(index.to, "%s\n    \"%s\": \"%s\"", i > 0 ? "," : "", tensors[i].name,
			shard);
	}
	fputs("\n  }\n}\n", index.to);
	text_close(&index);
	int fd = create_file(path);
	write_all(fd, path, index.data, index.bytes);
	close_file(fd, path);
	free(index.data);
}

/* @folder and what is above it. */
static void make_folder(const char *folder)
{
	char *path = strdup(folder);
	if (path == NULL)
		fail("no memory");
	for (char *slash = path + 1; *path != '\0'; slash++) {
		bool end = *slash == '\0';
		if (!end && *slash != '/')
			continue;
		*slash = '\0';
		if (mkdir(path, 0777) < 0 && errno != EEXIST)
			fail("creating the folder %s: %s", path, strerror(errno));
		if (end)
			break;
		*slash = '/';
	}
	free(path);
}

static char *join(const char *folder, const char *name)
{
	char *path;
	if (asprintf(&path, "%s/%s", folder, name) < 0)
		fail("no memory");
	return path;
}

int main(int argc, char **argv)
{
	struct options o;
	parse_options(argc, argv, &o);
	struct tensor *tensors = make_tensors(&o);
	uint64_t total = deal_shards(&o, tensors);
	uint64_t *buffer = malloc(BUFFER_BYTES);
	if (buffer == NULL)
		fail("no memory for a buffer");
	make_folder(o.folder);

	/* One of the two ways to name a checkpoint, never a stale one beside it. */
	char *single = join(o.folder, "model.safetensors");
	char *index = join(o.folder, "model.safetensors.index.json");
	const char *stale = o.shards == 1 ? index : single;
	if (unlink(stale) < 0 && errno != ENOENT)
		fail("removing the old %s: %s", stale, strerror(errno));
	size_t first = 0;
	for (unsigned shard = 0; shard < o.shards; shard++) {
		char name[64];
		size_t last = first;
		while (last < o.n_tensors && tensors[last].shard == shard)
			last++;
		shard_name(&o, shard, name, sizeof name);
		char *path = join(o.folder, name);
		write_file(&o, tensors, first, last, path, buffer);
		free(path);
		first = last;
	}
	if (o.shards > 1)
		write_index(&o, tensors, total, index);
	printf("%s: %zu tensors, %" PRIu64 " bytes, %u file%s\n", o.folder, o.n_tensors, total,
	       o.shards, o.shards == 1 ? "" : "s");
	free(index);
	free(single);
	free(buffer);
	free(tensors);
	return fflush(stdout) == 0 ? 0 : 1;
}
