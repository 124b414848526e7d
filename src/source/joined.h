/* Joins a tensor whose parts are in several files. Each part is a box of the tensor. */
#pragma once
#include <fsdp/hf.h>

#include "src/base/arena.h"
#include "src/torchfile/torch_archive.h"

typedef struct fsdp_joined_part {
    /* The tensor of a rank's file that has this part. Its shape is the size of the part's box. */
    fsdp_checkpoint_entry entry;
    const int64_t *offsets; /* [ndim] index in the whole tensor at which the box begins */
    /* The archive that contains the part and its checksums; NULL if the file is not a torch.save
     * file. */
    fsdp_torch_archive *archive;
    const fsdp_pickle_value *value; /* the part's tensor in `archive`; NULL if `archive` is NULL */
} fsdp_joined_part;

typedef struct fsdp_joined {
    fsdp_joined_part *parts; /* [n] allocated in the arena that is passed to fsdp_joined_add() */
    size_t n, cap;
    const int64_t *shape; /* [ndim] shape of the whole tensor */
    int ndim;
    int64_t numel;
    size_t width; /* bytes of an element */
} fsdp_joined;

/* Append a copy of *part. */
FSDP_MUST_CHECK fsdp_status fsdp_joined_add(fsdp_joined *joined, fsdp_arena *arena,
                                            const fsdp_joined_part *part);
/* Check that all parts have the same dtype, have the tensor's number of dimensions, and are within
 * the tensor. Also check that the parts do not overlap and that together they cover the tensor. If
 * a check fails, return FSDP_ERR_FORMAT; the message names a file and the tensor `name`. */
FSDP_MUST_CHECK fsdp_status fsdp_joined_check(const fsdp_joined *joined, const char *name);
/* Copy rows [begin, end) of the tensor to `out` in row-major order. A row is an index of dimension
 * 0. A scalar has one row. */
void fsdp_joined_rows(const fsdp_joined *joined, int64_t begin, int64_t end, unsigned char *out);
/* Verify the checksums of all parts whose format has checksums. */
FSDP_MUST_CHECK fsdp_status fsdp_joined_verify(const fsdp_joined *joined, const char *name);
