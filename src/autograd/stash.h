/* Stores the tensors that a call with activation checkpointing keeps between forward and backward,
 * in memory or in a file.
 *
 * Note [Activation offload]. Calls of checkpointed parts are numbered in the order of forward. When
 * call n stores a tensor, the file's worker thread starts writing it at once. The tensor's memory
 * is released when call n + 2 begins, so the write can take as long as one whole call. If it takes
 * longer, call n + 2 waits for it. So only tensors of at most two calls are in memory, however slow
 * the disk is. Backward runs in the opposite order. When a call runs again in backward, the worker
 * thread starts reading the tensors of the call that came before it in forward.
 *
 * Several calls may keep the same tensor. For example, each decoder block keeps the encoder's
 * output. Such a tensor is written once. It stays in memory as long as anything else holds it. The
 * file is used as a stack: a new tensor is stored after the last tensor that is still needed. On
 * the meta device, memory is counted in the same way, and nothing is read or written. */
#pragma once
#include <fsdp/autograd.h>

#include "src/tensor/tensor.h"

/* Begin the call of a checkpointed part, and set *number to its number, for fsdp_stash_put(). If
 * offload is NULL, only set *number to 0. Otherwise, also release the memory of the tensors that
 * were stored before the previous call began. Return FSDP_ERR_IO if one of these tensors could not
 * be written to the file. */
FSDP_MUST_CHECK fsdp_status fsdp_offload_begin_call(fsdp_activation_offload *offload,
                                                    uint64_t *number);
/* Call this when call `number` runs again in backward. It starts reading, from the file, the
 * tensors of the call that came before call `number` in forward, because backward needs these
 * tensors next. No effect if offload is NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_offload_read_ahead(fsdp_activation_offload *offload,
                                                    uint64_t number);

typedef struct fsdp_stashed fsdp_stashed;

/* Keep `t` for call `number`. The elements of `t` must not change from now on. Leaves, views and
 * small tensors stay in memory. If offload is NULL, all tensors stay in memory. Return FSDP_ERR_IO
 * if the disk is full. The caller must pass *stashed to fsdp_stash_drop(). */
FSDP_MUST_CHECK fsdp_status fsdp_stash_put(fsdp_activation_offload *offload, uint64_t number,
                                           fsdp_tensor *t, fsdp_stashed **stashed);
/* Get the tensor, with its elements in memory, and set *t to a new reference. From now until
 * fsdp_stash_drop(), the tensor stays in memory. */
FSDP_MUST_CHECK fsdp_status fsdp_stash_get(fsdp_stashed *stashed, fsdp_tensor **t);
void fsdp_stash_drop(fsdp_stashed *stashed); /* accepts NULL */
