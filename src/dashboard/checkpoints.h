/* What can be said of a checkpoint without reading its data: whether all files of its kind are
 * there, whether they are the ones that were saved together, and whether tensors are within their
 * files. `fsdp checkpoint verify` reads the data as well. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <fsdp/base.h>

typedef enum fsdp_checkpoint_verdict {
    FSDP_CHECKPOINT_UNCHECKED, /* it was not looked at yet */
    FSDP_CHECKPOINT_GOOD,
    FSDP_CHECKPOINT_DAMAGED,
    FSDP_CHECKPOINT_INCOMPLETE, /* a file is missing: it may be being written, or was cut off */
    FSDP_CHECKPOINT_LINKED,     /* it has symbolic links, which the dashboard does not follow */
} fsdp_checkpoint_verdict;

typedef struct fsdp_checkpoint_look {
    fsdp_checkpoint_verdict verdict;
    char message[512]; /* the first fault; "" if there is none */
    int64_t bytes;     /* sum of the sizes of its files */
    size_t files;
} fsdp_checkpoint_look;

/* Look at the checkpoint `relative` below the folder `root`, whose path is `root_path`. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_look_at(int root, const char *root_path,
                                                    const char *relative,
                                                    fsdp_checkpoint_look *look);
