/* attention: see gradcheck.h for what each op_check tests. */
#include <string.h>

#include "src/tensor/tensor.h"
#include "tests/autograd/gradcheck.h"

enum {
    SEQUENCES = 3 /* in each op_check */
};

/* Offsets are copied: the arrays passed to forward no longer exist when backward runs. */
static fsdp_tensor *run_attention(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    fsdp_attention_options o = *(const fsdp_attention_options *)arg;
    int32_t q_offsets[SEQUENCES + 1], kv_offsets[SEQUENCES + 1];
    memcpy(q_offsets, o.q_offsets, sizeof q_offsets);
    o.q_offsets = q_offsets;
    if (o.kv_offsets) {
        memcpy(kv_offsets, o.kv_offsets, sizeof kv_offsets);
        o.kv_offsets = kv_offsets;
    }
    fsdp_tensor *y = fsdp_attention(s, in[0], in[1], in[2], in[3], &o);
    memset(q_offsets, 0x7f, sizeof q_offsets);
    memset(kv_offsets, 0x7f, sizeof kv_offsets);
    return y;
}

/* One sequence and head for the naive loop. */
typedef struct naive_block {
    const fsdp_attention_options *o;
    int64_t q0, queries, k0, keys, width, head;
} naive_block;

/* Score of query i and key j of the block; -infinity if it is masked. */
static double score(const op_case *c, const naive_block *b, const double *const *in, int64_t i,
                    int64_t j)
{
    const fsdp_attention_options *o = b->o;
    int64_t kv_heads = o->kv_heads ? o->kv_heads : o->heads;
    int64_t kv_head = b->head / (o->heads / kv_heads);
    int64_t distance = j - i - (o->causal ? b->keys - b->queries : 0);
    if ((o->causal && distance > 0) || (o->window > 0 && -distance >= o->window))
        return -(double)INFINITY;
    double sum = 0.0;
    for (int64_t d = 0; d < b->width; d++)
        sum += in[0][((b->q0 + i) * o->heads + b->head) * b->width + d] *
               in[1][((b->k0 + j) * kv_heads + kv_head) * b->width + d];
    sum *= o->scale != 0.0f ? (double)o->scale : 1 / sqrt((double)b->width);
    if (c->n_in > 3) {
        int64_t columns = op_size(c, 3, 1);
        sum += in[3][b->head * columns + distance + columns / 2];
    }
    return sum;
}

static void naive_head(const op_case *c, const naive_block *b, const double *const *in, double *out)
{
    const fsdp_attention_options *o = b->o;
    int64_t kv_heads = o->kv_heads ? o->kv_heads : o->heads;
    int64_t kv_head = b->head / (o->heads / kv_heads);
    for (int64_t i = 0; i < b->queries; i++) {
        double *row = out + ((b->q0 + i) * o->heads + b->head) * b->width, sum = 0.0;
        for (int64_t d = 0; d < b->width; d++)
            row[d] = 0.0;
        for (int64_t j = 0; j < b->keys; j++) {
            double weight = exp(score(c, b, in, i, j));
            sum += weight;
            for (int64_t d = 0; d < b->width; d++)
                row[d] += weight * in[2][((b->k0 + j) * kv_heads + kv_head) * b->width + d];
        }
        for (int64_t d = 0; d < b->width; d++)
            row[d] = sum > 0 ? row[d] / sum : 0.0;
    }
}

static void naive_attention(const op_case *c, const double *const *in, double *out)
{
    const fsdp_attention_options *o = c->arg;
    const int32_t *q = o->q_offsets, *k = o->kv_offsets ? o->kv_offsets : o->q_offsets;
    for (int64_t b = 0; b < o->n_sequences; b++)
        for (int64_t h = 0; h < o->heads; h++)
            naive_head(c,
                       &(naive_block){.o = o,
                                      .q0 = q[b],
                                      .queries = q[b + 1] - q[b],
                                      .k0 = k[b],
                                      .keys = k[b + 1] - k[b],
                                      .width = op_size(c, 0, 1) / o->heads,
                                      .head = h},
                       in, out);
}

/* Three sequences; the second is empty. */
static const int32_t self[] = {0, 4, 4, 9};
/* The same number of sequences of keys: fewer than queries, none, more than queries. */
static const int32_t cross[] = {0, 2, 2, 10};

static void check(fsdp_test *t, const char *name, fsdp_attention_options o, int64_t keys,
                  int64_t span)
{
    o.n_sequences = SEQUENCES;
    o.q_offsets = self;
    int64_t kv_heads = o.kv_heads ? o.kv_heads : o.heads, width = 3;
    op_check(t, &(op_case){.name = name,
                           .run = run_attention,
                           .naive = o.dropout_p > 0 ? NULL : naive_attention,
                           .arg = &o,
                           .n_in = span ? 4 : 3,
                           .in = {{2, {9, o.heads * width}},
                                  {2, {keys, kv_heads * width}},
                                  {2, {keys, kv_heads * width}},
                                  {2, {o.heads, 2 * span - 1}}},
                           .f32 = 1u << 3,
                           .training = true,
                           .tolerance = o.dropout_p > 0 ? 1e-3 : 0,
                           /* d_q and d_k are differences of rounded products */
                           .bf16_tolerance = 0x1p-5});
}

TEST(attention_equals_loops_and_differences)
{
    check(t, "self attention", (fsdp_attention_options){.heads = 2}, 9, 0);
    CHECK_HERE();
    check(t, "cross attention", (fsdp_attention_options){.heads = 3, .kv_offsets = cross}, 10, 0);
    CHECK_HERE();
    check(t, "attention of scale 1", (fsdp_attention_options){.heads = 2, .scale = 1.0f}, 9, 0);
}

TEST(attention_with_position_bias_equals_loops_and_differences)
{
    check(t, "biased attention", (fsdp_attention_options){.heads = 2, .scale = 1.0f}, 9, 5);
    CHECK_HERE();
    check(t, "causal biased attention",
          (fsdp_attention_options){.heads = 2, .scale = 1.0f, .causal = true}, 9, 7);
    CHECK_HERE();
    check(t, "cross attention with bias",
          (fsdp_attention_options){.heads = 2, .scale = 1.0f, .kv_offsets = cross}, 10, 8);
}

TEST(causal_attention_equals_loops_and_differences)
{
    check(t, "causal", (fsdp_attention_options){.heads = 2, .causal = true}, 9, 0);
    CHECK_HERE();
    /* Fewer keys than queries: the first two queries of the first sequence see none. */
    check(t, "causal cross",
          (fsdp_attention_options){.heads = 2, .causal = true, .kv_offsets = cross}, 10, 0);
    CHECK_HERE();
    check(t, "window", (fsdp_attention_options){.heads = 2, .causal = true, .window = 3}, 9, 0);
}

TEST(attention_with_shared_key_heads_equals_loops_and_differences)
{
    check(t, "grouped", (fsdp_attention_options){.heads = 4, .kv_heads = 2, .causal = true}, 9, 0);
    CHECK_HERE();
    check(t, "one key head", (fsdp_attention_options){.heads = 3, .kv_heads = 1}, 9, 0);
}

TEST(attention_dropout_has_the_mask_of_its_forward_in_backward)
{
    check(t, "dropout", (fsdp_attention_options){.heads = 2, .dropout_p = 0.4f}, 9, 0);
    CHECK_HERE();
    check(t, "dropout with bias",
          (fsdp_attention_options){.heads = 2, .dropout_p = 0.3f, .scale = 1.0f, .causal = true}, 9,
          6);
}

/* No queries, no keys: nothing is read; gradients are empty or zero. */
TEST(attention_of_no_sequences_is_empty)
{
    static const int32_t none[] = {0};
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tape_create(&tape));
    ASSERT_OK(fsdp_scope_open(device, tape, NULL, &s));
    fsdp_tensor *x = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){0, 4}, 1);
    fsdp_tensor *bias = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){2, 3}, 1);
    ASSERT_OK(fsdp_tensor_set_requires_grad(x, true));
    ASSERT_OK(fsdp_tensor_set_requires_grad(bias, true));
    fsdp_tensor *y =
        fsdp_attention(s, x, x, x, bias, &(fsdp_attention_options){.heads = 2, .q_offsets = none});
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_OK(fsdp_backward(tape, &y, &y, 1));
    float grad[6];
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(bias), grad));
    for (int i = 0; i < 6; i++)
        ASSERT_F32(grad[i], 0.0f);
    ASSERT(
        !fsdp_attention(s, x, x, x, NULL,
                        &(fsdp_attention_options){.heads = 2, .q_offsets = none, .kv_ends = none}));
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, "a forward without gradients");
    fsdp_scope_close(s);
    fsdp_tape_destroy(tape);
    fsdp_tensor_release(x);
    fsdp_tensor_release(bias);
    fsdp_device_destroy(device);
}

TEST(attention_names_what_does_not_fit)
{
    static const int32_t falling[] = {0, 5, 4, 9}, short_of[] = {0, 4, 4, 8}, late[] = {1, 4, 4, 9};
    static const int32_t beyond[] = {4, 5, 9};
    static const struct {
        fsdp_attention_options o;
        int64_t q_width, k_width, k_rows, bias[2];
        const char *message;
    } cases[] = {
        {{.q_offsets = self}, 6, 6, 9, {0}, "attention: 0 heads cannot share 0 key/value heads"},
        {{.heads = 3, .kv_heads = 2, .q_offsets = self}, 6, 6, 9, {0}, "3 heads cannot share 2"},
        {{.heads = 4, .q_offsets = self}, 6, 6, 9, {0}, "q is [9, 6], k [9, 6] and v [9, 6]"},
        {{.heads = 2, .q_offsets = self}, 6, 8, 9, {0}, "q is [9, 6], k [9, 8]"},
        {{.heads = 2}, 6, 6, 9, {0}, "q_offsets of 3 sequences are missing"},
        {{.heads = 2, .q_offsets = falling}, 6, 6, 9, {0}, "q_offsets fall from 5 to 4"},
        {{.heads = 2, .q_offsets = short_of}, 6, 6, 9, {0}, "q_offsets go from 0 to 8, not"},
        {{.heads = 2, .q_offsets = late}, 6, 6, 9, {0}, "q_offsets go from 1 to 9, not"},
        {{.heads = 2, .q_offsets = self}, 6, 6, 10, {0}, "kv_offsets go from 0 to 9, not from"},
        {{.heads = 2, .q_offsets = self, .kv_ends = beyond}, 6, 6, 9, {0}, "1 ends at row 5, not"},
        {{.heads = 2, .q_offsets = self}, 6, 6, 9, {3, 9}, "position_bias is [3, 9] of float32"},
        {{.heads = 2, .q_offsets = self}, 6, 6, 9, {2, 8}, "position_bias is [2, 8] of float32"},
        {{.heads = 2, .q_offsets = self}, 6, 6, 9, {2, 7}, "sequence 2, the longest, has 5 rows"},
        {{.heads = 2, .q_offsets = self, .dropout_p = -1}, 6, 6, 9, {0}, "dropout_p is -1"},
    };
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fsdp_scope *s;
        fsdp_attention_options o = cases[i].o;
        o.n_sequences = SEQUENCES;
        ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
        const int64_t q_shape[] = {9, cases[i].q_width},
                      k_shape[] = {cases[i].k_rows, cases[i].k_width};
        fsdp_tensor *q = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, q_shape, 1);
        fsdp_tensor *k = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, k_shape, 2);
        fsdp_tensor *bias = cases[i].bias[0]
                                ? op_random_tensor(t, device, FSDP_DTYPE_F32, 2, cases[i].bias, 3)
                                : NULL;
        ASSERT(!fsdp_attention(s, q, k, k, bias, &o));
        ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, cases[i].message);
        fsdp_scope_close(s);
        fsdp_tensor_release(q);
        fsdp_tensor_release(k);
        fsdp_tensor_release(bias);
    }
    fsdp_device_destroy(device);
}
