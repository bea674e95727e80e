/* SPDX-License-Identifier: MIT */
/* net/ucx.c - opens the libraries of UCX and makes contexts.  The contract is in net/ucx.h;
 * net/fabric.h has the changes to the process. */
#include "config.h"

#include "net/ucx.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "base/checked.h"
#include "base/log.h"

#define ROOM_BYTES ((size_t)256 << 20)

#define REMEDY "install UCX 1.13 or newer (Debian: libucx0)"

struct hoist__ucx_table hoist__ucx;

static const struct {
	const char *symbol;
	size_t offset;
} rows[] = {
#define X(name, result, arguments) {#name, offsetof(struct hoist__ucx_table, name)},
	HOIST__UCX_TABLE(X)
#undef X
};

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static bool is_open;
static char library[PATH_MAX];

/* UCX reads these when it is loaded, and only then.  Its messages go to standard output unless
 * UCX_LOG_FILE is set. */
static const struct variable {
	const char *name;
	const char *value;
} variables[] = {
	{"UCX_ERROR_SIGNALS", ""},  {"UCX_MEM_EVENTS", "n"},	{"UCX_MEMTYPE_CACHE", "n"},
	{"UCX_LOG_LEVEL", "fatal"}, {"UCX_LOG_FILE", "stderr"},
};

struct signals {
	struct sigaction actions[NSIG];
	bool known[NSIG];
};

static void note_signals(struct signals *ret)
{
	for (int i = 1; i < NSIG; i++)
		ret->known[i] = sigaction(i, NULL, &ret->actions[i]) == 0;
}

/* A handler that another thread installed meanwhile cannot be told from UCX's. */
static void restore_signals(const struct signals *before)
{
	for (int i = 1; i < NSIG; i++) {
		struct sigaction now;
		if (before->known[i] && sigaction(i, NULL, &now) == 0 &&
		    now.sa_sigaction != before->actions[i].sa_sigaction)
			(void)sigaction(i, &before->actions[i], NULL);
	}
}

static void *load(const char *name, int flags)
{
	void *handle = dlopen(name, RTLD_NOW | flags);
	if (handle == NULL)
		(void)hoist__fail(-ENOSYS, "UCX: no library: %s; " REMEDY, dlerror());
	return handle;
}

/* Looks up each function where it is: libucp's handle finds libucs', too. */
static int fill(void *handle, const char *path)
{
	struct hoist__ucx_table table;
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(rows); i++) {
		void *symbol = dlsym(handle, rows[i].symbol);
		if (symbol == NULL)
			return hoist__fail(-ENOSYS, "UCX: the library %.300s lacks %s; " REMEDY,
					   path, rows[i].symbol);
		memcpy((char *)&table + rows[i].offset, &symbol, sizeof symbol);
	}
	hoist__ucx = table;
	return 0;
}

static int load_all(void)
{
	/* A module of UCX that misses symbols of libucs finds them only if libucs is global. */
	if (load("libucs.so.0", RTLD_GLOBAL) == NULL)
		return -ENOSYS;
	void *handle = load("libucp.so.0", RTLD_LOCAL);
	if (handle == NULL)
		return -ENOSYS;
	struct link_map *map = NULL;
	const char *path = "libucp.so.0";
	if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != NULL && map->l_name[0] != '\0')
		path = map->l_name;
	int err = fill(handle, path);
	if (err < 0)
		return err;
	(void)snprintf(library, sizeof library, "%s", path);
	hoist__log(io, "UCX: %s", library);
	return 0;
}

static int load_quietly(void)
{
	struct signals signals;
	bool ours[HOIST__ARRAY_SIZE(variables)] = {false};
	int err = 0;
	note_signals(&signals);
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(variables) && err == 0; i++) {
		ours[i] = secure_getenv(variables[i].name) == NULL;
		if (ours[i] && setenv(variables[i].name, variables[i].value, 0) != 0) {
			ours[i] = false;
			err = hoist__fail_nomem("a variable of UCX's", strlen(variables[i].name));
		}
	}
	if (err == 0)
		err = load_all();
	/* A program that this process starts shall not inherit them. */
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(variables); i++)
		if (ours[i])
			(void)unsetenv(variables[i].name);
	restore_signals(&signals);
	return err;
}

int hoist__ucx_open(const char **ret_path)
{
	int err = 0;
	if (getauxval(AT_SECURE) != 0)
		return hoist__fail(-EPERM, "UCX: this program has raised privileges, and UCX obeys "
					   "the environment; use another transport");
	(void)pthread_mutex_lock(&opening);
	if (!is_open) {
		err = load_quietly();
		is_open = err == 0;
	}
	(void)pthread_mutex_unlock(&opening);
	if (err == 0 && ret_path != NULL)
		*ret_path = library;
	return err;
}

/* 1016 for UCX 1.16. */
static unsigned version(void)
{
	unsigned major, minor, patch;
	hoist__ucx.ucp_get_version(&major, &minor, &patch);
	return major * 1000 + minor;
}

bool hoist__ucx_before_1_16(void)
{
	return version() < 1016;
}

/* Changes a setting of UCX's tcp.  UCX 1.17 and newer take the whole name, older ones that behind
 * "TCP_"; UCX before 1.22 says nothing about names that it does not know. */
static hoist__ucs_status change_tcp(hoist__ucp_config *config, bool whole_name, const char *name,
				    const char *value)
{
	return hoist__ucx.ucp_config_modify(config, whole_name ? name : name + sizeof "TCP_" - 1,
					    value);
}

/* UCX's tcp blocks in connect(), for two minutes if a firewall swallows what goes to the peer's
 * port; the caller's heartbeats stop meanwhile.  UCX 1.13 does not bear the other way: it aborts if
 * a peer dies early ("got REP message").  So, before 1.16, the kernel shall give up after 3 s.
 *
 * UCX 1.13 writes SYN_CNT as 8 bytes into a field of 4 bytes.  The next field is that of
 * TX_MAX_BUFS, 0 then, and UCX cannot make a worker: TX_MAX_BUFS is set again.  -1 is UCX's own. */
static hoist__ucs_status limit_connecting(hoist__ucp_config *config)
{
	const char *buffers = secure_getenv("UCX_TCP_TX_MAX_BUFS");
	hoist__ucs_status status = HOIST__UCS_OK;
	bool whole = version() >= 1017;
	bool waits = hoist__ucx_before_1_16();
	const char *theirs =
		waits ? secure_getenv("UCX_TCP_SYN_CNT") : secure_getenv("UCX_TCP_CONN_NB");
	if (theirs != NULL)
		return status;
	if (!waits)
		return change_tcp(config, whole, "TCP_CONN_NB", "y");
	status = change_tcp(config, whole, "TCP_SYN_CNT", "1");
	if (status == HOIST__UCS_OK)
		status = change_tcp(config, whole, "TCP_TX_MAX_BUFS",
				    buffers != NULL ? buffers : "-1");
	return status;
}

/* Has UCX before 1.16 copy what it sends.  Where a write of bytes that UCX has not copied fails,
 * because the peer has died, UCX's tcp completes the send twice (tcp_ep.c, uct_tcp_ep_sendv()), and
 * a build with assertions, as Debian's 1.13, aborts.  A rendezvous by RDMA still copies nothing. */
static hoist__ucs_status forbid_zero_copy(hoist__ucp_config *config)
{
	if (!hoist__ucx_before_1_16() || secure_getenv("UCX_ZCOPY_THRESH") != NULL ||
	    secure_getenv("HOIST_UCX_ZCOPY_THRESH") != NULL)
		return HOIST__UCS_OK;
	return hoist__ucx.ucp_config_modify(config, "ZCOPY_THRESH", "inf");
}

static hoist__ucs_status change_settings(hoist__ucp_config *config, const char *transports)
{
	/* UCX's own heartbeats dereference a lane that is gone, in an endpoint that is being closed
	 * (seen in 1.13 and 1.22; openucx/ucx#10926). */
	hoist__ucs_status status =
		hoist__ucx.ucp_config_modify(config, "KEEPALIVE_INTERVAL", "inf");
	if (status == HOIST__UCS_OK)
		status = limit_connecting(config);
	if (status == HOIST__UCS_OK)
		status = forbid_zero_copy(config);
	if (status == HOIST__UCS_OK && transports != NULL)
		status = hoist__ucx.ucp_config_modify(config, "TLS", transports);
	return status;
}

static int make_context(hoist__ucp_config *config, const char *transports, hoist__ucp_context *ret)
{
	const struct hoist__ucp_params params = {
		.field_mask = HOIST__UCP_PARAM_FEATURES,
		.features = HOIST__UCP_FEATURE_AM | HOIST__UCP_FEATURE_WAKEUP,
	};
	hoist__ucs_status status = change_settings(config, transports);
	if (status < 0)
		return hoist__ucx_fail(status, "changing its settings");
	struct signals signals;
	note_signals(&signals);
	status = hoist__ucx.ucp_init_version(HOIST__UCP_API_MAJOR, HOIST__UCP_API_MINOR, &params,
					     config, ret);
	restore_signals(&signals);
	if (status == HOIST__UCS_ERR_NO_DEVICE)
		return hoist__fail(-ENODEV,
				   "UCX: it has no transport of '%s'; `ucx_info -d` lists "
				   "those of this machine; correct HOIST_UCX_TLS or UCX_TLS",
				   transports != NULL ? transports : "its settings");
	return status < 0 ? hoist__ucx_fail(status, "making a context") : 0;
}

static void *do_nothing(void *argument)
{
	return argument;
}

/* UCX starts a thread, and ends the process if that fails: 1.13 asserts it (async/thread.c).  So a
 * thread, and addresses for UCX's libraries and buffers, are tried first. */
static int check_room(void)
{
	pthread_t thread;
	void *room = mmap(NULL, ROOM_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			  -1, 0);
	if (room == MAP_FAILED)
		return hoist__fail(-EAGAIN,
				   "UCX: %zu MiB of addresses are not there, without which UCX may "
				   "end the process; raise the limit (ulimit -v)",
				   ROOM_BYTES >> 20);
	int err = pthread_create(&thread, NULL, do_nothing, NULL);
	if (err == 0)
		(void)pthread_join(thread, NULL);
	(void)munmap(room, ROOM_BYTES);
	return err == 0
		       ? 0
		       : hoist__fail(-EAGAIN, "UCX: no thread can be started, without which UCX "
					      "ends the process; raise the limits (ulimit -u, -v)");
}

int hoist__ucx_init(const char *transports, hoist__ucp_context *ret)
{
	hoist__ucp_config *config = NULL;
	int err = check_room();
	if (err == 0)
		err = hoist__ucx_open(NULL);
	if (err < 0)
		return err;
	hoist__ucs_status status = hoist__ucx.ucp_config_read("HOIST", NULL, &config);
	if (status < 0)
		return hoist__ucx_fail(status, "reading its settings (HOIST_UCX_*, UCX_*)");
	err = make_context(config, transports, ret);
	hoist__ucx.ucp_config_release(config);
	return err;
}

int hoist__ucx_error(hoist__ucs_status status)
{
	switch (status) {
	case HOIST__UCS_ERR_NO_MEMORY:
		return -ENOMEM;
	case HOIST__UCS_ERR_INVALID_PARAM:
		return -EINVAL;
	case HOIST__UCS_ERR_UNREACHABLE:
		return -EHOSTUNREACH;
	case HOIST__UCS_ERR_INVALID_ADDR:
		return -EBADMSG;
	case HOIST__UCS_ERR_MESSAGE_TRUNCATED:
		return -EMSGSIZE;
	case HOIST__UCS_ERR_NO_DEVICE:
		return -ENODEV;
	case HOIST__UCS_ERR_CANCELED:
		return -ECANCELED;
	case HOIST__UCS_ERR_TIMED_OUT:
	case HOIST__UCS_ERR_ENDPOINT_TIMEOUT:
		return -ETIMEDOUT;
	case HOIST__UCS_ERR_UNSUPPORTED:
		return -EOPNOTSUPP;
	case HOIST__UCS_ERR_CONNECTION_RESET:
	case HOIST__UCS_ERR_REJECTED:
		return -ECONNRESET;
	default:
		return -EIO;
	}
}

int hoist__ucx_fail(hoist__ucs_status status, const char *what)
{
	return hoist__fail(hoist__ucx_error(status), "UCX: %s: %s", what,
			   hoist__ucx.ucs_status_string(status));
}
