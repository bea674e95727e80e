/* SPDX-License-Identifier: MIT */
/* tests/lib/cache/kinds.h - images on pages of each size, and of tensors of all kinds. */
#ifndef HOIST_TESTS_LIB_CACHE_KINDS_H
#define HOIST_TESTS_LIB_CACHE_KINDS_H

/* @model is a small checkpoint. */
void run_kinds(const char *model);

#endif
