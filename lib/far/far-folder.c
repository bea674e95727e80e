/* SPDX-License-Identifier: MIT */
/* Groups that meet at a folder, "dir:FOLDER/NAME".
 * The contract is in lib/far/far.h.
 *
 * Each member posts a file of its own, NAME.ID.member, which says where it listens:
 *
 *     hoist member 1
 *     ID BORN MACHINE    in hexadecimal; BORN: nanoseconds, by the clock of the folder's server;
 *                        MACHINE: as in net/neighbour.h
 *     10.0.0.1:34567     each address
 *
 * A member posts first and reads the folder then, so of two members one at least sees the other.
 * The one that was born later connects.  If that fails, the other one connects after some time.
 * Whoever can write to the folder can have a member connect to any address: the member says nothing
 * there before both sides have proved that they know the secret. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "io/file.h"
#include "lib/far/far.h"

#define HEAD "hoist member 1\n"
#define SUFFIX ".member"
#define ID_DIGITS 16u
#define POST_BYTES 1024u
/* A file that is so much older than this member's, of this machine, and at whose addresses nobody
 * answers, is of a member that was killed.  A member of another machine may only be out of reach.
 */
#define STALE_S 60
#define READ_NS (UINT64_C(100) * 1000000) /* between two looks into the folder */
#define FORM "a group that meets at a folder is dir:FOLDER/NAME, as in dir:/shared/run/llama"

struct post {
	uint64_t id, born, machine;
	struct hoist__address at[HOIST__FAR_PLACES];
	unsigned n_at;
	time_t written_s;
};

/* --- names --- */

int hoist__far_split_folder(struct hoist__far *far, const char *name)
{
	const char *folder = name + strlen(HOIST__FAR_FOLDER_SCHEME);
	const char *slash = strrchr(folder, '/');
	size_t n = slash != NULL ? strlen(slash + 1) : 0;
	if (slash == NULL || n == 0 || n >= HOIST__WIRE_NAME_BYTES)
		return hoist__fail(
			-EINVAL, "\"%.80s\" names no group: " FORM ", where NAME has 1 to %u bytes",
			name, HOIST__WIRE_NAME_BYTES - 1);
	far->door_text = slash == folder ? strdup("/") : strndup(folder, (size_t)(slash - folder));
	far->name = strdup(slash + 1);
	if (far->door_text == NULL || far->name == NULL)
		return hoist__fail_nomem("a group's name", n);
	far->folder_fd = open(far->door_text, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (far->folder_fd < 0)
		return hoist__fail(
			-errno, "the group's folder %.200s: %s; name a folder that all ranks see",
			far->door_text, strerror(errno));
	return 0;
}

int hoist__far_own_doors(struct hoist__far *far)
{
	int n = far->secret.local ? hoist__address_find("127.0.0.1:0", true, far->door, 1)
				  : hoist__address_own(far->door, HOIST__FAR_PLACES);
	far->n_doors = n > 0 ? (unsigned)n : 0;
	return n < 0 ? n : 0;
}

static void file_name(const struct hoist__far *far, const char *suffix, char ret[NAME_MAX + 1])
{
	(void)snprintf(ret, NAME_MAX + 1, "%s.%016" PRIx64 "%s", far->name, far->id, suffix);
}

/* Is the file one of this group's members? */
static bool is_post(const struct hoist__far *far, const char *file)
{
	size_t n = strlen(far->name);
	return strncmp(file, far->name, n) == 0 && file[n] == '.' &&
	       strspn(file + n + 1, "0123456789abcdef") == ID_DIGITS &&
	       strcmp(file + n + 1 + ID_DIGITS, SUFFIX) == 0;
}

/* --- this member's file --- */

static int write_post(struct hoist__far *far, int fd)
{
	char text[POST_BYTES];
	struct stat status;
	if (fstat(fd, &status) < 0)
		return -errno;
	far->born = (uint64_t)hoist__file_time_ns(&status.st_mtim);
	size_t n = (size_t)snprintf(text, sizeof text, HEAD "%" PRIx64 " %" PRIx64 " %" PRIx64 "\n",
				    far->id, far->born, far->place.machine);
	for (unsigned i = 0; i < far->n_doors; i++) {
		struct hoist__address at = far->door[i];
		hoist__address_set_port(&at, hoist__address_port(&far->listen_at));
		n += (size_t)snprintf(text + n, sizeof text - n, "%s\n", at.text);
	}
	ssize_t written = write(fd, text, n);
	return written < 0 ? -errno : (size_t)written < n ? -ENOSPC : 0;
}

/* Those who may write into the folder may read the file: nobody else can be a member. */
static mode_t post_mode(const struct hoist__far *far)
{
	struct stat folder;
	if (fstat(far->folder_fd, &folder) < 0)
		return 0600;
	return 0600 | (folder.st_mode & 0022) << 1;
}

int hoist__far_post(struct hoist__far *far)
{
	char new_name[NAME_MAX + 1];
	char name[NAME_MAX + 1];
	file_name(far, ".new", new_name);
	file_name(far, SUFFIX, name);
	int fd = openat(far->folder_fd, new_name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
			post_mode(far));
	int err = fd < 0 ? -errno : write_post(far, fd);
	/* A network file system may report a write's failure at close(). */
	if (fd >= 0 && close(fd) < 0 && err == 0)
		err = -errno;
	if (err == 0 && renameat(far->folder_fd, new_name, far->folder_fd, name) < 0)
		err = -errno;
	if (err < 0 && fd >= 0)
		(void)unlinkat(far->folder_fd, new_name, 0);
	far->posted = err == 0;
	return err < 0 ? hoist__fail_errno(err,
					   "writing a member's file into the group's folder "
					   "%.200s",
					   far->door_text)
		       : 0;
}

void hoist__far_unpost(struct hoist__far *far)
{
	char name[NAME_MAX + 1];
	if (far->posted) {
		file_name(far, SUFFIX, name);
		(void)unlinkat(far->folder_fd, name, 0);
	}
	far->posted = false;
}

/* --- the others' files --- */

static bool parse_post(char *text, struct post *ret)
{
	char *rest = text + strlen(HEAD);
	char *next = NULL;
	if (strncmp(text, HEAD, strlen(HEAD)) != 0)
		return false;
	char *line = strtok_r(rest, "\n", &next);
	if (line == NULL ||
	    sscanf(line, "%16" SCNx64 " %16" SCNx64 " %16" SCNx64, &ret->id, &ret->born,
		   &ret->machine) != 3 ||
	    ret->id == 0)
		return false;
	while ((line = strtok_r(NULL, "\n", &next)) != NULL && ret->n_at < HOIST__FAR_PLACES)
		if (hoist__far_is_address(line) &&
		    hoist__address_find(line, false, &ret->at[ret->n_at], 1) == 1)
			ret->n_at++;
	return ret->n_at > 0;
}

static bool read_post(const struct hoist__far *far, const char *file, struct post *ret)
{
	char text[POST_BYTES + 1];
	struct stat status;
	/* O_NONBLOCK: a pipe of that name stops nobody. */
	int fd = openat(far->folder_fd, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t n = -1;
	if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode))
		n = read(fd, text, POST_BYTES);
	(void)close(fd);
	if (n <= 0)
		return false;
	text[n] = '\0';
	*ret = (struct post){.written_s = status.st_mtim.tv_sec};
	return parse_post(text, ret);
}

/* Calls @take for each file of this group's, until a call returns false.  A folder that cannot be
 * read now can be later. */
static void read_folder(struct hoist__far *far,
			bool (*take)(struct hoist__far *far, const char *file,
				     const struct post *post))
{
	int fd = openat(far->folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *folder = fd < 0 ? NULL : fdopendir(fd);
	if (folder == NULL) {
		if (fd >= 0)
			(void)close(fd);
		return;
	}
	const struct dirent *entry;
	bool goes_on = true;
	while (goes_on && (entry = readdir(folder)) != NULL) {
		struct post post;
		if (is_post(far, entry->d_name) && read_post(far, entry->d_name, &post))
			goes_on = take(far, entry->d_name, &post);
	}
	(void)closedir(folder);
}

/* Learns of a member, and removes the file of one that was killed. */
static bool take_member(struct hoist__far *far, const char *file, const struct post *post)
{
	struct hoist__far_known *known;
	if (post->id == far->id || (known = hoist__far_known_of(far, post->id)) == NULL)
		return true;
	if (known->n_at == 0) {
		bool earlier =
			post->born != far->born ? post->born < far->born : post->id < far->id;
		memcpy(known->at, post->at, sizeof known->at);
		known->n_at = post->n_at;
		known->after = hoist__now_ns() + (earlier ? 0 : HOIST__FAR_CROSS_NS);
		known->earlier = earlier;
	}
	if (known->gone && post->machine != 0 && post->machine == far->place.machine &&
	    post->written_s + STALE_S < (time_t)(far->born / HOIST__NS_PER_S))
		(void)unlinkat(far->folder_fd, file, 0);
	return true;
}

void hoist__far_look_in_folder(struct hoist__far *far, uint64_t now)
{
	bool alone = true;
	if (far->state != HOIST__FAR_MEETING || now < far->door_at + READ_NS)
		return;
	far->door_at = now;
	read_folder(far, take_member);
	/* Nobody shows a roster to the member that was born first. */
	for (unsigned i = 0; i < far->n_known; i++)
		alone = alone && (far->known[i].gone || !far->known[i].earlier);
	far->met_door = far->met_door || alone;
}

/* --- a visitor's --- */

static bool take_door(struct hoist__far *far, const char *file, const struct post *post)
{
	(void)file;
	for (unsigned i = 0; i < post->n_at && far->n_doors < HOIST__FAR_DOORS; i++)
		far->door[far->n_doors++] = post->at[i];
	return far->n_doors < HOIST__FAR_DOORS;
}

void hoist__far_find_doors(struct hoist__far *far)
{
	if (far->folder_fd < 0)
		return;
	far->n_doors = 0;
	read_folder(far, take_door);
}
