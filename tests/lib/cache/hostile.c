/* SPDX-License-Identifier: MIT */
/* The cache among hostile processes: images with any byte changed, files that are no images,
 * peers that send anything, holders that answer anything.  Exit: 0, 1. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/layout.h"
#include "lib/cache/cache.h"
#include "tests/support/child.h"
#include "tests/support/count.h"
#include "tests/support/lib-cache.h"
#include "tests/support/pass-fd.h"
#include "tests/support/random.h"

static char model[4096];

/* --- images --- */

static unsigned char *image_bytes;
static size_t n_image_bytes;

static void read_image(void)
{
	struct hoist__cache_message m;
	struct stat status;
	int fd = -1;
	OK(hoist__cache_message_init(HOIST__CACHE_GET, model, &m));
	OK(hoist__cache_ask(&m, -1, &fd));
	OK(fstat(fd, &status));
	n_image_bytes = (size_t)status.st_size;
	image_bytes = aligned_alloc(4096, n_image_bytes);
	CHECK(image_bytes != NULL);
	CHECK(pread(fd, image_bytes, n_image_bytes, 0) == (ssize_t)n_image_bytes);
	close(fd);
}

static int make_memfd(const void *bytes, size_t n, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	CHECK(fd >= 0 && (n == 0 || write(fd, bytes, n) == (ssize_t)n));
	OK(fcntl(fd, F_ADD_SEALS, seals));
	return fd;
}

#define SEALS (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW)

/* All that a checked table says can be used: the sanitizers look on. */
static size_t touch_table(const struct hoist__image_table *table)
{
	const struct hoist__image_header *header = table->header;
	const unsigned char *base = (const void *)header;
	size_t sum = strlen(table->strings + header->path) + strlen(header->note) +
		     strlen(table->strings + header->format);
	for (uint64_t t = 0; t < header->n_tensors; t++) {
		const struct hoist__image_tensor *tensor = &table->tensors[t];
		const int64_t *shape = table->dims + tensor->dims;
		int64_t low, high;
		sum += strlen(table->strings + tensor->name);
		sum += strlen(table->strings + table->tensors[table->by_name[t]].name);
		CHECK(table->files[tensor->shard].kind <= HOIST__IMAGE_FOLDER);
		uint64_t elements;
		OK(hoist__layout_elements((int)tensor->rank, shape, &elements));
		if (elements == 0)
			continue;
		OK(hoist__layout_bounds((hoist_dtype)tensor->dtype, (int)tensor->rank, shape,
					shape + tensor->rank, &low, &high));
		sum += base[(int64_t)tensor->offset + low];
		sum += base[(int64_t)tensor->offset + high - 1];
	}
	for (uint64_t f = 0; f < header->n_files; f++)
		sum += strlen(table->strings + table->files[f].path);
	for (uint64_t m = 0; m < header->n_metadata; m++)
		sum += strlen(table->strings + table->metadata[m].key) +
		       strlen(table->strings + table->metadata[m].value);
	return sum;
}

/* As a user does. */
static void use_image(hoist_image *image)
{
	hoist_image_info info = {.size = sizeof info};
	OK(hoist_image_get_info(image, &info));
	for (size_t t = 0; t < hoist_image_n_tensors(image); t++) {
		hoist_tensor_info tensor = {.size = sizeof tensor};
		hoist_buffer *buffer = NULL;
		size_t found;
		OK(hoist_image_tensor(image, t, &tensor));
		OK(hoist_image_find(image, tensor.name, &found));
		CHECK(found == t);
		OK(hoist_image_buffer(image, t, &buffer));
		CHECK(hoist_buffer_rank(buffer) == tensor.rank);
		hoist_buffer_unref(buffer);
	}
	hoist_image_close(image);
}

static void run_mutations(void)
{
	static const unsigned char masks[] = {0x01, 0x80, 0xff, 0x10};
	struct hoist__image_table table;
	unsigned long taken = 0;
	unsigned long refused = 0;
	read_image();
	OK(hoist__image_table_check(image_bytes, n_image_bytes, &table));
	size_t table_bytes =
		(size_t)(table.strings - (char *)image_bytes) + table.header->string_bytes;
	for (size_t i = 0; i < table_bytes; i++)
		for (size_t m = 0; m < sizeof masks; m++) {
			hoist_image *image = NULL;
			image_bytes[i] ^= masks[m];
			int err = hoist__image_table_check(image_bytes, n_image_bytes, &table);
			CHECK(err == 0 || err == -EBADMSG);
			if (err == 0)
				(void)touch_table(&table);
			if (m == 0) {
				int fd = make_memfd(image_bytes, n_image_bytes, SEALS);
				CHECK(hoist__image_open(fd, 0, &image) == err);
				if (err == 0)
					use_image(image);
				close(fd);
			}
			image_bytes[i] ^= masks[m];
			taken += err == 0;
			refused += err != 0;
		}
	/* A table that is cut off anywhere. */
	for (size_t n = 0; n < n_image_bytes; n += n < table_bytes ? 1 : 512) {
		unsigned char *cut = malloc(n > 0 ? n : 1);
		CHECK(cut != NULL);
		memcpy(cut, image_bytes, n);
		CHECK(hoist__image_table_check(cut, n, &table) == -EBADMSG);
		free(cut);
	}
	CHECK(refused > taken / 4 && taken > 0);
	printf("%lu changes of a table of %zu bytes refused, %lu harmless\n", refused, table_bytes,
	       taken);
}

/* Tensors that lie within the file, and no buffer can be: with strides of 0, few bytes are any
 * number of elements.  And bytes that a user would copy, though the tensor has not as many. */
static void run_claims(void)
{
	struct hoist__image_table table;
	OK(hoist__image_table_check(image_bytes, n_image_bytes, &table));
	struct hoist__image_tensor *tensor = &table.tensors[0];
	const struct hoist__image_tensor kept = *tensor;
	int64_t *dims = table.dims + tensor->dims;
	int64_t dims_kept[2 * HOIST__MAX_RANK];
	size_t n = 2 * (size_t)tensor->rank;
	CHECK(n > 0);
	memcpy(dims_kept, dims, n * sizeof *dims);
	for (size_t i = 0; i < n; i++)
		dims[i] = i < n / 2 ? 1 : 0;
	tensor->dtype = HOIST_F32;
	tensor->bytes = 4;
	OK(hoist__image_table_check(image_bytes, n_image_bytes, &table));
	dims[0] = INT64_MAX;
	REFUSED(hoist__image_table_check(image_bytes, n_image_bytes, &table), -EBADMSG,
		"shape and strides are none");
	memcpy(dims, dims_kept, n * sizeof *dims);
	*tensor = kept;
	tensor->bytes++;
	REFUSED(hoist__image_table_check(image_bytes, n_image_bytes, &table), -EBADMSG,
		"shape and strides do not have");
	*tensor = kept;
	OK(hoist__image_table_check(image_bytes, n_image_bytes, &table));
}

/* --- files that are no images --- */

static void refuse_file(int fd, const char *text)
{
	hoist_image *image = NULL;
	CHECK(fd >= 0);
	REFUSED(hoist__image_open(fd, 0, &image), -EBADMSG, text);
	CHECK(image == NULL);
	close(fd);
}

static void run_files(void)
{
	int ends[2];
	static const char nothing[8192];
	refuse_file(open(model, O_RDONLY), "no memfd");
	refuse_file(open("/dev/null", O_RDONLY), "no memfd");
	OK(pipe(ends));
	refuse_file(ends[0], "no memfd");
	close(ends[1]);
	refuse_file(make_memfd(image_bytes, n_image_bytes, 0), "not sealed");
	refuse_file(make_memfd(image_bytes, n_image_bytes, F_SEAL_SHRINK | F_SEAL_GROW),
		    "not sealed");
	refuse_file(make_memfd(image_bytes, n_image_bytes, F_SEAL_WRITE | F_SEAL_GROW),
		    "not sealed");
	refuse_file(make_memfd(NULL, 0, SEALS), "no bytes");
	refuse_file(make_memfd(nothing, 1, SEALS), "does not begin");
	refuse_file(make_memfd(nothing, sizeof nothing, SEALS), "does not begin");
	/* Huge pages that are not there yet, and may never be: a touch would kill. */
	int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
	if (fd >= 0 && ftruncate(fd, 4 << 20) == 0 && fcntl(fd, F_ADD_SEALS, SEALS) == 0)
		refuse_file(fd, "0 of its 4194304 bytes of huge pages");
	else
		printf("no memfd of huge pages here\n");
}

/* --- peers of the holder --- */

static int connect_raw(void)
{
	struct sockaddr_un address;
	int in = open(cache_path("hoist"), O_RDONLY | O_DIRECTORY);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	CHECK(in >= 0 && fd >= 0);
	hoist__cache_address(in, &address);
	OK(connect(fd, (const struct sockaddr *)&address, sizeof address));
	close(in);
	return fd;
}

/* Sends @n bytes with @n_fds copies of @fd.  Returns: the status of the reply; 1: there is none. */
static int tell(const void *bytes, size_t n, int fd, size_t n_fds)
{
	struct hoist__cache_message reply;
	const int fds[] = {fd, fd};
	int to = connect_raw();
	CHECK(n_fds <= 2 && pass_fds(to, bytes, n, fds, n_fds));
	ssize_t got = recv(to, &reply, sizeof reply, 0);
	close(to);
	CHECK(got <= 0 || got == (ssize_t)sizeof reply);
	return got <= 0 ? 1 : reply.status;
}

static int tell_message(const struct hoist__cache_message *m, int fd, size_t n_fds)
{
	return tell(m, sizeof *m, fd, n_fds);
}

static void still_serves(int holder)
{
	hoist_image *image = NULL;
	CHECK(cache_holder() == holder);
	OK(hoist_cache_attach(model, 0, &image));
	cache_check(image, 3, 50, 9);
	hoist_image_close(image);
}

#define FIELD(name) offsetof(struct hoist__cache_message, name)
/* Bytes of a message that are others, and the result. */
static const struct {
	size_t at, n;
	int byte;
	int result;
} wrong[] = {
	{FIELD(magic), 1, 'H', 1},
	{FIELD(version), 1, 0x7f, 1},
	{FIELD(op), sizeof(uint32_t), 0, 1},
	{FIELD(op), 1, HOIST__CACHE_N_OPS, 1},
	{FIELD(reserved), 1, 1, 1},
	{FIELD(path), sizeof((struct hoist__cache_message *)NULL)->path, 'a', 1},
	{FIELD(note), sizeof((struct hoist__cache_message *)NULL)->note, 'a', 1},
	{FIELD(path), 1, 'r', -EINVAL},
};

static void run_messages(int holder)
{
	struct hoist__cache_message good, bad;
	static char large[20000];
	uint64_t random = 1;
	int sealed = make_memfd(image_bytes, n_image_bytes, SEALS);
	int open_to_all = make_memfd(image_bytes, n_image_bytes, 0);
	OK(hoist__cache_message_init(HOIST__CACHE_PUT, "/some/where", &good));
	CHECK(tell("x", 1, -1, 0) == 1);
	CHECK(tell(&good, sizeof good - 1, sealed, 1) == 1);
	memcpy(large, &good, sizeof good);
	CHECK(tell(large, sizeof large, sealed, 1) == 1);
	CHECK(tell_message(&good, -1, 0) == -EINVAL);
	CHECK(tell_message(&good, sealed, 2) == 1);
	CHECK(tell_message(&good, open_to_all, 1) == -EBADMSG);
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		bad = good;
		memset((char *)&bad + wrong[i].at, wrong[i].byte, wrong[i].n);
		CHECK(tell_message(&bad, sealed, 1) == wrong[i].result);
	}
	/* Descriptors where none are expected are closed. */
	bad = good;
	bad.op = HOIST__CACHE_LIST;
	bad.id = UINT64_MAX;
	for (int i = 0; i < 300; i++)
		CHECK(tell_message(&bad, sealed, 1) == -ENOENT);
	for (int i = 0; i < 300; i++) {
		bad = good;
		for (int k = 0; k < 4; k++) {
			((unsigned char *)&bad)[random_below(&random, 48)] ^=
				(unsigned char)random_next(&random);
		}
		if (bad.op == HOIST__CACHE_PUT || bad.op == HOIST__CACHE_DROP)
			continue;
		(void)tell_message(&bad, sealed, (size_t)i % 2);
	}
	close(sealed);
	close(open_to_all);
	still_serves(holder);
}

/* A peer that says nothing, or takes nothing, keeps no other peer waiting. */
static void run_silent(int holder)
{
	int silent[40];
	struct hoist__cache_message m;
	for (size_t i = 0; i < 40; i++)
		silent[i] = connect_raw();
	OK(hoist__cache_message_init(HOIST__CACHE_LIST, "", &m));
	for (int i = 0; i < 500; i++)
		if (send(silent[0], &m, sizeof m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			break;
	still_serves(holder);
	for (size_t i = 0; i < 40; i++)
		close(silent[i]);
	still_serves(holder);
}

/* One image takes one descriptor: of those that the holder may have, some are for peers. */
#define FDS 200

static void limit_fds(void)
{
	const struct rlimit limit = {FDS / 2, FDS};
	OK(setrlimit(RLIMIT_NOFILE, &limit));
}

static void run_full(int holder)
{
	struct hoist__cache_message m;
	int sealed = make_memfd(image_bytes, n_image_bytes, SEALS);
	int n = 0;
	int err = 0;
	for (; err == 0 && n < FDS; n++) {
		char path[32];
		(void)snprintf(path, sizeof path, "/full/%d", n);
		OK(hoist__cache_message_init(HOIST__CACHE_PUT, path, &m));
		err = tell_message(&m, sealed, 1);
	}
	CHECK(err == -EMFILE && n > FDS / 2);
	OK(hoist__cache_message_init(HOIST__CACHE_PUT, "/full/0", &m)); /* in another's place */
	OK(tell_message(&m, sealed, 1));
	close(sealed);
	run_silent(holder);
	for (int i = 0; i < n - 1; i++) {
		char path[32];
		(void)snprintf(path, sizeof path, "/full/%d", i);
		OK(hoist_cache_drop(path, NULL));
	}
	still_serves(holder);
}

/* --- a holder that answers anything --- */

enum answer {
	HANG_UP,
	NO_FD,
	TWO_FDS,
	UNSEALED,
	GARBAGE,
	OTHER_PATH,
	OTHER_OP,
	STATUS,
	SHORT,
	N_ANSWERS
};

static void answer(int to, enum answer how)
{
	struct hoist__cache_message m;
	char page[4096] = {0};
	int fd = -1;
	if (recv(to, &m, sizeof m, 0) != (ssize_t)sizeof m || how == HANG_UP)
		return;
	m.status = how == STATUS ? 7 : 0;
	if (how == OTHER_OP)
		m.op = HOIST__CACHE_LIST;
	if (how == UNSEALED)
		fd = make_memfd(image_bytes, n_image_bytes, 0);
	else if (how == GARBAGE)
		fd = make_memfd(page, sizeof page, SEALS);
	else if (how != NO_FD)
		fd = make_memfd(image_bytes, n_image_bytes, SEALS);
	if (how == SHORT)
		(void)send(to, &m, 100, 0);
	else if (how == TWO_FDS)
		(void)pass_fds(to, &m, sizeof m, (const int[]){fd, fd}, 2);
	else
		(void)hoist__cache_send(to, &m, fd);
}

static void list_without_end(int listener)
{
	struct hoist__cache_message m;
	for (uint64_t id = 1; id <= HOIST__CACHE_MOST_IMAGES + 1; id++) {
		int to = accept(listener, NULL, NULL);
		if (to < 0 || recv(to, &m, sizeof m, 0) != (ssize_t)sizeof m)
			_exit(1);
		m.id = id;
		(void)hoist__cache_send(to, &m, -1);
		close(to);
	}
}

static void serve_falsely(int listener)
{
	for (int how = 0; how < N_ANSWERS; how++)
		for (int n = how == HANG_UP ? HOIST__CACHE_TRIES : 1; n > 0; n--) {
			int to = accept(listener, NULL, NULL);
			if (to < 0)
				_exit(1);
			answer(to, (enum answer)how);
			close(to);
		}
	list_without_end(listener);
	_exit(0);
}

static void run_false_holder(void)
{
	static const struct {
		int err;
		const char *text;
	} expected[N_ANSWERS] = {
		[HANG_UP] = {-ENOENT, "not in the cache"},
		[NO_FD] = {-EBADMSG, "sent no descriptor"},
		[TWO_FDS] = {-EBADMSG, "2 descriptors"},
		[UNSEALED] = {-EBADMSG, "not sealed"},
		[GARBAGE] = {-EBADMSG, "does not begin"},
		[OTHER_PATH] = {-EBADMSG, "of another path"},
		[OTHER_OP] = {-EBADMSG, "answered 4 to 2"},
		[STATUS] = {-EBADMSG, "status 7"},
		[SHORT] = {-EBADMSG, "100 bytes"},
	};
	struct sockaddr_un address;
	cache_wait_for_no_folder();
	OK(mkdir(cache_path("hoist"), 0700));
	int in = open(cache_path("hoist"), O_RDONLY | O_DIRECTORY);
	int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	CHECK(in >= 0 && listener >= 0);
	hoist__cache_address(in, &address);
	OK(bind(listener, (const struct sockaddr *)&address, sizeof address));
	OK(listen(listener, 5));
	(void)fflush(stdout);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		serve_falsely(listener);
	close(listener);
	close(in);
	/* The image that it has is of another path. */
	(void)snprintf(model, sizeof model, "%s", cache_path("other.safetensors"));
	cache_write(model, 3, 50, 9);
	unsigned before = count_entries("/proc/self/fd");
	for (int how = 0; how < N_ANSWERS; how++) {
		hoist_image *image = NULL;
		REFUSED(hoist_cache_attach(model, 0, &image), expected[how].err,
			expected[how].text);
		CHECK(image == NULL);
	}
	hoist_cache_list *list = NULL;
	REFUSED(hoist_cache_list_create(&list), -EBADMSG, "more than 4096 images");
	CHECK(list == NULL && count_entries("/proc/self/fd") == before);
	OK(child_status(child));
}

int main(int argc, char **argv)
{
	(void)cache_test_begin(argc, argv);
	(void)snprintf(model, sizeof model, "%s", cache_path("model.safetensors"));
	cache_write(model, 3, 50, 9);
	limit_fds();
	OK(hoist_cache_add(model, NULL, NULL));
	int holder = cache_holder();
	run_mutations();
	run_claims();
	run_files();
	run_messages(holder);
	run_silent(holder);
	run_full(holder);
	OK(hoist_cache_drop(NULL, NULL));
	cache_wait_for_end();
	run_false_holder();
	free(image_bytes);
	return 0;
}
