/* Checks a checkpoint without reading its data: whether it has all files, whether these files were
 * saved together, and whether each tensor is within its file. `fsdp checkpoint verify` also reads
 * the data. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <fsdp/base.h>

typedef enum fsdp_checkpoint_verdict {
    FSDP_CHECKPOINT_UNCHECKED, /* not checked yet */
    FSDP_CHECKPOINT_GOOD,
    FSDP_CHECKPOINT_DAMAGED,
    FSDP_CHECKPOINT_INCOMPLETE, /* a file is missing: the save still runs, or was interrupted */
    FSDP_CHECKPOINT_LINKED,     /* it has symbolic links, which the dashboard does not follow,
                                   or pipes or the like, which may block a reader */
} fsdp_checkpoint_verdict;

typedef struct fsdp_checkpoint_look {
    fsdp_checkpoint_verdict verdict;
    char message[512]; /* the first fault; "" if there is none */
    int64_t bytes;     /* sum of the sizes of all files */
    size_t files;      /* number of files */
} fsdp_checkpoint_look;

/* Check the checkpoint whose path below the folder `root` is `relative`. `root_path` is the path of
 * this folder. Set *look to the result. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_look_at(int root, const char *root_path,
                                                    const char *relative,
                                                    fsdp_checkpoint_look *look);
