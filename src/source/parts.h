/* Finds the checkpoints in a folder. The folder may be the output of `fsdp train`, which contains
 * checkpoint-1, checkpoint-2 and so on. It may be a folder of Accelerate, or any folder that
 * contains the model and the optimizer as separate files or folders. */
#pragma once
#include <stddef.h>

#include <fsdp/base.h>

typedef struct fsdp_parts {
    char **paths; /* [n] paths to pass to fsdp_source_open(); paths in the same folder are sorted by
                     fsdp_parts_sort() */
    size_t n, cap;
} fsdp_parts;

/* Find the checkpoints in `path`. If `path` is a checkpoint, or is not a folder, the result is
 * `path` itself. Otherwise, search `path` and its subfolders checkpoint-<n> and checkpoint_<n>. The
 * result contains all torch.save files, safetensors files and folders of
 * torch.distributed.checkpoint that are found there. If a subfolder checkpoint-<n> or
 * checkpoint_<n> is a Hugging Face model, or if no checkpoint is found in it, the result contains
 * the subfolder itself.
 *
 * If nothing is found, the result is `path`. When the caller then passes `path` to
 * fsdp_source_open(), the error says what was searched for. Call fsdp_parts_fini() afterwards, even
 * after a failure. */
FSDP_MUST_CHECK fsdp_status fsdp_parts_find(const char *path, fsdp_parts *parts);
/* List the contents of `path`: checkpoints in `parts`, and everything else in `others`. If the
 * folder `path` is itself a checkpoint or a model, `parts` contains `path`, and neither list
 * contains the files of this checkpoint or model. Everything else in the folder, such as an
 * optimizer, random states or checkpoint-<n>, is listed as it would be if the folder were not a
 * checkpoint.
 *
 * @param parts out: what fsdp_parts_find() would find, and further torch.save files, which are
 *   recognized by their names or by their first bytes
 * @param others out: paths of all other files and folders */
FSDP_MUST_CHECK fsdp_status fsdp_parts_classify(const char *path, fsdp_parts *parts,
                                                fsdp_parts *others);
void fsdp_parts_fini(fsdp_parts *parts);
/* Return true if `path` contains weights in files with the names that Hugging Face uses. */
bool fsdp_parts_is_model(const char *path);
/* Return true if `path` is a directory of torch.distributed.checkpoint. */
bool fsdp_parts_is_dcp(const char *path);
/* Return true if `name` is checkpoint-<n> or checkpoint_<n>. */
bool fsdp_parts_is_checkpoint_name(const char *name);
/* Sort names. Numbers in the names are compared by value, so checkpoint-9 comes before
 * checkpoint-10. */
void fsdp_parts_sort(char **names, size_t n);
FSDP_MUST_CHECK fsdp_status fsdp_parts_add(fsdp_parts *parts, const char *path);
/* Return true if `path` is the only path in `parts`. */
bool fsdp_parts_is_path_itself(const fsdp_parts *parts, const char *path);
