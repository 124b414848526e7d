/* Combines sums of rows into sums of tensors (combine()), and sums of tensors into the norm of all
 * gradients and the factor by which they are clipped (clip_factor()). There are so few sums that
 * the calling thread computes them alone. */
#include <math.h>

#include "src/kernels/cpu/isa/block.h"

/* --- combine --- */

static double join_two(bool largest, double left, double right)
{
    if (!largest)
        return left + right;
    return right > left || isnan(right) ? right : left; /* NaN if left or right is NaN */
}

/* Combines x [n] pairwise in a complete binary tree; n is a power of two. */
static double whole_tree(bool largest, const double *x, int64_t n)
{
    if (n == 1)
        return x[0];
    return join_two(largest, whole_tree(largest, x, n / 2), whole_tree(largest, x + n / 2, n / 2));
}

/* Combines x [n] pairwise in a binary tree, n > 0. Let m be the number of elements below a node. If
 * m is not a power of two, the number of elements below the node's left child is the largest power
 * of two that is less than m. */
static double any_tree(bool largest, const double *x, int64_t n)
{
    int64_t left = 1;
    while (2 * left <= n)
        left *= 2;
    const double sum = whole_tree(largest, x, left);
    return left == n ? sum : join_two(largest, sum, any_tree(largest, x + left, n - left));
}

static double in_order(bool largest, const double *x, int64_t n)
{
    double sum = x[0];
    for (int64_t i = 1; i < n; i++)
        sum = join_two(largest, sum, x[i]);
    return sum;
}

static void combine(fsdp_kernel_context *c, const fsdp_numbers *runs, size_t n, bool largest)
{
    (void)c;
    for (size_t i = 0; i < n; i++) {
        const fsdp_numbers *r = &runs[i];
        *r->result = !r->n         ? 0.0
                     : r->in_order ? in_order(largest, r->numbers, r->n)
                                   : any_tree(largest, r->numbers, r->n);
    }
}

/* --- clip_factor --- */

static double norm_of(const fsdp_clip_args *args)
{
    double sum = 0.0;
    for (int64_t i = 0; i < args->n; i++)
        sum = join_two(isinf(args->power), sum, args->sums[i]);
    if (args->power == 2.0)
        return sqrt(sum);
    return args->power == 1.0 || isinf(args->power) ? sum : pow(sum, 1.0 / args->power);
}

static void clip_factor(fsdp_kernel_context *c, const fsdp_clip_args *args)
{
    const double norm = norm_of(args);
    bool refused = args->refuses_norm && !isfinite(norm);
    (void)c;
    for (int64_t i = 0; i < args->n_losses; i++)
        refused |= !isfinite(args->losses[i]);
    *args->result = (fsdp_clip_result){
        .norm = norm, .scale = fsdp_clip_scale(norm, args->max_norm), .refused = refused};
}

void FSDP_ISA_NAME_OF(fsdp_cpu_fill_combine)(fsdp_kernels *k)
{
    k->combine = combine;
    k->clip_factor = clip_factor;
}
