/* A buffer with a part for each rank of a group: gradient buffers, and the lanes of replicas. First
 * come, for each rank, a byte for each parameter that has a gradient; they are at the same place
 * for all ranks, also for one that lays out its part differently because it froze something else.
 * One rank alone (group NULL) has no such bytes: the host would write them where kernels may still
 * be busy with what was there before. */
#pragma once
#include "src/fsdp/grad_buffer.h"

typedef struct fsdp_grad_parts {
    fsdp_buffer *buffer;
    fsdp_group *group;
    int64_t numel; /* Of the gradients of a part. */
} fsdp_grad_parts;

/* What the buffer takes. */
size_t fsdp_grad_parts_bytes(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts);
/* A rank's flags, [n_params], and gradients. NULL on meta; no flags without a group. */
unsigned char *fsdp_grad_parts_flags(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts,
                                     int rank);
char *fsdp_grad_parts_of_rank(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts, int rank);
/* FSDP_ERR_COMM on all ranks, naming the parameter, unless they have gradients of the same ones. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_parts_compare_flags(const fsdp_grad_buffer *b,
                                                          const fsdp_grad_parts *parts);
/* rows = the sum over all parts of what they have in `slice` of the tensor at element `offset`,
 * times scale. */
void fsdp_grad_parts_sum(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts, int64_t offset,
                         const fsdp_slice *slice, fsdp_tensor *rows, float scale);
