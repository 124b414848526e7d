/* Backward attention in strips, with our own tiles. See Note [Strips] in attention_tiles.h. */
#include "src/kernels/cpu/attention_tiles.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/kernels/cpu/scratch.h"

enum {
    ROWS = FSDP_TILE_ROWS,
    /* size in bytes of one lane along k in a tile (Note [Lanes] in tile.h) */
    LANE_BYTES = ROWS * FSDP_TILE_LANE_BYTES,
    BLOCK_ROWS = 64,      /* queries in a block; the products for dK and dV sum over them */
    AMX_BLOCK_ROWS = 128, /* queries in a block with AMX, whose products are faster */
    /* The maximum number of elements in P^T of a block. dS^T has the same number of elements. P^T
     * and dS^T have an element for each key and each query of the block. So if there are many keys,
     * the block has fewer queries. */
    BLOCK_ELEMENTS = 1 << 17,
    PANEL_ROW = FSDP_AMX_PANEL_ROW
};

typedef struct backward_scratch {
    char *k, *v;                 /* packed by fsdp_attention_pack_columns(): k for S, v for dP */
    char *k_depth;               /* packed by fsdp_attention_pack_depth(), for dQ */
    char *q_block, *d_out_block; /* a block's rows, packed by pack_rows(): q for dK, d_out for dV */
    char *p_tiles, *d_s_tiles;   /* P^T and dS^T of a block; with AMX, panels of P and dS */
    char *d_s, *left;
    /* Sums over blocks: the gradients of k and v without their constant factors, which store_sums()
     * applies. Each takes sums_bytes bytes. Their shape is [keys, padded_dim] or, with AMX,
     * [padded_dim, keys]. */
    float *d_k, *d_v;
    /* True: d_k and d_v have values, and the next products add to them. False: the next products
     * overwrite d_k and d_v. */
    bool begun;
    float *scores, *d_p, *d_q, *bias, *d_bias, *delta;
    uint32_t *keep;
    size_t sums_bytes;
    int64_t block_rows, sums_ld, d_s_ld, scores_ld, keep_ld;
} backward_scratch;

static int64_t min(int64_t x, int64_t y)
{
    return x < y ? x : y;
}

/* Returns the row stride, in elements, of the sums d_k and d_v with AMX. They are stored
 * transposed, so their columns are keys. The stride is never a multiple of 256 elements, because
 * rows that far apart would evict each other from the cache. */
static int64_t transposed_ld(int64_t keys)
{
    const int64_t columns = fsdp_attention_round(keys, FSDP_AMX_COLUMNS);
    return columns % 256 ? columns : columns + 16;
}

static bool reserve_backward(const fsdp_cpu_attention *a, const fsdp_attention_head *head,
                             int worker, backward_scratch *s)
{
    size_t size = fsdp_dtype_size(head->dtype), word = sizeof(float), bytes = 0;
    size_t dim = (size_t)head->padded_dim, rows = (size_t)head->strip;
    /* A block has at least one strip. With AMX, it has at least 32 queries, since one AMX
     * instruction sums over 32 queries. */
    const int64_t least = head->tiles->amx ? 2 * FSDP_AMX_LANES : head->strip;
    s->block_rows = head->tiles->amx ? AMX_BLOCK_ROWS : BLOCK_ROWS;
    while (s->block_rows > least && s->block_rows * head->keys > BLOCK_ELEMENTS)
        s->block_rows /= 2;
    s->scores_ld = s->d_s_ld = fsdp_attention_scores_ld(head->keys);
    s->keep_ld = fsdp_attention_keep_ld(head->keys);
    s->begun = false;
    s->sums_ld = head->tiles->amx ? transposed_ld(head->keys) : head->padded_dim;
    s->sums_bytes =
        (size_t)(s->sums_ld * (head->tiles->amx ? head->padded_dim : head->keys)) * word;
    const int64_t depth = fsdp_tile_depth(head->dtype, s->block_rows);
    const size_t block = head->tiles->amx ? fsdp_tile_b_bytes(head->tiles, head->keys, depth)
                                          : fsdp_tile_a_bytes(head->tiles, head->keys, depth);
    const size_t rows_block = head->tiles->amx
                                  ? fsdp_tile_a_bytes(head->tiles, head->args->head_dim, depth)
                                  : fsdp_attention_depth_bytes(head, s->block_rows);
    size_t scores_bytes = rows * (size_t)s->scores_ld * word;
    size_t table = (size_t)fsdp_attention_table_length(head) * word;
    size_t k = fsdp_scratch_part(&bytes, fsdp_attention_columns_bytes(head, head->keys));
    size_t v = fsdp_scratch_part(&bytes, fsdp_attention_columns_bytes(head, head->keys));
    size_t k_depth = fsdp_scratch_part(&bytes, fsdp_attention_depth_bytes(head, head->keys));
    size_t q_block = fsdp_scratch_part(&bytes, rows_block);
    size_t o_block = fsdp_scratch_part(&bytes, rows_block);
    size_t p_tiles = fsdp_scratch_part(&bytes, block);
    size_t d_s_tiles = fsdp_scratch_part(&bytes, block);
    size_t d_s = fsdp_scratch_part(&bytes, rows * (size_t)s->d_s_ld * size);
    size_t left = fsdp_scratch_part(&bytes, fsdp_attention_left_bytes(head));
    size_t d_k = fsdp_scratch_part(&bytes, s->sums_bytes);
    size_t d_v = fsdp_scratch_part(&bytes, s->sums_bytes);
    size_t scores = fsdp_scratch_part(&bytes, scores_bytes);
    size_t d_p = fsdp_scratch_part(&bytes, scores_bytes);
    size_t d_q = fsdp_scratch_part(&bytes, rows * dim * word);
    size_t bias = fsdp_scratch_part(&bytes, table);
    size_t d_bias = fsdp_scratch_part(&bytes, table);
    size_t delta = fsdp_scratch_part(&bytes, rows * word);
    size_t keep =
        fsdp_scratch_part(&bytes, head->args->dropout_p > 0 ? rows * (size_t)s->keep_ld * word : 0);
    char *base = fsdp_kernel_scratch(a->context, worker, bytes);
    if (!base)
        return false;
    s->k = base + k;
    s->v = base + v;
    s->k_depth = base + k_depth;
    s->q_block = base + q_block;
    s->d_out_block = base + o_block;
    s->p_tiles = base + p_tiles;
    s->d_s_tiles = base + d_s_tiles;
    s->d_s = base + d_s;
    s->left = base + left;
    s->d_k = (float *)(void *)(base + d_k);
    s->d_v = (float *)(void *)(base + d_v);
    s->scores = (float *)(void *)(base + scores);
    s->d_p = (float *)(void *)(base + d_p);
    s->d_q = (float *)(void *)(base + d_q);
    s->bias = (float *)(void *)(base + bias);
    s->d_bias = (float *)(void *)(base + d_bias);
    s->delta = (float *)(void *)(base + delta);
    s->keep = (uint32_t *)(void *)(base + keep);
    return true;
}

/* One strip of a block. The strip has queries [query, query + rows). `range` includes every key
 * that at least one query of the strip sees. `block` includes every key that at least one query of
 * the whole block sees. The packed P^T and dS^T of the block consist of `depth` lanes. In f32, a
 * lane has one query, in bf16 two queries. The first query of the strip is in lane `lane`. */
typedef struct block_part {
    int64_t query, rows, lane, depth;
    fsdp_attention_range block, range;
} block_part;

/* In a block's P^T and dS^T, keys are grouped in tiles of 8 or, with AMX, in panels of 32. Returns
 * the distance in bytes from one such group to the next. */
static int64_t tile_bytes(const fsdp_attention_head *head, const block_part *p)
{
    return head->tiles->amx ? fsdp_amx_depth(p->depth) * PANEL_ROW : fsdp_tile_a_stride(p->depth);
}

/* Returns the byte offset of lane `lane` in the tile of key `key`. `key` must be the first key of
 * its tile or, with AMX, a multiple of 16. */
static int64_t tile_at(const fsdp_attention_head *head, const block_part *p, int64_t key,
                       int64_t lane)
{
    const int64_t keys = key - p->block.first;
    if (head->tiles->amx)
        return keys / FSDP_AMX_COLUMNS * tile_bytes(head, p) + lane * PANEL_ROW +
               keys % FSDP_AMX_COLUMNS * FSDP_TILE_LANE_BYTES;
    return keys / ROWS * tile_bytes(head, p) + lane * LANE_BYTES;
}

/* Returns the number of keys in a block's P and dS. With AMX, the number is rounded up to whole
 * panels, and d_k and d_v have capacity for the rounded number. */
static int64_t block_keys(const fsdp_attention_head *head, const block_part *p)
{
    const int64_t keys = p->block.end - p->block.first;
    return head->tiles->amx ? fsdp_attention_round(keys, FSDP_AMX_COLUMNS) : keys;
}

/* Sets P and dS to zero for the queries of a strip and keys [first, end). In the tiles of P and dS,
 * the queries of the strip take `lanes` lanes. */
static void zero_tiles(const fsdp_attention_head *head, const backward_scratch *s,
                       const block_part *p, int64_t first, int64_t end, int64_t lanes)
{
    const bool amx = head->tiles->amx;
    const int64_t keys = amx ? FSDP_AMX_LANES : ROWS, pieces = amx ? lanes : 1;
    const size_t bytes = (size_t)(amx ? keys * FSDP_TILE_LANE_BYTES : lanes * LANE_BYTES);
    for (int64_t key = first; key < end; key += keys) {
        const int64_t at = tile_at(head, p, key, p->lane);
        for (int64_t i = 0; i < pieces; i++) {
            memset(s->p_tiles + at + i * PANEL_ROW, 0, bytes);
            memset(s->d_s_tiles + at + i * PANEL_ROW, 0, bytes);
        }
    }
}

/* Turns S and dP of queries [first, first + rows) of a strip into P and dS. The caller calls this
 * function several times for a strip that has more queries than head->strips->gradient() can
 * process at once. */
static void gradient_of_rows(const fsdp_attention_head *head, const backward_scratch *s,
                             const block_part *p, const float *lse, int64_t first, int rows)
{
    const fsdp_attention_args *args = head->args;
    const int64_t query = p->query + first;
    const int64_t difference = fsdp_attention_table_at(head, query, p->range.first);
    const int64_t lane = p->lane + fsdp_tile_depth(head->dtype, first);
    const int64_t at = tile_at(head, p, p->range.first, lane);
    const int64_t size = (int64_t)fsdp_dtype_size(head->dtype);
    fsdp_attention_strip strip = fsdp_attention_strip_at(head, query, rows, p->range);
    strip.columns = (int)fsdp_attention_round(p->range.end - p->range.first, 16);
    strip.scores = s->scores + first * s->scores_ld;
    strip.ld = s->scores_ld;
    if (args->position_bias)
        strip.bias = s->bias + difference;
    if (args->dropout_p > 0) {
        fsdp_attention_keep(head, query, rows, p->range, s->keep, s->keep_ld);
        strip.keep = s->keep;
        strip.keep_ld = s->keep_ld;
    }
    head->strips->gradient(&strip,
                           &(fsdp_attention_gradient){
                               .d_p = s->d_p + first * s->scores_ld,
                               .lse = lse + first,
                               .delta = s->delta + first,
                               .keep_factor = fsdp_attention_keep_factor(head),
                               .p_tiles = s->p_tiles + at,
                               .d_s_tiles = s->d_s_tiles + at,
                               .tile_bytes = tile_bytes(head, p),
                               .d_s = s->d_s + first * s->d_s_ld * size,
                               .d_s_ld = s->d_s_ld,
                               .d_bias = args->d_position_bias ? s->d_bias + difference : NULL});
}

/* Computes P and dS of a strip. */
static void gradient_of_strip(const fsdp_attention_head *head, const backward_scratch *s,
                              const block_part *p, const void *q, const void *d_out,
                              const float *lse)
{
    const fsdp_attention_args *args = head->args;
    fsdp_attention_scores(head, q, args->q_ld, p->rows, s->k, p->range, s->left, s->scores,
                          s->scores_ld);
    fsdp_attention_scores(head, d_out, args->heads * args->head_dim, p->rows, s->v, p->range,
                          s->left, s->d_p, s->scores_ld);
    for (int64_t first = 0; first < p->rows; first += ROWS) {
        const int64_t next = p->query + first + head->strip, ld = args->heads * args->head_dim;
        fsdp_attention_prefetch(head, args->q, args->q_ld, next, ROWS);
        fsdp_attention_prefetch(head, args->d_out, ld, next, ROWS);
        fsdp_attention_prefetch(head, args->out, ld, next, ROWS);
        gradient_of_rows(head, s, p, lse, first, (int)min(p->rows - first, ROWS));
    }
}

static void backward_strip(const fsdp_attention_head *head, const backward_scratch *s,
                           const block_part *p)
{
    const fsdp_attention_args *args = head->args;
    int64_t row = head->q_row + p->query, ld = args->heads * args->head_dim;
    int64_t tokens = args->q_offsets[args->n_sequences];
    const char *d_out = fsdp_attention_at(head, args->d_out, ld, row, head->h);
    const char *out = fsdp_attention_at(head, args->out, ld, row, head->h);
    const int64_t d_q_ld = fsdp_attention_gradient_ld(args, args->d_q_ld, args->heads);
    char *d_q = (char *)args->d_q +
                (row * d_q_ld + head->h * args->head_dim) * (int64_t)fsdp_dtype_size(args->dtype);
    const int64_t lanes = fsdp_tile_depth(head->dtype, p->rows);
    const int64_t end = p->block.first + block_keys(head, p);
    if (p->range.end == p->range.first) {
        zero_tiles(head, s, p, p->block.first, end, lanes);
    } else {
        const int64_t columns = fsdp_attention_round(p->range.end - p->range.first, 16);
        zero_tiles(head, s, p, p->block.first, p->range.first, lanes);
        zero_tiles(head, s, p, p->range.first + columns, end, lanes);
    }
    if (p->range.end > p->range.first) {
        head->strips->dot(s->delta, d_out, out, args->dtype, ld, p->rows, args->head_dim);
        gradient_of_strip(head, s, p, fsdp_attention_at(head, args->q, args->q_ld, row, head->h),
                          d_out, args->lse + head->h * tokens + row);
        fsdp_attention_combine(head, s->d_s, s->d_s_ld, p->rows, s->k_depth, p->range, s->d_q);
    } else {
        memset(s->d_q, 0, (size_t)(p->rows * head->padded_dim) * sizeof(float));
    }
    head->strips->store(d_q, args->dtype, d_q_ld, s->d_q, head->padded_dim, NULL, args->scale,
                        p->rows, args->head_dim);
}

/* Packs a block's rows of q or d_out for a product that sums over these rows. */
static void pack_rows(const fsdp_attention_head *head, char *to, const void *x, int64_t ld,
                      int64_t rows)
{
    if (head->tiles->amx)
        head->tiles->pack_a(to, head->args->dtype, x, ld, true, rows, head->args->head_dim);
    else
        fsdp_attention_pack_depth(head, to, x, ld, rows);
}

/* Computes d_keys [keys of the block, padded_dim] += X^T Y. `tiles` is X^T: the block's P^T or
 * dS^T. `rows` is Y, packed by pack_rows(). With AMX, d_keys is stored transposed. */
static void add_to_key_sums(const fsdp_attention_head *head, const backward_scratch *s,
                            const block_part *p, const char *tiles, const char *rows, float *d_keys)
{
    const bool amx = head->tiles->amx;
    const int64_t keys = block_keys(head, p), dim = head->args->head_dim;
    head->tiles->multiply(&(fsdp_tile_block){.dtype = head->dtype,
                                             .m = amx ? dim : keys,
                                             .n = amx ? keys : dim,
                                             .depth = p->depth,
                                             .a = amx ? rows : tiles,
                                             .b = amx ? tiles : rows,
                                             .c = d_keys + p->block.first * (amx ? 1 : s->sums_ld),
                                             .c_dtype = FSDP_DTYPE_F32,
                                             .ldc = s->sums_ld,
                                             .add = s->begun});
}

/* Sets the sums to zero before the first block is added. Does nothing if the first block has all
 * keys, because the products of that block overwrite all sums. */
static void begin_sums(const fsdp_attention_head *head, backward_scratch *s,
                       fsdp_attention_range block)
{
    if (s->begun || (block.first == 0 && block.end == head->keys))
        return;
    memset(s->d_k, 0, s->sums_bytes);
    memset(s->d_v, 0, s->sums_bytes);
    s->begun = true;
}

static void backward_block(const fsdp_attention_head *head, backward_scratch *s, int64_t query,
                           int64_t rows)
{
    const fsdp_attention_args *args = head->args;
    int64_t row = head->q_row + query, ld = args->heads * args->head_dim;
    block_part p = {.depth = fsdp_tile_depth(head->dtype, rows),
                    .block = fsdp_attention_range_of(head, query, rows)};
    /* The depth is padded with lanes to a multiple of FSDP_AMX_LANES. Strips do not write these
     * lanes, so set them to zero. */
    if (head->tiles->amx && p.depth % FSDP_AMX_LANES) {
        const size_t bytes = fsdp_tile_b_bytes(head->tiles, p.block.end - p.block.first, p.depth);
        memset(s->p_tiles, 0, bytes);
        memset(s->d_s_tiles, 0, bytes);
    }
    for (int64_t i = 0; i < rows; i += head->strip) {
        p.query = query + i;
        p.rows = min(rows - i, head->strip);
        p.lane = fsdp_tile_depth(head->dtype, i);
        p.range = fsdp_attention_range_of(head, p.query, p.rows);
        backward_strip(head, s, &p);
    }
    if (p.block.end == p.block.first)
        return;
    begin_sums(head, s, p.block);
    pack_rows(head, s->d_out_block, fsdp_attention_at(head, args->d_out, ld, row, head->h), ld,
              rows);
    add_to_key_sums(head, s, &p, s->p_tiles, s->d_out_block, s->d_v);
    pack_rows(head, s->q_block, fsdp_attention_at(head, args->q, args->q_ld, row, head->h),
              args->q_ld, rows);
    add_to_key_sums(head, s, &p, s->d_s_tiles, s->q_block, s->d_k);
    s->begun = true;
}

static void backward_queries(const fsdp_attention_head *head, backward_scratch *s)
{
    const fsdp_attention_args *args = head->args;
    fsdp_attention_make_table(head, s->bias);
    if (args->d_position_bias)
        memset(s->d_bias, 0, (size_t)fsdp_attention_table_length(head) * sizeof(float));
    for (int64_t query = 0; query < head->queries; query += s->block_rows)
        backward_block(head, s, query, min(head->queries - query, s->block_rows));
    if (args->d_position_bias)
        fsdp_attention_add_table(head, args->d_position_bias, s->d_bias);
}

/* Stores the gradient of the keys or values of head `kv`. `to` is the gradient tensor of all heads,
 * and `ld` is its row stride. */
static void store_sums(const fsdp_attention_head *head, const backward_scratch *s, int64_t kv,
                       void *to, int64_t ld, const float *sums, float factor)
{
    const fsdp_attention_args *args = head->args;
    ld = fsdp_attention_gradient_ld(args, ld, args->kv_heads);
    to = (char *)to +
         (head->k_row * ld + kv * args->head_dim) * (int64_t)fsdp_dtype_size(args->dtype);
    if (head->tiles->amx)
        head->strips->store_turned(to, args->dtype, ld, sums, s->sums_ld, factor, head->keys,
                                   args->head_dim);
    else
        head->strips->store(to, args->dtype, ld, sums, s->sums_ld, NULL, factor, head->keys,
                            args->head_dim);
}

fsdp_status fsdp_attention_tiles_backward(const fsdp_cpu_attention *a, int worker, int64_t b,
                                          int64_t kv)
{
    const fsdp_attention_args *args = a->args;
    int64_t group = args->heads / args->kv_heads;
    fsdp_attention_head head = fsdp_attention_head_at(a, b, kv * group);
    const char *k = fsdp_attention_at(&head, args->k, args->k_ld, head.k_row, kv);
    const char *v = fsdp_attention_at(&head, args->v, args->v_ld, head.k_row, kv);
    backward_scratch s;
    if (!reserve_backward(a, &head, worker, &s))
        return fsdp_error_nomem();
    fsdp_attention_pack_columns(&head, s.k, k, args->k_ld, head.keys);
    fsdp_attention_pack_columns(&head, s.v, v, args->v_ld, head.keys);
    fsdp_attention_pack_depth(&head, s.k_depth, k, args->k_ld, head.keys);
    for (; head.h < (kv + 1) * group; head.h++)
        backward_queries(&head, &s);
    begin_sums(&head, &s, (fsdp_attention_range){0, 0});
    store_sums(&head, &s, kv, args->d_k, args->d_k_ld, s.d_k, args->scale);
    store_sums(&head, &s, kv, args->d_v, args->d_v_ld, s.d_v, fsdp_attention_keep_factor(&head));
    return FSDP_OK;
}
