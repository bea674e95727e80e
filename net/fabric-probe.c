/* SPDX-License-Identifier: MIT */
/* net/fabric-probe.c - UCX's version and the transports that it finds, for doctor.
 * The contract is in net/fabric.h. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/fabric.h"
#include "net/ucx.h"

/* The beginnings of the names of UCX's transports over RDMA. */
static const char *const rdma[] = {"rc_", "dc_", "ud_", "srd", "gga_"};

static void add(struct hoist__fabric_facts *facts, const char *name)
{
	size_t used = strlen(facts->transports);
	int n = snprintf(facts->transports + used, sizeof facts->transports - used, "%s%s",
			 used > 0 ? " " : "", name);
	if (n < 0 || (size_t)n >= sizeof facts->transports - used)
		facts->transports[used] = '\0'; /* never a part of a name */
	for (size_t i = 0; i < sizeof rdma / sizeof rdma[0]; i++)
		if (strncmp(name, rdma[i], strlen(rdma[i])) == 0)
			facts->rdma = true;
}

/* UCX tells of its transports in words only: a line for each, whose last word is
 * "transport/device":
 *
 *     #      resource 1  :  md 1  dev 1  flags -- tcp/lo
 */
static void take_line(struct hoist__fabric_facts *facts, char *line)
{
	char *end = line + strcspn(line, "\n");
	*end = '\0';
	if (strncmp(line, "#", 1) != 0 ||
	    strncmp(line + 1 + strspn(line + 1, " "), "resource ", 9) != 0)
		return;
	while (end > line && end[-1] == ' ')
		*--end = '\0';
	const char *word = strrchr(line, ' ') + 1;
	if (strchr(word, '/') != NULL)
		add(facts, word);
}

static int list_transports(hoist__ucp_context context, struct hoist__fabric_facts *facts)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *stream = open_memstream(&text, &bytes);
	if (stream == NULL)
		return hoist__fail_nomem("UCX's transports", BUFSIZ);
	hoist__ucx.ucp_context_print_info(context, stream);
	bool failed = ferror(stream) != 0;
	if (fclose(stream) != 0 || failed) {
		free(text);
		return hoist__fail_nomem("UCX's transports", BUFSIZ);
	}
	for (char *line = text; line != NULL && *line != '\0';) {
		char *next = strchr(line, '\n');
		if (next != NULL)
			next++;
		take_line(facts, line);
		line = next;
	}
	free(text);
	return 0;
}

int hoist__fabric_probe(struct hoist__fabric_facts *ret)
{
	struct hoist__fabric_facts facts = {0};
	const char *path;
	hoist__ucp_context context;
	int err = hoist__ucx_open(&path);
	if (err < 0)
		return err;
	(void)snprintf(facts.library, sizeof facts.library, "%s", path);
	hoist__ucx.ucp_get_version(&facts.major, &facts.minor, &facts.patch);
	err = hoist__ucx_init(NULL, &context);
	if (err < 0)
		return err;
	err = list_transports(context, &facts);
	hoist__ucx.ucp_cleanup(context);
	if (err < 0)
		return err;
	*ret = facts;
	return 0;
}
