/* SPDX-License-Identifier: MIT */
/* h2d FILE - a checkpoint that lies in the page cache to a CUDA device, beside the
 * driver's own cuMemcpyHtoDAsync from pinned memory.
 *
 * The reference shares nothing with hoist: the driver is opened here, and both ends
 * are allocated beforehand.  It copies as many bytes as the file has, over and over
 * from one pinned block of at most 1 GiB.  Hoist's time is a whole load: from
 * hoist_load_start() until hoist_load_wait() is back, allocation included; "first
 * load" pays for the staging memory too.  The runs alternate, each in a process of
 * its own.
 *
 * HOIST_CUDA_LIBRARY names the driver, as it does for hoist (libcuda.so.1).
 * Exit status 77: there is no CUDA device. */
#include "config.h"

#include "bench/bench.h"
#include "bench/once.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const char usage[] = "usage: h2d [OPTION]... FILE.safetensors\n"
			    "Measures loading FILE from the page cache to a CUDA device, beside\n"
			    "cuMemcpyHtoDAsync from pinned memory.\n"
			    "  --runs N      of each, alternating (5)\n"
			    "  --device N    cuda:N (0)\n"
			    "  --json PATH   the results as JSON too; - : instead, on stdout\n";

#define PINNED_MAX ((size_t)1 << 30)
#define PINNED_MIN ((size_t)16 << 20)

/* The driver's own names; its types by their sizes.  Result 0 is success. */
static struct {
	int (*init)(unsigned flags);
	int (*device_count)(int *count);
	int (*device_get)(int *device, int ordinal);
	int (*device_name)(char *name, int bytes, int device);
	int (*context_retain)(void **context, int device);
	int (*context_push)(void *context);
	int (*memory_alloc)(uint64_t *address, size_t bytes);
	int (*host_register)(void *memory, size_t bytes, unsigned flags);
	int (*stream_create)(void **stream, unsigned flags);
	int (*copy)(uint64_t to, const void *from, size_t bytes, void *stream);
	int (*stream_wait)(void *stream);
} cu;

static const struct {
	const char *name;
	void *function; /* the member above */
} symbols[] = {
	{"cuInit", &cu.init},
	{"cuDeviceGetCount", &cu.device_count},
	{"cuDeviceGet", &cu.device_get},
	{"cuDeviceGetName", &cu.device_name},
	{"cuDevicePrimaryCtxRetain", &cu.context_retain},
	{"cuCtxPushCurrent_v2", &cu.context_push},
	{"cuMemAlloc_v2", &cu.memory_alloc},
	{"cuMemHostRegister_v2", &cu.host_register},
	{"cuStreamCreate", &cu.stream_create},
	{"cuMemcpyHtoDAsync_v2", &cu.copy},
	{"cuStreamSynchronize", &cu.stream_wait},
};

struct reference {
	char *pinned;
	uint64_t device;
	size_t bytes; /* of both blocks */
	void *stream;
};

/* A child gets a request and gives an answer. */
struct request {
	const char *library;
	int ordinal;
	uint64_t bytes; /* to copy; 0: only look */
};

struct answer {
	bool found;
	double seconds;
	char text[128]; /* the device's name, or why there is none */
};

static void must(int result, const char *what)
{
	if (result != 0)
		bench_fail("%s gave %d", what, result);
}

static bool open_driver(const struct request *request, struct answer *answer)
{
	void *handle = dlopen(request->library, RTLD_NOW | RTLD_LOCAL);
	if (handle == NULL) {
		(void)snprintf(answer->text, sizeof answer->text, "%s", dlerror());
		return false;
	}
	for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
		void *address = dlsym(handle, symbols[i].name);
		if (address == NULL)
			bench_fail("%s has no %s", request->library, symbols[i].name);
		memcpy(symbols[i].function, &address, sizeof address);
	}
	int count = 0;
	int device = 0;
	int result = cu.init(0);
	if (result == 0)
		result = cu.device_count(&count);
	if (result != 0 || request->ordinal >= count) {
		(void)snprintf(answer->text, sizeof answer->text, "cuInit gave %d; %d devices",
			       result, count);
		return false;
	}
	must(cu.device_get(&device, request->ordinal), "cuDeviceGet");
	must(cu.device_name(answer->text, sizeof answer->text, device), "cuDeviceGetName");
	return true;
}

/* Memory that is pinned, populated, and in huge pages where the kernel has them. */
static void *allocate_pinned(size_t bytes)
{
	void *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return NULL;
	(void)madvise(memory, bytes, MADV_HUGEPAGE);
	memset(memory, 0x5a, bytes);
	if (cu.host_register(memory, bytes, 0) == 0)
		return memory;
	munmap(memory, bytes);
	return NULL;
}

static void prepare(struct reference *reference, const struct request *request)
{
	int device;
	void *context;
	must(cu.device_get(&device, request->ordinal), "cuDeviceGet");
	must(cu.context_retain(&context, device), "cuDevicePrimaryCtxRetain");
	must(cu.context_push(context), "cuCtxPushCurrent");
	reference->bytes = PINNED_MAX;
	while ((reference->pinned = allocate_pinned(reference->bytes)) == NULL) {
		reference->bytes /= 2;
		if (reference->bytes < PINNED_MIN)
			bench_fail("no memory could be pinned (see ulimit -l)");
	}
	must(cu.memory_alloc(&reference->device, reference->bytes), "cuMemAlloc");
	must(cu.stream_create(&reference->stream, 1), "cuStreamCreate");
}

static double copy(const struct reference *reference, uint64_t bytes)
{
	double begin = clock_seconds();
	for (uint64_t left = bytes; left > 0;) {
		size_t piece = left < reference->bytes ? (size_t)left : reference->bytes;
		must(cu.copy(reference->device, reference->pinned, piece, reference->stream),
		     "cuMemcpyHtoDAsync");
		left -= piece;
	}
	must(cu.stream_wait(reference->stream), "cuStreamSynchronize");
	return clock_seconds() - begin;
}

static void refer(const void *argument, void *result)
{
	const struct request *request = argument;
	struct answer *answer = result;
	answer->found = open_driver(request, answer);
	if (!answer->found || request->bytes == 0)
		return;
	struct reference reference;
	prepare(&reference, request);
	(void)copy(&reference, reference.bytes); /* the first use of anything is slower */
	answer->seconds = copy(&reference, request->bytes);
}

static struct answer ask(const struct request *request)
{
	struct answer answer;
	memset(&answer, 0, sizeof answer);
	(void)bench_in_child(refer, request, &answer, sizeof answer);
	return answer;
}

static void compare(const struct bench_args *args, const struct request *look, const char *name)
{
	static const struct {
		const char *name;
		struct once_options how;
	} ways[] = {
		{"hoist, first load", {.hot = 1}},
		{"hoist, next loads", {.hot = 1, .warm_ups = 1}},
		{"hoist, next loads, threads",
		 {.hot = 1, .warm_ups = 1, .engine = HOIST_ENGINE_THREADS}},
		{"hoist, cold file", {.warm_ups = 1}},
	};
	enum { N_WAYS = sizeof ways / sizeof ways[0] };
	static struct samples rates[N_WAYS];
	static struct samples cpu[N_WAYS];
	static struct samples peer;
	struct request request = *look;
	char spec[32];
	char subject[64];

	(void)snprintf(spec, sizeof spec, "cuda:%d", look->ordinal);
	request.bytes = bench_file_bytes(args->operands[0]);
	for (size_t i = 0; i < args->n_runs; i++) {
		samples_add(&peer, (double)request.bytes / ask(&request).seconds / 1e9);
		for (size_t w = 0; w < N_WAYS; w++) {
			struct once_options how = ways[w].how;
			struct once_result result;
			how.path = args->operands[0];
			how.device = spec;
			once_load(&how, &result);
			double bytes = (double)result.report.bytes;
			samples_add(&rates[w], bytes / result.seconds / 1e9);
			samples_add(&cpu[w], result.cpu_seconds / bytes * (double)(1 << 30));
		}
	}
	struct results results;
	results_create("h2d", &results);
	results_samples(&results, name, "cuMemcpyHtoDAsync, pinned", "GB/s", &peer);
	for (size_t w = 0; w < N_WAYS; w++) {
		results_samples(&results, name, ways[w].name, "GB/s", &rates[w]);
		(void)snprintf(subject, sizeof subject, "%s, CPU", ways[w].name);
		results_samples(&results, name, subject, "s/GiB", &cpu[w]);
	}
	for (size_t w = 0; w < N_WAYS; w++) {
		(void)snprintf(subject, sizeof subject, "cuMemcpyHtoDAsync (%s)", ways[w].name);
		results_ratio(&results, name, 1, subject,
			      samples_median(&rates[w]) / samples_median(&peer));
	}
	bench_print(&results, args->json);
}

int main(int argc, char **argv)
{
	struct bench_args args = {.n_runs = 5};
	struct bench_option device = {"device", "0"};
	const char *library = secure_getenv("HOIST_CUDA_LIBRARY");
	bench_parse(argc, argv, usage, 1, 1, &device, &args);
	struct request request = {library != NULL ? library : "libcuda.so.1", atoi(device.text), 0};
	struct answer answer = ask(&request);
	if (!answer.found) {
		printf("no CUDA device %d: %s\n", request.ordinal, answer.text);
		return 77;
	}
	compare(&args, &request, answer.text);
	return 0;
}
