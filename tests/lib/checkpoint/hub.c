/* SPDX-License-Identifier: MIT */
/* hoist_hub_find() finds models in a cache as Hugging Face's programs lay it out. */
#include "config.h"

#include <hoist/hub.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/load-files.h"
#include "tests/support/load-support.h"

/* Made in the test's folder, which is the current one. */
static const char tree[] =
	"mkdir -p hub/models--o--n/refs/refs/pr hub/models--o--n/snapshots/aaa "
	"hub/models--o--n/snapshots/bbb hub/models--o--n/snapshots/ccc "
	"hub/models--gpt2/snapshots/ddd hub/models--o--empty/snapshots "
	"hub/models--o--bare hub/models--o--bad/refs hub/models--o--bad/snapshots/eee "
	"hub/models--o--two/snapshots/f1 hub/models--o--two/snapshots/f2 && "
	"printf aaa >hub/models--o--n/refs/main && printf 'bbb\\n' >hub/models--o--n/refs/v1.0 && "
	"printf ccc >hub/models--o--n/refs/refs/pr/1 && printf zzz >hub/models--o--n/refs/gone && "
	"printf ../../x >hub/models--o--bad/refs/main && : >hub/models--o--bad/refs/none && "
	"printf 'eee\\0x' >hub/models--o--bad/refs/nul";

static const struct {
	const char *where;
	int err;
	const char *text; /* the path, from the test's folder, or a part of the message */
} table[] = {
	{"hf://o/n", 0, "hub/models--o--n/snapshots/aaa"},
	{"hf://o/n@main", 0, "hub/models--o--n/snapshots/aaa"},
	{"hf://o/n@v1.0", 0, "hub/models--o--n/snapshots/bbb"},
	{"hf://o/n@refs/pr/1", 0, "hub/models--o--n/snapshots/ccc"},
	{"hf://o/n@ccc", 0, "hub/models--o--n/snapshots/ccc"},
	{"hf://gpt2", 0, "hub/models--gpt2/snapshots/ddd"},
	{"hub/models--o--n", 0, "hub/models--o--n/snapshots/aaa"},
	{"hub/models--gpt2//", 0, "hub/models--gpt2/snapshots/ddd"},
	/* Any other path is as it was. */
	{"hub/models--o--bare", 0, "hub/models--o--bare"},
	{"hub/models--none", 0, "hub/models--none"},
	{"hub", 0, "hub"},
	{"", 0, ""},
	/* There is no such thing. */
	{"hf://o/none", -ENOENT, "hub/models--o--none"},
	{"hf://gpt2@main", -ENOENT, "it has ddd"},
	{"hf://o/n@v2", -ENOENT, "has no revision v2"},
	{"hf://o/n@gone", -ENOENT, "has no revision gone"},
	{"hf://o/n@refs/pr", -ENOENT, "has no revision refs/pr"},
	{"hf://o/two", -ENOENT, "has no revision main"},
	{"hf://o/empty", -ENOENT, "has no snapshot"},
	{"hf://o/bare", -ENOENT, "listing hub/models--o--bare/snapshots"},
	/* A file in refs is not trusted. */
	{"hf://o/bad", -EBADMSG, "names no commit"},
	{"hf://o/bad@none", -EBADMSG, "names no commit"},
	{"hf://o/bad@nul", -EBADMSG, "names no commit"},
	/* A name is not trusted. */
	{"hf://", -EINVAL, "names no model"},
	{"hf://o/", -EINVAL, "names no model"},
	{"hf:///n", -EINVAL, "names no model"},
	{"hf://o/n/x", -EINVAL, "names no model"},
	{"hf://o/..", -EINVAL, "names no model"},
	{"hf://../n", -EINVAL, "names no model"},
	{"hf://o/n@", -EINVAL, "names no model"},
	{"hf://o/n@../x", -EINVAL, "names no model"},
	{"hf://o/n@/etc", -EINVAL, "names no model"},
	{"hf://o/n@a//b", -EINVAL, "names no model"},
	{"hf://o/n m", -EINVAL, "names no model"},
};

/* The cache's folder, by each variable; earlier ones come first. */
static const struct {
	const char *name;
	const char *value;
} places[] = {
	{"HOME", "home"},	 {"XDG_CACHE_HOME", "xdg"},
	{"HF_HOME", "face"},	 {"HUGGINGFACE_HUB_CACHE", "old"},
	{"HF_HUB_CACHE", "new"},
};

static const char *const hubs[] = {"home/.cache/huggingface/hub", "xdg/huggingface/hub", "face/hub",
				   "old", "new"};

static void run_places(void)
{
	char path[256];
	char want[256];
	for (size_t i = 0; i < sizeof places / sizeof *places; i++)
		CHECK(unsetenv(places[i].name) == 0);
	CHECK(hoist_hub_find("hf://o/n", path, sizeof path) == -ENOENT);
	CHECK(strstr(hoist_error(), "HF_HOME") != NULL);
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		(void)snprintf(want, sizeof want, "mkdir -p %s/models--o--n/snapshots/s%zu",
			       hubs[i], i);
		CHECK(system(want) == 0 && setenv(places[i].name, places[i].value, 1) == 0);
		OK(hoist_hub_find("hf://o/n", path, sizeof path));
		(void)snprintf(want, sizeof want, "%s/models--o--n/snapshots/s%zu", hubs[i], i);
		CHECK(strcmp(path, want) == 0);
	}
}

int main(void)
{
	char path[256];
	bool good = true;
	char folder[] = "hub.XXXXXX";
	CHECK(mkdtemp(folder) != NULL && chdir(folder) == 0 && system(tree) == 0);
	CHECK(setenv("HF_HUB_CACHE", "hub", 1) == 0);
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		int err = hoist_hub_find(table[i].where, path, sizeof path);
		const char *text = err == 0 ? path : hoist_error();
		bool same = err == table[i].err && (err == 0 ? strcmp(text, table[i].text) == 0
							     : strstr(text, table[i].text) != NULL);
		if (!same)
			fprintf(stderr, "%s: %d, %s\n", table[i].where, err, text);
		good = good && same;
	}
	CHECK(good);
	CHECK(hoist_hub_find(NULL, path, sizeof path) == -EINVAL);
	CHECK(hoist_hub_find("hub", NULL, 0) == -EINVAL);
	/* Room for the path and its end, to the byte. */
	OK(hoist_hub_find("hf://o/n", path, strlen("hub/models--o--n/snapshots/aaa") + 1));
	CHECK(hoist_hub_find("hf://o/n", path, strlen("hub/models--o--n/snapshots/aaa")) ==
	      -ENAMETOOLONG);
	run_places();
	CHECK(chdir("..") == 0);
	(void)snprintf(path, sizeof path, "rm -rf %s", folder);
	CHECK(system(path) == 0);
	return 0;
}
