/* SPDX-License-Identifier: MIT */
/* Buffers that change hands between threads: one thread loads or makes them, another looks at
 * views of them, and the last owner lets go. */
#include "config.h"

#include "tests/soak/worker.h"

#define N_PLACES 8

static _Atomic(struct soak_parcel *) places[N_PLACES];

/* A view of some rows stays when the whole has gone. */
static void look_at_view(const struct soak_parcel *parcel, hoist_buffer *buffer)
{
	int64_t rows = parcel->box.end[0] - parcel->box.begin[0];
	int64_t from = rows > 0 ? (int64_t)soak_below((uint64_t)rows) : 0;
	const hoist_slice part[] = {HOIST_RANGE(from, rows)};
	struct soak_box box = parcel->box;
	hoist_buffer *view = NULL;
	OK(hoist_buffer_slice(buffer, 1, part, &view));
	hoist_buffer_unref(buffer);
	box.begin[0] += from;
	soak_check(&parcel->model, parcel->t, parcel->as, &box, view);
	hoist_buffer_unref(view);
}

void soak_parcel_end(struct soak_parcel *parcel)
{
	if (parcel == NULL)
		return;
	if (!soak_in_child && soak_chance(2))
		soak_check(&parcel->model, parcel->t, parcel->as, &parcel->box, parcel->buffer);
	if (!soak_in_child && soak_chance(2))
		look_at_view(parcel, parcel->buffer);
	else
		hoist_buffer_unref(parcel->buffer);
	free(parcel);
}

void soak_parcel_give(const struct soak_parcel *given)
{
	struct soak_parcel *parcel = malloc(sizeof *parcel);
	CHECK(parcel != NULL);
	*parcel = *given;
	soak_parcel_end(atomic_exchange(&places[soak_below(N_PLACES)], parcel));
}

struct soak_parcel *soak_parcel_take(void)
{
	return atomic_exchange(&places[soak_below(N_PLACES)], NULL);
}

void soak_parcels_clear(void)
{
	for (size_t i = 0; i < N_PLACES; i++)
		soak_parcel_end(atomic_exchange(&places[i], NULL));
}

void soak_parcel(void)
{
	struct soak_parcel parcel = {.t = 0};
	soak_parcel_end(soak_parcel_take());
	soak_model_make(soak_random(), &parcel.model);
	parcel.t = soak_below(parcel.model.n);
	parcel.as = parcel.model.tensors[parcel.t].dtype;
	parcel.box = soak_whole(&parcel.model.tensors[parcel.t]);
	parcel.buffer = soak_make_buffer(&parcel.model, parcel.t);
	soak_parcel_give(&parcel);
}
