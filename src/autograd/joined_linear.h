/* Several linear layers of the same input, such as the projections to queries, keys and values.
 *
 * Note [Joined products]. If the weights of the layers are neighbours in memory, they are one
 * larger weight, and one product computes all layers. On a card this is faster: a product of [8192,
 * 768] with [2304, 768] takes 42 us on an H100, three with [768, 768] take 55 us, and backward
 * gains more, because the gradients of the input need not be added. The results are then columns of
 * one tensor, with a row stride of all columns. Attention reads such columns, and writes its
 * gradients as columns of one tensor, too. Other operations refuse inputs that are not contiguous,
 * so these layers are only for the inputs of attention.
 *
 * Whether products are joined depends on the device (fsdp_device_traits) and on the places of the
 * weights, which are the same on all ranks and in a plan.
 *
 * Legend: T rows of x, D features in, N features out. */
#pragma once
#include "src/autograd/autograd.h"

enum {
    FSDP_MAX_JOINED = 3
};

/* out[i] [T, N] = x w[i]^T + bias[i] for i in [0, n), with x [T, D] and every w[i] [N, D]. If
 * `bias` is NULL, no layer has a bias; otherwise all have one. n is at most FSDP_MAX_JOINED. All
 * tensors have the same dtype. s owns the results, which are for fsdp_attention() only: they need
 * not be contiguous. If the scope fails, they are NULL. */
void fsdp_joined_linear(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *const *w,
                        fsdp_tensor *const *bias, int n, fsdp_tensor **out);

/* Split x [T, n * N] into n matrices of N columns, like fsdp_chunk(), for the inputs of
 * fsdp_attention() only: where products are joined, the results are columns of x itself, and no
 * element is copied, neither in forward nor, usually, in backward. n is at most FSDP_MAX_JOINED. If
 * the scope fails, the results are NULL. */
void fsdp_split_columns(fsdp_scope *s, fsdp_tensor *x, int n, fsdp_tensor **out);

/* Return true if t[0] to t[n - 1] are columns of one tensor, each directly after the one before, as
 * fsdp_joined_linear() makes them: matrices of the same shape and dtype. */
bool fsdp_are_joined_columns(fsdp_tensor *const *t, int n);
/* Create n matrices of this shape that are such columns, or n contiguous matrices if `joined` is
 * false. If the scope fails, they are NULL. */
void fsdp_new_columns(fsdp_scope *s, fsdp_dtype dtype, const int64_t shape[2], int n, bool joined,
                      fsdp_tensor **out);
