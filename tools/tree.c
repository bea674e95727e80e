/* SPDX-License-Identifier: MIT */
/* Prints tensors as a tree of the parts of their names.
 * The contract is in tools/tree.h.
 *
 * The tensors are sorted by the parts of their names, so that each node of the tree is a range of
 * the table. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/fail.h"
#include "cli/format.h"
#include "tools/tool.h"
#include "tools/tree.h"

/* Deeper parts stay one name: names come from files. */
#define MOST_DEPTH 32

/* --- order --- */

static size_t part_bytes(const char *name)
{
	return strcspn(name, ".");
}

static bool is_number(const char *part, size_t bytes)
{
	return bytes > 0 && strspn(part, "0123456789") >= bytes;
}

static int compare_bytes(const char *a, size_t n_a, const char *b, size_t n_b)
{
	int by = memcmp(a, b, n_a < n_b ? n_a : n_b);
	return by != 0 ? by : (n_a > n_b) - (n_a < n_b);
}

/* Numbers come first, in their order. */
static int compare_parts(const char *a, size_t n_a, const char *b, size_t n_b)
{
	bool numbers = is_number(a, n_a) && is_number(b, n_b);
	if (!numbers && is_number(a, n_a) != is_number(b, n_b))
		return is_number(a, n_a) ? -1 : 1;
	size_t zeros_a = numbers ? strspn(a, "0") : 0;
	size_t zeros_b = numbers ? strspn(b, "0") : 0;
	size_t left_a = zeros_a < n_a ? n_a - zeros_a : 0;
	size_t left_b = zeros_b < n_b ? n_b - zeros_b : 0;
	if (numbers && left_a != left_b)
		return left_a < left_b ? -1 : 1;
	int by = numbers ? memcmp(a + n_a - left_a, b + n_b - left_b, left_a) : 0;
	return by != 0 ? by : compare_bytes(a, n_a, b, n_b);
}

static int compare_names(const void *first, const void *second)
{
	const char *a = ((const hoist_tensor_info *)first)->name;
	const char *b = ((const hoist_tensor_info *)second)->name;
	for (;;) {
		size_t n_a = part_bytes(a);
		size_t n_b = part_bytes(b);
		int by = compare_parts(a, n_a, b, n_b);
		if (by != 0)
			return by;
		if (a[n_a] == '\0' || b[n_b] == '\0')
			return (a[n_a] != '\0') - (b[n_b] != '\0');
		a += n_a + 1;
		b += n_b + 1;
	}
}

/* --- ranges --- */

/* The number of tensors, from the first on, whose names have the first one's part at @at. */
static size_t group_of(const hoist_tensor_info *tensors, size_t n, size_t at)
{
	const char *part = tensors[0].name + at;
	size_t bytes = part_bytes(part);
	size_t ret = 1;
	while (ret < n && part_bytes(tensors[ret].name + at) == bytes &&
	       memcmp(tensors[ret].name + at, part, bytes) == 0)
		ret++;
	return ret;
}

/* Tells whether the groups of @n tensors differ in their part at @at alone. */
static bool are_alike(const hoist_tensor_info *a, const hoist_tensor_info *b, size_t n, size_t at)
{
	bool alike = true;
	for (size_t i = 0; i < n && alike; i++) {
		const char *rest_a = a[i].name + at + part_bytes(a[i].name + at);
		const char *rest_b = b[i].name + at + part_bytes(b[i].name + at);
		alike = a[i].dtype == b[i].dtype && a[i].rank == b[i].rank &&
			memcmp(a[i].shape, b[i].shape, (size_t)a[i].rank * sizeof *a[i].shape) ==
				0 &&
			strcmp(rest_a, rest_b) == 0;
	}
	return alike;
}

/* The number of groups like the first, which has @n_group tensors, that follow each other. */
static size_t alike_groups(const hoist_tensor_info *tensors, size_t n, size_t n_group, size_t at)
{
	const char *part = tensors[0].name + at;
	size_t ret = 1;
	if (!is_number(part, part_bytes(part)))
		return 1;
	while ((ret + 1) * n_group <= n) {
		const hoist_tensor_info *next = &tensors[ret * n_group];
		const char *other = next->name + at;
		if (!is_number(other, part_bytes(other)) ||
		    group_of(next, n - ret * n_group, at) != n_group ||
		    !are_alike(tensors, next, n_group, at))
			break;
		ret++;
	}
	return ret;
}

/* --- lines --- */

static void print_part(const char *part, size_t bytes)
{
	char *copy = strndup(part, bytes);
	if (copy == NULL)
		(void)fputs("?", stdout);
	else
		print_escaped(stdout, copy);
	free(copy);
}

static void begin_line(const hoist_tensor_info *tensors, size_t n, int depth)
{
	struct text bytes, count;
	uint64_t sum = 0;
	for (size_t i = 0; i < n; i++)
		sum += tensors[i].bytes;
	(void)printf("%9s  %7s  %*s", format_bytes(sum, &bytes), format_count(n, &count), 2 * depth,
		     "");
}

static void end_leaf(const hoist_tensor_info *tensor)
{
	(void)printf("  %s [", hoist_dtype_name(tensor->dtype));
	for (int i = 0; i < tensor->rank; i++)
		(void)printf("%s%" PRId64, i > 0 ? ", " : "", tensor->shape[i]);
	(void)putchar(']');
}

/* Prints "0..31" for several groups, of which the last begins with @last. */
static void print_numbers(const hoist_tensor_info *first, const hoist_tensor_info *last, size_t at)
{
	print_part(first->name + at, part_bytes(first->name + at));
	(void)fputs("..", stdout);
	print_part(last->name + at, part_bytes(last->name + at));
}

/* --- the tree --- */

static void print_range(const hoist_tensor_info *tensors, size_t n, size_t at, int depth);

static void print_leaf(const hoist_tensor_info *tensor, size_t at, int depth)
{
	begin_line(tensor, 1, depth);
	print_escaped(stdout, tensor->name + at);
	end_leaf(tensor);
	(void)putchar('\n');
}

/* Several groups that are alike, as one. */
static void print_alike(const hoist_tensor_info *tensors, size_t n_group, size_t n_groups,
			size_t at, int depth)
{
	struct text count;
	const char *rest = tensors[0].name + at + part_bytes(tensors[0].name + at);
	begin_line(tensors, n_group, depth);
	print_numbers(&tensors[0], &tensors[(n_groups - 1) * n_group], at);
	if (n_group == 1) {
		print_escaped(stdout, rest);
		end_leaf(&tensors[0]);
	}
	(void)printf("  (%s alike, each)\n", format_count(n_groups, &count));
	if (n_group > 1)
		print_range(tensors, n_group, at + part_bytes(tensors[0].name + at) + 1, depth + 1);
}

/* Parts that all tensors of the group share are one node. */
static void print_node(const hoist_tensor_info *tensors, size_t n, size_t at, int depth)
{
	size_t end = at + part_bytes(tensors[0].name + at);
	while (tensors[0].name[end] != '\0' && group_of(tensors, n, end + 1) == n &&
	       tensors[0].name[end + 1 + part_bytes(tensors[0].name + end + 1)] != '\0')
		end += 1 + part_bytes(tensors[0].name + end + 1);
	begin_line(tensors, n, depth);
	print_part(tensors[0].name + at, end - at);
	(void)putchar('\n');
	print_range(tensors, n, end + 1, depth + 1);
}

/* A tensor whose name ends where others have more parts stands before these. */
static void print_range(const hoist_tensor_info *tensors, size_t n, size_t at, int depth)
{
	for (size_t i = 0; i < n && !output_failed();) {
		size_t group = group_of(&tensors[i], n - i, at);
		const char *part = tensors[i].name + at;
		bool ends = part[part_bytes(part)] == '\0';
		bool one = (ends && group > 1) || depth == MOST_DEPTH;
		size_t groups = one ? 1 : alike_groups(&tensors[i], n - i, group, at);
		if (groups > 1) {
			print_alike(&tensors[i], group, groups, at, depth);
			i += group * groups;
		} else if (group == 1 || ends || depth == MOST_DEPTH) {
			print_leaf(&tensors[i], at, depth);
			i++;
		} else {
			print_node(&tensors[i], group, at, depth);
			i += group;
		}
	}
}

int tree_print(const hoist_checkpoint *checkpoint, const struct selection *selection,
	       uint64_t *bytes)
{
	size_t most = hoist_checkpoint_n_tensors(checkpoint);
	size_t n = 0;
	hoist_tensor_info *tensors = calloc(most + 1, sizeof *tensors);
	if (tensors == NULL)
		return fail_memory();
	for (size_t i = 0; i < most; i++) {
		tensors[n].size = sizeof tensors[n];
		if (selection_has(selection, i) &&
		    hoist_checkpoint_tensor(checkpoint, i, &tensors[n]) == 0)
			*bytes += tensors[n++].bytes;
	}
	qsort(tensors, n, sizeof *tensors, compare_names);
	(void)printf("%9s  %7s  %s\n", "BYTES", "TENSORS", "NAME");
	print_range(tensors, n, 0, 0);
	free(tensors);
	return output_failed() ? STATUS_FAILED : STATUS_OK;
}
