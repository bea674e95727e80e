/* SPDX-License-Identifier: MIT */
/* Secrets: where they come from, and what is computed with them. */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "net/secret.h"
#include "tests/support/unit-check.h"

#define TEXT "0123456789abcdef"

/* The path of a file in a folder of the test's own. */
static void new_path(char *ret, size_t bytes)
{
	const char *given = getenv("TMPDIR");
	int n = snprintf(ret, bytes, "%s/secret-XXXXXX", given != NULL ? given : "/tmp");
	cr_assert_not_null(mkdtemp(ret));
	(void)snprintf(ret + n, bytes - (size_t)n, "/secret");
}

static bool same(const struct hoist__secret *a, const struct hoist__secret *b)
{
	return hoist__secret_same(a->key, b->key, sizeof a->key);
}

/* RFC 4231, test cases 1 and 2, with keys filled with zeros, which HMAC does itself. */
Test(net_secret, codes_are_hmac_sha_256)
{
	static const struct {
		unsigned char key[HOIST__SECRET_BYTES];
		const char *pieces[3];
		const char *code;
	} cases[] = {
		{{11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11},
		 {"Hi There", "", ""},
		 "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
		{{'J', 'e', 'f', 'e'},
		 {"what do ya", " want ", "for nothing?"},
		 "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
	};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(cases); i++) {
		unsigned char code[HOIST__SECRET_BYTES];
		char text[2 * HOIST__SECRET_BYTES + 1];
		struct hoist__piece pieces[3];
		for (size_t p = 0; p < 3; p++)
			pieces[p] = (struct hoist__piece){cases[i].pieces[p],
							  strlen(cases[i].pieces[p])};
		hoist__secret_sign(cases[i].key, pieces, 3, code);
		for (size_t b = 0; b < sizeof code; b++)
			(void)snprintf(text + 2 * b, 3, "%02x", code[b]);
		cr_expect_str_eq(text, cases[i].code);
	}
}

Test(net_secret, random_bytes_differ)
{
	unsigned char a[32] = {0}, b[32] = {0};
	hoist__secret_random(a, sizeof a);
	hoist__secret_random(b, sizeof b);
	cr_expect_not(hoist__secret_same(a, b, sizeof a));
}

Test(net_secret, texts_have_a_length)
{
	char text[5000];
	struct hoist__secret secret = {.local = true};
	struct hoist__secret untouched = secret;
	memset(text, 'x', sizeof text);
	text[15] = '\0';
	REFUSED(hoist__secret_find(text, &secret), -EINVAL, "15 bytes");
	REFUSED(hoist__secret_find("", &secret), -EINVAL, "0 bytes");
	cr_expect_arr_eq(&secret, &untouched, sizeof secret);
	cr_expect_null(strstr(hoist_error(), "xx"));
	text[15] = 'x';
	text[4097] = '\0';
	REFUSED(hoist__secret_find(text, &secret), -EINVAL, "4097 bytes");
	text[4096] = '\0';
	OK(hoist__secret_find(text, &secret));
	cr_expect_not(secret.local);
	text[16] = '\0';
	OK(hoist__secret_find(text, &secret));
	hoist__secret_fini(&secret);
	cr_expect_arr_eq(secret.key, (unsigned char[HOIST__SECRET_BYTES]){0}, sizeof secret.key);
}

static void write_file(const char *path, const char *text, size_t bytes, mode_t mode)
{
	FILE *file = fopen(path, "we");
	cr_assert_not_null(file);
	cr_assert_eq(fwrite(text, 1, bytes, file), bytes);
	OK(fclose(file));
	OK(chmod(path, mode));
}

Test(net_secret, the_first_that_is_there_is_taken)
{
	char path[512];
	struct hoist__secret given, first, second, third;
	new_path(path, sizeof path);
	write_file(path, "the secret of the file", 22, 0600);
	OK(setenv("HOIST_GROUP_SECRET", "the secret of the environment", 1));
	OK(setenv("HOIST_GROUP_SECRET_FILE", path, 1));
	OK(hoist__secret_find("the secret that is given", &first));
	OK(hoist__secret_find(NULL, &second));
	OK(unsetenv("HOIST_GROUP_SECRET"));
	OK(hoist__secret_find(NULL, &third));
	OK(unsetenv("HOIST_GROUP_SECRET_FILE"));
	OK(hoist__secret_find("the secret that is given", &given));
	cr_expect(same(&given, &first));
	OK(hoist__secret_find("the secret of the environment", &given));
	cr_expect(same(&given, &second));
	OK(hoist__secret_find("the secret of the file", &given));
	cr_expect(same(&given, &third));
	cr_expect_not(first.local || second.local || third.local);
	cr_expect_not(same(&first, &second) || same(&second, &third) || same(&first, &third));
}

/* Set to nothing is not the same as not set: no other secret is used in silence. */
Test(net_secret, an_empty_variable_is_refused)
{
	struct hoist__secret secret;
	OK(setenv("HOIST_GROUP_SECRET_FILE", "", 1));
	cr_expect_eq(hoist__secret_find(NULL, &secret), -ENOENT);
	OK(setenv("HOIST_GROUP_SECRET", "", 1));
	REFUSED(hoist__secret_find(NULL, &secret), -EINVAL, "HOIST_GROUP_SECRET has 0 bytes");
}

Test(net_secret, files_are_judged)
{
	static const struct {
		const char *text;
		size_t bytes;
		mode_t mode;
		int err; /* 0: the secret is TEXT */
		const char *words;
	} cases[] = {
		{TEXT, 16, 0600, 0, NULL},
		{TEXT, 16, 0400, 0, NULL},
		{TEXT "\n", 17, 0600, 0, NULL},
		{TEXT "\r\n", 18, 0600, 0, NULL},
		{TEXT, 16, 0640, -EACCES, "chmod go="},
		{TEXT, 16, 0604, -EACCES, "chmod go="},
		{TEXT, 16, 0620, -EACCES, "chmod go="},
		{TEXT, 16, 0602, -EACCES, "chmod go="},
		{TEXT, 15, 0600, -EINVAL, "15 bytes"},
		{"0123456789abcde\n", 16, 0600, -EINVAL, "15 bytes"},
		{"\r\n", 2, 0600, -EINVAL, "0 bytes"},
		{"\n", 1, 0600, -EINVAL, "0 bytes"},
		{"", 0, 0600, -EINVAL, "0 bytes"},
	};
	char path[512];
	struct hoist__secret expected, secret;
	new_path(path, sizeof path);
	OK(setenv("HOIST_GROUP_SECRET_FILE", path, 1));
	OK(hoist__secret_find(TEXT, &expected));
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(cases); i++) {
		(void)unlink(path);
		write_file(path, cases[i].text, cases[i].bytes, cases[i].mode);
		int err = hoist__secret_find(NULL, &secret);
		cr_expect_eq(err, cases[i].err, "case %zu: %d", i, err);
		if (err < 0) {
			expect_text(cases[i].words);
			expect_text(path);
			cr_expect_null(strstr(hoist_error(), "0123"));
		} else {
			cr_expect(same(&secret, &expected), "case %zu", i);
		}
	}
}

/* Only the last line end goes; a zero byte ends nothing. */
Test(net_secret, all_bytes_of_a_file_count)
{
	char path[512];
	char text[5000];
	struct hoist__secret one, other;
	new_path(path, sizeof path);
	OK(setenv("HOIST_GROUP_SECRET_FILE", path, 1));
	write_file(path, TEXT "\0a", 18, 0600);
	OK(hoist__secret_find(NULL, &one));
	write_file(path, TEXT "\0b", 18, 0600);
	OK(hoist__secret_find(NULL, &other));
	cr_expect_not(same(&one, &other));
	write_file(path, TEXT "\n\n", 18, 0600);
	OK(hoist__secret_find(NULL, &one));
	OK(hoist__secret_find(TEXT "\n", &other));
	cr_expect(same(&one, &other));

	memset(text, 'x', sizeof text);
	memcpy(text + 4096, "\r\n", 2);
	write_file(path, text, 4098, 0600);
	OK(hoist__secret_find(NULL, &one));
	for (size_t bytes = 4097; bytes <= sizeof text; bytes += bytes == 4097 ? 2 : 301) {
		memset(text, 'x', sizeof text);
		write_file(path, text, bytes, 0600);
		cr_expect_eq(hoist__secret_find(NULL, &one), -EINVAL, "%zu bytes", bytes);
	}
}

Test(net_secret, files_that_are_none_are_refused)
{
	char path[512];
	struct hoist__secret secret;
	new_path(path, sizeof path);
	OK(setenv("HOIST_GROUP_SECRET_FILE", path, 1));
	REFUSED(hoist__secret_find(NULL, &secret), -ENOENT, path);
	expect_text("HOIST_GROUP_SECRET_FILE");
	OK(mkfifo(path, 0600));
	REFUSED(hoist__secret_find(NULL, &secret), -EINVAL, "is no file"); /* and does not wait */
	OK(unlink(path));
	OK(mkdir(path, 0700));
	REFUSED(hoist__secret_find(NULL, &secret), -EINVAL, "is no file");
}
