/* SPDX-License-Identifier: MIT */
/* hoist_checkpoint_open() opens a path: files of any format, folders, indices, models in
 * several files.  A folder chooses the files that it opens by their names, so that all of them are
 * small GGUF files here, whatever their names say. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/format-archive.h"
#include "tests/support/load-files.h"
#include "tests/support/load-support.h"

/* Opens, and compares the names of the files that it has with @names, with a space behind each. */
static void expect_files(const char *path, unsigned flags, const char *names)
{
	hoist_checkpoint *checkpoint;
	char found[512] = "";
	if (hoist_checkpoint_open(path, flags, &checkpoint) != 0) {
		fprintf(stderr, "expected %s\n", names);
		CHECK(false);
	}
	hoist_file_info info = {.size = sizeof info};
	for (size_t f = 0; hoist_checkpoint_file(checkpoint, f, &info) == 0; f++)
		strcat(strcat(found, strrchr(info.path, '/') + 1), " ");
	if (strcmp(found, names) != 0) {
		fprintf(stderr, "found %s, not %s\n", found, names);
		CHECK(false);
	}
	hoist_checkpoint_close(checkpoint);
}

static void expect_refused(const char *path, int err, const char *text)
{
	hoist_checkpoint *checkpoint = NULL;
	int got = hoist_checkpoint_open(path, 0, &checkpoint);
	if (got != err || strstr(hoist_error(), text) == NULL) {
		fprintf(stderr, "%d, not %d, expected: %s\n", got, err, text);
		CHECK(false);
	}
	CHECK(checkpoint == NULL);
}

/* The files of a folder, and those of them that are opened (or why none is). */
static const struct folder {
	const char *files[6];
	int err;
	const char *expected;
} folders[] = {
	{{"b.safetensors", "a.safetensors", "c.gguf"}, 0, "a.safetensors b.safetensors "},
	{{"b.safetensors", "model.safetensors"}, 0, "model.safetensors "},
	{{"x.gguf", "y.npz", "pytorch_model.bin"}, 0, "x.gguf "},
	{{"x.gguf", "y.gguf"}, -EINVAL, "has 2 GGUF models (x.gguf, y.gguf); name the one to open"},
	{{"x.gguf", "y.gguf", "z.gguf"}, -EINVAL, "has 3 GGUF models (x.gguf, y.gguf, ...); name"},
	{{"m-00002-of-00002.gguf"},
	 -ENOENT,
	 "has parts of a GGUF model (m-00002-of-00002.gguf, ...), but not the first one"},
	{{"a.npz", "b.npy", "c.max"}, 0, "a.npz "},
	{{"a.npz", "b.npz"}, -EINVAL, "has 2 .npz files (a.npz, b.npz); name the one to open"},
	{{"b.npy", "a.npy", "c.max"}, 0, "a.npy b.npy "},
	{{"c.max", "d.pt"}, 0, "c.max "},
	{{"c.max", "d.max"}, -EINVAL, "has 2 .max files (c.max, d.max); name the one to open"},
	{{"d.pt"}, 0, "d.pt "},
	{{"d.pth"}, 0, "d.pth "},
	{{"training_args.bin", "pytorch_model.bin", "optimizer.pt"}, 0, "pytorch_model.bin "},
	{{"a.bin", "b.pth"},
	 -EINVAL,
	 "has 2 .pt, .pth and .bin files (a.bin, b.pth); name the one to open"},
	{{".hidden.gguf", "readme.txt", ".gguf"}, -ENOENT, "has no checkpoint: no file *.safetens"},
};

static void folders_are_searched_by_name(void)
{
	for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
		for (size_t f = 0; folders[i].files[f] != NULL; f++)
			write_gguf(folders[i].files[f], folders[i].files[f], 0, 0, 0);
		if (folders[i].err == 0)
			expect_files(support_folder(), 0, folders[i].expected);
		else
			expect_refused(support_folder(), folders[i].err, folders[i].expected);
		support_cleanup();
	}
}

static void indices_come_first(void)
{
	write_gguf("a.bin", "a", 0, 0, 0);
	write_gguf("b.bin", "b", 0, 0, 0);
	write_gguf("c.npz", "c", 0, 0, 0);
	/* Two spellings of one file. */
	write_text("pytorch_model.bin.index.json", "{\"metadata\":{\"total_size\":4},\"weight_"
						   "map\":{\"a\":\"./a.bin\",\"b\":\"b.bin\"}}");
	expect_files(support_folder(), 0, "a.bin b.bin ");
	expect_files(in_folder("pytorch_model.bin.index.json"), 0, "a.bin b.bin ");
	write_text("other.bin.index.json", "{\"weight_map\":{\"a\":\"a.bin\"}}");
	expect_files(support_folder(), 0, "a.bin b.bin ");
	expect_files(in_folder("other.bin.index.json"), 0, "a.bin ");
	write_text("x.safetensors.index.json", "{\"weight_map\":{\"b\":\"b.bin\"}}");
	expect_files(support_folder(), 0, "b.bin ");
	write_text("y.safetensors.index.json",
		   "{\"weight_map\":{\"b\":\"x.safetensors.index.json\"}}");
	expect_refused(support_folder(), -EINVAL,
		       "has 2 index files (x.safetensors.index.json, y.safetensors.index.json); "
		       "name the one to open");
	expect_refused(in_folder("y.safetensors.index.json"), -EBADMSG,
		       "this is an index of other files");
	support_cleanup();
}

static void joined_files_are_of_one_format_and_their_names_differ(void)
{
	const size_t one[] = {1};
	write_gguf("a.safetensors", "a", 0, 0, 0);
	support_write("b.safetensors", 0, 1, one, -1);
	expect_refused(support_folder(), -EBADMSG,
		       "b.safetensors is a file of the format \"safetensors\", but ");
	write_gguf("b.safetensors", "a", 0, 0, 0);
	expect_refused(support_folder(), -EBADMSG, "tensor \"a\" is in two files: ");
	/* A name is no command to a terminal. */
	write_gguf("a.safetensors", "a\x1b[2J", 0, 0, 0);
	write_gguf("b.safetensors", "a\x1b[2J", 0, 0, 0);
	expect_refused(support_folder(), -EBADMSG, "tensor \"a\\u001b[2J\" is in two files: ");
	support_cleanup();
}

static const char model_in_three[] =
	"m-00001-of-00003.gguf m-00002-of-00003.gguf m-00003-of-00003.gguf ";

static void write_model_in_three(void)
{
	write_gguf("m-00001-of-00003.gguf", "c", 0, 3, 3);
	write_gguf("m-00002-of-00003.gguf", "b", 1, 3, 3);
	write_gguf("m-00003-of-00003.gguf", "a", 2, 3, 3);
}

static void a_model_in_three_files(void)
{
	write_model_in_three();
	expect_files(support_folder(), 0, model_in_three);
	expect_files(in_folder("m-00001-of-00003.gguf"), 0, model_in_three);
	/* Another part is opened as it is. */
	expect_files(in_folder("m-00002-of-00003.gguf"), 0, "m-00002-of-00003.gguf ");
	/* Names in order, what is alike once. */
	hoist_checkpoint *checkpoint;
	hoist_tensor_info info = {.size = sizeof info};
	size_t t;
	CHECK(hoist_checkpoint_open(support_folder(), 0, &checkpoint) == 0);
	CHECK(strcmp(hoist_checkpoint_format(checkpoint), "gguf") == 0);
	CHECK(hoist_checkpoint_n_tensors(checkpoint) == 3);
	CHECK(hoist_checkpoint_find(checkpoint, "a", &t) == 0 && t == 2);
	CHECK(hoist_checkpoint_tensor(checkpoint, t, &info) == 0 && info.file == 2);
	CHECK(info.strides == NULL);
	CHECK(strcmp(hoist_checkpoint_metadata_find(checkpoint, "general.name"), "small") == 0);
	CHECK(hoist_checkpoint_n_metadata(checkpoint) == 6);
	hoist_checkpoint_close(checkpoint);

	/* Beside another model it has to be named. */
	write_gguf("n.gguf", "n", 0, 0, 0);
	expect_refused(support_folder(), -EINVAL, "has 2 GGUF models");
	expect_files(in_folder("m-00001-of-00003.gguf"), 0, model_in_three);

	/* In the working folder, a path needs no slash. */
	char back[512];
	CHECK(getcwd(back, sizeof back) != NULL);
	CHECK(chdir(support_folder()) == 0);
	CHECK(hoist_checkpoint_open("m-00001-of-00003.gguf", 0, &checkpoint) == 0);
	CHECK(hoist_checkpoint_n_files(checkpoint) == 3);
	hoist_checkpoint_close(checkpoint);
	CHECK(chdir(back) == 0);

	support_cleanup();
}

static void parts_that_do_not_belong_together(void)
{
	write_model_in_three();
	write_gguf("m-00002-of-00003.gguf", "b", 2, 3, 3);
	expect_refused(
		in_folder("m-00001-of-00003.gguf"), -EBADMSG,
		"m-00002-of-00003.gguf: by its name this is part 2 of 3, but its split.no is 2 "
		"and its split.count 3; the files do not belong together");
	write_gguf("m-00002-of-00003.gguf", "b", 1, 4, 3);
	expect_refused(in_folder("m-00001-of-00003.gguf"), -EBADMSG, "its split.count 4");
	write_gguf("m-00002-of-00003.gguf", "b", 1, 3, 3);
	write_gguf("m-00001-of-00003.gguf", "c", 0, 3, 4);
	expect_refused(in_folder("m-00001-of-00003.gguf"), -EBADMSG,
		       "split.tensors.count is 4, but its 3 files hold 3 tensors");
	write_gguf("m.gguf", "c", 0, 3, 3);
	expect_refused(in_folder("m.gguf"), -EINVAL,
		       "the first of 3 files; so that the others are found, it must be called "
		       "NAME-00001-of-00003.gguf");
	write_gguf("m-00001-of-00003.gguf", "c", 0, 2, 3);
	expect_refused(in_folder("m-00001-of-00003.gguf"), -EINVAL, "the first of 2 files");
	write_gguf("m-00001-of-00003.gguf", "c", 0, 3, 3);
	CHECK(unlink(in_folder("m-00003-of-00003.gguf")) == 0);
	expect_refused(in_folder("m-00001-of-00003.gguf"), -ENOENT, "m-00003-of-00003.gguf");
	support_cleanup();
}

static void a_part_that_is_a_link(void)
{
	write_model_in_three();
	/* A link out of the folder is followed if the caller trusts it. */
	char target[512];
	snprintf(target, sizeof target, "%s.other", support_folder());
	CHECK(rename(in_folder("m-00002-of-00003.gguf"), target) == 0);
	CHECK(symlink(target, in_folder("m-00002-of-00003.gguf")) == 0);
	expect_refused(in_folder("m-00001-of-00003.gguf"), -EXDEV, "m-00002-of-00003.gguf");
	expect_files(in_folder("m-00001-of-00003.gguf"), HOIST_OPEN_FOLLOW_LINKS, model_in_three);
	CHECK(unlink(target) == 0);
	CHECK(unlink(in_folder("m-00002-of-00003.gguf")) == 0);
	support_cleanup();
}

/* A folder of .npy files is a checkpoint, whose tensors are called as the files are. */
static void arrays_are_called_as_their_files(void)
{
	hoist_checkpoint *checkpoint;
	hoist_tensor_info info = {.size = sizeof info};
	size_t t;
	write_npy("b.weight.npy");
	write_npy("a.bias.npy");
	CHECK(hoist_checkpoint_open(support_folder(), 0, &checkpoint) == 0);
	CHECK(hoist_checkpoint_n_tensors(checkpoint) == 2);
	CHECK(hoist_checkpoint_tensor(checkpoint, 0, &info) == 0);
	CHECK(strcmp(info.name, "a.bias") == 0 && info.file == 0);
	CHECK(hoist_checkpoint_find(checkpoint, "b.weight", &t) == 0 && t == 1);
	hoist_checkpoint_close(checkpoint);
	CHECK(hoist_checkpoint_open(in_folder("a.bias.npy"), 0, &checkpoint) == 0);
	CHECK(hoist_checkpoint_find(checkpoint, "arr_0", &t) == 0);
	hoist_checkpoint_close(checkpoint);
	write_npy("\xff.npy");
	expect_refused(support_folder(), -EINVAL, "no tensor can be called \"?\": a name is UTF-8");
	support_cleanup();
}

static void strides_are_told(void)
{
	write_npy("x.npy");
	hoist_checkpoint *checkpoint;
	hoist_tensor_info info = {.size = sizeof info};
	CHECK(hoist_checkpoint_open(support_folder(), 0, &checkpoint) == 0);
	CHECK(strcmp(hoist_checkpoint_format(checkpoint), "npy") == 0);
	CHECK(hoist_checkpoint_n_tensors(checkpoint) == 1);
	CHECK(hoist_checkpoint_tensor(checkpoint, 0, &info) == 0);
	CHECK(info.rank == 2 && info.shape[0] == 2 && info.shape[1] == 3);
	CHECK(info.strides != NULL && info.strides[0] == 1 && info.strides[1] == 2);
	CHECK(info.bytes == 12 && info.offset == 128);
	/* A caller that was built when there were no strides. */
	memset(&info, 0, sizeof info);
	info.size = offsetof(hoist_tensor_info, strides);
	CHECK(hoist_checkpoint_tensor(checkpoint, 0, &info) == 0);
	CHECK(info.strides == NULL && info.offset == 128);
	hoist_checkpoint_close(checkpoint);
	support_cleanup();
}

/* Written by NumPy and PyTorch: tests/data/make.py. */
static void real_archives_are_told_apart(void)
{
	static const struct {
		const char *name;
		const char *format;
	} archives[] = {
		{"numpy-stored.npz", "npz"},
		{"torch-state.pt", "pytorch"},
		{"torch-train.pt", "pytorch"},
	};
	for (size_t i = 0; i < sizeof archives / sizeof archives[0]; i++) {
		const char *source = getenv("srcdir");
		char path[512];
		snprintf(path, sizeof path, "%s/data/%s", source != NULL ? source : ".",
			 archives[i].name);
		hoist_checkpoint *checkpoint;
		CHECK(hoist_checkpoint_open(path, 0, &checkpoint) == 0);
		CHECK(strcmp(hoist_checkpoint_format(checkpoint), archives[i].format) == 0);
		/* In the order of their bytes, also where tensors share them. */
		hoist_tensor_info info = {.size = sizeof info};
		uint64_t last = 0;
		for (size_t t = 0; hoist_checkpoint_tensor(checkpoint, t, &info) == 0; t++) {
			size_t found;
			CHECK(info.offset >= last);
			last = info.offset;
			CHECK(hoist_checkpoint_find(checkpoint, info.name, &found) == 0);
			CHECK(found == t);
		}
		CHECK(last > 0);
		hoist_checkpoint_close(checkpoint);
	}
}

static void a_file_that_is_no_checkpoint_is_named(void)
{
	write_text("x.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:00\n");
	expect_refused(support_folder(), -EBADMSG,
		       "x.safetensors: this is the pointer that Git LFS");
	expect_refused(in_folder("x.safetensors"), -EBADMSG, "the pointer that Git LFS");
	write_text("x.safetensors", "");
	expect_refused(in_folder("x.safetensors"), -EBADMSG, "x.safetensors: the file is empty");
	write_text("config.json", "{\"a\":1}");
	expect_refused(in_folder("config.json"), -EBADMSG, "the key \"weight_map\" is missing");
	support_cleanup();
}

/* {"w": a tensor, "s": a set} in an archive, as torch.save writes it. */
static void write_torch(const char *name)
{
	static const char pickle[] = "\x80\2}(X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n("
				     "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
				     "0X\3\0\0\0cpuK\1tQK\0))\x89NtRX\1\0\0\0s\x8fu.";
	struct archive archive = {.n = 0};
	archive_add(&archive, "m/data.pkl", pickle, sizeof pickle - 1);
	archive_add(&archive, "m/data/0", "\0\0\x80\x3f", 4);
	archive_end(&archive, "");
	support_put(name, archive.file.p, archive.file.n);
	archive_free(&archive);
}

/* Opens with HOIST_OPEN_SKIP_UNSUPPORTED: one tensor, and these values left out. */
static void expect_skipped(const char *path, const char *const *names, const size_t *files,
			   size_t n)
{
	hoist_checkpoint *checkpoint;
	hoist_skipped_info info = {.size = sizeof info};
	CHECK(hoist_checkpoint_open(path, HOIST_OPEN_SKIP_UNSUPPORTED, &checkpoint) == 0);
	CHECK(hoist_checkpoint_n_tensors(checkpoint) == 1);
	CHECK(hoist_checkpoint_n_skipped(checkpoint) == n);
	for (size_t i = 0; i < n; i++) {
		CHECK(hoist_checkpoint_skipped(checkpoint, i, &info) == 0);
		CHECK(strcmp(info.name, names[i]) == 0 && info.file == files[i]);
		CHECK(info.reason[0] != '\0');
	}
	CHECK(hoist_checkpoint_skipped(checkpoint, n, &info) == -EINVAL);
	CHECK(strstr(hoist_error(), "does not exist: the checkpoint has") != NULL);
	info.size = sizeof info + 1;
	CHECK(n == 0 || hoist_checkpoint_skipped(checkpoint, 0, &info) == -EINVAL);
	hoist_checkpoint_close(checkpoint);
}

static void what_is_no_tensor_is_skipped_on_request(void)
{
	static const char *const names[] = {"", "s"};
	static const size_t files[] = {0, 1};
	hoist_checkpoint *checkpoint;
	write_torch("new.bin");
	support_put("old.bin", "\x80\2.", 3);
	expect_refused(in_folder("new.bin"), -ENOTSUP, "the pickle has a set");
	expect_skipped(in_folder("new.bin"), names + 1, files, 1);
	/* An index may name what is left out, and a file that is, but nothing else. */
	write_text("pytorch_model.bin.index.json",
		   "{\"weight_map\":{\"w\":\"new.bin\",\"s\":\"new.bin\",\"o\":\"old.bin\"}}");
	expect_refused(support_folder(), -ENOTSUP, "names a file that cannot be used");
	expect_skipped(support_folder(), (const char *const[]){"s", ""}, files, 2);
	write_text("pytorch_model.bin.index.json",
		   "{\"weight_map\":{\"a\":\"new.bin\",\"w\":\"new.bin\"}}");
	CHECK(hoist_checkpoint_open(support_folder(), HOIST_OPEN_SKIP_UNSUPPORTED, &checkpoint) ==
	      -EBADMSG);
	CHECK(strstr(hoist_error(), "tensor \"a\" is not in its shard") != NULL);
	/* Files of other formats have nothing to skip. */
	write_gguf("x.gguf", "a", 0, 0, 0);
	expect_skipped(in_folder("x.gguf"), NULL, NULL, 0);
	CHECK(hoist_checkpoint_open(in_folder("x.gguf"), 8, &checkpoint) == -EINVAL);
	support_cleanup();
}

int main(void)
{
	folders_are_searched_by_name();
	indices_come_first();
	joined_files_are_of_one_format_and_their_names_differ();
	a_model_in_three_files();
	parts_that_do_not_belong_together();
	a_part_that_is_a_link();
	arrays_are_called_as_their_files();
	strides_are_told();
	real_archives_are_told_apart();
	a_file_that_is_no_checkpoint_is_named();
	what_is_no_tensor_is_skipped_on_request();
	return 0;
}
