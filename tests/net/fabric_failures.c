/* SPDX-License-Identifier: MIT */
/* Failures while UCX is loaded and used: of the libraries, of each function of the table, of each
 * allocation.  Also what loading must leave alone: signal handlers, the environment.
 * Plain C.  Exit: 0, 1, 77. */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "net/fabric-private.h"
#include "tests/support/check.h"
#include "tests/support/failing-ucx.h"
#include "tests/support/net-fabric.h"
#include "tests/support/patience.h"

/* --- calls that fail --- */

static long n_calls, fail_at; /* 0: none */
static bool counting;
static const char *failed; /* the call that failed; NULL: none did */

static bool fails(const char *name)
{
	if (!counting || ++n_calls != fail_at)
		return false;
	failed = name;
	return true;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes)
{
	return fails("malloc") ? NULL : __real_malloc(bytes);
}
void *__wrap_calloc(size_t n, size_t bytes)
{
	return fails("calloc") ? NULL : __real_calloc(n, bytes);
}
void *__wrap_realloc(void *old, size_t bytes)
{
	return fails("realloc") ? NULL : __real_realloc(old, bytes);
}

static const char *no_library, *no_symbol, *no_variable;
static bool no_stream;
void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags)
{
	bool gone = no_library != NULL && strcmp(name, no_library) == 0;
	return __real_dlopen(gone ? "libhoist-no-such-library.so.0" : name, flags);
}
void *__real_dlsym(void *handle, const char *name);
void *__wrap_dlsym(void *handle, const char *name);
void *__wrap_dlsym(void *handle, const char *name)
{
	bool gone = no_symbol != NULL && strcmp(name, no_symbol) == 0;
	return gone ? NULL : __real_dlsym(handle, name);
}
int __real_setenv(const char *name, const char *value, int overwrite);
int __wrap_setenv(const char *name, const char *value, int overwrite);
int __wrap_setenv(const char *name, const char *value, int overwrite)
{
	if (no_variable != NULL && strcmp(name, no_variable) == 0) {
		errno = ENOMEM;
		return -1;
	}
	return __real_setenv(name, value, overwrite);
}
FILE *__real_open_memstream(char **text, size_t *bytes);
FILE *__wrap_open_memstream(char **text, size_t *bytes);
FILE *__wrap_open_memstream(char **text, size_t *bytes)
{
	return no_stream ? NULL : __real_open_memstream(text, bytes);
}

/* --- loading --- */

static char *environment(void)
{
	static char all[65536];
	size_t used = 0;
	for (char **each = environ; *each != NULL; each++) {
		int n = snprintf(all + used, sizeof all - used, "%s\n", *each);
		CHECK(n > 0 && (size_t)n < sizeof all - used);
		used += (size_t)n;
	}
	return strdup(all);
}

static void handler(int number)
{
	(void)number;
}

static void missing_libraries(void)
{
	static const char *const names[] = {"libucs.so.0", "libucp.so.0"};
	struct hoist__fabric_facts facts;
	for (unsigned i = 0; i < 2; i++) {
		no_library = names[i];
		CHECK(hoist__fabric_probe(&facts) == -ENOSYS);
		CHECK(strstr(hoist__error_text(), "libucx0") != NULL);
		CHECK(strstr(hoist__error_text(), "cannot open") != NULL);
	}
	no_library = NULL;
}

static void missing_symbols(void)
{
	static const char *const names[] = {
#define X(name, result, arguments) #name,
		HOIST__UCX_TABLE(X)
#undef X
	};
	struct hoist__fabric_facts facts;
	for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
		no_symbol = names[i];
		CHECK(hoist__fabric_probe(&facts) == -ENOSYS);
		CHECK(strstr(hoist__error_text(), names[i]) != NULL);
		CHECK(strstr(hoist__error_text(), "libucx0") != NULL);
	}
	no_symbol = NULL;
}

/* Before UCX is loaded: whatever it does when it is loaded. */
static void untouched(void)
{
	struct sigaction before[NSIG], after;
	struct hoist__fabric_facts facts;
	OK(setenv("UCX_MEM_EVENTS", "n", 1));
	OK(setenv("UCX_LOG_LEVEL", "error", 1));
	CHECK(signal(SIGBUS, handler) != SIG_ERR);
	char *all = environment();
	CHECK(all != NULL);
	for (int i = 1; i < NSIG; i++)
		(void)sigaction(i, NULL, &before[i]);
	no_variable = "UCX_LOG_FILE";
	CHECK(hoist__fabric_probe(&facts) == -ENOMEM);
	no_variable = NULL;
	char *now = environment();
	CHECK(now != NULL && strcmp(all, now) == 0);
	free(now);
	OK(hoist__fabric_probe(&facts));
	CHECK(facts.major == 1 && facts.minor >= 13);
	CHECK(facts.library[0] == '/' && strstr(facts.library, "libucp") != NULL);
	CHECK(strstr(facts.transports, "tcp/lo") != NULL);
	for (int i = 1; i < NSIG; i++) {
		memset(&after, 0, sizeof after);
		if (sigaction(i, NULL, &after) == 0)
			CHECK(after.sa_handler == before[i].sa_handler &&
			      after.sa_flags == before[i].sa_flags);
	}
	now = environment();
	CHECK(now != NULL && strcmp(all, now) == 0);
	free(now);
	free(all);
	no_stream = true;
	CHECK(hoist__fabric_probe(&facts) == -ENOMEM);
	no_stream = false;
}

/* --- transfers --- */

static struct side a, b;

static int connect_to(struct side *from, const struct side *to)
{
	const void *address;
	size_t bytes;
	hoist__fabric_address(to->fabric, &address, &bytes);
	return hoist__fabric_connect(from->fabric, address, bytes, from, &from->peer);
}

static int send_one(struct side *from, struct side *to, size_t bytes)
{
	return side_send_ticket(from, side_ticket(to, bytes)->ticket, 0, 0, bytes);
}

/* Opens, connects, sends each way by both protocols, closes.  Returns: 0; the first error. */
static int scenario(void)
{
	int err = side_try_open(&a, "tcp");
	if (err < 0)
		return err;
	err = side_try_open(&b, "tcp");
	if (err == 0) {
		err = connect_to(&a, &b);
		if (err == 0)
			err = connect_to(&b, &a);
		for (unsigned i = 0; i < 4 && err == 0; i++)
			err = send_one(i % 2 == 0 ? &a : &b, i % 2 == 0 ? &b : &a,
				       i < 2 ? 1000 : (size_t)1 << 20);
		uint64_t end = patience_now() + UINT64_C(1000000000) * PATIENCE_SECONDS;
		while (hoist__fabric_in_flight(a.fabric) + hoist__fabric_in_flight(b.fabric) > 0) {
			CHECK(patience_now() < end);
			side_turn(&a, &b, 100);
		}
		if (err == 0 && a.n_sent_badly + b.n_sent_badly > 0)
			err = -EIO;
		if (err == 0 && a.n_arrived_badly + b.n_arrived_badly > 0)
			err = -EIO;
		side_close(&b);
	}
	side_close(&a);
	return err;
}

/* Each call in turn fails with @status. */
static void sweep(hoist__ucs_status status)
{
	unsigned n_stopped = 0;
	failing_ucx_status = status;
	for (fail_at = 1;; fail_at++) {
		check_at("status %d, call %ld", status, fail_at);
		n_calls = 0;
		failed = NULL;
		counting = true;
		int err = scenario();
		counting = false;
		if (failed == NULL) {
			CHECK(err == 0 && fail_at > 20);
			break;
		}
		check_at("status %d, call %ld, %s", status, fail_at, failed);
		n_stopped += err < 0;
		if (err < 0 && err != -EIO && status == HOIST__UCS_ERR_NO_MEMORY)
			CHECK(err == -ENOMEM);
		/* Each other call must stop the scenario. */
		if (strcmp(failed, "ucp_worker_arm") != 0 &&
		    strcmp(failed, "ucp_ep_close_nbx") != 0)
			CHECK(err < 0);
	}
	CHECK(n_stopped > 20);
}

static void no_memory(void)
{
	sweep(HOIST__UCS_ERR_NO_MEMORY);
}

static void unreachable(void)
{
	sweep(HOIST__UCS_ERR_UNREACHABLE);
}

/* A transport that does not exist. */
static void no_transport(void)
{
	fail_at = 0;
	CHECK(side_try_open(&a, "no-such-transport") == -ENODEV);
	CHECK(strstr(hoist__error_text(), "no-such-transport") != NULL);
}

int main(void)
{
	struct hoist__fabric_facts facts;
	CASE(missing_libraries);
	void *here = dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD);
	CHECK(here == NULL);
	no_symbol = "ucp_get_version"; /* tells whether UCX is here, without taking it */
	if (hoist__fabric_probe(&facts) == -ENOSYS &&
	    strstr(hoist__error_text(), "lacks") == NULL) {
		printf("skipped: %s\n", hoist__error_text());
		return 77;
	}
	CASE(missing_symbols);
	CASE(untouched);
	(void)need_ucx();
	CASE(no_transport);
	failing_ucx_begin(fails);
	CASE(no_memory);
	CASE(unreachable);
	return 0;
}
