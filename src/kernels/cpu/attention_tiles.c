/* Forward attention in strips, with our own tiles (Note [Strips] in attention_tiles.h). Backward
 * also calls some of these functions. */
#include "src/kernels/cpu/attention_tiles.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/philox.h"
#include "src/kernels/cpu/few_rows.h"
#include "src/kernels/cpu/scratch.h"

enum {
    FEW_QUERIES = 4,
    MARGIN = FSDP_ATTENTION_MARGIN
};

static const float log2_e = 0x1.715476p+0f;

static int64_t min(int64_t x, int64_t y)
{
    return x < y ? x : y;
}

/* --- heads, ranges, strips --- */

static const fsdp_cpu_attention_strips *strips_of(const fsdp_cpu_attention *a)
{
    if (fsdp_kernel_context_isa(a->context) < FSDP_CPU_ISA_V4)
        return &fsdp_cpu_attention_strips_x86_64_v3;
    return a->tiles->widens ? &fsdp_cpu_widening_strips_x86_64_v4
           : a->tiles->amx  ? &fsdp_cpu_amx_strips_x86_64_v4
                            : &fsdp_cpu_attention_strips_x86_64_v4;
}

fsdp_attention_head fsdp_attention_head_at(const fsdp_cpu_attention *a, int64_t b, int64_t h)
{
    const fsdp_attention_args *args = a->args;
    fsdp_attention_head head = {.args = args,
                                .tiles = a->tiles,
                                .strips = strips_of(a),
                                .dtype = a->tiles->widens ? FSDP_DTYPE_F32 : args->dtype,
                                .h = h,
                                .strip = a->tiles->amx ? 2 * FSDP_AMX_ROWS : FSDP_TILE_ROWS,
                                .q_row = args->q_offsets[b],
                                .k_row = args->k_offsets[b],
                                .queries = args->q_offsets[b + 1] - args->q_offsets[b],
                                .keys = fsdp_attention_keys(args, b),
                                .padded_dim = a->padded_dim};
    head.shift = args->causal ? head.keys - head.queries : 0;
    return head;
}

fsdp_attention_range fsdp_attention_range_of(const fsdp_attention_head *head, int64_t query,
                                             int64_t rows)
{
    const fsdp_attention_args *args = head->args;
    int64_t first = args->window > 0 ? query + head->shift - args->window + 1 : 0;
    int64_t end = args->causal ? query + rows + head->shift : head->keys;
    end = min(end, head->keys);
    if (first >= head->keys)
        return (fsdp_attention_range){head->keys, head->keys};
    first = first > 0 ? head->tiles->panel_first(head->keys, first) : 0;
    return (fsdp_attention_range){first, end > first ? end : first};
}

fsdp_attention_strip fsdp_attention_strip_at(const fsdp_attention_head *head, int64_t query,
                                             int rows, fsdp_attention_range range)
{
    const fsdp_attention_args *args = head->args;
    fsdp_attention_strip strip = {
        .dtype = head->dtype, .rows = rows, .scale = args->scale * log2_e};
    for (int row = 0; row < rows; row++) {
        int64_t at = query + row + head->shift; /* the key at the query's position */
        int64_t begin = args->window > 0 ? at - args->window + 1 : 0;
        int64_t end = args->causal ? at + 1 : head->keys;
        begin = (begin > range.first ? begin : range.first) - range.first;
        end = min(end, range.end) - range.first;
        strip.begin[row] = begin < end ? (int)begin : 0;
        strip.end[row] = begin < end ? (int)end : 0;
    }
    return strip;
}

int64_t fsdp_attention_keep_ld(int64_t keys)
{
    return (keys + 31) / 32;
}

int64_t fsdp_attention_scores_ld(int64_t keys)
{
    return fsdp_attention_round(keys, 32) + 16;
}

float fsdp_attention_keep_factor(const fsdp_attention_head *head)
{
    return fsdp_keep_factor(head->args->dropout_p);
}

void fsdp_attention_keep(const fsdp_attention_head *head, int64_t query, int rows,
                         fsdp_attention_range range, uint32_t *bits, int64_t ld)
{
    const fsdp_attention_args *args = head->args;
    for (int row = 0; row < rows; row++) {
        uint64_t at = (uint64_t)(head->q_row + query + row);
        uint64_t element = ((uint64_t)head->h << 40) + (at << 20) + (uint64_t)range.first;
        head->strips->keep(bits + row * ld, args->dropout_key, element, args->dropout_p,
                           fsdp_attention_round(range.end - range.first, 32));
    }
}

/* --- bias tables --- */

int64_t fsdp_attention_table_length(const fsdp_attention_head *head)
{
    return head->args->position_bias ? head->queries + head->keys + 4 * MARGIN : 0;
}

int64_t fsdp_attention_table_at(const fsdp_attention_head *head, int64_t query, int64_t key)
{
    return key - query + head->queries - 1 + MARGIN;
}

/* Each entry of the head's bias table belongs to a value of `key - query - shift` (Note [Bias
 * tables] in attention_tiles.h). position_bias has elements only for some of these values. Sets
 * [*begin, *end) to the indices of the entries for which position_bias has elements. Sets *lowest
 * to the value of `key - query - shift` for entry *begin. */
static void table_range(const fsdp_attention_head *head, int64_t *begin, int64_t *end,
                        int64_t *lowest)
{
    int64_t zero = fsdp_attention_table_at(head, 0, head->shift), span = head->args->bias_span;
    int64_t length = fsdp_attention_table_length(head);
    *begin = zero - (span - 1) > 0 ? min(zero - (span - 1), length) : 0;
    *end = min(zero + span, length);
    *end = *end > *begin ? *end : *begin;
    *lowest = *begin - zero;
}

/* Returns the index in position_bias of the element of this head for which `key - query - shift` is
 * 0. */
static int64_t bias_row(const fsdp_attention_head *head)
{
    return head->h * (2 * head->args->bias_span - 1) + head->args->bias_span - 1;
}

void fsdp_attention_make_table(const fsdp_attention_head *head, float *table)
{
    int64_t begin, end, lowest, length = fsdp_attention_table_length(head);
    if (length == 0)
        return;
    table_range(head, &begin, &end, &lowest);
    const float *bias = head->args->position_bias + bias_row(head) + lowest;
    memset(table, 0, (size_t)begin * sizeof *table);
    for (int64_t i = begin; i < end; i++)
        table[i] = bias[i - begin] * log2_e;
    memset(table + end, 0, (size_t)(length - end) * sizeof *table);
}

void fsdp_attention_add_table(const fsdp_attention_head *head, float *d_position_bias,
                              const float *table)
{
    int64_t begin, end, lowest;
    table_range(head, &begin, &end, &lowest);
    float *d_bias = d_position_bias + bias_row(head) + lowest;
    for (int64_t i = begin; i < end; i++)
        d_bias[i - begin] += table[i];
}

/* --- panels and products --- */

static int64_t size_of(const fsdp_attention_head *head)
{
    return (int64_t)fsdp_dtype_size(head->args->dtype);
}

static int64_t depth_of(const fsdp_attention_head *head, int64_t k)
{
    return fsdp_tile_depth(head->dtype, k);
}

const char *fsdp_attention_at(const fsdp_attention_head *head, const void *x, int64_t ld,
                              int64_t row, int64_t h)
{
    return (const char *)x + (row * ld + h * head->args->head_dim) * size_of(head);
}

void fsdp_attention_prefetch(const fsdp_attention_head *head, const void *x, int64_t ld,
                             int64_t query, int64_t rows)
{
    const int64_t bytes = head->args->head_dim * size_of(head);
    rows = min(rows, head->queries - query);
    for (int64_t row = 0; row < rows; row++) {
        const char *at = fsdp_attention_at(head, x, ld, head->q_row + query + row, head->h);
        for (int64_t i = 0; i < bytes; i += 64)
            __builtin_prefetch(at + i);
    }
}

size_t fsdp_attention_columns_bytes(const fsdp_attention_head *head, int64_t rows)
{
    return fsdp_tile_b_bytes(head->tiles, rows, depth_of(head, head->args->head_dim));
}

size_t fsdp_attention_depth_bytes(const fsdp_attention_head *head, int64_t rows)
{
    return fsdp_tile_b_bytes(head->tiles, head->args->head_dim, depth_of(head, rows));
}

void fsdp_attention_pack_columns(const fsdp_attention_head *head, void *panels, const void *x,
                                 int64_t ld, int64_t rows)
{
    head->tiles->pack_b(panels, head->args->dtype, x, ld, false, head->args->head_dim, rows);
}

void fsdp_attention_pack_depth(const fsdp_attention_head *head, void *panels, const void *x,
                               int64_t ld, int64_t rows)
{
    head->tiles->pack_b(panels, head->args->dtype, x, ld, true, rows, head->args->head_dim);
}

size_t fsdp_attention_left_bytes(const fsdp_attention_head *head)
{
    return fsdp_tile_a_bytes(head->tiles, head->strip, depth_of(head, head->args->head_dim));
}

void fsdp_attention_scores(const fsdp_attention_head *head, const void *x, int64_t x_ld,
                           int64_t rows, const void *columns, fsdp_attention_range range,
                           void *left, float *scores, int64_t ld)
{
    int64_t dim = head->args->head_dim, depth = depth_of(head, dim);
    fsdp_tile_block block = {.dtype = head->dtype,
                             .m = rows,
                             .n = range.end - range.first,
                             .depth = depth,
                             .a = x,
                             .a_stride = x_ld * size_of(head),
                             .b = columns,
                             .b_columns = head->keys,
                             .b_column = range.first,
                             .c = scores,
                             .c_dtype = FSDP_DTYPE_F32,
                             .ldc = ld};
    if (head->tiles->widens || dim * size_of(head) % FSDP_TILE_LANE_BYTES) {
        head->tiles->pack_a(left, head->args->dtype, x, x_ld, false, dim, rows);
        block.a = left;
        block.a_stride = 0;
    }
    head->tiles->multiply(&block);
}

void fsdp_attention_combine(const fsdp_attention_head *head, const void *p, int64_t p_ld,
                            int64_t rows, const void *depth, fsdp_attention_range range, float *out)
{
    head->tiles->multiply(
        &(fsdp_tile_block){.dtype = head->dtype,
                           .m = rows,
                           .n = head->args->head_dim,
                           .depth = depth_of(head, range.end - range.first),
                           .a = p,
                           .a_stride = p_ld * (int64_t)fsdp_dtype_size(head->dtype),
                           .b = depth,
                           .b_depth = depth_of(head, head->keys),
                           .b_lane = depth_of(head, range.first),
                           .c = out,
                           .c_dtype = FSDP_DTYPE_F32,
                           .ldc = head->padded_dim});
}

/* --- forward --- */

/* The buffers of one task, and the functions by which the task reads keys and values. */
typedef struct forward {
    /* The functions that read keys and values in place. NULL: keys and values are packed into the
     * buffers k and v instead. */
    const fsdp_cpu_few_rows *few;
    int64_t kv;             /* index of the key/value head */
    char *k, *v, *p, *left; /* p may point to the same memory as scores */
    float *few_q;           /* [rows, fsdp_few_rows_ld(head_dim)] */
    float *scores, *out, *bias, *inverse;
    uint32_t *keep;
    int64_t scores_ld, p_ld, keep_ld;
} forward;

static bool reserve_forward(const fsdp_cpu_attention *a, const fsdp_attention_head *head,
                            int worker, forward *s)
{
    bool f32 = head->dtype == FSDP_DTYPE_F32;
    size_t rows = (size_t)head->strip;
    s->scores_ld = fsdp_attention_scores_ld(head->keys);
    s->p_ld = f32 ? s->scores_ld : s->scores_ld + 16;
    s->keep_ld = fsdp_attention_keep_ld(head->keys);
    size_t bytes = 0, word = sizeof(float);
    bool few = s->few;
    size_t few_q_bytes = (size_t)(FEW_QUERIES * fsdp_few_rows_ld(head->args->head_dim)) * word;
    size_t k = fsdp_scratch_part(&bytes, few ? 0 : fsdp_attention_columns_bytes(head, head->keys));
    size_t v = fsdp_scratch_part(&bytes, few ? 0 : fsdp_attention_depth_bytes(head, head->keys));
    size_t left = fsdp_scratch_part(&bytes, few ? 0 : fsdp_attention_left_bytes(head));
    size_t few_q = fsdp_scratch_part(&bytes, few ? few_q_bytes : 0);
    size_t scores = fsdp_scratch_part(&bytes, rows * (size_t)s->scores_ld * word);
    size_t p = f32 ? scores : fsdp_scratch_part(&bytes, rows * (size_t)s->p_ld * 2);
    size_t out = fsdp_scratch_part(&bytes, rows * (size_t)head->padded_dim * word);
    size_t bias = fsdp_scratch_part(&bytes, (size_t)fsdp_attention_table_length(head) * word);
    size_t keep =
        fsdp_scratch_part(&bytes, head->args->dropout_p > 0 ? rows * (size_t)s->keep_ld * word : 0);
    size_t inverse = fsdp_scratch_part(&bytes, rows * word);
    char *base = fsdp_kernel_scratch(a->context, worker, bytes);
    if (!base)
        return false;
    s->k = base + k;
    s->v = base + v;
    s->p = base + p;
    s->left = base + left;
    s->few_q = (float *)(void *)(base + few_q);
    s->scores = (float *)(void *)(base + scores);
    s->out = (float *)(void *)(base + out);
    s->bias = (float *)(void *)(base + bias);
    s->keep = (uint32_t *)(void *)(base + keep);
    s->inverse = (float *)(void *)(base + inverse);
    return true;
}

/* Computes scores = Q K^T for a strip of queries. */
static void make_scores(const fsdp_attention_head *head, const forward *s, const void *q, int rows,
                        fsdp_attention_range range)
{
    const fsdp_attention_args *args = head->args;
    if (!s->few) {
        fsdp_attention_scores(head, q, args->q_ld, rows, s->k, range, s->left, s->scores,
                              s->scores_ld);
        return;
    }
    const fsdp_gemm_args q_args = {
        .m = rows, .k = args->head_dim, .a = q, .lda = args->q_ld, .ab_dtype = args->dtype};
    const int64_t q_ld = fsdp_few_rows_ld(args->head_dim), row = head->k_row + range.first;
    s->few->widen_a(&q_args, s->few_q, q_ld);
    s->few->multiply(&(fsdp_few_rows){.rows = rows,
                                      .columns = range.end - range.first,
                                      .k = args->head_dim,
                                      .a = s->few_q,
                                      .a_ld = q_ld,
                                      .b = fsdp_attention_at(head, args->k, args->k_ld, row, s->kv),
                                      .b_dtype = args->dtype,
                                      .trans_b = true,
                                      .b_row = args->k_ld * size_of(head),
                                      .c = s->scores,
                                      .c_ld = s->scores_ld});
}

/* Computes out = P V for a strip of queries. */
static void combine_values(const fsdp_attention_head *head, const forward *s, int rows,
                           fsdp_attention_range range)
{
    const fsdp_attention_args *args = head->args;
    if (!s->few) {
        fsdp_attention_combine(head, s->p, s->p_ld, rows, s->v, range, s->out);
        return;
    }
    const int64_t row = head->k_row + range.first;
    s->few->multiply(&(fsdp_few_rows){.rows = rows,
                                      .columns = args->head_dim,
                                      .k = range.end - range.first,
                                      .a = s->scores,
                                      .a_ld = s->scores_ld,
                                      .b = fsdp_attention_at(head, args->v, args->v_ld, row, s->kv),
                                      .b_dtype = args->dtype,
                                      .trans_b = false,
                                      .b_row = args->v_ld * size_of(head),
                                      .c = s->out,
                                      .c_ld = head->padded_dim});
}

/* Turns the scores of queries [first, first + rows) of a strip into P. The caller calls this
 * function several times for a strip that has more queries than head->strips->softmax() can process
 * at once. */
static void softmax_of_rows(const fsdp_attention_head *head, const forward *s,
                            fsdp_attention_range range, int64_t query, int first, int rows)
{
    const fsdp_attention_args *args = head->args;
    const int64_t row = query + first, tokens = args->q_offsets[args->n_sequences];
    fsdp_attention_prefetch(head, args->q, args->q_ld, row + head->strip, rows);
    fsdp_attention_strip strip = fsdp_attention_strip_at(head, row, rows, range);
    strip.columns = (int)fsdp_attention_round(range.end - range.first, 32);
    strip.scores = s->scores + first * s->scores_ld;
    strip.ld = s->scores_ld;
    if (args->position_bias)
        strip.bias = s->bias + fsdp_attention_table_at(head, row, range.first);
    if (args->dropout_p > 0) {
        fsdp_attention_keep(head, row, rows, range, s->keep, s->keep_ld);
        strip.keep = s->keep;
        strip.keep_ld = s->keep_ld;
    }
    head->strips->softmax(&strip, s->p + first * s->p_ld * (int64_t)fsdp_dtype_size(head->dtype),
                          s->p_ld, args->lse + head->h * tokens + head->q_row + row,
                          s->inverse + first);
}

static void forward_strip(const fsdp_attention_head *head, const forward *s, int64_t query,
                          int rows)
{
    const fsdp_attention_args *args = head->args;
    fsdp_attention_range range = fsdp_attention_range_of(head, query, rows);
    const int64_t row = head->q_row + query, out_ld = args->heads * args->head_dim;
    const bool none = range.end == range.first;
    if (!none)
        make_scores(head, s, fsdp_attention_at(head, args->q, args->q_ld, row, head->h), rows,
                    range);
    for (int first = 0; first < rows; first += FSDP_ATTENTION_STRIP)
        softmax_of_rows(head, s, range, query, first, (int)min(rows - first, FSDP_ATTENTION_STRIP));
    if (!none)
        combine_values(head, s, rows, range);
    else
        memset(s->out, 0, (size_t)(rows * head->padded_dim) * sizeof(float));
    char *out = (char *)args->out + (row * out_ld + head->h * args->head_dim) * size_of(head);
    head->strips->store(out, args->dtype, out_ld, s->out, head->padded_dim, s->inverse,
                        fsdp_attention_keep_factor(head), rows, args->head_dim);
}

static void pack_keys_and_values(const fsdp_attention_head *head, const forward *s)
{
    const fsdp_attention_args *args = head->args;
    fsdp_attention_pack_columns(head, s->k,
                                fsdp_attention_at(head, args->k, args->k_ld, head->k_row, s->kv),
                                args->k_ld, head->keys);
    fsdp_attention_pack_depth(head, s->v,
                              fsdp_attention_at(head, args->v, args->v_ld, head->k_row, s->kv),
                              args->v_ld, head->keys);
}

fsdp_status fsdp_attention_tiles_forward(const fsdp_cpu_attention *a, int worker, int64_t b,
                                         int64_t h)
{
    const fsdp_attention_args *args = a->args;
    fsdp_attention_head head = fsdp_attention_head_at(a, b, h);
    if (head.queries == 0)
        return FSDP_OK;
    forward s = {.kv = h / (args->heads / args->kv_heads)};
    if (head.queries <= FEW_QUERIES) {
        s.few = fsdp_cpu_few_rows_of_isa(a->context);
        head.dtype = FSDP_DTYPE_F32;
    }
    if (!reserve_forward(a, &head, worker, &s))
        return fsdp_error_nomem();
    if (!s.few)
        pack_keys_and_values(&head, &s);
    fsdp_attention_make_table(&head, s.bias);
    for (int64_t query = 0; query < head.queries; query += head.strip)
        forward_strip(&head, &s, query, (int)min(head.queries - query, head.strip));
    return FSDP_OK;
}
