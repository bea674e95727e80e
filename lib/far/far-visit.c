/* SPDX-License-Identifier: MIT */
/* hoist_group_open(): opens the checkpoint that a member shows.
 * The contracts are in hoist/group.h and lib/wire/tour.h. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "io/again.h"
#include "lib/far/far.h"
#include "lib/wire/tour.h"

#define TRY_NS (UINT64_C(100) * 1000000)
#define SHORT_NS (UINT64_C(1000) * 1000000) /* a busy member may take longer to answer */
#define MOST_HOSTS 16u

/* A visit: the files that were shown so far, in a folder of their own. */
struct visit {
	struct hoist__far *far; /* the group's name, door and secret */
	char folder[64];
	int folder_fd; /* -1: there is none */
	struct hoist__shown_file *files;
	size_t n_files;
	uint64_t bytes;
	struct hoist__wire_message end;		 /* TOUR_END, once it has come */
	struct hoist__address hosts[MOST_HOSTS]; /* members that have all files */
	unsigned n_hosts;
};

/* --- the folder --- */

/* In memory where that can be had: holes cost nothing, and a crash leaves nothing for long. */
static int make_folder(struct visit *visit)
{
	static const char *const places[] = {"/dev/shm", "/tmp"};
	for (size_t i = 0; i < sizeof places / sizeof places[0] && visit->folder_fd < 0; i++) {
		(void)snprintf(visit->folder, sizeof visit->folder, "%s/hoist-XXXXXX", places[i]);
		if (mkdtemp(visit->folder) == NULL)
			continue;
		visit->folder_fd = HOIST__UNINTERRUPTED(
			open(visit->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
		if (visit->folder_fd < 0)
			(void)rmdir(visit->folder);
	}
	return visit->folder_fd < 0 ? hoist__fail_errno(-errno, "a folder for a group's files") : 0;
}

static void remove_folder(struct visit *visit)
{
	DIR *dir = visit->folder_fd >= 0 ? fdopendir(dup(visit->folder_fd)) : NULL;
	const struct dirent *entry;
	if (visit->folder_fd < 0)
		return;
	if (dir != NULL)
		rewinddir(dir);
	while (dir != NULL && (entry = readdir(dir)) != NULL)
		if (entry->d_name[0] != '.')
			(void)unlinkat(visit->folder_fd, entry->d_name, 0);
	if (dir != NULL)
		(void)closedir(dir);
	(void)rmdir(visit->folder);
	(void)close(visit->folder_fd);
	visit->folder_fd = -1;
	for (size_t f = 0; f < visit->n_files; f++) {
		free(visit->files[f].name);
		free(visit->files[f].digits);
	}
	free(visit->files);
	visit->files = NULL;
	visit->n_files = 0;
	visit->bytes = 0;
}

static int open_shown(const struct visit *visit, const char *name, int flags)
{
	int fd = HOIST__UNINTERRUPTED(
		openat(visit->folder_fd, name, flags | O_NOFOLLOW | O_CLOEXEC, 0600));
	return fd < 0 ? hoist__fail_errno(-errno, "opening %s/%.80s", visit->folder, name) : fd;
}

static int take_file(struct visit *visit, const struct hoist__wire_message *m)
{
	bool plain = m->text[0] != '\0' && m->text[0] != '.' && strchr(m->text, '/') == NULL;
	if (!plain || m->n != visit->n_files || visit->n_files >= HOIST__TOUR_MOST_FILES ||
	    m->done > INT64_MAX)
		return hoist__fail(-EBADMSG, "a member shows a file \"%.80s\"", m->text);
	struct hoist__shown_file *files =
		realloc(visit->files, (visit->n_files + 1) * sizeof *files);
	char *name = strdup(m->text);
	if (files != NULL)
		visit->files = files;
	if (files == NULL || name == NULL) {
		free(name);
		return hoist__fail_nomem("a list of files", visit->n_files);
	}
	files[visit->n_files++] = (struct hoist__shown_file){
		.name = name, .bytes = m->done, .sample = {m->digest.low, m->digest.high}};
	int fd = open_shown(visit, name, O_CREAT | O_EXCL | O_WRONLY);
	if (fd == -EEXIST)
		return hoist__fail(
			-ENOTSUP,
			"the checkpoint has several files of the name %s, in different folders, "
			"which cannot be shown: copy all files to this machine",
			name);
	if (fd < 0)
		return fd;
	int err = ftruncate(fd, (off_t)m->done) < 0 ? -errno : 0;
	(void)close(fd);
	return err < 0 ? hoist__fail_errno(err, "a hole of %llu bytes in %s",
					   (unsigned long long)m->done, visit->folder)
		       : 0;
}

static int take_bytes(struct visit *visit, const struct hoist__wire_message *m)
{
	if (m->n >= visit->n_files || m->at > visit->files[m->n].bytes ||
	    m->n_bytes > visit->files[m->n].bytes - m->at ||
	    m->n_bytes > HOIST__TOUR_MOST_BYTES - visit->bytes)
		return hoist__fail(-EBADMSG, "a member shows bytes that no file has");
	visit->bytes += m->n_bytes;
	int fd = open_shown(visit, visit->files[m->n].name, O_WRONLY);
	if (fd < 0)
		return fd;
	int err = 0;
	for (size_t at = 0; err == 0 && at < m->n_bytes;) {
		ssize_t n = HOIST__UNINTERRUPTED(
			pwrite(fd, m->bytes + at, m->n_bytes - at, (off_t)(m->at + at)));
		at += n > 0 ? (size_t)n : 0;
		err = n < 0 ? -errno : n == 0 ? -EIO : 0;
	}
	(void)close(fd);
	return err < 0 ? hoist__fail_errno(err, "writing to %s", visit->folder) : 0;
}

static int take_digits(struct visit *visit, const struct hoist__wire_message *m)
{
	char **digits = m->n < visit->n_files ? &visit->files[m->n].digits : NULL;
	size_t n = digits != NULL && *digits != NULL ? strlen(*digits) : 0;
	if (digits == NULL || m->at != n || m->n_bytes > HOIST__TOUR_MOST_BYTES - visit->bytes)
		return hoist__fail(-EBADMSG, "a member shows digests that no file has");
	char *longer = realloc(*digits, n + m->n_bytes + 1);
	if (longer == NULL)
		return hoist__fail_nomem("digests", n + m->n_bytes + 1);
	memcpy(longer + n, m->bytes, m->n_bytes);
	longer[n + m->n_bytes] = '\0';
	*digits = longer;
	visit->bytes += m->n_bytes;
	return 0;
}

/* --- a visit --- */

static void take_host(struct visit *visit, const struct hoist__wire_message *m)
{
	if (m->flag || visit->n_hosts == MOST_HOSTS || !hoist__far_is_address(m->text))
		return;
	visit->n_hosts +=
		hoist__address_find(m->text, false, &visit->hosts[visit->n_hosts], 1) == 1;
}

/* The checkpoint is the folder, or a file of those that were shown: no path leads elsewhere. */
static int take_end(struct visit *visit, const struct hoist__wire_message *m)
{
	bool known = m->text[0] == '\0';
	for (size_t f = 0; f < visit->n_files && !known; f++)
		known = strcmp(visit->files[f].name, m->text) == 0;
	visit->end = *m;
	return known ? 1 : hoist__fail(-EBADMSG, "a member shows a checkpoint \"%.80s\"", m->text);
}

/* Returns: 1, all was shown; 0; -ENODATA (this member lacks files, too); the visit's failure. */
static int take(void *context, const struct hoist__wire_message *m)
{
	struct visit *visit = context;
	switch (m->kind) {
	case HOIST__WIRE_FILE:
		return take_file(visit, m);
	case HOIST__WIRE_BYTES:
		return take_bytes(visit, m);
	case HOIST__WIRE_ROSTER:
		take_host(visit, m);
		return 0;
	case HOIST__WIRE_DIGITS:
		return take_digits(visit, m);
	case HOIST__WIRE_TOUR_END:
		return take_end(visit, m);
	case HOIST__WIRE_BYE:
		return hoist__fail(m->err < 0 ? m->err : -ENODATA, "%s", m->text);
	default:
		return 0; /* beats */
	}
}

/* Visits one member.  Returns: 1: all was shown; a negative errno value, with its text. */
static int visit_one(struct visit *visit, const struct hoist__address *at, uint64_t end)
{
	int err = make_folder(visit);
	if (err == 0)
		err = hoist__far_ask(visit->far, at, HOIST__WIRE_VISIT, take, visit, end);
	if (err < 0)
		remove_folder(visit);
	return err;
}

/* Failures that another member, or the same one later, need not have.  A folder may name members
 * that were killed, and at whose addresses others listen now. */
static bool may_pass(const struct visit *visit, int err)
{
	if (visit->far->folder_fd >= 0 && err != -ENOMEM)
		return true;
	return err == -ENODATA || err == -ECONNREFUSED || err == -ECONNRESET ||
	       err == -EADDRINUSE || err == -EHOSTUNREACH || err == -ENETUNREACH ||
	       err == -ETIMEDOUT || err == -EAGAIN;
}

/* Visits a member that another one has named.  At its address another group's may listen now. */
static int visit_host(struct visit *visit, const struct hoist__address *at, uint64_t end)
{
	int err = visit_one(visit, at, end);
	return err == -EACCES ? -EAGAIN : err;
}

/* Visits members until one has shown all.  Returns: 0; the failure of the last round, or, if the
 * end cut that round short, of the round before. */
static int visit_all(struct visit *visit)
{
	struct hoist__far *far = visit->far;
	struct hoist__failure last;
	int last_err = 0;
	uint64_t end = hoist__now_ns() + far->timeout_ns;
	for (;;) {
		bool ends_soon = hoist__now_ns() + SHORT_NS > end;
		int err = hoist__fail(-ENODATA, "no member is there");
		hoist__far_find_doors(far);
		for (unsigned i = 0; i < far->n_doors && err != 1 && may_pass(visit, err); i++)
			err = visit_one(visit, &far->door[i], end);
		while (visit->n_hosts > 0 && err != 1 && may_pass(visit, err))
			err = visit_host(visit, &visit->hosts[--visit->n_hosts], end);
		if (err == 1)
			return 0;
		if (err == -ETIMEDOUT && ends_soon && last_err < 0)
			err = hoist__fail_again(last_err, &last);
		if (!may_pass(visit, err))
			return err;
		if (hoist__now_ns() + TRY_NS > end)
			return hoist__fail_in(err == -EADDRINUSE ? -EINVAL : err,
					      "no member of the group at %s has shown the "
					      "checkpoint's files within the timeout",
					      far->door_text);
		last_err = err;
		hoist__failure_keep(&last);
		(void)poll(NULL, 0, (int)(TRY_NS / 1000000));
	}
}

/* --- the checkpoint --- */

static int open_shown_files(struct visit *visit, const char *path, unsigned flags,
			    hoist_checkpoint **ret)
{
	char main[sizeof visit->folder + HOIST__WIRE_REASON + 1];
	hoist_checkpoint *checkpoint = NULL;
	(void)snprintf(main, sizeof main, "%s/%s", visit->folder, visit->end.text);
	int err = hoist_checkpoint_open(main, flags, &checkpoint);
	if (err == 0 && checkpoint->n_files > visit->n_files)
		err = hoist__fail(-EBADMSG, "a member shows %zu of %zu files", visit->n_files,
				  checkpoint->n_files);
	if (err == 0)
		err = hoist__checkpoint_localize(checkpoint, path, visit->files);
	for (size_t f = 0; err == 0 && f < checkpoint->n_files; f++)
		if (visit->files[f].digits != NULL && checkpoint->files[f].format != HOIST__RAW)
			err = hoist__kept_take(&checkpoint->files[f], &visit->files[f].digits);
	if (err < 0) {
		hoist_checkpoint_close(checkpoint);
		return err;
	}
	memcpy(checkpoint->identity, visit->end.identity, sizeof checkpoint->identity);
	*ret = checkpoint;
	return 0;
}

int hoist__far_show(const hoist_group *group, const char *path, unsigned flags,
		    hoist_checkpoint **ret)
{
	struct hoist__load_source *source = NULL;
	int err = hoist__far_make(group, &source);
	if (err < 0)
		return err;
	struct visit visit = {.far = hoist__far_of(source), .folder_fd = -1};
	err = visit_all(&visit);
	if (err == 0)
		err = open_shown_files(&visit, path, flags, ret);
	remove_folder(&visit);
	source->ops->destroy(source);
	return err;
}
