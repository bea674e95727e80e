/* SPDX-License-Identifier: MIT */
/* tests/support/under-tsan.h - UNDER_TSAN is 1 in programs that ThreadSanitizer watches, else 0:
 * ThreadSanitizer follows no threads through a fork, nor starts any in the child. */
#ifndef HOIST_TESTS_UNDER_TSAN_H
#define HOIST_TESTS_UNDER_TSAN_H

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif
#ifndef UNDER_TSAN
#define UNDER_TSAN 0
#endif

#endif
