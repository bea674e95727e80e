/* SPDX-License-Identifier: MIT */
/* Zip archives: what is found in good ones, and why bad ones are refused.  The archives are made by
 * format-archive.c. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "tests/support/format-archive.h"
#include "format/zip.h"

static int open_archive(const struct archive *archive, struct hoist__zip *zip,
			struct hoist__reader *reader)
{
	*reader = reader_of(&archive->file, "m.zip");
	return hoist__zip_open(reader, zip);
}

/* Opens it and asks for the bytes of each entry. */
static int use_archive(const struct archive *archive)
{
	struct hoist__zip zip;
	struct hoist__reader reader;
	int err = open_archive(archive, &zip, &reader);
	if (err < 0)
		return err;
	for (size_t i = 0; err == 0 && i < zip.n; i++) {
		uint64_t at = 0;
		err = hoist__zip_data(&zip, &zip.entries[i], "store it", &at);
		cr_assert(err < 0 ||
			  (at <= archive->file.n && zip.entries[i].bytes <= archive->file.n - at));
	}
	hoist__zip_close(&zip);
	return err;
}

static void expect_refused(struct archive *archive, int code, const char *text)
{
	cr_expect_eq(use_archive(archive), code, "%s", text);
	cr_expect_not_null(strstr(hoist__error_text(), text), "\"%s\" lacks \"%s\"",
			   hoist__error_text(), text);
	archive_free(archive);
}

static void two_entries(struct archive *archive)
{
	archive_add(archive, "b", "12345", 5);
	archive_add(archive, "a/data", "xyz", 3);
}

static void expect_data(struct hoist__zip *zip, const char *name, uint64_t at, uint64_t bytes)
{
	uint64_t found = 0;
	const struct hoist__zip_entry *entry = hoist__zip_find(zip, name, strlen(name));
	cr_assert_not_null(entry, "%s", name);
	cr_expect_eq(hoist__zip_data(zip, entry, "store it", &found), 0, "%s", hoist__error_text());
	cr_expect_eq(found, at, "%s", name);
	cr_expect_eq(entry->bytes, bytes, "%s", name);
}

/* With a comment, in 64 bits, with padding that only local headers have, with the sizes behind. */
Test(zip, entries_are_found_in_every_form)
{
	for (int form = 0; form < 16; form++) {
		struct archive archive = {
			.zip64 = (form & 1) != 0,
			.descriptors = (form & 2) != 0,
			.align = (form & 4) != 0 ? 64 : 0,
		};
		struct hoist__zip zip;
		struct hoist__reader reader;
		size_t b = archive_add(&archive, "b", "12345", 5);
		size_t a = archive_add(&archive, "a/data", "xyz", 3);
		archive_end(&archive, (form & 8) != 0 ? "PK\5\6 is not the end" : "");
		cr_assert_eq(open_archive(&archive, &zip, &reader), 0, "%s", hoist__error_text());
		cr_assert_eq(zip.n, 2);
		cr_expect(archive.align == 0 || (a % 64 == 0 && b % 64 == 0));
		expect_data(&zip, "a/data", a, 3);
		expect_data(&zip, "b", b, 5);
		cr_expect_null(hoist__zip_find(&zip, "a", 1));
		cr_expect_null(hoist__zip_find(&zip, "a/data2", 7));
		cr_expect_null(hoist__zip_find(&zip, "c", 1));
		hoist__zip_close(&zip);
		archive_free(&archive);
	}
}

Test(zip, an_archive_may_be_empty)
{
	struct archive archive = {.n = 0};
	archive_end(&archive, "");
	cr_expect_eq(archive.file.n, 22);
	cr_expect_eq(use_archive(&archive), 0, "%s", hoist__error_text());
	archive_free(&archive);
}

/* The longest comment, in which a second end is. */
Test(zip, the_end_is_looked_for_in_front_of_any_comment)
{
	static char comment[65536];
	struct archive archive = {.n = 0};
	memset(comment, 'c', 65535);
	two_entries(&archive);
	archive_end(&archive, comment);
	cr_expect_eq(use_archive(&archive), 0, "%s", hoist__error_text());
	archive.file.n--;
	cr_expect_eq(use_archive(&archive), -EBADMSG);
	archive_free(&archive);
}

Test(zip, ends_that_lie_are_refused)
{
	struct archive archive = {.n = 0};
	put_text(&archive.file, "PK");
	expect_refused(&archive, -EBADMSG, "2 bytes, and its end alone has 22");
	two_entries(&archive);
	archive_end(&archive, "");
	archive.file.n--;
	expect_refused(&archive, -EBADMSG, "was it cut short?");
	two_entries(&archive);
	archive_end(&archive, "");
	set_number(&archive.file, archive.end_at + 4, 1, 2);
	expect_refused(&archive, -ENOTSUP, "several disks");
	two_entries(&archive);
	archive_end(&archive, "");
	set_number(&archive.file, archive.end_at + 8, 1, 2);
	expect_refused(&archive, -ENOTSUP, "1 of 2 entries");
	two_entries(&archive);
	archive_end(&archive, "");
	set_number(&archive.file, archive.end_at + 12, archive.directory.n + 1, 4);
	expect_refused(&archive, -EBADMSG, "the directory is said to have");
	two_entries(&archive);
	archive_end(&archive, "");
	set_number(&archive.file, archive.end_at + 16, UINT32_MAX - 1, 4);
	expect_refused(&archive, -EBADMSG, "at 4294967294");
	two_entries(&archive);
	archive_end(&archive, "");
	set_number(&archive.file, archive.end_at + 8, 0xffff, 2);
	set_number(&archive.file, archive.end_at + 10, 0xffff, 2);
	expect_refused(&archive, -EBADMSG, "cannot hold 65535 entries");
	two_entries(&archive);
	archive_end(&archive, "");
	set_number(&archive.file, archive.end_at + 8, 1, 2);
	set_number(&archive.file, archive.end_at + 10, 1, 2);
	expect_refused(&archive, -EBADMSG, "goes on for 52 bytes behind its 1 entries");
}

Test(zip, ends_in_64_bits_that_lie_are_refused)
{
	struct archive archive = {.zip64 = true};
	two_entries(&archive);
	archive_end(&archive, "");
	set_number(&archive.file, archive.end_at - 20 + 8, archive.end_at, 8);
	expect_refused(&archive, -EBADMSG, "behind its locator");
	archive.zip64 = true;
	two_entries(&archive);
	archive_end(&archive, "");
	set_number(&archive.file, archive.end_at - 20 + 8, 3, 8);
	expect_refused(&archive, -EBADMSG, "not where it is said to be");
	archive.zip64 = true;
	two_entries(&archive);
	archive_end(&archive, "");
	set_number(&archive.file, archive.end64_at + 24, UINT64_MAX, 8);
	set_number(&archive.file, archive.end64_at + 32, UINT64_MAX, 8);
	expect_refused(&archive, -EBADMSG, "cannot hold 18446744073709551615 entries");
	archive.zip64 = true;
	two_entries(&archive);
	archive_end(&archive, "");
	set_number(&archive.file, archive.end64_at + 40, UINT64_MAX - 10, 8);
	expect_refused(&archive, -EBADMSG, "18446744073709551605 bytes at");
	archive.zip64 = true;
	two_entries(&archive);
	archive_end(&archive, "");
	set_number(&archive.file, archive.end_at + 10, 7, 2);
	expect_refused(&archive, -EBADMSG, "disagree: 7 entries");
	archive.zip64 = true;
	two_entries(&archive);
	archive_end(&archive, "");
	set_number(&archive.file, archive.end64_at + 16, 1, 4);
	expect_refused(&archive, -ENOTSUP, "several disks");
}

/* Where the parts of the first entry are in the directory: 46 bytes, and the name "b". */
static void broken(struct archive *archive, size_t at, uint64_t value, unsigned n, int code,
		   const char *text)
{
	two_entries(archive);
	archive_end(archive, "");
	set_number(&archive->file, archive->directory_at + at, value, n);
	expect_refused(archive, code, text);
}

Test(zip, directories_that_lie_are_refused)
{
	struct archive archive = {.n = 0};
	broken(&archive, 0, 0, 1, -EBADMSG, "entry 0 of the directory is not there");
	broken(&archive, 8, 1, 2, -ENOTSUP, "entry \"b\" is encrypted (flags 0x1)");
	broken(&archive, 8, 0x2000, 2, -ENOTSUP, "is encrypted");
	broken(&archive, 10, 8, 2, -ENOTSUP,
	       "entry \"b\" is compressed (method 8, deflate), and only stored entries are read; "
	       "store it");
	broken(&archive, 10, 93, 2, -ENOTSUP, "is compressed (method 93)");
	broken(&archive, 20, 4, 4, -EBADMSG, "of two different sizes");
	broken(&archive, 28, 300, 2, -EBADMSG, "has 346 bytes, and 99 are left");
	broken(&archive, 30, 50, 2, -EBADMSG, "of the directory");
	broken(&archive, 34, 1, 2, -ENOTSUP, "several disks");
	broken(&archive, 42, UINT32_MAX - 1, 4, -EBADMSG, "before the directory begins");
	broken(&archive, 42, 36, 4, -EBADMSG, "overlap those of the next entry");
	broken(&archive, 42, 10, 4, -EBADMSG, "overlap those of the next entry");
	broken(&archive, 46, 0xff, 1, -EBADMSG, "no text in UTF-8");
	broken(&archive, 46, 0, 1, -EBADMSG, "no text in UTF-8");
	/* Bytes that reach into the next entry; the sum of which overflows. */
	two_entries(&archive);
	archive_end(&archive, "");
	set_number(&archive.file, archive.directory_at + 20, 6, 4);
	set_number(&archive.file, archive.directory_at + 24, 6, 4);
	expect_refused(&archive, -EBADMSG, "overlap those of the next entry");
	archive.zip64 = true;
	two_entries(&archive);
	archive_end(&archive, "");
	set_number(&archive.file, archive.directory_at + 47 + 10, UINT64_MAX - 20, 8);
	set_number(&archive.file, archive.directory_at + 47 + 18, UINT64_MAX - 20, 8);
	expect_refused(&archive, -EBADMSG, "before the directory begins");
	archive.zip64 = true;
	two_entries(&archive);
	archive_end(&archive, "");
	set_number(&archive.file, archive.directory_at + 47 + 8, 23, 2);
	expect_refused(&archive, -EBADMSG, "cut short");
	archive_add(&archive, "same", "1", 1);
	archive_add(&archive, "same", "2", 1);
	archive_end(&archive, "");
	expect_refused(&archive, -EBADMSG, "entry \"same\": its name comes twice");
}

Test(zip, local_headers_that_lie_are_refused)
{
	struct archive archive = {.n = 0};
	two_entries(&archive);
	archive_end(&archive, "");
	archive.file.p[0] = 'X';
	expect_refused(&archive, -EBADMSG, "entry \"b\" is not where the directory says");
	two_entries(&archive);
	archive_end(&archive, "");
	archive.file.p[30] = 'c';
	expect_refused(&archive, -EBADMSG, "entry \"b\" has another name in front of its bytes");
	two_entries(&archive);
	archive_end(&archive, "");
	set_number(&archive.file, 26, 2, 2);
	expect_refused(&archive, -EBADMSG, "differs from its entry in the directory");
	two_entries(&archive);
	archive_end(&archive, "");
	set_number(&archive.file, 8, 8, 2);
	expect_refused(&archive, -EBADMSG, "differs from its entry in the directory");
	two_entries(&archive);
	archive_end(&archive, "");
	set_number(&archive.file, 28, 1, 2); /* one byte more in front of them */
	expect_refused(&archive, -EBADMSG,
		       "has its 5 bytes at 32, and the bytes behind it begin at 36");
}

/* Bombs of entries: all of them at one place, and many more than there are. */
Test(zip, a_thousand_entries_at_one_place_are_refused)
{
	struct archive archive = {.n = 0};
	char name[16];
	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof name, "%04d", i);
		archive_add(&archive, name, "0123456789", 10);
	}
	for (size_t i = 0; i < 1000; i++)
		set_number(&archive.directory, i * 50 + 42, 0, 4);
	archive_end(&archive, "");
	expect_refused(&archive, -EBADMSG, "overlap those of the next entry");
}

Test(zip, pytorchs_are_told_by_their_pickle)
{
	static const struct {
		const char *name;
		bool torch;
	} rows[] = {{"archive/data.pkl", true},
		    {"a/b/data.pkl", true},
		    {"data.pkl", false},
		    {"/data.pkl.npy", false}};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct archive archive = {.n = 0};
		bool torch = !rows[i].torch;
		archive_add(&archive, "z.npy", "", 0);
		archive_add(&archive, rows[i].name, "", 0);
		archive_end(&archive, "");
		struct hoist__reader reader = reader_of(&archive.file, "m");
		cr_expect_eq(hoist__zip_is_torch(&reader, &torch), 0);
		cr_expect_eq(torch, rows[i].torch, "%s", rows[i].name);
		archive.file.n--;
		reader.bytes--;
		cr_expect_eq(hoist__zip_is_torch(&reader, &torch), -EBADMSG);
		archive_free(&archive);
	}
}

/* Every byte changed to some values, and every length: never a crash, never a read outside. */
Test(zip, no_byte_is_trusted)
{
	for (int form = 0; form < 2; form++) {
		struct archive good = {.zip64 = form == 1, .descriptors = true, .align = 8};
		two_entries(&good);
		archive_end(&good, "c");
		size_t n = good.file.n;
		for (size_t at = 0; at < n; at++) {
			unsigned char was = good.file.p[at];
			for (unsigned value = 0; value < 256; value += value < 16 ? 1 : 15) {
				good.file.p[at] = (unsigned char)value;
				int err = use_archive(&good);
				cr_assert(err == 0 || err == -EBADMSG || err == -ENOTSUP);
			}
			good.file.p[at] = was;
		}
		for (good.file.n = 0; good.file.n < n; good.file.n++)
			cr_assert_eq(use_archive(&good), -EBADMSG);
		archive_free(&good);
	}
}
