/* SPDX-License-Identifier: MIT */
/* hoist/hub.h - models in Hugging Face's cache, found without the network.
 *
 *     char path[4096];
 *     hoist_hub_find("hf://org/name@main", path, sizeof path);
 *     hoist_checkpoint_open(path, 0, &checkpoint);
 *
 * The cache's folder is the first of these whose variable is set: HF_HUB_CACHE,
 * HUGGINGFACE_HUB_CACHE, HF_HOME (its folder hub), XDG_CACHE_HOME (huggingface/hub), HOME
 * (.cache/huggingface/hub).  In it, models--ORG--NAME has refs/REVISION, files that name a commit,
 * and snapshots/COMMIT, folders with the model's files.  In a set-uid program no variable counts,
 * and no model is found by its name.
 */
#ifndef HOIST_HUB_H
#define HOIST_HUB_H

#include <stddef.h>

#include <hoist/error.h>

HOIST_BEGIN

/* Writes to @path, which has room for @bytes, where the model @where has its files:
 *
 *   hf://[ORG/]NAME[@REVISION]  the snapshot of that revision: a name in refs, or a commit
 *   .../models--NAME            a folder of the cache: the snapshot of the revision "main"
 *   any other path              that path, also if nothing is there
 *
 * Where no revision is named and refs/main is missing, a model's only snapshot is taken.
 * Threads: any.
 * Returns: 0; -EINVAL (@where or @path is NULL, or no such name); -ENOENT (no such model in the
 *   cache, or no such revision: the text says which there are); -EACCES and the like; -EBADMSG (a
 *   file in refs names no commit); -ENAMETOOLONG (@path has too little room). */
HOIST_API int hoist_hub_find(const char *where, char *path, size_t bytes);

HOIST_END

#endif
