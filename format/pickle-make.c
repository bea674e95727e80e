/* SPDX-License-Identifier: MIT */
/* format/pickle-make.c - the instructions of a pickle that name functions and classes, and make
 * values of them; and sets.
 * The contract is in format/pickle.h. */
#include "config.h"

#include <string.h>

#include "format/pickle.h"
#include "format/torch.h"

/* --- names --- */

/* Returns the bytes up to the next '\n', and passes over it. */
static const char *take_line(struct hoist__pickle *p, size_t *n)
{
	const unsigned char *begin = p->bytes + p->at;
	const unsigned char *end = p->at < p->n ? memchr(begin, '\n', p->n - p->at) : NULL;
	if (end == NULL) {
		(void)hoist__pickle_fail(p, -EBADMSG, "the pickle is cut short: a name has no end");
		return NULL;
	}
	*n = (size_t)(end - begin);
	p->at += *n + 1;
	return (const char *)begin;
}

static int global(struct hoist__pickle *p)
{
	struct hoist__pickle_value value;
	size_t module_bytes;
	size_t name_bytes;
	const char *module = take_line(p, &module_bytes);
	const char *name = module != NULL ? take_line(p, &name_bytes) : NULL;
	if (name == NULL)
		return -EBADMSG;
	int err = hoist__torch_global(p, module, module_bytes, name, name_bytes, &value);
	return err == 0 ? hoist__pickle_push(p, value) : err;
}

/* Puts @value in the place of the last @n values.  Pre: there are as many. */
static int replace(struct hoist__pickle *p, size_t n, struct hoist__pickle_value value)
{
	p->depth -= n;
	return hoist__pickle_push(p, value);
}

static int stack_global(struct hoist__pickle *p)
{
	int err = hoist__pickle_need(p, 2);
	if (err < 0)
		return err;
	const struct hoist__pickle_value *name = &p->stack[p->depth - 1];
	const struct hoist__pickle_value *module = name - 1;
	struct hoist__pickle_value value;
	if (name->kind != HOIST__PICKLE_TEXT || module->kind != HOIST__PICKLE_TEXT)
		return hoist__pickle_fail(p, -EBADMSG, "a name is no text");
	err = hoist__torch_global(p, module->u.text, module->n, name->u.text, name->n, &value);
	return err == 0 ? replace(p, 2, value) : err;
}

/* --- calls and objects --- */

static int reduce(struct hoist__pickle *p)
{
	struct hoist__pickle_value value;
	int err = hoist__pickle_need(p, 2);
	if (err == 0)
		err = hoist__torch_reduce(p, &p->stack[p->depth - 2], &p->stack[p->depth - 1],
					  &value);
	return err == 0 ? replace(p, 2, value) : err;
}

/* @n values: the class, the arguments, and for NEWOBJ_EX those with names, which only opaque
 * classes have. */
static int new_object(struct hoist__pickle *p, size_t n)
{
	struct hoist__pickle_value value;
	int err = hoist__pickle_need(p, n);
	if (err < 0)
		return err;
	const struct hoist__pickle_value *values = &p->stack[p->depth - n];
	if (n == 2 || values[0].kind == HOIST__PICKLE_OPAQUE)
		err = hoist__torch_new(p, &values[0], &values[1], &value);
	else
		err = hoist__torch_opaque(p, "an object made of arguments with names", &value);
	return err == 0 ? replace(p, n, value) : err;
}

static int build(struct hoist__pickle *p)
{
	int err = hoist__pickle_need(p, 2);
	if (err == 0)
		err = hoist__torch_build(p, &p->stack[p->depth - 2], &p->stack[p->depth - 1]);
	if (err == 0)
		p->depth--;
	return err;
}

static int persistent(struct hoist__pickle *p)
{
	struct hoist__pickle_value value;
	int err = hoist__pickle_need(p, 1);
	if (err == 0)
		err = hoist__torch_persistent(p, &p->stack[p->depth - 1], &value);
	return err == 0 ? replace(p, 1, value) : err;
}

/* --- sets --- */

static int empty_set(struct hoist__pickle *p)
{
	struct hoist__pickle_value value;
	int err = hoist__torch_opaque(p, hoist__torch_set, &value);
	return err == 0 ? hoist__pickle_push(p, value) : err;
}

/* Drops the items up to the mark, which are added to the set below it. */
static int add_to_set(struct hoist__pickle *p)
{
	size_t n = 0;
	int err = hoist__pickle_to_mark(p, 1, &n);
	if (err == 0 && p->stack[p->depth - 2 - n].kind != HOIST__PICKLE_OPAQUE)
		err = hoist__pickle_fail(p, -EBADMSG, "items are added to a value that is no set");
	if (err == 0)
		p->depth -= n + 1;
	return err;
}

static int frozen_set(struct hoist__pickle *p)
{
	size_t n = 0;
	struct hoist__pickle_value value;
	int err = hoist__pickle_to_mark(p, 0, &n);
	if (err == 0)
		err = hoist__torch_opaque(p, hoist__torch_set, &value);
	return err == 0 ? replace(p, n + 1, value) : err;
}

int hoist__pickle_make(struct hoist__pickle *p, unsigned op)
{
	switch (op) {
	case 'c':
		return global(p);
	case 0x93:
		return stack_global(p);
	case 'R':
		return reduce(p);
	case 0x81:
		return new_object(p, 2);
	case 0x92:
		return new_object(p, 3);
	case 'b':
		return build(p);
	case 'Q':
		return persistent(p);
	case 0x8f:
		return empty_set(p);
	case 0x90:
		return add_to_set(p);
	case 0x91:
		return frozen_set(p);
	default:
		return 1;
	}
}
