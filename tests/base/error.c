/* SPDX-License-Identifier: MIT */
/* The text and the codes of the last error: written, prefixed, cut and kept for each thread. */
#include "config.h"

#include <criterion/criterion.h>

#include <pthread.h>
#include <string.h>

#include "base/error.h"

Test(base_error, starts_empty_and_keeps_the_last_failure)
{
	cr_expect_str_eq(hoist_error(), "");
	cr_expect_eq(hoist__fail(-EINVAL, "shape has %d axes", 65), -EINVAL);
	cr_expect_str_eq(hoist_error(), "shape has 65 axes");
	cr_expect_eq(hoist__fail(-ENOSPC, "second"), -ENOSPC);
	cr_expect_str_eq(hoist_error(), "second");
	cr_expect_eq(hoist__error_text(), hoist_error());
}

Test(base_error, names_the_system_error)
{
	cr_expect_eq(hoist__fail_errno(-ENOENT, "opening %s", "/x"), -ENOENT);
	cr_expect_str_eq(hoist_error(), "opening /x: No such file or directory");
	cr_expect_eq(hoist__fail_errno(-99999, "odd"), -99999);
	cr_expect_str_eq(hoist_error(), "odd: Unknown error 99999");
}

Test(base_error, puts_the_attempt_in_front)
{
	hoist__fail(-EPERM, "RLIMIT_MEMLOCK is 8 MiB; raise it with `ulimit -l`");
	cr_expect_eq(hoist__fail_in(-EPERM, "pinning %d MiB", 256), -EPERM);
	cr_expect_str_eq(hoist_error(),
			 "pinning 256 MiB: RLIMIT_MEMLOCK is 8 MiB; raise it with `ulimit -l`");
}

Test(base_error, an_argument_may_be_the_present_text)
{
	hoist__fail(-EIO, "cause");
	hoist__fail(-EIO, "retry of <%s> (%s)", hoist_error(), hoist__error_text());
	cr_expect_str_eq(hoist_error(), "retry of <cause> (cause)");
	hoist__fail_in(-EIO, "%s again", hoist_error());
	cr_expect_str_eq(hoist_error(), "retry of <cause> (cause) again: retry of <cause> (cause)");
}

Test(base_error, a_percent_sign_in_the_text_stays)
{
	hoist__fail(-EIO, "%s", "100%s%n");
	hoist__fail_in(-EIO, "at");
	cr_expect_str_eq(hoist_error(), "at: 100%s%n");
}

Test(base_error, long_texts_are_cut_and_terminated)
{
	char big[3000];
	memset(big, 'x', sizeof big - 1);
	big[sizeof big - 1] = '\0';
	hoist__fail(-EIO, "%s", big);
	cr_expect_eq(strlen(hoist_error()), HOIST__ERROR_BYTES - 1);
	hoist__fail_in(-EIO, "doing");
	cr_expect_eq(strlen(hoist_error()), HOIST__ERROR_BYTES - 1);
	cr_expect_eq(strncmp(hoist_error(), "doing: xxx", 10), 0);
	hoist__fail(-EIO, "why");
	hoist__fail_in(-EIO, "%s", big);
	cr_expect_eq(strlen(hoist_error()), HOIST__ERROR_BYTES - 1);
	/* The cause may begin at the very end of what fits. */
	for (int n = HOIST__ERROR_BYTES - 8; n <= HOIST__ERROR_BYTES; n++) {
		hoist__fail(-EIO, "why");
		hoist__fail_in(-EIO, "%.*s", n, big);
		size_t whole = (size_t)n + strlen(": why");
		cr_expect_eq(strlen(hoist_error()),
			     whole < HOIST__ERROR_BYTES ? whole : HOIST__ERROR_BYTES - 1);
	}
}

Test(base_error, copies_are_cut_to_their_buffer)
{
	char buffer[8];
	memset(buffer, '#', sizeof buffer);
	hoist__fail(-EIO, "abcdefghij");
	hoist__error_copy(buffer, 0);
	cr_expect_eq(buffer[0], '#');
	hoist__error_copy(buffer, 1);
	cr_expect_eq(buffer[0], '\0');
	cr_expect_eq(buffer[1], '#');
	hoist__error_copy(buffer, 5);
	cr_expect_str_eq(buffer, "abcd");
	cr_expect_eq(buffer[5], '#');
}

/* The number of @api's driver, and the text. */
static void expect_failure(const char *api, int number, const char *text)
{
	const char *said = "unchanged";
	cr_expect_eq(hoist_error_driver(&said), number);
	cr_expect(api == NULL ? said == NULL : said != NULL && strcmp(said, api) == 0);
	cr_expect_eq(hoist_error_driver(NULL), number);
	cr_expect_str_eq(hoist_error(), text);
}

Test(base_error, a_drivers_number_lasts_as_long_as_its_error)
{
	struct hoist__failure kept;
	cr_expect_eq(hoist__fail_driver(-EREMOTEIO, "cuda", 719, "cuda:%d: lost", 1), -EREMOTEIO);
	expect_failure("cuda", 719, "cuda:1: lost");
	hoist__fail_in(-EREMOTEIO, "copying");
	expect_failure("cuda", 719, "copying: cuda:1: lost");
	hoist__failure_keep(&kept);
	hoist__fail(-EINVAL, "other");
	expect_failure(NULL, 0, "other");
	cr_expect_eq(hoist__fail_again(-EREMOTEIO, &kept), -EREMOTEIO);
	expect_failure("cuda", 719, "copying: cuda:1: lost");
	hoist__fail_errno(-EPERM, "other");
	expect_failure(NULL, 0, "other: Operation not permitted");
	cr_expect_eq(hoist__fail_because(-ENOSPC, &kept, "full (%s)", kept.text), -ENOSPC);
	expect_failure("cuda", 719, "full (copying: cuda:1: lost)");
	hoist__fail_nomem("a list", 48);
	expect_failure(NULL, 0, "host memory is exhausted: a list (48 bytes)");
	hoist__failure_keep(&kept);
	hoist__fail_driver(-EREMOTEIO, "hip", 1, "bad");
	hoist__fail_again(-ENOMEM, &kept);
	expect_failure(NULL, 0, "host memory is exhausted: a list (48 bytes)");
}

Test(base_error, names_the_purpose_of_memory)
{
	cr_expect_eq(hoist__fail_nomem("a list", 48), -ENOMEM);
	cr_expect_str_eq(hoist_error(), "host memory is exhausted: a list (48 bytes)");
}

static void *fail_elsewhere(void *seen)
{
	*(int *)seen = hoist_error()[0] == '\0';
	hoist__fail(-EIO, "elsewhere");
	return NULL;
}

Test(base_error, each_thread_has_its_own)
{
	pthread_t thread;
	int was_empty = 0;
	hoist__fail(-EIO, "here");
	cr_assert_eq(pthread_create(&thread, NULL, fail_elsewhere, &was_empty), 0);
	cr_assert_eq(pthread_join(thread, NULL), 0);
	cr_expect(was_empty);
	cr_expect_str_eq(hoist_error(), "here");
}
