/* A buffer with a part for each rank of a group: gradient buffers, and the lanes of replicas. It
 * begins with flags: for each rank, a byte for each parameter that says whether it has a gradient.
 * Their place does not depend on the layout of the parts, which may differ on a rank that froze
 * other parameters. A single rank (group NULL) has no flags: the host would write them while
 * kernels may still be using that memory. */
#pragma once
#include "src/fsdp/grad_buffer.h"

typedef struct fsdp_grad_parts {
    fsdp_buffer *buffer;
    fsdp_group *group;
    int64_t numel; /* Elements of one part, without flags. */
} fsdp_grad_parts;

/* The size of the whole buffer, in bytes. */
size_t fsdp_grad_parts_bytes(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts);
/* The flags [n_params] and the gradients of a rank. NULL on meta; flags are also NULL without a
 * group. */
unsigned char *fsdp_grad_parts_flags(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts,
                                     int rank);
char *fsdp_grad_parts_of_rank(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts, int rank);
/* Check that all ranks have gradients of the same parameters. Otherwise FSDP_ERR_COMM on all ranks,
 * naming the parameter. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_parts_compare_flags(const fsdp_grad_buffer *b,
                                                          const fsdp_grad_parts *parts);
/* Take `slice` of the tensor at element `offset` of every part; rows = scale * their sum. */
void fsdp_grad_parts_sum(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts, int64_t offset,
                         const fsdp_slice *slice, fsdp_tensor *rows, float scale);
