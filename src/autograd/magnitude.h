/* The operations of DoRA (Liu et al. 2024, arXiv 2402.09353).
 *
 * Note [Magnitudes]. DoRA divides each row of a weight W + scaling B A by its norm, and multiplies
 * it by a trained number, the magnitude m of the row:
 *
 *     y = x (f (W + scaling B A))^T + bias,  f = m / |W + scaling B A|,
 *
 * where |.| is the Euclidean norm of a row, and f multiplies rows. The rows are the outputs of the
 * layer, so y can be computed as f (x W^T + scaling x A^T B^T) + bias, without the weight itself.
 * Only the norms need the weight W + scaling B A, and they are computed from a few rows of it at a
 * time. As in the paper (section 4.3) and in peft, the norms are constants in backward.
 *
 * The norms are computed in float32, even if W has another dtype, and rounded to the dtype of W. So
 * f is exactly 1 at the start of training, when B A is 0 and m is the norm of W rounded to this
 * dtype.
 * Every rank has W as a whole while it computes, so all ranks compute the same norms, for any
 * number of ranks. */
#pragma once
#include "src/autograd/autograd.h"

/* The weight W + scaling B A of a layer. W is [N, D] or, if `transposed` is true, [D, N]; A is [R,
 * D]; and B is [N, R]. All have the same dtype. A and B may be NULL: the weight is W. */
typedef struct fsdp_adapted_weight {
    fsdp_tensor *w, *a, *b;
    float scaling;
    bool transposed;
} fsdp_adapted_weight;

/* Return the norms of the N rows of the weight or, if weight->transposed is true, of its N columns.
 * The result is a tensor [N] of float32. No gradient flows through it. */
fsdp_tensor *fsdp_weight_norm(fsdp_scope *s, const fsdp_adapted_weight *weight);
/* Return x [T, N] with column j multiplied by magnitudes[j] / norms[j], plus the bias. `magnitudes`
 * and `bias` (NULL: none) are [N] and have the dtype of x. norms [N] is float32 and a constant. A
 * column whose norm is 0 becomes the bias. */
fsdp_tensor *fsdp_scale_to_magnitudes(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *magnitudes,
                                      fsdp_tensor *norms, fsdp_tensor *bias);
