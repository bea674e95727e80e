/* SPDX-License-Identifier: MIT */
/* The options of mkcheckpoint, their checks, and the usage text. */
#include "config.h"

#include "tests/mkcheckpoint-options.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const struct dtype dtypes[N_DTYPES] = {
	{"BF16", 16},	{"F16", 16},	{"F32", 32}, {"F64", 64},	 {"I8", 8},
	{"I16", 16},	{"I32", 32},	{"I64", 64}, {"U8", 8},		 {"U16", 16},
	{"U32", 32},	{"U64", 64},	{"BOOL", 8}, {"C64", 64},	 {"F8_E4M3", 8},
	{"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F4", 4},   {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
	{"F6_E2M3", 6}, {"F6_E3M2", 6},
};

void fail(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fputs("mkcheckpoint: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(1);
}

static void usage(FILE *to)
{
	fputs("usage: mkcheckpoint [OPTION]... FOLDER\n"
	      "Writes a safetensors checkpoint of pseudo-random bytes.\n"
	      "  --bytes SIZE   bytes of tensor data, about (256M; K, M, G are powers of 1024)\n"
	      "  --shards N     files (1: model.safetensors; more: with an index)\n"
	      "  --tensors N    how many tensors\n"
	      "  --dtypes LIST  'all', or some like bf16,f8_e4m3 (bf16)\n"
	      "  --seed S       another seed, other bytes (1)\n"
	      "  --odd          odd sizes, headers that are not padded and not in order\n"
	      "  --tiny         the same as --bytes 4K --tensors 24\n"
	      "  --empty        no tensor has any bytes\n"
	      "  --equal        every tensor gets the same share of the bytes\n"
	      "  --columns N    tensors of rank 2 have rows of N elements\n"
	      "With --dtypes all there are also a tensor of rank 0, an empty one and a name\n"
	      "that is not ASCII; 24 tensors or more are needed to show every type.\n",
	      to);
}

static uint64_t parse_size(const char *option, const char *text)
{
	char *end;
	errno = 0;
	uint64_t n = strtoull(text, &end, 10);
	const char *suffix = strchr("kKmMgG", *end);
	unsigned shift = 0;
	if (*end != '\0' && suffix != NULL) {
		shift = strchr("kK", *end) != NULL ? 10 : strchr("mM", *end) != NULL ? 20 : 30;
		end++;
	}
	if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 ||
	    n > UINT64_MAX >> 1 >> shift)
		fail("--%s: \"%s\" is not a size; sizes are like 100, 64K, 256M, 2G", option, text);
	return n << shift;
}

static void add_dtypes(struct options *o, char *list)
{
	if (strcmp(list, "all") == 0) {
		o->all = true;
		for (size_t i = 0; i < N_DTYPES; i++)
			o->dtypes[i] = &dtypes[i];
		o->n_dtypes = N_DTYPES;
		return;
	}
	o->all = false;
	o->n_dtypes = 0;
	for (char *word = strtok(list, ","); word != NULL; word = strtok(NULL, ",")) {
		size_t i = 0;
		while (i < N_DTYPES && strcasecmp(dtypes[i].name, word) != 0)
			i++;
		if (i == N_DTYPES)
			fail("--dtypes: safetensors has no type \"%s\"", word);
		if (o->n_dtypes == N_DTYPES)
			fail("--dtypes: more than %u types", N_DTYPES);
		o->dtypes[o->n_dtypes++] = &dtypes[i];
	}
	if (o->n_dtypes == 0)
		fail("--dtypes: no type is named");
}

static void check_options(struct options *o)
{
	if (o->shards == 0)
		fail("--shards must be 1 .. 99999");
	if (o->n_tensors == SIZE_MAX)
		o->n_tensors = 291; /* 32 layers of 9, and 3 around them */
	if (o->columns > 0 && o->columns % 4 != 0)
		fail("--columns must be a multiple of 4, so that every row is whole bytes");
	if (o->n_tensors > 10000000)
		fail("--tensors: %zu is more than 10 million", o->n_tensors);
	if (o->shards > 1 && o->shards > o->n_tensors)
		fail("--shards %u: there are only %zu tensors", o->shards, o->n_tensors);
}

void parse_options(int argc, char **argv, struct options *o)
{
	static const struct option longs[] = {
		{"bytes", 1, NULL, 'b'},  {"shards", 1, NULL, 's'},  {"tensors", 1, NULL, 't'},
		{"dtypes", 1, NULL, 'd'}, {"seed", 1, NULL, 'r'},    {"odd", 0, NULL, 'o'},
		{"tiny", 0, NULL, 'y'},	  {"empty", 0, NULL, 'e'},   {"help", 0, NULL, 'h'},
		{"equal", 0, NULL, 'q'},  {"columns", 1, NULL, 'c'}, {NULL, 0, NULL, 0},
	};
	char bf16[] = "bf16";
	*o = (struct options){.bytes = 256u << 20, .seed = 1, .n_tensors = SIZE_MAX, .shards = 1};
	add_dtypes(o, bf16);
	int which = 0;
	for (int c; (c = getopt_long(argc, argv, "", longs, &which)) != -1;) {
		uint64_t n = strchr("bstrc", c) != NULL ? parse_size(longs[which].name, optarg) : 0;
		switch (c) {
		case 'b':
			o->bytes = n;
			break;
		case 's':
			o->shards = n <= 99999 ? (unsigned)n : 0;
			break;
		case 't':
			o->n_tensors = n;
			break;
		case 'r':
			o->seed = n;
			break;
		case 'd':
			add_dtypes(o, optarg);
			break;
		case 'o':
			o->odd = true;
			break;
		case 'e':
			o->empty = true;
			break;
		case 'q':
			o->equal = true;
			break;
		case 'c':
			o->columns = n;
			break;
		case 'y':
			o->bytes = 4096;
			o->n_tensors = 24;
			break;
		case 'h':
			usage(stdout);
			exit(0);
		default:
			usage(stderr);
			exit(2);
		}
	}
	if (optind != argc - 1) {
		usage(stderr);
		exit(2);
	}
	o->folder = argv[optind];
	check_options(o);
}
