/* Finding the checkpoints within a folder: the output of `fsdp train` with checkpoint-1,
 * checkpoint-2; a folder whose model and optimizer are separate files or folders; a folder of
 * Accelerate. */
#pragma once
#include <stddef.h>

#include <fsdp/base.h>

typedef struct fsdp_parts {
    char **paths; /* [n] for fsdp_source_open(), by increasing numbers in names */
    size_t n, cap;
} fsdp_parts;

/* Find the checkpoints in `path`. If it is a checkpoint or not a folder, that is `path` itself.
 * Otherwise these are its files of torch.save and safetensors, its folders of
 * torch.distributed.checkpoint, and the same in checkpoint-<n> and checkpoint_<n>; such a folder
 * counts even if nothing in it can be read. If there are none, the result is `path`, and opening it
 * reports what was searched for. Call fsdp_parts_fini() afterwards, also after a failure. */
FSDP_MUST_CHECK fsdp_status fsdp_parts_find(const char *path, fsdp_parts *parts);
/* List all that readers of checkpoints know in `path`, and all else. This includes a checkpoint or
 * model that `path` is itself, and what is next to it (an optimizer, random states,
 * checkpoint-<n>).
 *
 * @param parts  out: as above, and files of torch.save with other endings, recognized by their
 * first bytes
 * @param others out: paths of files and folders that are none of these */
FSDP_MUST_CHECK fsdp_status fsdp_parts_survey(const char *path, fsdp_parts *parts,
                                              fsdp_parts *others);
void fsdp_parts_fini(fsdp_parts *parts);
/* Does a folder hold weights as Hugging Face names them? */
bool fsdp_parts_is_model(const char *path);
/* Is it a directory of torch.distributed.checkpoint? */
bool fsdp_parts_is_dcp(const char *path);
/* Is `name` checkpoint-<n> or checkpoint_<n>? */
bool fsdp_parts_is_checkpoint_name(const char *name);
/* Sort by numbers in names: checkpoint-9 before checkpoint-10. */
void fsdp_parts_sort(char **names, size_t n);
FSDP_MUST_CHECK fsdp_status fsdp_parts_add(fsdp_parts *parts, const char *path);
/* Is the one part the path itself? */
bool fsdp_parts_are_whole(const fsdp_parts *parts, const char *path);
