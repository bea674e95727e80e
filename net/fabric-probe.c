/* SPDX-License-Identifier: MIT */
/* net/fabric-probe.c - UCX's version, the transports that it finds, and the way to a peer.
 * The contract is in net/fabric.h. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/fabric-private.h"

/* The beginnings of the names of UCX's transports over RDMA. */
static const char *const rdma[] = {"rc_", "dc_", "ud_", "srd", "gga_"};

static bool begins(const char *text, const char *beginning)
{
	return strncmp(text, beginning, strlen(beginning)) == 0;
}

static void add(struct hoist__fabric_facts *facts, const char *name)
{
	size_t used = strlen(facts->transports);
	int n = snprintf(facts->transports + used, sizeof facts->transports - used, "%s%s",
			 used > 0 ? " " : "", name);
	if (n < 0 || (size_t)n >= sizeof facts->transports - used)
		facts->transports[used] = '\0'; /* never a part of a name */
	facts->n_more += facts->transports[used] == '\0';
	facts->network = facts->network || (begins(name, "tcp/") && !begins(name, "tcp/lo"));
	for (size_t i = 0; i < sizeof rdma / sizeof rdma[0]; i++)
		if (begins(name, rdma[i]))
			facts->rdma = facts->network = true;
}

/* UCX tells of its transports in words only: a line for each, whose last word is
 * "transport/device":
 *
 *     #      resource 1  :  md 1  dev 1  flags -- tcp/lo
 */
static void take_line(void *facts, char *line)
{
	char *end = line + strlen(line);
	if (strncmp(line, "#", 1) != 0 ||
	    strncmp(line + 1 + strspn(line + 1, " "), "resource ", 9) != 0)
		return;
	while (end > line && end[-1] == ' ')
		*--end = '\0';
	const char *word = strrchr(line, ' ') + 1;
	if (strchr(word, '/') != NULL)
		add(facts, word);
}

static void print_context(void *what, FILE *stream)
{
	hoist__ucx.ucp_context_print_info(what, stream);
}

static void print_endpoint(void *what, FILE *stream)
{
	hoist__ucx.ucp_ep_print_info(what, stream);
}

/* Gives each line of the text that UCX prints of @what to @take. */
static int read_lines(void (*print)(void *what, FILE *stream), void *what,
		      void (*take)(void *context, char *line), void *context)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *stream = open_memstream(&text, &bytes);
	if (stream == NULL)
		return hoist__fail_nomem("UCX's transports", BUFSIZ);
	print(what, stream);
	bool failed = ferror(stream) != 0;
	if (fclose(stream) != 0 || failed) {
		free(text);
		return hoist__fail_nomem("UCX's transports", BUFSIZ);
	}
	for (char *line = text; line != NULL && *line != '\0';) {
		char *next = strchr(line, '\n');
		if (next != NULL)
			*next++ = '\0';
		take(context, line);
		line = next;
	}
	free(text);
	return 0;
}

/* --- the way to a peer --- */

struct way {
	char *text;
	size_t bytes;
};

/* Adds a word that is not there yet, whole or not at all. */
static void add_word(const struct way *way, const char *word, size_t n)
{
	size_t used = strlen(way->text);
	for (const char *at = way->text; *at != '\0'; at += strspn(at, " ")) {
		size_t length = strcspn(at, " ");
		if (length == n && memcmp(at, word, n) == 0)
			return;
		at += length;
	}
	if (used + n + 2 <= way->bytes)
		(void)snprintf(way->text + used, way->bytes - used, "%s%.*s", used > 0 ? " " : "",
			       (int)n, word);
}

/* A line for each lane, with its resource, transport and device, and behind '.' the device's path:
 *
 *     #                 lane[0]:  1:tcp/eth0.0 md[1]  -> md[1]/tcp/sysdev[255]  am am_bw#0
 */
static void take_lane(void *context, char *line)
{
	const char *lane = strstr(line, "lane[");
	const char *word = lane != NULL ? strstr(lane, "]:") : NULL;
	if (word == NULL)
		return;
	word += strspn(word, "]: ");
	word += strspn(word, "0123456789");
	size_t n = strcspn(word, " ");
	if (*word != ':' || memchr(word, '/', n) == NULL)
		return;
	while (n > 0 && word[n] != '.')
		n--;
	if (n > 1)
		add_word(context, word + 1, n - 1);
}

int hoist__fabric_way(const struct hoist__fabric_peer *peer, char *text, size_t bytes)
{
	struct way way = {.text = text, .bytes = bytes};
	return peer->broken ? 0 : read_lines(print_endpoint, peer->ep, take_lane, &way);
}

/* --- for doctor --- */

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
	err = read_lines(print_context, context, take_line, &facts);
	hoist__ucx.ucp_cleanup(context);
	if (err < 0)
		return err;
	*ret = facts;
	return 0;
}
