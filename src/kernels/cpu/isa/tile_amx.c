/* Products of bf16 matrices in tiles with AMX; see Note [Panels for AMX] in tile.h. A tile of C
 * takes four registers, two by two. A and B take two registers each. So each step along k, which is
 * 16 lanes long, loads four registers and multiplies four times (Intel 64 and IA-32 Architectures
 * Optimization Reference Manual, "Intel AMX"). If C is f32 and nothing is added to the sums, the
 * sums are stored directly to C. Otherwise they are first stored to a buffer in the first-level
 * cache.
 *
 * Each call of multiply() configures the registers and releases them at its end, for two reasons.
 * oneDNN uses another configuration in the same thread, and the operating system switches threads
 * faster if the registers are released. */
#include "src/kernels/cpu/tile.h"

#include "src/kernels/cpu/isa/isa.h"

#if defined(__AVX512F__) && defined(__AVX512BW__)
#include "src/kernels/cpu/isa/tile_block.h"
#include "src/kernels/cpu/isa/tile_pack.h"

#define AMX_TARGET __attribute__((target("avx512bf16,amx-tile,amx-bf16")))

enum {
    ROWS = FSDP_AMX_ROWS,
    LANES = FSDP_AMX_LANES,
    COLUMNS = FSDP_AMX_COLUMNS,
    LANE = FSDP_TILE_LANE_BYTES,
    LINE = 64, /* bytes of a row of a register */
    PANEL_ROW = FSDP_AMX_PANEL_ROW,
    PAIR = 2 * LANES, /* elements along k in a row of a register */
    /* The size in bytes of a group of panels of B. All rows of a block of A are multiplied with one
     * group, and then with the next group. So a group stays in the second-level cache while it is
     * used. */
    GROUP_BYTES = 512 << 10,
    /* A tile prefetches its part of C only if it has at least this many lanes along k (Note [Lanes]
     * in tile.h). The computation of a tile with fewer lanes would end before the data arrives. */
    FAR_DEPTH = 64
};

/* --- packing --- */

static target target_of_panel(void *panels, int64_t depth, int64_t width, int64_t i)
{
    (void)width;
    char *panel = (char *)panels + i / 2 * fsdp_amx_depth(depth) * PANEL_ROW;
    return (target){panel + i % 2 * LINE, PANEL_ROW, LINE / 2};
}

static void pack_b(void *panels, fsdp_dtype dtype, const void *src, int64_t ld, bool k_is_row,
                   int64_t k, int64_t n)
{
    const int64_t depth = fsdp_tile_depth(dtype, k), padded = fsdp_amx_depth(depth);
    pack_as(PACK_PAIRS, target_of_panel, panels, src, ld, k_is_row, k, n);
    for (int64_t j = 0; j < n && depth < padded; j += COLUMNS)
        memset((char *)panels + (j / COLUMNS * padded + depth) * PANEL_ROW, 0,
               (size_t)((padded - depth) * PANEL_ROW));
}

/* Copies a part of A to a square, which is the contents of one register: 16 rows of 32 elements.
 * The number of rows that are copied is `rows`, at most 16. `src` points into the first of these
 * rows, and the row has `left` more elements from there on. If `left` is 32 or more, 32 elements of
 * each row are copied. Otherwise `left` elements of each row are copied, followed by zeros. */
static void copy_square(char *to, const char *src, int64_t row_bytes, int64_t rows, int64_t left)
{
    for (int64_t i = 0; i < rows; i++)
        _mm512_storeu_si512(to + i * LINE,
                            _mm512_maskz_loadu_epi16(first_bits(left), src + i * row_bytes));
}

/* Copies elements of A, transposed, into two squares of 16 rows each (see copy_square()). `src`
 * contains A transposed: a row of src belongs to one index along k, and a column of src is a row of
 * A. `k` rows and `rows` columns of src are copied. Both numbers are at most 32. */
FSDP_INLINE void transpose_squares(char *const to[2], const char *src, int64_t row_bytes, int64_t k,
                                   int64_t rows, int64_t ahead)
{
    __m512i lower[LANES], upper[LANES];
    UNROLL
    for (int i = 0; i < LANES; i++) {
        const char *at = src + 2 * i * row_bytes;
        prefetch_l2((uintptr_t)at + (uintptr_t)ahead);
        prefetch_l2((uintptr_t)at + (uintptr_t)(ahead + row_bytes));
        __m512i pair[2];
        load_pair(pair, 2 * i < k ? at : src, row_bytes, 2 * i < k ? rows : 0, 2 * i + 1 < k);
        lower[i] = pair[0];
        upper[i] = pair[1];
    }
    fsdp_avx512_transpose(lower);
    UNROLL
    for (int i = 0; i < ROWS; i++)
        _mm512_storeu_si512(to[0] + i * LINE, lower[i]);
    if (rows <= ROWS)
        return;
    fsdp_avx512_transpose(upper);
    UNROLL
    for (int i = 0; i < ROWS; i++)
        _mm512_storeu_si512(to[1] + i * LINE, upper[i]);
}

static void pack_a(void *tiles, fsdp_dtype dtype, const void *src, int64_t ld, bool k_is_row,
                   int64_t k, int64_t m)
{
    const int64_t stride = fsdp_amx_a_stride(fsdp_tile_depth(dtype, k)), row_bytes = 2 * ld;
    const char *from = src;
    char *to = tiles;
    if (!k_is_row) {
        for (int64_t i = 0; i < m; i += ROWS, to += stride)
            for (int64_t j = 0; j < k; j += PAIR)
                copy_square(to + j / PAIR * FSDP_AMX_BYTES, from + i * row_bytes + 2 * j, row_bytes,
                            fsdp_min_i64(m - i, ROWS), k - j);
        return;
    }
    for (int64_t j = 0; j < k; j += PAIR)
        for (int64_t i = 0; i < m; i += 2 * ROWS) {
            char *at = to + i / ROWS * stride + j / PAIR * FSDP_AMX_BYTES;
            const char *corner = from + j * row_bytes + 2 * i;
            if (k - j >= PAIR && m - i >= 2 * ROWS)
                transpose_squares((char *[]){at, at + stride}, corner, row_bytes, PAIR, 2 * ROWS,
                                  PAIR * row_bytes); /* prefetch the next PAIR rows of src */
            else
                transpose_squares((char *[]){at, at + stride}, corner, row_bytes,
                                  fsdp_min_i64(k - j, PAIR), fsdp_min_i64(m - i, 2 * ROWS),
                                  PAIR * row_bytes);
        }
}

/* --- one tile --- */

/* The rows of A for a tile, in two groups of at most 16, one for each register of A. The second
 * group may be empty. */
typedef struct tile_rows {
    int rows[2];
    /* tail: the last lanes of each row, padded with zeros; NULL if no padding is needed */
    const char *a[2], *tail[2];
    /* stride: the number of bytes from one row to the next. step: the number of bytes from 16 lanes
     * along k to the next 16 lanes of the same row. */
    int64_t stride, step;
    int64_t steps;
} tile_rows;

/* The layout of the memory that the instruction LDTILECFG reads. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

AMX_TARGET static void configure(const int rows[2])
{
    tile_config config __attribute__((aligned(64))) = {.palette = 1};
    const int of_register[8] = {rows[0], rows[0], rows[1], rows[1], rows[0], rows[1], LANES, LANES};
    for (int i = 0; i < 8; i++) {
        config.rows[i] = (uint8_t)of_register[i];
        config.row_bytes[i] = of_register[i] ? LINE : 0;
    }
    __asm__ volatile("" ::: "memory");
    _tile_loadconfig(&config);
}

FSDP_INLINE AMX_TARGET void multiply_step(bool two_rows, bool two_columns, const char *a0,
                                          const char *a1, int64_t a_stride, const char *b)
{
    _tile_loadd(4, a0, a_stride);
    _tile_loadd(6, b, PANEL_ROW);
    _tile_dpbf16ps(0, 4, 6);
    if (two_columns) {
        _tile_loadd(7, b + LINE, PANEL_ROW);
        _tile_dpbf16ps(1, 4, 7);
    }
    if (!two_rows)
        return;
    _tile_loadd(5, a1, a_stride);
    _tile_dpbf16ps(2, 5, 6);
    if (two_columns)
        _tile_dpbf16ps(3, 5, 7);
}

/* How the sums of a tile will be moved from a buffer to C.
 *
 * Note [Between steps]. Moving the sums of a tile with few lanes along k takes half as long as
 * computing them, but it uses other parts of the processor. So the sums of a tile are moved while
 * the next tile is computed: after each step along k of the next tile, a few rows are moved. */
typedef enum pending_kind {
    PENDING_ANY, /* a tile of neither of the kinds below */
    /* The tile has 32 columns and C is bf16. C becomes the sums + bias. If the block has no bias,
     * zeros are added instead. */
    PENDING_BF16,
    /* The tile has 32 columns and C is f32. C becomes the sums + bias + the previous C. If the
     * block has no bias, zeros are added instead. */
    PENDING_F32
} pending_kind;

typedef struct pending {
    float sums[2 * ROWS][COLUMNS] __attribute__((aligned(64)));
    float bias[COLUMNS] __attribute__((aligned(64)));
    pending_kind kind;
    int rows, done;
    const fsdp_tile_block *block;
    /* The tile has `columns` columns and begins at row i, column j of C. */
    int64_t i, j, columns;
    /* `c` is the address of element (i, j) of C. c_stride is the number of bytes from one row to
     * the next. */
    char *c;
    int64_t c_stride;
} pending;

BF16_TARGET static void move_pending_rows(pending *p, int rows)
{
    const int end = p->rows - p->done < rows ? p->rows : p->done + rows;
    if (p->kind == PENDING_ANY) {
        if (p->done < end)
            fsdp_finish_tile(true, p->block, p->sums[p->done], COLUMNS, p->i + p->done,
                             end - p->done, p->j, (int)p->columns);
        p->done = end;
        return;
    }
    const __m512 bias[2] = {_mm512_load_ps(p->bias), _mm512_load_ps(p->bias + 16)};
    for (int i = p->done; i < end; i++) {
        char *c = p->c + i * p->c_stride;
        __m512 x = _mm512_add_ps(_mm512_load_ps(p->sums[i]), bias[0]);
        __m512 y = _mm512_add_ps(_mm512_load_ps(p->sums[i] + 16), bias[1]);
        if (p->kind == PENDING_BF16) {
            _mm512_storeu_si512(c, (__m512i)_mm512_cvtne2ps_pbh(y, x));
        } else {
            _mm512_storeu_ps(c, _mm512_add_ps(x, _mm512_loadu_ps(c)));
            _mm512_storeu_ps(c + 64, _mm512_add_ps(y, _mm512_loadu_ps(c + 64)));
        }
    }
    p->done = end;
}

/* Prepares `p` so that its sums can be moved to rows [i, i + rows) and columns [j, j + columns) of
 * C. */
BF16_TARGET static void set_pending(pending *p, const fsdp_tile_block *b, int rows, int64_t i,
                                    int64_t j, int64_t columns)
{
    const bool bf16 = b->c_dtype == FSDP_DTYPE_BF16;
    p->kind = columns < COLUMNS || b->sum || bf16 == b->add ? PENDING_ANY
              : bf16                                        ? PENDING_BF16
                                                            : PENDING_F32;
    p->block = b;
    p->i = i;
    p->j = j;
    p->columns = columns;
    p->rows = rows;
    p->c_stride = b->ldc * (bf16 ? 2 : 4);
    p->c = (char *)b->c + i * p->c_stride + j * (bf16 ? 2 : 4);
    for (int half = 0; half < 2 && p->kind != PENDING_ANY; half++)
        _mm512_store_ps(p->bias + 16 * half,
                        b->bias ? fsdp_avx512_load(b->bias, b->dtype, j + 16 * half, 0xffff)
                                : _mm512_setzero_ps());
}

/* Cache lines that remain to be prefetched.
 *
 * Note [Asked for between steps]. Note [Ahead of the tile] in tile.c says why cache lines are
 * prefetched. Only a few lines are prefetched after each step along k. The reason is that the
 * first-level cache can wait for only about 16 lines at a time. If all lines were prefetched
 * together, the prefetch of the 17th line would block until one of the first 16 had arrived. */
typedef struct lines {
    const char *at;
    int64_t stride; /* bytes from one row to the next */
    int64_t of_row, in_row;
    int64_t left;
} lines;

static lines lines_of(const void *at, int64_t rows, int64_t bytes, int64_t stride)
{
    const int64_t before = (int64_t)((uintptr_t)at % LINE);
    /* If the stride is not a multiple of LINE, rows begin at different offsets in a cache line. So
     * a later row may extend over one line more than the first row. */
    const int64_t shift = stride % LINE ? LINE - 1 : 0;
    lines l = {.at = (const char *)at - before, .stride = stride, .in_row = 0};
    l.of_row = fsdp_ceil_div(before + bytes + shift, LINE);
    l.left = rows * l.of_row;
    return l;
}

static lines no_lines(void)
{
    return (lines){.at = NULL, .left = 0};
}

/* Prefetches the next n cache lines. An address past the end of the array does no harm. */
FSDP_INLINE void prefetch_lines(lines *l, int64_t n, bool to_write)
{
    n = n < l->left ? n : l->left;
    l->left -= n;
    for (; n > 0; n--) {
        if (to_write)
            __builtin_prefetch(l->at, 1);
        /* A is prefetched into the second-level cache. In the first-level cache, rows that are a
         * multiple of 4096 bytes apart would evict each other. */
        else
            __builtin_prefetch(l->at, 0, 2);
        l->at = (const char *)((uintptr_t)l->at + LINE);
        if (++l->in_row == l->of_row) {
            l->in_row = 0;
            l->at = (const char *)((uintptr_t)l->at + (uintptr_t)(l->stride - l->of_row * LINE));
        }
    }
}

/* The cache lines that are prefetched while a tile is computed. `c` has the lines of C that this
 * tile will write. *a has the lines of A that the next row of tiles will use. This tile prefetches
 * `of_a` of the lines in *a, and later tiles prefetch the rest. */
typedef struct ahead {
    lines c, *a;
    int64_t of_a;
} ahead;

/* Computes a tile and stores its sums to `c`, whose rows are c_stride bytes apart. `before` has the
 * sums of the previous tile. During the computation, this function also moves these sums to C and
 * prefetches the cache lines in `asked`. */
FSDP_INLINE AMX_TARGET void sum_tile(bool two_rows, bool two_columns, const tile_rows *r,
                                     const char *b, float *c, int64_t c_stride, pending *before,
                                     ahead *asked)
{
    const char *a0 = r->a[0], *a1 = r->a[1];
    /* GCC does not know that loading a tile register reads memory. This statement keeps GCC from
     * dropping or delaying the stores to that memory. */
    __asm__ volatile("" : : "r"(a0), "r"(b), "r"(r->tail[0]) : "memory");
    const int64_t steps = r->steps ? r->steps : 1;
    const int rows = (int)fsdp_ceil_div(before->rows - before->done, steps);
    const int64_t c_lines = fsdp_ceil_div(asked->c.left, steps);
    const int64_t a_lines = fsdp_ceil_div(asked->of_a, steps);
    _tile_zero(0);
    if (two_columns)
        _tile_zero(1);
    if (two_rows)
        _tile_zero(2);
    if (two_rows && two_columns)
        _tile_zero(3);
    for (int64_t i = 0; i < r->steps; i++) {
        multiply_step(two_rows, two_columns, a0, a1, r->stride, b);
        if (asked->c.left)
            prefetch_lines(&asked->c, c_lines, true);
        if (a_lines)
            prefetch_lines(asked->a, a_lines, false);
        if (before->done < before->rows)
            move_pending_rows(before, rows);
        a0 += r->step;
        a1 += two_rows ? r->step : 0;
        b += LANES * PANEL_ROW;
    }
    if (r->tail[0])
        multiply_step(two_rows, two_columns, r->tail[0], r->tail[1], LINE, b);
    move_pending_rows(before, 2 * ROWS);
    char *to = (char *)c;
    _tile_stored(0, to, c_stride);
    if (two_columns)
        _tile_stored(1, to + LINE, c_stride);
    if (two_rows)
        _tile_stored(2, to + ROWS * c_stride, c_stride);
    if (two_rows && two_columns)
        _tile_stored(3, to + ROWS * c_stride + LINE, c_stride);
}

AMX_TARGET static void compute_sums(const tile_rows *r, const char *b, int64_t columns, float *c,
                                    int64_t c_stride, pending *before, ahead *asked)
{
    if (r->rows[1] && columns > 16)
        sum_tile(true, true, r, b, c, c_stride, before, asked);
    else if (r->rows[1])
        sum_tile(true, false, r, b, c, c_stride, before, asked);
    else if (columns > 16)
        sum_tile(false, true, r, b, c, c_stride, before, asked);
    else
        sum_tile(false, false, r, b, c, c_stride, before, asked);
}

/* --- blocks --- */

/* Returns pointers to rows [i, i + 32) of A. If A is not packed and the depth is not a multiple of
 * 16, the last lanes of each row are copied to `tail` and padded with zeros. `tail` has 64 bytes
 * for each row. */
static tile_rows rows_at(const fsdp_tile_block *b, int64_t i, char *tail)
{
    const int64_t padded = fsdp_amx_depth(b->depth);
    tile_rows r = {
        .rows = {(int)fsdp_min_i64(b->m - i, ROWS), (int)fsdp_min_i64(b->m - i, 2 * ROWS) - ROWS}};
    r.rows[1] = r.rows[1] > 0 ? r.rows[1] : 0;
    if (b->a_stride == 0) {
        const int64_t stride = fsdp_amx_a_stride(b->depth);
        r.a[0] = (const char *)b->a + i / ROWS * stride;
        r.a[1] = r.rows[1] ? r.a[0] + stride : r.a[0];
        r.stride = LINE;
        r.step = FSDP_AMX_BYTES;
        r.steps = padded / LANES;
        return r;
    }
    const int64_t whole = b->depth / LANES;
    r.a[0] = (const char *)b->a + i * b->a_stride;
    r.a[1] = r.rows[1] ? r.a[0] + ROWS * b->a_stride : r.a[0];
    r.stride = b->a_stride;
    r.step = LINE;
    r.steps = whole;
    for (int half = 0; half < 2 && padded > b->depth; half++) {
        r.tail[half] = tail + half * ROWS * LINE;
        copy_square(tail + half * ROWS * LINE, r.a[half] + whole * LINE, b->a_stride, r.rows[half],
                    2 * (b->depth - whole * LANES));
    }
    return r;
}

/* Computes the part of C in columns [j, j + columns), for the rows of A in `r`. The first of these
 * rows is row i. `before` contains sums of the previous tile, which are moved to C during the
 * computation. The new sums are stored directly to C or in `now`, from which they must be moved to
 * C later. */
AMX_TARGET static void multiply_tile(const fsdp_tile_block *b, const tile_rows *r,
                                     const char *panel, int64_t i, int64_t j, int64_t columns,
                                     pending *before, pending *now, ahead *asked)
{
    const bool plain = b->c_dtype == FSDP_DTYPE_F32 && !b->add && !b->sum && !b->bias;
    now->done = now->rows = 0;
    if (plain && columns % 16 == 0) {
        compute_sums(r, panel, columns, (float *)b->c + i * b->ldc + j, 4 * b->ldc, before, asked);
        return;
    }
    compute_sums(r, panel, columns, now->sums[0], sizeof now->sums[0], before, asked);
    set_pending(now, b, r->rows[0] + r->rows[1], i, j, columns);
}

static lines lines_of_c(const fsdp_tile_block *b, int rows, int64_t i, int64_t j, int64_t columns)
{
    const int64_t size = b->c_dtype == FSDP_DTYPE_F32 ? 4 : 2;
    return lines_of((const char *)b->c + (i * b->ldc + j) * size, rows, columns * size,
                    b->ldc * size);
}

AMX_TARGET static void multiply(const fsdp_tile_block *b)
{
    char tail[2 * ROWS * LINE] __attribute__((aligned(64)));
    const int64_t panel_bytes = fsdp_amx_depth(b->depth) * PANEL_ROW;
    const int64_t b_stride = fsdp_amx_depth(b->b_depth ? b->b_depth : b->depth) * PANEL_ROW;
    const char *panels =
        (const char *)b->b + b->b_column / COLUMNS * b_stride + b->b_lane * PANEL_ROW;
    int64_t group = panel_bytes ? GROUP_BYTES / panel_bytes * COLUMNS : b->n;
    group = group > COLUMNS ? group : COLUMNS;
    int configured[2] = {0, 0}, turn = 0;
    pending parts[2];
    for (int i = 0; i < 2; i++) {
        parts[i].kind = PENDING_ANY;
        parts[i].done = parts[i].rows = 0;
    }
    for (int64_t j0 = 0; j0 < b->n; j0 += group) {
        const int64_t end = fsdp_min_i64(j0 + group, b->n);
        for (int64_t i = 0; i < b->m; i += 2 * ROWS) {
            const tile_rows r = rows_at(b, i, tail);
            if (r.rows[0] != configured[0] || r.rows[1] != configured[1]) {
                configure(r.rows);
                configured[0] = r.rows[0];
                configured[1] = r.rows[1];
            }
            lines next_rows = no_lines();
            if (j0 == 0 && b->a_stride && i + 2 * ROWS < b->m)
                next_rows = lines_of((const char *)b->a + (i + 2 * ROWS) * b->a_stride,
                                     fsdp_min_i64(b->m - i - 2 * ROWS, 2 * ROWS), b->depth * LANE,
                                     b->a_stride);
            for (int64_t j = j0; j < end; j += COLUMNS) {
                const int64_t columns = fsdp_min_i64(b->n - j, COLUMNS);
                ahead asked = {.c = no_lines(), .a = &next_rows};
                if (b->depth >= FAR_DEPTH)
                    asked.c = lines_of_c(b, r.rows[0] + r.rows[1], i, j, columns);
                asked.of_a = fsdp_ceil_div(next_rows.left, (end - j + COLUMNS - 1) / COLUMNS);
                multiply_tile(b, &r, panels + j / COLUMNS * b_stride, i, j, columns, &parts[turn],
                              &parts[1 - turn], &asked);
                turn = 1 - turn;
            }
        }
    }
    move_pending_rows(&parts[turn], 2 * ROWS);
    _tile_release();
}

static int64_t panel_first(int64_t n, int64_t column)
{
    (void)n;
    return column / COLUMNS * COLUMNS;
}

const fsdp_cpu_tiles FSDP_ISA_NAME_OF(fsdp_cpu_amx_tiles) = {.amx = true,
                                                             .rows = 2 * ROWS,
                                                             .columns = COLUMNS,
                                                             .most_depth = 1024,
                                                             .most_long_depth = 256,
                                                             .most_packed_k = 512,
                                                             .a_bytes = 512 << 10,
                                                             .b_bytes = 1 << 20,
                                                             .pack_b = pack_b,
                                                             .pack_a = pack_a,
                                                             .multiply = multiply,
                                                             .panel_first = panel_first};
#endif
