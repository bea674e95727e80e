/* SPDX-License-Identifier: MIT */
/* The environment of launchers: this process's rank, and its door.
 * The contract is in tools/launcher.h. */
#include "config.h"

#include "tools/launcher.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/fail.h"

#define SCHEME "tcp://"
#define FOLDER_SCHEME "dir:"
#define DEFAULT_PORT 7117u

/* mpirun's and torchrun's processes have Slurm's variables, too, where these run in a job. */
static const struct {
	const char *rank;
	const char *n_ranks;
} launchers[] = {
	{"RANK", "WORLD_SIZE"},				  /* torchrun */
	{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, /* Open MPI */
	{"SLURM_PROCID", "SLURM_NTASKS"},		  /* Slurm */
};

static const char *const node_lists[] = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"};

/* The value of a variable that is set to something; NULL: it is not. */
static const char *variable(const char *name)
{
	const char *value = secure_getenv(name);
	return value != NULL && value[0] != '\0' ? value : NULL;
}

/* Reads all of @text as a number up to @most. */
static bool number(const char *text, unsigned long most, unsigned *ret)
{
	char *end = NULL;
	errno = 0;
	unsigned long value = strtoul(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno == ERANGE || value > most)
		return false;
	*ret = (unsigned)value;
	return true;
}

static bool has_scheme(const char *group, const char *scheme)
{
	return strncmp(group, scheme, strlen(scheme)) == 0;
}

bool launcher_is_far(const char *group)
{
	return has_scheme(group, SCHEME) || has_scheme(group, FOLDER_SCHEME);
}

int launcher_rank(unsigned *ret_rank, unsigned *ret_n_ranks)
{
	*ret_rank = *ret_n_ranks = 0;
	for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
		const char *rank = variable(launchers[i].rank);
		const char *n_ranks = variable(launchers[i].n_ranks);
		if (rank == NULL || n_ranks == NULL)
			continue;
		if (number(n_ranks, INT32_MAX, ret_n_ranks) && number(rank, INT32_MAX, ret_rank) &&
		    *ret_rank < *ret_n_ranks)
			return STATUS_OK;
		return fail("%s=%s and %s=%s are no rank of a group; give --rank R/N, or unset "
			    "both",
			    launchers[i].rank, rank, launchers[i].n_ranks, n_ranks);
	}
	return STATUS_OK;
}

/* Gives the first host of "node[003-007,12],gpu1", in the grammar of Slurm: node003.
 * Returns: NULL without memory. */
static char *first_host(const char *list)
{
	char *host = strdup(list);
	char *to = host;
	for (const char *from = list; host != NULL && *from != '\0' && *from != ',';) {
		if (*from == '[') {
			size_t n = strcspn(++from, "-,]");
			memcpy(to, from, n);
			to += n;
			from += n + strcspn(from + n, "]");
			from += *from == ']';
		} else {
			*to++ = *from++;
		}
	}
	if (host != NULL)
		*to = '\0';
	return host;
}

/* *ret: from malloc; NULL: the environment names none. */
static int find_host(char **ret)
{
	const char *master = variable("MASTER_ADDR");
	const char *list = NULL;
	*ret = NULL;
	for (size_t i = 0; i < sizeof node_lists / sizeof node_lists[0] && list == NULL; i++)
		list = variable(node_lists[i]);
	if (master == NULL && list == NULL)
		return STATUS_OK;
	*ret = master != NULL ? strdup(master) : first_host(list);
	return *ret != NULL ? STATUS_OK : fail_memory();
}

int launcher_name(const char *group, char **ret)
{
	unsigned port = DEFAULT_PORT;
	const char *given = variable("HOIST_GROUP_PORT");
	*ret = NULL;
	if (!has_scheme(group, SCHEME) || group[strlen(SCHEME)] != '/') {
		*ret = strdup(group);
		return *ret != NULL ? STATUS_OK : fail_memory();
	}
	if (given != NULL && (!number(given, UINT16_MAX, &port) || port == 0))
		return fail("HOIST_GROUP_PORT=%s is no port; give a number from 1 to 65535", given);
	char *host;
	int status = find_host(&host);
	if (status != STATUS_OK)
		return status;
	if (host == NULL)
		return fail("%s names no host, and neither MASTER_ADDR nor SLURM_JOB_NODELIST is "
			    "set; write tcp://HOST:PORT/NAME, with the host of one of the ranks",
			    group);
	bool brackets = strchr(host, ':') != NULL && host[0] != '['; /* IPv6 */
	bool named = asprintf(ret, SCHEME "%s%s%s:%u%s", brackets ? "[" : "", host,
			      brackets ? "]" : "", port, group + strlen(SCHEME)) >= 0;
	free(host);
	if (!named)
		*ret = NULL;
	return named ? STATUS_OK : fail_memory();
}
