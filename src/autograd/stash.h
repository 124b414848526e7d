/* Tensors that a checkpointed call keeps between forward and backward, in memory or in a file.
 *
 * Note [Activation offload]. Calls are numbered in the order of forward. A tensor that call n
 * stores is written immediately by the file's worker thread, and its memory is released when call n
 * + 2 begins. By then the write has had the time of a whole call, and tensors of at most two calls
 * are in memory, however slow the disk is. Backward runs in the opposite order: when a call runs
 * again, reading the tensors of the call before it begins. A tensor that several calls keep (the
 * encoder's output in each decoder block) is written once, and stays in memory as long as anything
 * else holds it. The file is a stack, like forward and backward: a new tensor is stored after the
 * last one that is still needed. On the meta device memory is counted in the same way, and nothing
 * is read or written. */
#pragma once
#include <fsdp/autograd.h>

#include "src/tensor/tensor.h"

/* Begin a call; pass *number to fsdp_stash_put(). Releases the memory of calls before the last one;
 * FSDP_ERR_IO if writing them to the file failed. offload NULL: number 0. */
FSDP_MUST_CHECK fsdp_status fsdp_offload_begin_call(fsdp_activation_offload *offload,
                                                    uint64_t *number);
/* Begin reading the tensors of the last call before `number` from the file. offload NULL: no
 * effect. */
FSDP_MUST_CHECK fsdp_status fsdp_offload_read_ahead(fsdp_activation_offload *offload,
                                                    uint64_t number);

typedef struct fsdp_stashed fsdp_stashed;

/* Keep `t`, whose elements must not change any more. Leaves, views and small tensors stay in
 * memory; if offload is NULL, all do. FSDP_ERR_IO if the disk is full. */
FSDP_MUST_CHECK fsdp_status fsdp_stash_put(fsdp_activation_offload *offload, uint64_t number,
                                           fsdp_tensor *t, fsdp_stashed **stashed);
/* Get the tensor with its elements: *t is a new reference. It stays in memory until
 * fsdp_stash_drop(). */
FSDP_MUST_CHECK fsdp_status fsdp_stash_get(fsdp_stashed *stashed, fsdp_tensor **t);
void fsdp_stash_drop(fsdp_stashed *stashed); /* accepts NULL */
