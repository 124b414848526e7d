/* What a folder around checkpoints holds: `fsdp train`'s output with checkpoint-1, checkpoint-2,
 * one whose model and optimizer are files or folders of their own, Accelerate's. */
#pragma once
#include <stddef.h>

#include <fsdp/base.h>

typedef struct fsdp_parts {
    char **paths; /* [n] for fsdp_source_open(), numbers in names rising */
    size_t n, cap;
} fsdp_parts;

/* The checkpoints in `path`: itself if it is one, or not a folder; else its files of torch.save and
 * safetensors, its folders of torch.distributed.checkpoint, and what checkpoint-<n> and
 * checkpoint_<n> hold. Such a folder with nothing that can be read counts all the same. Itself if
 * there are none, so that opening it says what was looked for. Ended by fsdp_parts_fini(), also
 * after a failure. */
FSDP_MUST_CHECK fsdp_status fsdp_parts_find(const char *path, fsdp_parts *parts);
/* All that a reader of checkpoints knows in `path`, and what it does not: a checkpoint or model
 * that `path` is itself, with what is beside it (an optimizer, random states, checkpoint-<n>).
 *
 * @param parts  out: as above, and files of torch.save under other endings, by their first bytes
 * @param others out: paths of files and folders that are none of these */
FSDP_MUST_CHECK fsdp_status fsdp_parts_survey(const char *path, fsdp_parts *parts,
                                              fsdp_parts *others);
void fsdp_parts_fini(fsdp_parts *parts);
/* Does a folder hold weights as Hugging Face names them? */
bool fsdp_parts_is_model(const char *path);
/* Is it a directory of torch.distributed.checkpoint? */
bool fsdp_parts_is_dcp(const char *path);
/* checkpoint-<n> or checkpoint_<n>. */
bool fsdp_parts_is_checkpoint_name(const char *name);
/* checkpoint-9 before checkpoint-10. */
void fsdp_parts_sort(char **names, size_t n);
FSDP_MUST_CHECK fsdp_status fsdp_parts_add(fsdp_parts *parts, const char *path);
/* Is the one part the path itself? */
bool fsdp_parts_are_whole(const fsdp_parts *parts, const char *path);
