/* SPDX-License-Identifier: MIT */
/* format/pickle.c - the objects that the instructions work on: counted memory, values, containers.
 * The contract is in format/pickle.h. */
#include "config.h"

#include "format/pickle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

int hoist__pickle_fail(const struct hoist__pickle *pickle, int err, const char *format, ...)
{
	char text[640];
	va_list args;
	va_start(args, format);
	(void)vsnprintf(text, sizeof text, format, args);
	va_end(args);
	return hoist__fail(err, "%s: %s (byte %zu of data.pkl)", pickle->file, text, pickle->op_at);
}

int hoist__pickle_charge(struct hoist__pickle *pickle, size_t bytes)
{
	if (bytes > pickle->left)
		return hoist__pickle_fail(pickle, -EBADMSG,
					  "its %zu bytes make objects of more than %d times their "
					  "memory: the same ones are in many places",
					  pickle->n, HOIST__PICKLE_FACTOR);
	pickle->left -= bytes;
	return 0;
}

int hoist__pickle_alloc(struct hoist__pickle *pickle, size_t bytes, void *ret)
{
	int err = hoist__pickle_charge(pickle, bytes);
	if (err < 0)
		return err;
	void *memory = hoist__arena_alloc(&pickle->arena, bytes, 8);
	if (memory == NULL)
		return hoist__fail_nomem("an object of a pickle", bytes);
	memcpy(ret, &memory, sizeof memory);
	return 0;
}

int hoist__pickle_object(struct hoist__pickle *pickle, enum hoist__pickle_kind kind,
			 struct hoist__pickle_value *ret)
{
	struct hoist__pickle_object *object = NULL;
	int err = hoist__pickle_alloc(pickle, sizeof *object, &object);
	if (err < 0)
		return err;
	*object = (struct hoist__pickle_object){.first = NULL};
	*ret = (struct hoist__pickle_value){.kind = (uint8_t)kind, .u.object = object};
	return 0;
}

int hoist__pickle_append(struct hoist__pickle *pickle, struct hoist__pickle_object *object,
			 const struct hoist__pickle_value *values, size_t n)
{
	struct hoist__pickle_chunk *chunk = NULL;
	if (n == 0)
		return 0;
	int err = hoist__pickle_alloc(pickle, sizeof *chunk + n * sizeof *values, &chunk);
	if (err < 0)
		return err;
	chunk->next = NULL;
	chunk->n = n;
	memcpy(chunk->values, values, n * sizeof *values);
	if (object->last != NULL)
		object->last->next = chunk;
	else
		object->first = chunk;
	object->last = chunk;
	return 0;
}

int hoist__pickle_append_all(struct hoist__pickle *pickle, struct hoist__pickle_object *object,
			     const struct hoist__pickle_object *from)
{
	const struct hoist__pickle_chunk *last = from->last;
	int err = 0;
	for (const struct hoist__pickle_chunk *chunk = from->first; err == 0 && chunk != NULL;
	     chunk = chunk != last ? chunk->next : NULL)
		err = hoist__pickle_append(pickle, object, chunk->values, chunk->n);
	return err;
}

const struct hoist__pickle_value *hoist__pickle_items(const struct hoist__pickle_value *tuple,
						      size_t *n)
{
	const struct hoist__pickle_chunk *chunk =
		tuple->u.object != NULL ? tuple->u.object->first : NULL;
	*n = chunk != NULL ? chunk->n : 0;
	return chunk != NULL ? chunk->values : NULL;
}

/* --- the stack --- */

/* Doubles an array of values if it is full.  The old array counts as well, since both exist for a
 * while. */
static int grow(struct hoist__pickle *p, struct hoist__pickle_value **values, size_t n,
		size_t *room)
{
	if (n < *room)
		return 0;
	size_t wanted = *room == 0 ? 64 : 2 * *room;
	int err = hoist__pickle_charge(p, wanted * sizeof **values);
	if (err < 0)
		return err;
	struct hoist__pickle_value *grown = realloc(*values, wanted * sizeof *grown);
	if (grown == NULL)
		return hoist__fail_nomem("a pickle's stack", wanted * sizeof *grown);
	*values = grown;
	*room = wanted;
	return 0;
}

int hoist__pickle_push(struct hoist__pickle *p, struct hoist__pickle_value value)
{
	int err = grow(p, &p->stack, p->depth, &p->stack_room);
	if (err == 0)
		p->stack[p->depth++] = value;
	return err;
}

int hoist__pickle_need(const struct hoist__pickle *p, size_t n)
{
	bool enough = n <= p->depth;
	for (size_t i = 0; enough && i < n; i++)
		enough = p->stack[p->depth - 1 - i].kind != HOIST__PICKLE_MARK;
	return enough ? 0
		      : hoist__pickle_fail(p, -EBADMSG, "the pickle's stack has no %zu values", n);
}

int hoist__pickle_to_mark(const struct hoist__pickle *p, size_t below, size_t *ret)
{
	size_t n = 0;
	while (n < p->depth && p->stack[p->depth - 1 - n].kind != HOIST__PICKLE_MARK)
		n++;
	if (n + below >= p->depth)
		return hoist__pickle_fail(p, -EBADMSG, "the pickle's stack has no mark");
	if (below > 0 && p->stack[p->depth - 2 - n].kind == HOIST__PICKLE_MARK)
		return hoist__pickle_fail(p, -EBADMSG, "the pickle's stack has nothing below it");
	*ret = n;
	return 0;
}

/* --- the memo --- */

int hoist__pickle_memo_put(struct hoist__pickle *p, uint64_t at)
{
	int err = hoist__pickle_need(p, 1);
	if (err == 0 && at > p->n_memo)
		err = hoist__pickle_fail(p, -EBADMSG, "memo %llu comes after only %zu",
					 (unsigned long long)at, p->n_memo);
	if (err == 0 && at == p->n_memo) {
		err = grow(p, &p->memo, p->n_memo, &p->memo_room);
		p->n_memo += err == 0;
	}
	if (err == 0)
		p->memo[at] = p->stack[p->depth - 1];
	return err;
}

int hoist__pickle_memo_get(struct hoist__pickle *p, uint64_t at)
{
	if (at >= p->n_memo)
		return hoist__pickle_fail(p, -EBADMSG, "memo %llu was never filled",
					  (unsigned long long)at);
	return hoist__pickle_push(p, p->memo[at]);
}

/* --- the end --- */

void hoist__pickle_close(struct hoist__pickle *pickle)
{
	hoist__arena_fini(&pickle->arena);
	free(pickle->stack);
	free(pickle->memo);
	pickle->stack = NULL;
	pickle->memo = NULL;
}
