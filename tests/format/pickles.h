/* SPDX-License-Identifier: MIT */
/* tests/format/pickles.h - PyTorch's checkpoints, made instruction by instruction. */
#ifndef HOIST_TESTS_FORMAT_PICKLES_H
#define HOIST_TESTS_FORMAT_PICKLES_H

#include "format/torch.h"
#include "tests/support/format-archive.h"
#include "tests/support/format-expect.h"

/* Pieces of pickles.  A text of one character; of more: its length comes first. */
#define ONE(c) "X\1\0\0\0" c
#define CPU "X\3\0\0\0cpu"
#define STORAGE_OF(module, class, key, count)                                                      \
	"(X\7\0\0\0storagec" module "\n" class "\n" ONE(key) CPU count "tQ"
#define STORAGE(class, count) STORAGE_OF("torch", class, "0", count)
#define PROTOCOL "\x80\2"
#define GLOBAL(module, name) "c" module "\n" name "\n"
#define ORDERED GLOBAL("collections", "OrderedDict")
#define V2 "ctorch._utils\n_rebuild_tensor_v2\n"
#define V3 "ctorch._utils\n_rebuild_tensor_v3\n"
#define HOOKS "\x89" ORDERED ")R"
/* Two by three elements of storage 0, which has at least six. */
#define TWO_BY_THREE "K\0K\2K\3\x86K\3K\1\x86" HOOKS
#define FLOATS STORAGE("FloatStorage", "K\6")
#define TENSOR V2 "(" FLOATS TWO_BY_THREE "tR"
/* {"w": ...} */
#define BEGIN PROTOCOL "}" ONE("w")
#define END "s."

struct model {
	struct archive archive;
	size_t at; /* of the bytes of storage 0 */
};

static inline void model_begin(struct model *model, const void *pickle, size_t n)
{
	*model = (struct model){.archive = {.align = 64, .descriptors = true, .flags = 0x800}};
	archive_add(&model->archive, "m/data.pkl", pickle, n);
	model->at = archive_add(&model->archive, "m/data/0", "0123456789abcdefghijklmn", 24);
}

static inline int parse_as(const struct archive *archive, bool lenient,
			   struct hoist__manifest **ret)
{
	struct hoist__reader reader = reader_of(&archive->file, "m.pt");
	reader.lenient = lenient;
	return hoist__torch_parse(&reader, ret);
}

static inline int parse(const struct archive *archive, struct hoist__manifest **ret)
{
	return parse_as(archive, false, ret);
}

static inline int parse_pickle(const void *pickle, size_t n, struct hoist__manifest **ret,
			       size_t *at)
{
	struct model model;
	model_begin(&model, pickle, n);
	archive_end(&model.archive, "");
	int err = parse(&model.archive, ret);
	if (at != NULL)
		*at = model.at;
	archive_free(&model.archive);
	return err;
}

static inline void refused(const void *pickle, size_t n, int code, const char *text)
{
	struct hoist__manifest *manifest = NULL;
	int err = parse_pickle(pickle, n, &manifest, NULL);
	expect_failed(err, manifest, code, text);
}

/* The file is wrong; the file may be right, and hoist does not read it. */
#define MALFORMED(pickle, text) refused(pickle, sizeof(pickle) - 1, -EBADMSG, text)
#define UNSUPPORTED(pickle, text) refused(pickle, sizeof(pickle) - 1, -ENOTSUP, text)

static inline void repeat(struct bytes *to, const char *text, size_t times)
{
	for (size_t i = 0; i < times; i++)
		put_text(to, text);
}

static inline void refused_bytes(struct bytes *pickle, const char *text)
{
	refused(pickle->p, pickle->n, -EBADMSG, text);
	bytes_free(pickle);
}

#endif
