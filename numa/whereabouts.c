/* SPDX-License-Identifier: MIT */
/* numa/whereabouts.c - finds out on which nodes the pages of a range are.
 * The contract is in numa/place.h. */
#include "config.h"

#include "numa/place.h"

#include <errno.h>
#include <numaif.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"

static bool is_absent(void *page, size_t page_bytes)
{
	unsigned char resident = 1;
	return mincore(page, page_bytes, &resident) == 0 && (resident & 1u) == 0;
}

/* get_mempolicy(2) would fault a missing page in, so mincore(2) is asked first. */
static int ask_one(void *page, size_t page_bytes, int *status)
{
	if (is_absent(page, page_bytes)) {
		*status = -ENOENT;
		return 0;
	}
	int node = -1;
	if (get_mempolicy(&node, NULL, 0, page, MPOL_F_NODE | MPOL_F_ADDR) != 0)
		return errno == EFAULT ? (*status = -EFAULT, 0) : -errno;
	*status = node;
	return 0;
}

/* Tells apart the pages of which move_pages(2) gives no node: -ENOENT or -EFAULT, by the kernel's
 * version.  Such a page was never touched; or it is the shared page of zeros; or, up to Linux 6.1,
 * NUMA balancing has hidden it for a while to see which CPU touches it.  Pages of the last two
 * kinds are there. */
static void tell_absent(void **pages, int *status, size_t n, size_t page_bytes)
{
	for (size_t i = 0; i < n; i++)
		if (status[i] == -ENOENT || status[i] == -EFAULT)
			status[i] = is_absent(pages[i], page_bytes) ? -ENOENT : -EBUSY;
}

static int ask(void **pages, int *status, size_t n, size_t page_bytes)
{
	if (move_pages(0, n, pages, NULL, status, 0) == 0) {
		tell_absent(pages, status, n, page_bytes);
		return 0;
	}
	for (size_t i = 0; i < n; i++) {
		int err = ask_one(pages[i], page_bytes, &status[i]);
		if (err != 0)
			return hoist__fail_errno(err == -EPERM || err == -EACCES ? -EPERM : -ENOSYS,
						 "asking the kernel where pages are");
	}
	return 0;
}

static void count(const int *status, size_t n, struct hoist__whereabouts *ret)
{
	struct hoist__whereabouts sum = {.n_sampled = n};
	for (size_t i = 0; i < n; i++) {
		if (status[i] >= 0 && status[i] < HOIST__MAX_NODES)
			sum.per_node[status[i]]++;
		else if (status[i] == -ENOENT)
			sum.n_absent++;
		else
			sum.n_unknown++;
	}
	*ret = sum;
}

int hoist__whereabouts(const void *address, size_t bytes, size_t n_samples,
		       struct hoist__whereabouts *ret)
{
	size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	uintptr_t first = hoist__round_down((uintptr_t)address, page_bytes);
	size_t n_pages = ((uintptr_t)address + bytes - first + page_bytes - 1) / page_bytes;
	size_t n = n_samples < n_pages ? n_samples : n_pages;
	void **pages = calloc(n + 1, sizeof *pages);
	int *status = calloc(n + 1, sizeof *status);
	int err = 0;
	if (pages == NULL || status == NULL) {
		err = hoist__fail_nomem("sample of pages", n * (sizeof *pages + sizeof *status));
		goto out;
	}
	/* Spread the samples from the first page to the last. */
	for (size_t i = 0; i < n; i++) {
		size_t index =
			n == 1 ? 0 : (size_t)((unsigned __int128)i * (n_pages - 1) / (n - 1));
		pages[i] = (void *)(first + index * page_bytes);
		status[i] = -EBUSY; /* not answered yet */
	}
	if (n > 0)
		err = ask(pages, status, n, page_bytes);
	if (err == 0)
		count(status, n, ret);
out:
	free(pages);
	free(status);
	return err;
}
