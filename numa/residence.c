/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "numa/residence.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"

struct mapping {
	uintptr_t start;
	uintptr_t end;
	uint64_t resident;
	uint64_t huge;
};

/* The first range that ends above @address. */
static size_t first_above(const struct hoist__residence *ranges, size_t n, uintptr_t address)
{
	size_t low = 0;
	while (n > 0) {
		size_t half = n / 2;
		const struct hoist__residence *middle = &ranges[low + half];
		if (middle->base + middle->bytes > address) {
			n = half;
		} else {
			low += half + 1;
			n -= half + 1;
		}
	}
	return low;
}

static void share_out(const struct mapping *mapping, struct hoist__residence *ranges, size_t n)
{
	if (mapping->end <= mapping->start)
		return;
	for (size_t i = first_above(ranges, n, mapping->start);
	     i < n && ranges[i].base < mapping->end; i++) {
		uintptr_t start = hoist__max_u64(mapping->start, ranges[i].base);
		uintptr_t end = hoist__min_u64(mapping->end, ranges[i].base + ranges[i].bytes);
		double share = (double)(end - start) / (double)(mapping->end - mapping->start);
		ranges[i].resident += share * (double)mapping->resident;
		ranges[i].huge += share * (double)mapping->huge;
	}
}

/* "7f00-7f80 rw-p ..." */
static bool parse_head(const char *line, struct mapping *ret)
{
	char *end;
	uintptr_t start = strtoull(line, &end, 16);
	if (end == line || *end != '-')
		return false;
	*ret = (struct mapping){.start = start, .end = strtoull(end + 1, NULL, 16)};
	return true;
}

/* "Rss:       4 kB", which leaves hugetlb pages out. */
static void parse_field(const char *line, struct mapping *mapping)
{
	static const struct {
		const char *key;
		bool resident;
		bool huge;
	} fields[] = {
		{"Rss:", true, false},
		{"AnonHugePages:", false, true},
		{"Shared_Hugetlb:", true, true},
		{"Private_Hugetlb:", true, true},
	};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(fields); i++) {
		size_t length = strlen(fields[i].key);
		if (strncmp(line, fields[i].key, length) != 0)
			continue;
		uint64_t bytes = strtoull(line + length, NULL, 10) << 10;
		mapping->resident += fields[i].resident ? bytes : 0;
		mapping->huge += fields[i].huge ? bytes : 0;
	}
}

int hoist__residence(const char *path, struct hoist__residence *ranges, size_t n)
{
	FILE *file = fopen(path, "re");
	if (file == NULL)
		return hoist__fail_errno(-errno, "opening %s", path);
	for (size_t i = 0; i < n; i++)
		ranges[i].resident = ranges[i].huge = 0;
	struct mapping mapping = {0};
	char line[256];
	bool at_start = true; /* of a line: a long one comes in pieces */
	while (fgets(line, sizeof line, file) != NULL) {
		struct mapping head;
		if (at_start && parse_head(line, &head)) {
			share_out(&mapping, ranges, n);
			mapping = head;
		} else if (at_start) {
			parse_field(line, &mapping);
		}
		at_start = strchr(line, '\n') != NULL;
	}
	share_out(&mapping, ranges, n);
	(void)fclose(file);
	return 0;
}
