/* SPDX-License-Identifier: MIT */
/* Zip archives: the entries of good ones are found, and bad ones are refused with a reason. */
#include "config.h"

#include <stdio.h>

#include "format/zip.h"
#include "tests/support/format-archive.h"
#include "tests/support/format-expect.h"

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
	expect_failed(use_archive(archive), NULL, code, text);
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

/* An archive of two entries in which one or two numbers are others. */
enum place { NOWHERE, FILE_START, DIRECTORY, END, END64, LOCATOR };
static const struct lie {
	bool zip64;
	struct {
		enum place place;
		size_t at;
		unsigned n; /* bytes */
		uint64_t value;
	} set[2];
	int code;
	const char *text;
} lies[] = {
	/* the end */
	{false, {{END, 4, 2, 1}}, -ENOTSUP, "several disks"},
	{false, {{END, 8, 2, 1}}, -ENOTSUP, "1 of 2 entries"},
	{false, {{END, 12, 4, 100}}, -EBADMSG, "the directory is said to have"},
	{false, {{END, 16, 4, UINT32_MAX - 1}}, -EBADMSG, "at 4294967294"},
	{false, {{END, 8, 2, 0xffff}, {END, 10, 2, 0xffff}}, -EBADMSG, "cannot hold 65535 entries"},
	{false,
	 {{END, 8, 2, 1}, {END, 10, 2, 1}},
	 -EBADMSG,
	 "goes on for 52 bytes behind its 1 entries"},
	/* the end in 64 bits */
	{true, {{LOCATOR, 8, 8, 318}}, -EBADMSG, "behind its locator"},
	{true, {{LOCATOR, 8, 8, 3}}, -EBADMSG, "not where it is said to be"},
	{true,
	 {{END64, 24, 8, UINT64_MAX}, {END64, 32, 8, UINT64_MAX}},
	 -EBADMSG,
	 "cannot hold 18446744073709551615 entries"},
	{true, {{END64, 40, 8, UINT64_MAX - 10}}, -EBADMSG, "18446744073709551605 bytes at"},
	{true, {{END, 10, 2, 7}}, -EBADMSG, "disagree: 7 entries"},
	{true, {{END64, 16, 4, 1}}, -ENOTSUP, "several disks"},
	/* the directory's first entry: 46 bytes, and the name "b" */
	{false, {{DIRECTORY, 0, 1, 0}}, -EBADMSG, "entry 0 of the directory is not there"},
	{false, {{DIRECTORY, 8, 2, 1}}, -ENOTSUP, "entry \"b\" is encrypted (flags 0x1)"},
	{false, {{DIRECTORY, 8, 2, 0x2000}}, -ENOTSUP, "is encrypted"},
	{false,
	 {{DIRECTORY, 10, 2, 8}},
	 -ENOTSUP,
	 "entry \"b\" is compressed (method 8, deflate), and only stored entries are read; store "
	 "it"},
	{false, {{DIRECTORY, 10, 2, 93}}, -ENOTSUP, "is compressed (method 93)"},
	{false, {{DIRECTORY, 20, 4, 4}}, -EBADMSG, "of two different sizes"},
	{false, {{DIRECTORY, 28, 2, 300}}, -EBADMSG, "has 346 bytes, and 99 are left"},
	{false, {{DIRECTORY, 30, 2, 50}}, -EBADMSG, "of the directory"},
	{false, {{DIRECTORY, 34, 2, 1}}, -ENOTSUP, "several disks"},
	{false, {{DIRECTORY, 42, 4, UINT32_MAX - 1}}, -EBADMSG, "before the directory begins"},
	{false, {{DIRECTORY, 42, 4, 36}}, -EBADMSG, "overlap those of the next entry"},
	{false, {{DIRECTORY, 42, 4, 10}}, -EBADMSG, "overlap those of the next entry"},
	{false, {{DIRECTORY, 46, 1, 0xff}}, -EBADMSG, "no text in UTF-8"},
	{false, {{DIRECTORY, 46, 1, 0}}, -EBADMSG, "no text in UTF-8"},
	/* Bytes that reach into the next entry; the sum of which overflows. */
	{false,
	 {{DIRECTORY, 20, 4, 6}, {DIRECTORY, 24, 4, 6}},
	 -EBADMSG,
	 "overlap those of the next entry"},
	{true,
	 {{DIRECTORY, 47 + 10, 8, UINT64_MAX - 20}, {DIRECTORY, 47 + 18, 8, UINT64_MAX - 20}},
	 -EBADMSG,
	 "before the directory begins"},
	{true, {{DIRECTORY, 47 + 8, 2, 23}}, -EBADMSG, "cut short"},
	/* the header in front of the first entry's bytes */
	{false, {{FILE_START, 0, 1, 'X'}}, -EBADMSG, "entry \"b\" is not where the directory says"},
	{false,
	 {{FILE_START, 30, 1, 'c'}},
	 -EBADMSG,
	 "entry \"b\" has another name in front of its bytes"},
	{false, {{FILE_START, 26, 2, 2}}, -EBADMSG, "differs from its entry in the directory"},
	{false, {{FILE_START, 8, 2, 8}}, -EBADMSG, "differs from its entry in the directory"},
	{false,
	 {{FILE_START, 28, 2, 1}},
	 -EBADMSG,
	 "has its 5 bytes at 32, and the bytes behind it begin at 36"},
};

Test(zip, a_wrong_number_is_refused_wherever_it_is)
{
	for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
		const struct lie *lie = &lies[i];
		struct archive archive = {.zip64 = lie->zip64};
		two_entries(&archive);
		archive_end(&archive, "");
		const size_t places[] = {
			[DIRECTORY] = archive.directory_at,
			[END] = archive.end_at,
			[END64] = archive.end64_at,
			[LOCATOR] = archive.end_at - 20,
		};
		for (size_t k = 0; k < 2 && lie->set[k].place != NOWHERE; k++)
			set_number(&archive.file, places[lie->set[k].place] + lie->set[k].at,
				   lie->set[k].value, lie->set[k].n);
		expect_refused(&archive, lie->code, lie->text);
	}
}

Test(zip, an_archive_that_was_cut_short_is_refused)
{
	struct archive archive = {.n = 0};
	put_text(&archive.file, "PK");
	expect_refused(&archive, -EBADMSG, "2 bytes, and its end alone has 22");
	two_entries(&archive);
	archive_end(&archive, "");
	archive.file.n--;
	expect_refused(&archive, -EBADMSG, "was it cut short?");
}

Test(zip, two_entries_of_one_name_are_refused)
{
	struct archive archive = {.n = 0};
	archive_add(&archive, "same", "1", 1);
	archive_add(&archive, "same", "2", 1);
	archive_end(&archive, "");
	expect_refused(&archive, -EBADMSG, "entry \"same\": its name comes twice");
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
