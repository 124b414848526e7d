/* T5's relative position bias by distance (Raffel et al. 2020, arXiv 1910.10683, section 2.1). The
 * distance is the position of the key minus the position of the query. The bias that every layer
 * adds to its scores depends only on the distance. In sequences of up to `span` tokens, distances
 * range from 1 - span to span - 1. So one row of 2 * span - 1 values per head is enough for all
 * sequences of a batch. The host computes the bucket of each distance, and kernels gather the
 * values of the buckets. */
#include <math.h>

#include "src/autograd/ops.h"
#include "src/base/alloc.h"

/* Return the bucket of a distance, as T5Attention._relative_position_bucket in transformers does.
 * Half of the buckets hold a single distance each. Each of the others holds a range of distances;
 * the ranges grow exponentially up to max_distance. Like torch, this function computes the
 * logarithm and the quotients in float32 and truncates the result. With other rounding, some
 * distances at a boundary would be in a different bucket. */
int64_t fsdp_relative_position_bucket(int64_t distance, bool bidirectional, int64_t buckets,
                                      int64_t max_distance)
{
    int64_t first = 0;
    if (bidirectional) {
        buckets /= 2;
        first = distance > 0 ? buckets : 0;
        distance = distance < 0 ? -distance : distance;
    } else {
        distance = distance < 0 ? -distance : 0;
    }
    int64_t exact = buckets / 2;
    if (distance < exact)
        return first + distance;
    float ratio = (float)distance / (float)exact;
    float log_ratio = (float)log((double)ratio);
    float log_range = (float)log((double)max_distance / (double)exact);
    int64_t large = exact + (int64_t)(log_ratio / log_range * (float)(buckets - exact));
    return first + (large < buckets ? large : buckets - 1);
}

typedef struct position_bias_options {
    int64_t buckets, heads, span, max_distance;
    bool bidirectional;
    fsdp_dtype dtype; /* dtype of the weight */
} position_bias_options;

/* Return an array with the bucket of each of the 2 * span - 1 distances. The caller frees the
 * array. */
static int32_t *buckets_of_columns(fsdp_scope *s, const position_bias_options *o)
{
    const int64_t columns = 2 * o->span - 1;
    int32_t *buckets = fsdp_calloc((size_t)columns, sizeof *buckets);
    if (!buckets)
        fsdp_scope_fail(s, FSDP_ERR_NOMEM);
    for (int64_t c = 0; buckets && c < columns; c++)
        buckets[c] = (int32_t)fsdp_relative_position_bucket(c - (o->span - 1), o->bidirectional,
                                                            o->buckets, o->max_distance);
    return buckets;
}

static void gather_bias(fsdp_scope *s, const fsdp_kernels *k, const position_bias_options *o,
                        const fsdp_tensor *weight, const fsdp_tensor *bias)
{
    int32_t *buckets = buckets_of_columns(s, o);
    if (buckets)
        k->gather_transposed(fsdp_scope_context(s), fsdp_tensor_ptr(bias), fsdp_tensor_ptr(weight),
                             o->dtype, buckets, 2 * o->span - 1, o->heads);
    fsdp_free(buckets);
}

static void sum_gradient(fsdp_scope *s, const fsdp_kernels *k, const position_bias_options *o,
                         const fsdp_tensor *d_bias, const fsdp_tensor *d_weight)
{
    int32_t *buckets = buckets_of_columns(s, o);
    if (buckets)
        k->gather_transposed_backward(fsdp_scope_context(s), fsdp_tensor_ptr(d_weight),
                                      fsdp_tensor_ptr(d_bias), buckets, 2 * o->span - 1, o->heads,
                                      o->buckets);
    fsdp_free(buckets);
}

static void position_bias_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                                   fsdp_tensor **grad_in)
{
    const position_bias_options *o = (const position_bias_options *)n->options;
    const int64_t shape[2] = {o->buckets, o->heads};
    fsdp_tensor *sum = fsdp_new(s, FSDP_DTYPE_F32, 2, shape);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        sum_gradient(s, k, o, grad_out[0], sum);
    /* If the weight is a leaf, the gradient is returned in float32, whatever the dtype of the
     * weight is: the sweep (backward.c) converts it to the dtype of the leaf's target and adds it
     * there. If the weight is not a leaf, convert the gradient to the dtype of the weight. */
    grad_in[0] = sum;
    if (n->in[0].leaf || o->dtype == FSDP_DTYPE_F32)
        return;
    grad_in[0] = fsdp_new(s, o->dtype, 2, shape);
    k = fsdp_scope_kernels(s);
    if (k)
        k->cast(fsdp_scope_context(s), fsdp_tensor_ptr(grad_in[0]), o->dtype, fsdp_tensor_ptr(sum),
                FSDP_DTYPE_F32, o->buckets * o->heads);
}

static const fsdp_op position_bias_op = {.name = "relative_position_bias",
                                         .backward = position_bias_backward};

static bool check_all(fsdp_scope *s, fsdp_tensor *weight, int64_t span, int64_t max_distance,
                      bool bidirectional)
{
    const char *op = position_bias_op.name;
    char text[FSDP_SHAPE_TEXT];
    if (!fsdp_check_floats(s, op, &weight, (const char *const[]){"weight"}, 1))
        return false;
    int64_t least = bidirectional ? 4 : 2;
    if (weight->ndim != 2 || weight->shape[0] < least) {
        fsdp_scope_error(s, op, "weight is %s, not [buckets, H] with at least %lld buckets",
                         fsdp_shape_text(weight->ndim, weight->shape, text), (long long)least);
        return false;
    }
    int64_t exact = weight->shape[0] / (bidirectional ? 4 : 2);
    if (max_distance <= exact) {
        fsdp_scope_error(s, op, "max_distance is %lld, not above the %lld exact buckets",
                         (long long)max_distance, (long long)exact);
        return false;
    }
    if (span < 1 || span > INT32_MAX) {
        fsdp_scope_error(s, op, "span is %lld, not in [1, %d]", (long long)span, INT32_MAX);
        return false;
    }
    return true;
}

fsdp_tensor *fsdp_relative_position_bias(fsdp_scope *s, fsdp_tensor *weight, int64_t span,
                                         int64_t max_distance, bool bidirectional)
{
    if (!check_all(s, weight, span, max_distance, bidirectional))
        return NULL;
    position_bias_options o = {.buckets = weight->shape[0],
                               .heads = weight->shape[1],
                               .span = span,
                               .max_distance = max_distance,
                               .bidirectional = bidirectional,
                               .dtype = weight->dtype};
    int64_t columns = 2 * span - 1;
    fsdp_tensor *out = fsdp_new(s, FSDP_DTYPE_F32, 2, (const int64_t[]){o.heads, columns});
    if (out)
        out->is_table = true;
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        gather_bias(s, k, &o, weight, out);
    fsdp_note_lookups(weight, o.buckets);
    fsdp_record(s, &(fsdp_record_args){.op = &position_bias_op,
                                       .in = {weight},
                                       .n_in = 1,
                                       .out = {out},
                                       .n_out = 1,
                                       .options = &o,
                                       .options_bytes = sizeof o});
    return out;
}
