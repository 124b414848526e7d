/* Several linear layers of the same input, such as the projections to queries, keys and values.
 *
 * Note [Joined products]. If the weights of the layers are adjacent in memory, they can be read as
 * one larger weight, and one product computes all layers. On a GPU this is faster. On an H100, a
 * product of [8192, 768] with [2304, 768] takes 42 us, but three products with [768, 768] take 55
 * us. Backward saves more time, because it need not add up several gradients of the input. The
 * results are then column blocks of one tensor [T, n * N]. Attention reads such column blocks, and
 * also writes its gradients as column blocks of one tensor. Other operations refuse inputs that are
 * not contiguous, so joined layers can only compute inputs of attention.
 *
 * Whether products are joined depends on the device (fsdp_device_traits) and on the addresses of
 * the weights relative to each other. Both are the same on all ranks and in a plan.
 *
 * Legend: T rows of x, D features in, N features out. */
#pragma once
#include "src/autograd/autograd.h"

enum {
    FSDP_MAX_JOINED = 3
};

/* Compute out[i] [T, N] = x w[i]^T + bias[i] for i in [0, n), with x [T, D] and every w[i] [N, D].
 * If `bias` is NULL, no layer has a bias; otherwise every layer has one. n is at most
 * FSDP_MAX_JOINED. All tensors have the same dtype. s owns the results. Pass them only to
 * fsdp_attention(), because they may not be contiguous. If the scope fails, all out[i] are NULL. */
void fsdp_joined_linear(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *const *w,
                        fsdp_tensor *const *bias, int n, fsdp_tensor **out);

/* Split x [T, n * N] into n matrices [T, N], like fsdp_chunk(). On devices that join products,
 * out[i] is a view of N columns of x. Then forward copies nothing, and backward usually copies
 * nothing. Pass the results only to fsdp_attention(), because they may not be contiguous. n is at
 * most FSDP_MAX_JOINED. If the scope fails, all out[i] are NULL. */
void fsdp_split_columns(fsdp_scope *s, fsdp_tensor *x, int n, fsdp_tensor **out);

/* Return true if t[0] to t[n - 1] are matrices of the same shape and dtype, and adjacent column
 * blocks of one tensor, as fsdp_joined_linear() returns them. */
bool fsdp_are_joined_columns(fsdp_tensor *const *t, int n);
/* Create n matrices of the given shape. If `joined` is true, they are adjacent column blocks of one
 * new tensor. Otherwise they are n contiguous tensors. If the scope fails, all out[i] are NULL. */
void fsdp_new_columns(fsdp_scope *s, fsdp_dtype dtype, const int64_t shape[2], int n, bool joined,
                      fsdp_tensor **out);
