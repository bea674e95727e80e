/* SPDX-License-Identifier: MIT */
/* base/error.c - keeps the thread's last failure in words.
 * The contract is in base/error.h. */
#include "config.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

static _Thread_local char error_text[HOIST__ERROR_BYTES];
static _Thread_local const char *driver_api;
static _Thread_local int driver_number;

const char *hoist_error(void)
{
	return error_text;
}

int hoist_error_driver(const char **ret_api)
{
	if (ret_api != NULL)
		*ret_api = driver_api;
	return driver_number;
}

static void set_driver(const char *api, int number)
{
	driver_api = api;
	driver_number = number;
}

const char *hoist__error_text(void)
{
	return error_text;
}

void hoist__error_copy(char *buffer, size_t bytes)
{
	if (bytes == 0)
		return;
	size_t n = strnlen(error_text, bytes - 1);
	memcpy(buffer, error_text, n);
	buffer[n] = '\0';
}

/* Formats into a scratch buffer first, as an argument may be the present text. */
HOIST__PRINTF(1, 0)
static void set_text(const char *format, va_list args, const char *separator, const char *tail)
{
	char text[HOIST__ERROR_BYTES];
	int n = vsnprintf(text, sizeof text, format, args);
	size_t used = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
	text[used] = '\0';
	(void)snprintf(text + used, sizeof text - used, "%s%s", separator, tail);
	memcpy(error_text, text, sizeof error_text);
}

int hoist__fail(int err, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	set_text(format, args, "", "");
	va_end(args);
	set_driver(NULL, 0);
	return err;
}

int hoist__fail_driver(int err, const char *api, int number, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	set_text(format, args, "", "");
	va_end(args);
	set_driver(api, number);
	return err;
}

int hoist__fail_errno(int err, const char *format, ...)
{
	/* The GNU strerror_r() may return a constant instead of filling @reason. */
	char reason[128];
	const char *said = strerror_r(-err, reason, sizeof reason);
	va_list args;
	va_start(args, format);
	set_text(format, args, ": ", said);
	va_end(args);
	set_driver(NULL, 0);
	return err;
}

int hoist__fail_in(int err, const char *format, ...)
{
	char cause[HOIST__ERROR_BYTES];
	hoist__error_copy(cause, sizeof cause);
	va_list args;
	va_start(args, format);
	set_text(format, args, ": ", cause);
	va_end(args);
	return err;
}

void hoist__failure_keep(struct hoist__failure *ret)
{
	ret->api = driver_api;
	ret->number = driver_number;
	memcpy(ret->text, error_text, sizeof ret->text);
}

int hoist__fail_again(int err, const struct hoist__failure *failure)
{
	memcpy(error_text, failure->text, sizeof error_text);
	set_driver(failure->api, failure->number);
	return err;
}

int hoist__fail_because(int err, const struct hoist__failure *cause, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	set_text(format, args, "", "");
	va_end(args);
	set_driver(cause->api, cause->number);
	return err;
}

int hoist__fail_nomem(const char *what, size_t bytes)
{
	return hoist__fail(-ENOMEM, "host memory is exhausted: %s (%zu bytes)", what, bytes);
}

int hoist__fail_thread(int err, const char *what)
{
	if (err != -EAGAIN && err != -ENOMEM)
		return hoist__fail_errno(err, "%s", what);
	/* glibc also returns this error if it cannot map the thread's stack. */
	return hoist__fail(-ENOMEM,
			   "%s: the system gives no further thread; raise the limit on processes "
			   "(ulimit -u, the container's pids limit), or that on address space "
			   "(ulimit -v)",
			   what);
}
