/* SPDX-License-Identifier: MIT */
/* One cache under all processes: images of checkpoints that are replaced now and then, added and
 * dropped by anybody, of a holder that is killed at times. */
#include "config.h"

#include "tests/soak/worker.h"

#include <errno.h>
#include <string.h>

/* So long the library waits for a holder that has its lock and does not answer, at least: on a slow
 * machine that holder need not have been harmed. */
#define PATIENCE_NS (UINT64_C(5) * 1000000000)

static const char *some_path(void)
{
	return soak_path("c%u.safetensors", (unsigned)soak_below(SOAK_CACHED));
}

static void check_image(hoist_image *image)
{
	const char *seed = NULL;
	struct soak_model model;
	for (size_t i = 0; i < hoist_image_n_metadata(image); i++) {
		const char *key = NULL;
		const char *value = NULL;
		OK(hoist_image_metadata(image, i, &key, &value));
		if (strcmp(key, SOAK_SEED_KEY) == 0)
			seed = value;
	}
	CHECK(soak_model_read(seed, &model) && hoist_image_n_tensors(image) == model.n);
	bool keep = soak_chance(3);
	for (size_t t = 0; t < model.n; t++) {
		size_t index = SIZE_MAX;
		hoist_buffer *buffer = NULL;
		OK(hoist_image_find(image, model.tensors[t].name, &index));
		OK(hoist_image_buffer(image, index, &buffer));
		soak_check_whole(&model, t, buffer);
		if (keep && soak_chance(3)) { /* longer than the image */
			soak_parcel_give(&(struct soak_parcel){model, t, model.tensors[t].dtype,
							       soak_whole(&model.tensors[t]),
							       buffer});
			buffer = NULL;
		} else if (!keep) { /* one's own, which no other sees */
			unsigned char byte = (unsigned char)soak_random();
			OK(hoist_buffer_write(buffer, 0, &byte, 1));
		}
		hoist_buffer_unref(buffer);
	}
}

void soak_attach(void)
{
	hoist_image *image = NULL;
	int err = hoist_cache_attach(some_path(), 0, &image);
	CHECK(err == 0 || err == -ENOENT || err == -ESTALE);
	if (err == -ENOENT)
		soak_count(SOAK_N_not_there, 1);
	if (err == -ESTALE)
		soak_count(SOAK_N_stale, 1);
	if (err == 0) {
		check_image(image);
		soak_count(SOAK_N_attached, 1);
	}
	hoist_image_close(image);
}

static int maybe_cancel(void *context, uint64_t done, uint64_t total)
{
	(void)context;
	(void)done;
	(void)total;
	soak_beat();
	return soak_chance(4) ? 1 : 0;
}

void soak_add(void)
{
	hoist_cache_options options = {.size = sizeof options,
				       .flags = soak_chance(3) ? HOIST_CACHE_REPLACE : 0,
				       .engine = soak_chance(2) ? HOIST_ENGINE_AUTO
								: HOIST_ENGINE_THREADS,
				       .io = (enum hoist_io)soak_below(3),
				       .budget = soak_budget};
	hoist_image *image = NULL;
	if (soak_chance(3))
		options.progress = maybe_cancel;
	uint64_t since = soak_now();
	int err = hoist_cache_add(some_path(), &options, &image);
	bool late = soak_now() - since >= PATIENCE_NS;
	switch (err) {
	case 0:
		check_image(image);
		soak_count(SOAK_N_added, 1);
		break;
	case -ECANCELED:
		CHECK(options.progress != NULL);
		soak_count(SOAK_N_cancelled, 1);
		break;
	case -ESTALE: /* replaced while it was loaded */
		soak_count(SOAK_N_stale, 1);
		break;
	case -EPIPE: /* a holder was killed, */
	case -ECHILD:
	case -EAGAIN: /* or is at it, and is stopped */
		soak_count(late ? SOAK_N_holder_late : SOAK_N_holder_lost, 1);
		break;
	default:
		NEVER("adding gives nothing else");
	}
	hoist_image_close(image);
}

void soak_drop(void)
{
	hoist_cache_list *list = NULL;
	OK(hoist_cache_list_create(&list));
	for (size_t i = 0; i < hoist_cache_list_n_images(list); i++) {
		hoist_image_info info = {.size = sizeof info};
		OK(hoist_cache_list_image(list, i, &info));
		CHECK(strncmp(info.path, soak_folder, strlen(soak_folder)) == 0);
	}
	hoist_cache_list_destroy(list);
	int err = hoist_cache_drop(soak_chance(4) ? NULL : some_path(), NULL);
	CHECK(err == 0 || err == -ENOENT);
}
