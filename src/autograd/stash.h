/* Tensors that a checkpointed call keeps between forward and backward, in memory or in a file.
 *
 * Note [Activation offload]. Calls are numbered in the order of forward. When call n stores a
 * tensor, the file's worker thread immediately starts writing it, and the tensor's memory is
 * released when call n + 2 begins. So the write has at least the duration of one whole call.
 * Tensors of at most two calls are in memory, however slow the disk is. Backward runs in the
 * opposite order. When a call runs again, the worker thread starts reading the tensors of the call
 * before it. A tensor that several calls keep, such as the encoder's output, which each decoder
 * block reads, is written once. It stays in memory as long as anything else holds it. The file is
 * used as a stack: a new tensor is stored after the last tensor that is still needed. On the meta
 * device memory is counted in the same way, and nothing is read or written. */
#pragma once
#include <fsdp/autograd.h>

#include "src/tensor/tensor.h"

/* Begin a call and get its number, for fsdp_stash_put(). Releases the memory of tensors that were
 * stored before the previous call; FSDP_ERR_IO if writing them to the file failed. If offload is
 * NULL, *number is 0. */
FSDP_MUST_CHECK fsdp_status fsdp_offload_begin_call(fsdp_activation_offload *offload,
                                                    uint64_t *number);
/* Start reading the tensors of the call before call `number` from the file. No effect if offload is
 * NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_offload_read_ahead(fsdp_activation_offload *offload,
                                                    uint64_t number);

typedef struct fsdp_stashed fsdp_stashed;

/* Keep `t`. Its elements must not change from now on. Leaves, views and small tensors stay in
 * memory; if offload is NULL, every tensor does. FSDP_ERR_IO if the disk is full. */
FSDP_MUST_CHECK fsdp_status fsdp_stash_put(fsdp_activation_offload *offload, uint64_t number,
                                           fsdp_tensor *t, fsdp_stashed **stashed);
/* Get the tensor with its elements: *t is a new reference. It stays in memory until
 * fsdp_stash_drop(). */
FSDP_MUST_CHECK fsdp_status fsdp_stash_get(fsdp_stashed *stashed, fsdp_tensor **t);
void fsdp_stash_drop(fsdp_stashed *stashed); /* accepts NULL */
