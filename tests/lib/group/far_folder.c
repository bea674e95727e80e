/* SPDX-License-Identifier: MIT */
/* A group that meets at a folder which has files that no member wrote, and files of members that
 * were killed: the group meets all the same, and removes what is old.  Exit: 0, 1, 77. */
#include "config.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <hoist/group.h>

#include "net/neighbour.h"
#include "net/secret.h"
#include "tests/support/count.h"
#include "tests/support/free-port.h"
#include "tests/support/load-support.h"
#include "tests/support/net-fabric.h"
#include "tests/support/wrap.h"

enum { N_RANKS = 2 };

static const char *folder;
static char name[256];

/* The path of a file of the group "job". */
static const char *post(unsigned id, char path[512])
{
	(void)snprintf(path, 512, "%s/job.%016x.member", folder, id);
	return path;
}

static void write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");
	CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* Files that are no member's. */
static const char *const nonsense[] = {
	"",
	"hoist member 1",
	"hoist member 1\n",
	"hoist member 2\n1 1 1\n127.0.0.1:1\n",
	"hoist member 1\n0 1 1\n127.0.0.1:1\n", /* no id */
	"hoist member 1\n2 1 1\n",		/* no address */
	"hoist member 1\n2 1 1\nlocalhost:1\n", /* a name */
	"hoist member 1\n2 1 1\n127.0.0.1:0\n",
	"hoist member 1\n2 1 1\n127.0.0.1\n",
	"hoist member 1\n2 1\n127.0.0.1:1\n", /* no machine */
	"hoist member 1\nx y z\n127.0.0.1:1\n",
	"hoist member 1\n\n\n\n",
};
enum { N_NONSENSE = sizeof nonsense / sizeof nonsense[0] };

static void fill_folder(void)
{
	char path[512], other[512], text[4096];
	for (unsigned i = 0; i < N_NONSENSE; i++)
		write_file(post(100 + i, path), nonsense[i]);
	memset(text, '7', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	write_file(post(200, path), text);
	OK(mkfifo(post(201, path), 0600));
	OK(mkdir(post(202, path), 0700));
	OK(symlink(post(100, other), post(203, path)));
	(void)snprintf(path, sizeof path, "%s/job.member", folder);
	write_file(path, "hoist member 1\n3 1 1\n127.0.0.1:1\n");
	(void)snprintf(path, sizeof path, "%s/job2.%016x.member", folder, 4u);
	write_file(path, "hoist member 1\n4 1 1\n127.0.0.1:1\n");
}

static uint64_t this_machine(void)
{
	struct hoist__secret secret;
	struct hoist__neighbour place;
	int fd = memfd_create("test", MFD_CLOEXEC);
	CHECK(fd >= 0);
	OK(hoist__secret_find(NULL, &secret));
	hoist__neighbour_describe(&secret, fd, &place);
	hoist__secret_fini(&secret);
	(void)close(fd);
	return place.machine;
}

/* The file of a member at whose address nobody listens, written so long ago. */
static void write_dead(unsigned id, uint64_t machine, time_t age_s)
{
	char path[512], text[128];
	const struct timespec then = {.tv_sec = time(NULL) - age_s};
	const struct timespec times[] = {then, then};
	(void)snprintf(text, sizeof text, "hoist member 1\n%x %x %llx\n127.0.0.1:%u\n", id, id,
		       (unsigned long long)machine, free_port());
	write_file(post(id, path), text);
	OK(utimensat(AT_FDCWD, path, times, 0));
}

/* A member's file gets its name. */
static atomic_uint n_looks;
static mode_t mode_wanted;

WRAP(int, renameat, (int from_fd, const char *from, int to_fd, const char *to))
{
	struct stat status;
	if (strstr(to, ".member") != NULL && mode_wanted != 0) {
		OK(fstatat(from_fd, from, &status, 0));
		CHECK((status.st_mode & 07777) == mode_wanted);
		n_looks++;
	}
	return __real_renameat(from_fd, from, to_fd, to);
}

static const char *secrets[N_RANKS]; /* NULL: the user's own */
static atomic_uint n_told;	     /* ranks that met another secret */

static void *rank_main(void *argument)
{
	unsigned rank = (unsigned)(uintptr_t)argument;
	hoist_checkpoint *checkpoint = support_open("model.safetensors");
	hoist_group_report report = {.size = sizeof report};
	hoist_load_options o = {.size = sizeof o};
	hoist_load *load;
	const hoist_group group = {.size = sizeof group,
				   .name = name,
				   .rank = rank,
				   .n_ranks = N_RANKS,
				   .secret = secrets[rank],
				   .timeout_ns = secrets[rank] != NULL ? 1000000000 : 0};
	OK(hoist_group_load(&group, checkpoint, &o, &load));
	OK(hoist_load_wait(load));
	support_compare(checkpoint, load);
	OK(hoist_group_get_report(load, &report));
	if (secrets[rank] == NULL)
		CHECK(report.note[0] == '\0');
	else if (strstr(report.note, "does not know this group's secret") != NULL)
		n_told++;
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	return NULL;
}

static void meet(void)
{
	pthread_t threads[N_RANKS];
	for (unsigned r = 0; r < N_RANKS; r++)
		OK(pthread_create(&threads[r], NULL, rank_main, (void *)(uintptr_t)r));
	for (unsigned r = 0; r < N_RANKS; r++)
		OK(pthread_join(threads[r], NULL));
}

/* Members meet, ignore what they cannot read, and leave it. */
static void nonsense_is_ignored(void)
{
	fill_folder();
	unsigned n = count_entries(folder);
	CHECK(n == N_NONSENSE + 6);
	meet();
	CHECK(count_entries(folder) == n);
}

/* The old file goes.  The new one stays, as its member may be starting, and so does that of another
 * machine, whose member may only be out of reach. */
static void killed_members_are_passed_over(void)
{
	char path[512];
	unsigned n = count_entries(folder);
	write_dead(301, this_machine(), 3600);
	write_dead(302, this_machine(), 0);
	write_dead(303, this_machine() + 2, 3600);
	meet();
	CHECK(access(post(301, path), F_OK) < 0);
	CHECK(access(post(302, path), F_OK) == 0);
	CHECK(access(post(303, path), F_OK) == 0);
	CHECK(count_entries(folder) == n + 2);
	/* Each later meeting would look for the two once more, for some seconds. */
	OK(unlink(post(302, path)));
	OK(unlink(post(303, path)));
}

/* A folder may name members that have ended, at whose addresses those of other groups listen. */
static void members_with_another_secret_are_passed_over(void)
{
	secrets[0] = "the secret of one group";
	secrets[1] = "the secret of another group";
	meet();
	CHECK(n_told > 0);
	secrets[0] = secrets[1] = NULL;
}

/* The files of members that others may read are those in folders that these may write to. */
static void files_are_as_open_as_the_folder(void)
{
	static const struct {
		mode_t folder, file;
	} rows[] = {{0700, 0600}, {0755, 0600}, {0770, 0640}, {01777, 0644}, {0702, 0604}};
	mode_t was = umask(022);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		check_at("a folder of mode %o", (unsigned)rows[i].folder);
		OK(chmod(folder, rows[i].folder));
		n_looks = 0;
		mode_wanted = rows[i].file;
		meet();
		CHECK(n_looks == N_RANKS);
	}
	(void)umask(was);
	OK(chmod(folder, 0700));
}

static void folders_that_are_refused(void)
{
	static const struct {
		const char *name;
		int err;
		const char *words;
	} rows[] = {
		{"dir:", -EINVAL, "dir:FOLDER/NAME"},
		{"dir:a", -EINVAL, "dir:FOLDER/NAME"},
		{"dir:a/", -EINVAL, "dir:FOLDER/NAME"},
		{"dir:/proc/self/none/a", -ENOENT, "name a folder that all ranks see"},
		{"dir:/proc/self/status/a", -ENOTDIR, "the group's folder"},
	};
	hoist_checkpoint *checkpoint = support_open("model.safetensors");
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		const hoist_group group = {.size = sizeof group, .name = rows[i].name};
		hoist_load_options o = {.size = sizeof o};
		hoist_load *load = NULL;
		check_at("%s", rows[i].name);
		CHECK(hoist_group_load(&group, checkpoint, &o, &load) == rows[i].err);
		CHECK(strstr(hoist_error(), rows[i].words) != NULL);
	}
	/* A folder in which nobody can write: the load says so. */
	const hoist_group group = {.size = sizeof group, .name = "dir:/proc/self/a"};
	hoist_load_options o = {.size = sizeof o};
	hoist_load *load = NULL;
	int err = hoist_group_load(&group, checkpoint, &o, &load);
	CHECK(err == 0 && hoist_load_wait(load) < 0);
	CHECK(strstr(hoist_error(), "the group's folder /proc/self") != NULL);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
}

int main(void)
{
	static const size_t sizes[] = {5000000, 3000};
	char path[512];
	if (ucx_of_child() == 0)
		return 77;
	support_write("model.safetensors", 0, 2, sizes, -1);
	folder = support_path("door");
	OK(mkdir(folder, 0700));
	(void)snprintf(name, sizeof name, "dir:%s/job", folder);
	CASE(nonsense_is_ignored);
	CASE(killed_members_are_passed_over);
	CASE(members_with_another_secret_are_passed_over);
	CASE(files_are_as_open_as_the_folder);
	CASE(folders_that_are_refused);
	OK(rmdir(post(202, path)));
	support_remove(folder);
	support_cleanup();
	return 0;
}
