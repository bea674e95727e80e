/* SPDX-License-Identifier: MIT */
/* net/secret.c - the secret of a group.
 * The contract is in net/secret.h. */
#include "config.h"

#include "net/secret.h"

#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

_Static_assert(HOIST__SECRET_BYTES == crypto_auth_hmacsha256_BYTES, "a key is a code's size");

#define MOST_BYTES 4096u
#define OWN_BYTES 32u
#define FOLDER_TRIES 100
#define OWN_NAME "group-secret"
#define REMEDY "name a file of your own in HOIST_GROUP_SECRET_FILE"

void hoist__secret_sign(const unsigned char key[static HOIST__SECRET_BYTES],
			const struct hoist__piece *pieces, unsigned n_pieces,
			unsigned char ret[static HOIST__SECRET_BYTES])
{
	crypto_auth_hmacsha256_state state;
	(void)crypto_auth_hmacsha256_init(&state, key, HOIST__SECRET_BYTES);
	for (unsigned i = 0; i < n_pieces; i++)
		(void)crypto_auth_hmacsha256_update(&state, pieces[i].bytes, pieces[i].n_bytes);
	(void)crypto_auth_hmacsha256_final(&state, ret);
	sodium_memzero(&state, sizeof(state));
}

bool hoist__secret_same(const unsigned char *a, const unsigned char *b, size_t n_bytes)
{
	return sodium_memcmp(a, b, n_bytes) == 0;
}

void hoist__secret_random(void *ret, size_t n_bytes)
{
	randombytes_buf(ret, n_bytes);
}

void hoist__secret_fini(struct hoist__secret *secret)
{
	sodium_memzero(secret, sizeof(*secret));
}

/* The key of a text is HMAC(text, a label): programs that use the same text for another purpose
 * have other keys. */
static int use_text(const char *name, const void *text, size_t bytes, struct hoist__secret *ret)
{
	static const char label[] = "hoist group 1";
	if (bytes < HOIST__SECRET_LEAST || bytes > MOST_BYTES)
		return hoist__fail(-EINVAL,
				   "%s has %s%zu bytes; a secret has %u to %u, 32 random ones are "
				   "best",
				   name, bytes > MOST_BYTES ? "at least " : "", bytes,
				   HOIST__SECRET_LEAST, MOST_BYTES);
	crypto_auth_hmacsha256_state state;
	(void)crypto_auth_hmacsha256_init(&state, text, bytes);
	(void)crypto_auth_hmacsha256_update(&state, (const unsigned char *)label, sizeof(label));
	(void)crypto_auth_hmacsha256_final(&state, ret->key);
	sodium_memzero(&state, sizeof(state));
	ret->local = false;
	return 0;
}

/* --- files --- */

/* Reads at most @most bytes, and one more if there are more. */
static int read_all(int fd, const char *path, unsigned char *ret, size_t most, size_t *ret_bytes)
{
	size_t n = 0;
	while (n <= most) {
		ssize_t got = read(fd, ret + n, most + 1 - n);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return hoist__fail_errno(-errno, "reading the secret in %s", path);
		if (got == 0)
			break;
		n += (size_t)got;
	}
	*ret_bytes = n;
	return 0;
}

/* A file or a folder that others than its owner cannot open.  Root may own it, if @root. */
static int check_owner(int fd, const char *path, mode_t type, bool root)
{
	struct stat now;
	if (fstat(fd, &now) < 0)
		return hoist__fail_errno(-errno, "looking at %s", path);
	if ((now.st_mode & S_IFMT) != type)
		return hoist__fail(-EINVAL, "%s is no %s; " REMEDY, path,
				   type == S_IFDIR ? "folder" : "file");
	if (now.st_uid != geteuid() && !(root && now.st_uid == 0))
		return hoist__fail(-EACCES, "%s belongs to user %u, not to %u; " REMEDY, path,
				   (unsigned)now.st_uid, (unsigned)geteuid());
	if ((now.st_mode & 077) != 0)
		return hoist__fail(-EACCES,
				   "others may open %s (mode %03o); make the secret anew, with "
				   "`chmod go= %s`",
				   path, (unsigned)now.st_mode & 0777u, path);
	return 0;
}

static int use_open_file(int fd, const char *path, bool root, bool text, struct hoist__secret *ret)
{
	unsigned char bytes[MOST_BYTES + 3]; /* "\r\n", and one too many */
	size_t n = 0;
	int err = check_owner(fd, path, S_IFREG, root);
	if (err == 0)
		err = read_all(fd, path, bytes, sizeof(bytes) - 1, &n);
	if (err == 0) {
		if (text && n > 0 && bytes[n - 1] == '\n')
			n -= n > 1 && bytes[n - 2] == '\r' ? 2 : 1;
		err = use_text(path, bytes, n, ret);
	}
	sodium_memzero(bytes, sizeof(bytes));
	return err;
}

/* O_NONBLOCK: a FIFO is refused, not waited for. */
static int use_file(const char *path, struct hoist__secret *ret)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return hoist__fail_errno(
			-errno, "opening \"%s\", which HOIST_GROUP_SECRET_FILE names", path);
	int err = use_open_file(fd, path, true, true, ret);
	(void)close(fd);
	return err;
}

/* --- the user's own --- */

static bool is_own_folder(const char *path)
{
	struct stat now;
	return stat(path, &now) == 0 && S_ISDIR(now.st_mode) && now.st_uid == geteuid();
}

/* Chooses the path of the folder.  $XDG_RUNTIME_DIR of another user (sudo keeps it) is passed
 * over: the secret there would be the other user's. */
static int choose_folder(char *ret, size_t bytes)
{
	char usual[32];
	(void)snprintf(usual, sizeof(usual), "/run/user/%u", (unsigned)geteuid());
	const char *given = secure_getenv("XDG_RUNTIME_DIR");
	if (given == NULL || given[0] != '/' || !is_own_folder(given))
		given = is_own_folder(usual) ? usual : NULL;
	int n = given != NULL ? snprintf(ret, bytes, "%s/hoist", given)
			      : snprintf(ret, bytes, "/dev/shm/hoist-%u", (unsigned)geteuid());
	if (n < 0 || (size_t)n >= bytes)
		return hoist__fail(-ENAMETOOLONG,
				   "the path $XDG_RUNTIME_DIR/hoist is too long; " REMEDY);
	return 0;
}

/* Returns: the folder's descriptor, or an error. */
static int open_folder(const char *path)
{
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return hoist__fail(-errno, "making the folder %s for a secret: %s; " REMEDY, path,
				   strerror(errno));
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return hoist__fail(-errno, "opening the folder %s of a secret: %s; " REMEDY, path,
				   strerror(errno));
	int err = check_owner(fd, path, S_IFDIR, false);
	if (err < 0)
		(void)close(fd);
	return err < 0 ? err : fd;
}

static int fill_file(int fd, const char *path)
{
	unsigned char bytes[OWN_BYTES];
	hoist__secret_random(bytes, sizeof(bytes));
	/* The umask may have taken the owner's rights. */
	ssize_t n = fchmod(fd, 0600) < 0 ? -1 : write(fd, bytes, sizeof(bytes));
	sodium_memzero(bytes, sizeof(bytes));
	if (n < 0)
		return hoist__fail_errno(-errno, "writing a secret to %s", path);
	if ((size_t)n != sizeof(bytes))
		return hoist__fail(-ENOSPC, "writing a secret to %s: there is no room", path);
	return 0;
}

/* The file appears whole or not at all: the file gets its name when it is written.  If several
 * processes do so at once, one wins, and all read the winner's. */
static int make_own(int folder, const char *path)
{
	char name[64];
	uint64_t random;
	hoist__secret_random(&random, sizeof(random));
	(void)snprintf(name, sizeof(name), OWN_NAME ".%016llx", (unsigned long long)random);
	int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return hoist__fail_errno(-errno, "making %s", path);
	int err = fill_file(fd, path);
	if (close(fd) < 0 && err == 0)
		err = hoist__fail_errno(-errno, "writing a secret to %s", path);
	if (err == 0 && linkat(folder, name, folder, OWN_NAME, 0) < 0 && errno != EEXIST)
		err = hoist__fail_errno(-errno, "making %s", path);
	(void)unlinkat(folder, name, 0);
	return err;
}

/* Returns: the file's descriptor, or an error. */
static int open_own(int folder, const char *path)
{
	const int flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
	int fd = openat(folder, OWN_NAME, flags);
	if (fd < 0 && errno == ENOENT) {
		int err = make_own(folder, path);
		if (err < 0)
			return err;
		fd = openat(folder, OWN_NAME, flags);
	}
	if (fd < 0)
		return hoist__fail_errno(-errno, "opening %s", path);
	return fd;
}

/* The cache removes the same folder when the cache has no file there: the folder may go between two
 * calls, and is made again. */
static int open_own_file(const char *folder_path, const char *path)
{
	int fd = -ENOENT;
	for (int tries = 0; tries < FOLDER_TRIES && fd == -ENOENT; tries++) {
		int folder = open_folder(folder_path);
		fd = folder < 0 ? folder : open_own(folder, path);
		if (folder >= 0)
			(void)close(folder);
	}
	return fd;
}

static int use_own(struct hoist__secret *ret)
{
	char folder[512];
	char path[sizeof(folder) + sizeof(OWN_NAME)];
	int err = choose_folder(folder, sizeof(folder));
	if (err < 0)
		return err;
	(void)snprintf(path, sizeof(path), "%s/" OWN_NAME, folder);
	int fd = open_own_file(folder, path);
	if (fd < 0)
		return fd;
	err = use_open_file(fd, path, false, false, ret);
	(void)close(fd);
	ret->local = true;
	return err;
}

int hoist__secret_find(const char *given, struct hoist__secret *ret)
{
	struct hoist__secret found;
	if (sodium_init() < 0)
		return hoist__fail(-EIO, "libsodium does not start");
	const char *text = secure_getenv("HOIST_GROUP_SECRET");
	const char *file = secure_getenv("HOIST_GROUP_SECRET_FILE");
	int err = given != NULL	 ? use_text("the given secret", given, strlen(given), &found)
		  : text != NULL ? use_text("HOIST_GROUP_SECRET", text, strlen(text), &found)
		  : file != NULL ? use_file(file, &found)
				 : use_own(&found);
	if (err == 0)
		*ret = found;
	sodium_memzero(&found, sizeof(found));
	return err;
}
