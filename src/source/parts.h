/* Finds the checkpoints in a folder. The folder may be the output of `fsdp train`, with
 * checkpoint-1 and checkpoint-2 in it, or a folder of Accelerate, or one whose model and optimizer
 * are separate files or folders. */
#pragma once
#include <stddef.h>

#include <fsdp/base.h>

typedef struct fsdp_parts {
    char **paths; /* [n] for fsdp_source_open(), sorted by fsdp_parts_sort() */
    size_t n, cap;
} fsdp_parts;

/* Find the checkpoints in `path`. If `path` is a checkpoint, or is not a folder, the result is
 * `path` itself. Otherwise the result consists of its files of torch.save and safetensors and of
 * its folders of torch.distributed.checkpoint, and also of those in its subfolders checkpoint-<n>
 * and checkpoint_<n>. A subfolder of this name in which nothing can be read is itself in the
 * result. If nothing is found, the result is `path`, and fsdp_source_open() then reports what was
 * searched for. Call fsdp_parts_fini() afterwards, even after a failure. */
FSDP_MUST_CHECK fsdp_status fsdp_parts_find(const char *path, fsdp_parts *parts);
/* List everything in `path`: what readers of checkpoints can open, and all other files. `path`
 * itself is listed if it is a checkpoint or a model, and so is everything next to it (an optimizer,
 * random states, checkpoint-<n>).
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
/* Sort names, and compare numbers in them by value: checkpoint-9 comes before checkpoint-10. */
void fsdp_parts_sort(char **names, size_t n);
FSDP_MUST_CHECK fsdp_status fsdp_parts_add(fsdp_parts *parts, const char *path);
/* Is `path` itself the only part? */
bool fsdp_parts_is_path_itself(const fsdp_parts *parts, const char *path);
