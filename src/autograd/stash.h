/* What a checkpointed call keeps between forward and backward: held in memory, or moved to a file.
 *
 * Note [Activation offload]. Calls have numbers in the order of forward. A tensor that call n puts
 * away is written by the file's worker at once, and its memory is given back when call n + 2
 * begins: by then the write has had the time of a whole call, and no more than two calls' tensors
 * lie in memory, whatever the disk does. Backward comes from the other end: when a call runs again,
 * the reads of the one before it in forward begin. A tensor that several calls keep (the encoder's
 * output in each decoder block) is written once, and stays in memory as long as anybody else holds
 * it. The file is a stack, as forward and backward are: a new tensor goes behind the last one that
 * is still wanted. On the meta device memory is counted alike and nothing is read or written. */
#pragma once
#include <fsdp/autograd.h>

#include "src/tensor/tensor.h"

/* Begin a call: *number is for put(). Gives back the memory of calls before the last one;
 * FSDP_ERR_IO if the file did not take them. offload NULL: number 0. */
FSDP_MUST_CHECK fsdp_status fsdp_offload_begin_call(fsdp_activation_offload *offload,
                                                    uint64_t *number);
/* Begin to read what the last call before `number` has in the file. offload NULL: no effect. */
FSDP_MUST_CHECK fsdp_status fsdp_offload_read_ahead(fsdp_activation_offload *offload,
                                                    uint64_t number);

typedef struct fsdp_stashed fsdp_stashed;

/* Keep `t`, whose elements nobody changes any more. Leaves, views and what is small stay in memory.
 * offload NULL: all do. FSDP_ERR_IO if the disk is full. */
FSDP_MUST_CHECK fsdp_status fsdp_stash_put(fsdp_activation_offload *offload, uint64_t number,
                                           fsdp_tensor *t, fsdp_stashed **stashed);
/* The tensor with its elements: *t is a new reference; it stays in memory until drop(). */
FSDP_MUST_CHECK fsdp_status fsdp_stash_get(fsdp_stashed *stashed, fsdp_tensor **t);
void fsdp_stash_drop(fsdp_stashed *stashed); /* accepts NULL */
