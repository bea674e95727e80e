/* SPDX-License-Identifier: MIT */
/* The options and tensors that a save refuses, and its words; shards, and the files that they
 * replace. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/save-support.h"

static hoist_device *cpu;

static hoist_buffer *bytes(int64_t n)
{
	hoist_buffer *buffer;
	OK(hoist_buffer_create(cpu, HOIST_U8, 1, &n, HOIST_BUFFER_ZERO, &buffer));
	return buffer;
}

static void expect(int err, int code, const char *text)
{
	if (err != code || strstr(hoist_error(), text) == NULL)
		fprintf(stderr, "%d, \"%s\" instead of %d, \"%s\"\n", err, hoist_error(), code,
			text);
	CHECK(err == code && strstr(hoist_error(), text) != NULL);
}

static hoist_save *create(const char *name, hoist_save_options options)
{
	hoist_save *save;
	options.size = sizeof options;
	OK(hoist_save_create(support_path(name), &options, &save));
	return save;
}

/* --- options --- */

static void options(void)
{
	static const struct {
		const char *path;
		hoist_save_options options;
		const char *text;
	} cases[] = {
		{"m", {.engine = 3}, "engine is 3"},
		{"m", {.io = HOIST_IO_MAP}, "io is 3"},
		{"m", {.flags = 64}, "unknown bits: 0x40"},
		{"m", {.format = "zip"}, "no format \"zip\""},
		{"m.npy", {.shard_bytes = 5}, "only safetensors files are written in shards"},
		{"m.max", {.flags = HOIST_SAVE_DIGEST}, "no place for digests"},
		{"a/train.pt", {.flags = 0}, "a/train.pt: hoist does not write PyTorch's files"},
		{"m.PTH", {.flags = 0}, "PyTorch's files; let the name end in .safetensors"},
		{"pytorch_model.bin", {.flags = 0}, "PyTorch's files"},
		{"m.ckpt", {.flags = 0}, "PyTorch's files"},
		{"x.npz", {.flags = 0}, "NumPy's archives"},
		{"x.h5", {.flags = 0}, "HDF5"},
		{"x.onnx", {.flags = 0}, "ONNX"},
		{"pytorch_model.bin.index.json", {.flags = 0}, "JSON, but for"},
		{"m.SAFETENSORS.INDEX.JSON", {.flags = 0}, "JSON, but for"},
		{"m.safetensors.index.Json", {.shard_bytes = 5}, "JSON, but for"},
		{"m.GGUF", {.shard_bytes = 5}, "only safetensors files are written in shards"},
		{"", {.flags = 0}, "is missing"},
		{NULL, {.flags = 0}, "is missing"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		hoist_save *save = NULL;
		hoist_save_options o = cases[i].options;
		o.size = sizeof o;
		expect(hoist_save_create(cases[i].path, &o, &save), -EINVAL, cases[i].text);
		CHECK(save == NULL);
	}
	/* Said so, it may be called as it likes. */
	hoist_save_destroy(create("x.npz", (hoist_save_options){.format = "safetensors"}));
	hoist_save_destroy(create("m.safetensors.index.json", (hoist_save_options){.flags = 0}));
	hoist_save_destroy(create("no.ending", (hoist_save_options){.flags = 0}));
	hoist_save *save = NULL;
	hoist_save_options o = {.size = 3};
	expect(hoist_save_create("m", &o, &save), -EINVAL, "size");
}

/* --- adding --- */

static void adding(void)
{
	hoist_buffer *buffer = bytes(10);
	hoist_buffer *closed = bytes(10);
	hoist_save *save = create("m.safetensors", (hoist_save_options){.flags = 0});
	OK(hoist_buffer_close(closed, NULL));
	expect(hoist_save_add(save, "", buffer), -EINVAL, "name of tensor 0 is empty");
	expect(hoist_save_add(save, NULL, buffer), -EINVAL, "a name is NULL");
	expect(hoist_save_add(save, "a", NULL), -EINVAL, "NULL");
	expect(hoist_save_add(save, "a", closed), -EBADF, "closed");
	expect(hoist_save_add(NULL, "a", buffer), -EINVAL, "the save is NULL");
	expect(hoist_save_add_tensor(save, "a", NULL, 0), -EINVAL, "the checkpoint is NULL");
	expect(hoist_save_metadata(save, "", "x"), -EINVAL, "without a key");
	expect(hoist_save_metadata(save, "x", NULL), -EINVAL, "or a value");
	expect(hoist_save_metadata(save, "x\xff", "x"), -EINVAL, "its key is not UTF-8");
	expect(hoist_save_metadata(save, "x", "\xc3"), -EINVAL, "its value is not UTF-8");
	expect(hoist_save_metadata(save, "hoist.xxh3_128", "x"), -EINVAL,
	       "reserved for the digests");
	expect(hoist_save_metadata_of(save, NULL), -EINVAL, "the checkpoint is NULL");
	expect(hoist_save_wait(save), -EINVAL, "has not been started");
	hoist_save_report report = {.size = sizeof report};
	expect(hoist_save_get_report(save, &report), -EAGAIN, "not ended yet");
	OK(hoist_save_add(save, "a", buffer));
	OK(hoist_save_add(save, "a", buffer));
	expect(hoist_save_start(save), -EINVAL, "two tensors are called \"a\"");
	CHECK(saved_n_names() == 0);
	hoist_save_destroy(save);

	save = create("m.max", (hoist_save_options){.flags = 0});
	expect(hoist_save_metadata(save, "a", "b"), -EINVAL, "no place for metadata (\"a\")");
	OK(hoist_save_add(save, "a", buffer));
	uint64_t total = 1;
	hoist_save_progress(save, NULL, &total);
	CHECK(total == 0);
	CHECK(hoist_save_start(save) == 0 && hoist_save_wait(save) == 0);
	expect(hoist_save_start(save), -EINVAL, "has been started");
	expect(hoist_save_add(save, "b", buffer), -EINVAL, "has been started");
	report.size = sizeof report + 8;
	expect(hoist_save_get_report(save, &report), -EINVAL, "size");
	hoist_save_destroy(save);
	OK(unlink(support_path("m.max")));
	hoist_save_destroy(NULL);
	hoist_buffer_unref(buffer);
	hoist_buffer_unref(closed);
}

/* --- starting --- */

static void starting(void)
{
	hoist_buffer *buffer = bytes(10);
	hoist_save *save = create("none/m", (hoist_save_options){.flags = 0});
	OK(hoist_save_add(save, "a", buffer));
	expect(hoist_save_start(save), -ENOENT, "opening the folder");
	/* A start that failed may be tried again. */
	OK(mkdir(support_path("none"), 0700));
	OK(saved_run(save));
	OK(unlink(support_path("none/m")));
	save = create("none", (hoist_save_options){.flags = 0});
	expect(hoist_save_start(save), -EISDIR, "this is a folder");
	hoist_save_destroy(save);
	OK(rmdir(support_path("none")));

	hoist_budget *budget;
	OK(hoist_budget_create(100000, &budget));
	save = create("m", (hoist_save_options){.budget = budget});
	OK(hoist_save_add(save, "a", buffer));
	OK(hoist_save_start(save));
	expect(hoist_save_wait(save), -EDQUOT, "at least 131072 bytes of the budget");
	hoist_save_destroy(save);
	hoist_budget_unref(budget);
	CHECK(saved_n_names() == 0);
	hoist_buffer_unref(buffer);
}

/* --- shards --- */

static const char *const shard_names[] = {"a", "b", "c", "d", "e"};

static int save_shards(const char *name, uint64_t shard_bytes, unsigned flags, uint64_t *n_files)
{
	static const int64_t sizes[] = {60, 40, 250, 0, 1};
	hoist_save *save =
		create(name, (hoist_save_options){.shard_bytes = shard_bytes, .flags = flags});
	for (size_t i = 0; i < 5; i++) {
		hoist_buffer *buffer = bytes(sizes[i]);
		OK(hoist_save_add(save, shard_names[i], buffer));
		hoist_buffer_unref(buffer);
	}
	OK(hoist_save_metadata(save, "format", "x"));
	OK(hoist_save_metadata(save, "format", "pt"));
	int err = hoist_save_start(save);
	if (err == 0)
		err = hoist_save_wait(save);
	hoist_save_report report = {.size = sizeof report};
	if (err == 0) {
		OK(hoist_save_get_report(save, &report));
		*n_files = report.n_files;
	}
	hoist_save_destroy(save);
	return err;
}

static bool is_there(const char *name)
{
	return access(support_path(name), F_OK) == 0;
}

static void shards(void)
{
	uint64_t n = 0;
	struct saved saved;
	/* Greedy, in order; a tensor larger than the limit is alone. */
	OK(save_shards("m.safetensors", 100, HOIST_SAVE_DIGEST, &n));
	CHECK(n == 3 && saved_n_names() == 4);
	OK(saved_read(support_path("m-00001-of-00003.safetensors"), &saved));
	CHECK(saved_tensor(&saved, "a", "U8", "60", 60) != NULL);
	CHECK(saved_tensor(&saved, "b", "U8", "40", 40) != NULL);
	CHECK(strstr(saved.header, "{\"format\":\"pt\",") != NULL);
	saved_check_digests(&saved, shard_names, 2);
	saved_free(&saved);
	hoist_checkpoint *checkpoint;
	OK(hoist_checkpoint_open(support_path("m.safetensors.index.json"), 0, &checkpoint));
	CHECK(hoist_checkpoint_n_tensors(checkpoint) == 5);
	CHECK(strcmp(hoist_checkpoint_metadata_find(checkpoint, "total_size"), "351") == 0);
	CHECK(strcmp(hoist_checkpoint_metadata_find(checkpoint, "format"), "pt") == 0);
	hoist_checkpoint_close(checkpoint);
	CHECK(save_shards("m.safetensors", 100, HOIST_SAVE_NO_REPLACE, &n) == -EEXIST);

	/* Fewer shards: those that the old index named go, nobody else's. */
	support_put("m-00001-of-00009.safetensors", "", 0);
	support_put("m-00003-of-00003.safetensors.bak", "", 0);
	support_put("other-00003-of-00003.safetensors", "", 0);
	OK(save_shards("m.safetensors.index.json", 300, 0, &n));
	CHECK(n == 2 && saved_n_names() == 3 + 3);
	CHECK(is_there("m-00001-of-00002.safetensors"));
	CHECK(is_there("m-00002-of-00002.safetensors"));
	CHECK(is_there("m.safetensors.index.json"));

	/* An index that cannot be read names nothing. */
	support_put("m.safetensors.index.json", "", 0);
	OK(save_shards("m.safetensors", 100, 0, &n));
	CHECK(n == 3 && saved_n_names() == 4 + 2 + 3);

	/* One file is enough: it has no index, but if that was asked for. */
	OK(save_shards("n.safetensors", 351, 0, &n));
	CHECK(n == 1 && is_there("n.safetensors") && !is_there("n.safetensors.index.json"));
	CHECK(save_shards("k.safetensors.index.json", 100, 0, &n) == 0 && n == 3);
	OK(save_shards("k.safetensors.index.json", 0, 0, &n));
	CHECK(n == 1 && is_there("k-00001-of-00001.safetensors") && !is_there("k.safetensors"));
	CHECK(!is_there("k-00001-of-00003.safetensors"));
	OK(hoist_checkpoint_open(support_path("k.safetensors.index.json"), 0, &checkpoint));
	CHECK(hoist_checkpoint_n_tensors(checkpoint) == 5);
	hoist_checkpoint_close(checkpoint);

	/* Shards take the place of one file. */
	CHECK(save_shards("n.safetensors", 100, HOIST_SAVE_NO_REPLACE, &n) == -EEXIST);
	CHECK(is_there("n.safetensors") && !is_there("n-00001-of-00003.safetensors"));
	CHECK(save_shards("n.safetensors", 100, 0, &n) == 0 && n == 3);
	CHECK(!is_there("n.safetensors") && is_there("n.safetensors.index.json"));
	OK(mkdir(support_path("d.safetensors"), 0700));
	expect(save_shards("d.safetensors", 100, 0, &n), -EISDIR, "d.safetensors: this is a folder");
	OK(rmdir(support_path("d.safetensors")));
}

/* --- one file, where an index would be read instead --- */

static void check_read_next(const char *path)
{
	hoist_checkpoint *checkpoint = support_open(path);
	CHECK(hoist_checkpoint_n_files(checkpoint) == 1);
	OK(hoist_checkpoint_find(checkpoint, "new", &(size_t){0}));
	hoist_checkpoint_close(checkpoint);
}

static int save_one(const char *name, unsigned flags)
{
	hoist_save *save = create(name, (hoist_save_options){.flags = flags});
	hoist_buffer *buffer = bytes(10);
	OK(hoist_save_add(save, "new", buffer));
	hoist_buffer_unref(buffer);
	return saved_run(save);
}

static void shadows(void)
{
	uint64_t n;
	OK(mkdir(support_path("s"), 0700));
	CHECK(save_shards("s/model.safetensors", 100, 0, &n) == 0 && n == 3);
	CHECK(save_one("s/model.safetensors", HOIST_SAVE_NO_REPLACE) == -EEXIST);
	support_put("s/model-00001-of-00009.safetensors", "", 0); /* the index does not name it */
	support_put("s/other.safetensors.index.json", "", 0);
	expect(save_one("s/model.safetensors", 0), -EEXIST, "other.safetensors.index.json there");
	CHECK(is_there("s/model-00003-of-00003.safetensors"));
	CHECK(!is_there("s/model.safetensors"));
	CHECK(save_one("s/adapter.safetensors", 0) == 0 && "no name that an index stands for");
	OK(unlink(support_path("s/adapter.safetensors")));
	OK(unlink(support_path("s/other.safetensors.index.json")));

	OK(save_one("s/model.safetensors", 0));
	check_read_next(support_path("s"));
	CHECK(!is_there("s/model.safetensors.index.json"));
	CHECK(!is_there("s/model-00003-of-00003.safetensors"));
	CHECK(is_there("s/model-00001-of-00009.safetensors"));

	/* One that cannot be read names nothing, and goes all the same. */
	support_put("s/model.safetensors.index.json", "", 0);
	OK(save_one("s/model.safetensors", 0));
	check_read_next(support_path("s"));
	OK(mkdir(support_path("s/model.safetensors.index.json"), 0700));
	expect(save_one("s/model.safetensors", 0), -EISDIR, "this is a folder");

	OK(rmdir(support_path("s/model.safetensors.index.json")));
	OK(unlink(support_path("s/model.safetensors")));
	OK(unlink(support_path("s/model-00001-of-00009.safetensors")));
	CHECK(rmdir(support_path("s")) == 0 && "nothing else was left");
}

/* --- some shards in the place of all --- */

/* The tensors of the file @from, and, @others, zeros called as those of other shards. */
static int save_from(const char *from, bool others, const char *to, uint64_t shard_bytes)
{
	hoist_checkpoint *checkpoint;
	hoist_save *save = create(to, (hoist_save_options){.shard_bytes = shard_bytes});
	OK(hoist_checkpoint_open(support_path(from), 0, &checkpoint));
	size_t n = others ? hoist_checkpoint_n_tensors(checkpoint) : 1;
	for (size_t i = 0; i < n; i++)
		OK(hoist_save_add_tensor(save, NULL, checkpoint, i));
	for (size_t i = 0; others && i < 5; i++) {
		if (hoist_checkpoint_find(checkpoint, shard_names[i], &(size_t){0}) == 0)
			continue;
		hoist_buffer *buffer = bytes(10);
		OK(hoist_save_add(save, shard_names[i], buffer));
		hoist_buffer_unref(buffer);
	}
	hoist_checkpoint_close(checkpoint);
	return saved_run(save);
}

static void some_shards(void)
{
	static const struct {
		const char *from;
		bool others;
		const char *to;
		uint64_t shard_bytes;
		bool refused;
	} cases[] = {
		{"s/model-00003-of-00003.safetensors", false, "s/model.safetensors", 0, true},
		{"s/model-00003-of-00003.safetensors", false, "s/model.safetensors.index.json", 0,
		 true},
		{"s/model-00003-of-00003.safetensors", true, "s/model.safetensors", 0, false},
		{"s/model-00001-of-00003.safetensors", true, "s/model.safetensors", 9, false},
		{"s/model.safetensors.index.json", false, "s/model.safetensors", 0, false},
		{"s/model-00003-of-00003.safetensors", false, "s/other.safetensors", 0, false},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		uint64_t n;
		OK(mkdir(support_path("s"), 0700));
		CHECK(save_shards("s/model.safetensors", 100, 0, &n) == 0 && n == 3);
		int err = save_from(cases[i].from, cases[i].others, cases[i].to,
				    cases[i].shard_bytes);
		CHECK(err == (cases[i].refused ? -EEXIST : 0));
		if (cases[i].refused) {
			expect(err, -EEXIST, "reads 1 of the 3 shards");
			hoist_checkpoint *checkpoint;
			OK(hoist_checkpoint_open(support_path("s"), 0, &checkpoint));
			CHECK(hoist_checkpoint_n_tensors(checkpoint) == 5);
			hoist_checkpoint_close(checkpoint);
			CHECK(!is_there("s/model.safetensors"));
		}
		char command[700];
		(void)snprintf(command, sizeof command, "rm -r '%s'", support_path("s"));
		OK(system(command));
	}
}

/* --- a link --- */

static void link_is_replaced(void)
{
	struct stat st;
	uint64_t n;
	support_put("blob", "", 0);
	OK(symlink("blob", support_path("link.safetensors")));
	OK(save_shards("link.safetensors", 0, 0, &n));
	CHECK(lstat(support_path("link.safetensors"), &st) == 0 && S_ISREG(st.st_mode));
	CHECK(stat(support_path("blob"), &st) == 0 && st.st_size == 0);
}

int main(void)
{
	cpu = support_device("cpu");
	options();
	adding();
	starting();
	shards();
	shadows();
	some_shards();
	link_is_replaced();
	hoist_device_unref(cpu);
	support_cleanup();
	return 0;
}
