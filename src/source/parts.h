/* Finds the checkpoints in a folder. The folder may be the output of `fsdp train`, which contains
 * checkpoint-1, checkpoint-2 and so on, or a folder of Accelerate, or one in which the model and
 * the optimizer are separate files or folders. */
#pragma once
#include <stddef.h>

#include <fsdp/base.h>

typedef struct fsdp_parts {
    char **paths; /* [n] paths for fsdp_source_open(); those in the same folder are in the order of
                     fsdp_parts_sort() */
    size_t n, cap;
} fsdp_parts;

/* Find the checkpoints in `path`. If `path` is a checkpoint, or is not a folder, the result is
 * `path` itself. Otherwise the result consists of the files of torch.save and safetensors and the
 * folders of torch.distributed.checkpoint that are in `path` or in its subfolders checkpoint-<n>
 * and checkpoint_<n>. If such a subfolder is a Hugging Face model, or if no checkpoint is found in
 * it, the subfolder itself is in the result. If nothing is found at all, the result is `path`, and
 * fsdp_source_open() then reports what was searched for. Call fsdp_parts_fini() afterwards, even
 * after a failure. */
FSDP_MUST_CHECK fsdp_status fsdp_parts_find(const char *path, fsdp_parts *parts);
/* List everything in `path`: what readers of checkpoints can open, and all other files. If `path`
 * itself is a checkpoint or a model, it is listed together with what is next to its own files (an
 * optimizer, random states, checkpoint-<n>).
 *
 * @param parts out: what fsdp_parts_find() would find, and files of torch.save with other endings,
 *   which are recognized by their first bytes
 * @param others out: paths of all other files and folders */
FSDP_MUST_CHECK fsdp_status fsdp_parts_classify(const char *path, fsdp_parts *parts,
                                                fsdp_parts *others);
void fsdp_parts_fini(fsdp_parts *parts);
/* Does `path` contain weights in files with the names that Hugging Face uses? */
bool fsdp_parts_is_model(const char *path);
/* Is `path` a directory of torch.distributed.checkpoint? */
bool fsdp_parts_is_dcp(const char *path);
/* Is `name` checkpoint-<n> or checkpoint_<n>? */
bool fsdp_parts_is_checkpoint_name(const char *name);
/* Sort names. Numbers in them are ordered by value: checkpoint-9 comes before checkpoint-10. */
void fsdp_parts_sort(char **names, size_t n);
FSDP_MUST_CHECK fsdp_status fsdp_parts_add(fsdp_parts *parts, const char *path);
/* Does `parts` consist of `path` itself and nothing else? */
bool fsdp_parts_is_path_itself(const fsdp_parts *parts, const char *path);
