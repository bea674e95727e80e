/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "io/lanes.h"

unsigned hoist__lanes_of(const struct hoist__lanes *lanes, const struct hoist__file *file)
{
	unsigned i = 0;
	while (i + 1 < lanes->n && lanes->devices[i] != file->dev)
		i++;
	return i;
}

void hoist__lanes_find(const struct hoist__engine_options *options, struct hoist__lanes *ret)
{
	ret->n = 0;
	for (unsigned i = 0; i < options->n_files; i++) {
		unsigned k = 0;
		while (k < ret->n && ret->devices[k] != options->files[i]->dev)
			k++;
		if (k == ret->n && k < HOIST__ENGINE_MAX_LANES)
			ret->devices[ret->n++] = options->files[i]->dev;
	}
	if (ret->n == 0)
		ret->devices[ret->n++] = 0;
}
