/* SPDX-License-Identifier: MIT */
/* A client of the cache, whose holder answers anything: what comes back for each request is made of
 * the input, and so is the memfd that comes with it. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "hoist/cache.h"
#include "lib/cache/cache.h"
#include "tests/fuzz/fuzz-support.h"

#define MOST_ANSWERS 16
#define SEALS (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW)

static struct fuzz_bytes input;
static unsigned n_answers;

/* A file in one page, with a table that claims to be an image's. */
static int make_file(void)
{
	uint8_t page[4096] = {0};
	struct hoist__image_header *header = (void *)page;
	uint64_t kind = fuzz_below(&input, 8);
	int fd = kind == 0 ? open("/dev/null", O_RDWR | O_CLOEXEC)
			   : memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	HOLDS(fd >= 0);
	if (kind == 0)
		return fd;
	memcpy(header->magic, "hoistimg", sizeof header->magic);
	header->version = HOIST__IMAGE_VERSION;
	header->file_bytes = sizeof page;
	header->data_offset = sizeof page;
	header->string_bytes = 1 + fuzz_below(&input, 64);
	header->n_files = fuzz_below(&input, 3);
	header->n_metadata = fuzz_below(&input, 3);
	for (uint64_t n = fuzz_below(&input, 32); n > 0; n--)
		page[sizeof *header + fuzz_below(&input, 512)] = (uint8_t)fuzz_take(&input, 1);
	if (fuzz_below(&input, 4) == 0)
		page[fuzz_below(&input, sizeof *header)] = (uint8_t)fuzz_take(&input, 1);
	HOLDS(write(fd, page, kind == 1 ? 100 : sizeof page) > 0);
	HOLDS(kind == 2 || fcntl(fd, F_ADD_SEALS, SEALS) == 0);
	return fd;
}

static void make_reply(struct hoist__cache_message *m)
{
	HOLDS(hoist__cache_message_init(HOIST__CACHE_LIST, "/some/where", m) == 0);
	m->op = (uint32_t)(1 + fuzz_below(&input, 5));
	m->id = fuzz_below(&input, 256);
	m->added_ns = fuzz_take(&input, 2) << 48;
	if (fuzz_below(&input, 4) == 0)
		m->status = -(int32_t)fuzz_below(&input, 133);
	for (uint64_t n = fuzz_below(&input, 4); n > 0; n--)
		((uint8_t *)m)[fuzz_below(&input, 80)] = (uint8_t)fuzz_take(&input, 1);
	if (fuzz_below(&input, 32) == 0)
		memset(m->path, 'a', sizeof m->path);
}

static void answer(int to)
{
	struct hoist__cache_message m;
	if (n_answers++ == MOST_ANSWERS || input.n == 0)
		return; /* it hangs up */
	make_reply(&m);
	if (fuzz_below(&input, 16) == 0) {
		HOLDS(send(to, &m, fuzz_below(&input, sizeof m), MSG_NOSIGNAL) >= 0);
		return;
	}
	int fd = fuzz_below(&input, 2) ? make_file() : -1;
	HOLDS(hoist__cache_send(to, &m, fd) == 0);
	if (fd >= 0)
		HOLDS(close(fd) == 0);
}

/* The holder's end of the last connection. */
static int kept = -1;

static void hang_up(void)
{
	if (kept >= 0)
		HOLDS(close(kept) == 0);
	kept = -1;
}

/* The C library's: the holder is this program. */
int connect(int fd, const struct sockaddr *address, socklen_t bytes)
{
	int ends[2];
	(void)address;
	(void)bytes;
	HOLDS(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
	HOLDS(dup2(ends[0], fd) == fd && close(ends[0]) == 0);
	answer(ends[1]);
	/* Its answer can still be read, and what it is sent is lost: as with one that ended. */
	HOLDS(shutdown(ends[1], SHUT_WR) == 0);
	hang_up();
	kept = ends[1];
	return 0;
}

/* A folder of the user's own, which the cache insists on. */
static void make_folder(void)
{
	static bool done;
	char path[256];
	const char *where = getenv("TMPDIR");
	if (done)
		return;
	(void)snprintf(path, sizeof path, "%s/hoist", where != NULL ? where : "/tmp");
	HOLDS(setenv("XDG_RUNTIME_DIR", where != NULL ? where : "/tmp", 1) == 0);
	HOLDS(mkdir(path, 0700) == 0 || errno == EEXIST);
	done = true;
}

static void list(void)
{
	hoist_cache_list *images = NULL;
	if (hoist_cache_list_create(&images) < 0)
		return;
	HOLDS(hoist_cache_list_n_images(images) <= MOST_ANSWERS);
	for (size_t i = 0; i < hoist_cache_list_n_images(images); i++) {
		hoist_image_info info = {.size = sizeof info};
		HOLDS(hoist_cache_list_image(images, i, &info) == 0);
		HOLDS(strlen(info.path) < HOIST__CACHE_PATH_BYTES);
		HOLDS(strlen(info.note) < HOIST__NOTE_BYTES);
	}
	hoist_cache_list_destroy(images);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	hoist_image *image = NULL;
	size_t dropped = 0;
	make_folder();
	size_t n_fds = fuzz_n_fds();
	input = (struct fuzz_bytes){bytes, n};
	n_answers = 0;
	switch (fuzz_below(&input, 4)) {
	case 0:
		list();
		break;
	case 1:
		(void)hoist_cache_drop("/some/where", &dropped);
		break;
	default:
		/* The image may not be what was asked for, and its file is not there anyway. */
		HOLDS(hoist_cache_attach("/", 0, &image) < 0 && image == NULL);
		fuzz_check_text(hoist_error());
		break;
	}
	hang_up();
	HOLDS(fuzz_n_fds() == n_fds);
	fuzz_check_mappings("/memfd:");
	return 0;
}
