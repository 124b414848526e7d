/* Optimizer states in few bits: the maps of 8-bit states, the kernel adamw() with such states, and
 * stochastic rounding, against loops over single elements. */
#include <fsdp/ckpt.h>

#include "src/base/dynamic_map.h"
#include "tests/kernels/operands.h"

/* --- maps --- */

static void check_map(fsdp_test *t, const fsdp_safetensors *file, const char *name,
                      const fsdp_dynamic_map *map)
{
    const fsdp_checkpoint_entry *entry = fsdp_safetensors_find(file, name);
    ASSERT(entry && entry->bytes == sizeof map->value);
    ASSERT(memcmp(entry->data, map->value, sizeof map->value) == 0);
}

TEST(maps_have_the_bits_of_bitsandbytes)
{
    fsdp_safetensors *file;
    ASSERT_OK(fsdp_safetensors_open(fsdp_test_path("golden/states/states.safetensors"), &file));
    check_map(t, file, "qmap1", fsdp_dynamic_map_signed());
    CHECK_HERE();
    check_map(t, file, "qmap2", fsdp_dynamic_map_unsigned());
    fsdp_safetensors_close(file);
}

/* The code of the nearest value, found by looking at all values. */
static int nearest(const fsdp_dynamic_map *map, float x)
{
    int best = 0;
    for (int c = 1; c < FSDP_MAP_VALUES; c++)
        if (x > (map->value[c - 1] + map->value[c]) / 2.0f)
            best = c;
    return best;
}

static void check_codes(fsdp_test *t, const fsdp_dynamic_map *map)
{
    for (int c = 0; c < FSDP_MAP_VALUES; c++) {
        const float around[] = {map->value[c], map->bound[c], nextafterf(map->bound[c], -2.0f),
                                nextafterf(map->bound[c], 2.0f)};
        for (int k = 0; k < 4; k++)
            ASSERT_INT(fsdp_dynamic_map_code(map, around[k]), nearest(map, around[k]));
        ASSERT_INT(fsdp_dynamic_map_code(map, map->value[c]), c);
    }
    for (uint32_t bits = 0; bits < 0x3f810000u; bits += 1013) {
        ASSERT_INT(fsdp_dynamic_map_code(map, fsdp_f32_from_bits(bits)),
                   nearest(map, fsdp_f32_from_bits(bits)));
        ASSERT_INT(fsdp_dynamic_map_code(map, -fsdp_f32_from_bits(bits)),
                   nearest(map, -fsdp_f32_from_bits(bits)));
    }
    ASSERT_INT(fsdp_dynamic_map_code(map, INFINITY), FSDP_MAP_VALUES - 1);
    ASSERT_INT(fsdp_dynamic_map_code(map, -INFINITY), 0);
    (void)fsdp_dynamic_map_code(map, NAN); /* any code: the sanitizer reports a read outside */
}

TEST(codes_are_those_of_the_nearest_values)
{
    check_codes(t, fsdp_dynamic_map_signed());
    CHECK_HERE();
    check_codes(t, fsdp_dynamic_map_unsigned());
}

/* --- adamw() with states in 8 bits --- */

enum {
    ROWS = 70, /* with the widest rows, more blocks than a task has */
    STEPS = 3
};

typedef struct arrays {
    float *param, *m, *v, *absmax[2], *grad;
    uint8_t *codes[2];
    uint16_t *hi, *lo, *marks;
} arrays;

static void narrow_block(uint8_t *codes, float *absmax, const float *x, const fsdp_dynamic_map *map,
                         int64_t n)
{
    *absmax = 0.0f;
    for (int64_t j = 0; j < n; j++)
        *absmax = fmaxf(*absmax, fabsf(x[j]));
    for (int64_t j = 0; j < n; j++)
        codes[j] = (uint8_t)nearest(map, *absmax > 0.0f ? x[j] / *absmax : 0.0f);
}

/* The same step with float32 moments that are widened before it and narrowed after it. */
static void step_wide(const variant *v, fsdp_adamw_args args, const arrays *x, int64_t inner)
{
    const fsdp_dynamic_map *maps[] = {fsdp_dynamic_map_signed(), fsdp_dynamic_map_unsigned()};
    const int64_t of_row = (inner + FSDP_MAP_BLOCK - 1) / FSDP_MAP_BLOCK;
    float *moments[] = {x->m, x->v};
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < ROWS * inner; i++)
            moments[k][i] = maps[k]->value[x->codes[k][i]] *
                            x->absmax[k][i / inner * of_row + i % inner / FSDP_MAP_BLOCK];
    args.param = x->param;
    args.exp_avg = x->m;
    args.exp_avg_sq = x->v;
    args.state_dtype = FSDP_DTYPE_F32;
    v->k->adamw(v->c, &args, 1, NULL);
    for (int k = 0; k < 2; k++)
        for (int64_t r = 0; r < ROWS; r++)
            for (int64_t b = 0; b < of_row; b++) {
                const int64_t at = r * inner + b * FSDP_MAP_BLOCK;
                const int64_t left = inner - b * FSDP_MAP_BLOCK;
                narrow_block(x->codes[k] + at, &x->absmax[k][r * of_row + b], moments[k] + at,
                             maps[k], left < FSDP_MAP_BLOCK ? left : FSDP_MAP_BLOCK);
            }
}

static arrays open_arrays(operands *o, int64_t inner)
{
    const int64_t n = ROWS * inner, blocks = ROWS * ((inner + FSDP_MAP_BLOCK - 1) / FSDP_MAP_BLOCK);
    arrays x;
    x.param = operand(o, FSDP_DTYPE_F32, n);
    x.grad = operand(o, FSDP_DTYPE_F32, n);
    x.m = operand(o, FSDP_DTYPE_F32, n);
    x.v = operand(o, FSDP_DTYPE_F32, n);
    x.hi = operand(o, FSDP_DTYPE_BF16, n);
    x.lo = operand(o, FSDP_DTYPE_BF16, n);
    x.marks = operand(o, FSDP_DTYPE_BF16, fsdp_halves_words(n));
    for (int k = 0; k < 2; k++) {
        x.codes[k] = operand(o, FSDP_DTYPE_U8, n);
        x.absmax[k] = operand(o, FSDP_DTYPE_F32, blocks);
        memset(x.codes[k], 0, (size_t)n);
        memset(x.absmax[k], 0, (size_t)blocks * sizeof(float));
    }
    fill_uniform(x.param, FSDP_DTYPE_F32, n, 5, -1.0, 1.0);
    return x;
}

/* `halved`: the parameter is stored in halves. The second block of the parameter has gradients of
 * zero. */
static void check_8bit(fsdp_test *t, const variant *v, int64_t inner, bool halved)
{
    operands o = {.n = 0};
    const int64_t n = ROWS * inner;
    arrays narrow = open_arrays(&o, inner), wide = open_arrays(&o, inner);
    fsdp_adamw_args args = {.n = n,
                            .inner = inner,
                            .lr = 0.01,
                            .beta1 = 0.9,
                            .beta2 = 0.95,
                            .eps = 1e-8,
                            .weight_decay = 0.1,
                            .decoupled = true,
                            .grad = narrow.grad,
                            .grad_scale = 0.5f};
    if (halved)
        v->k->split(v->c, (fsdp_halves){narrow.hi, narrow.lo, narrow.marks}, narrow.param, n);
    for (int step = 1; step <= STEPS; step++) {
        fill_uniform(narrow.grad, FSDP_DTYPE_F32, n, (uint64_t)step, -1.0, 1.0);
        for (int64_t i = FSDP_MAP_BLOCK; i < 2 * FSDP_MAP_BLOCK; i++)
            narrow.grad[i] = 0.0f;
        args.step = step;
        step_wide(v, args, &wide, inner);
        fsdp_adamw_args a = args;
        a.param = halved ? NULL : narrow.param;
        if (halved)
            a.halves = (fsdp_halves){narrow.hi, narrow.lo, narrow.marks};
        a.state_dtype = FSDP_DTYPE_U8;
        a.exp_avg = narrow.codes[0];
        a.exp_avg_sq = narrow.codes[1];
        a.absmax1 = narrow.absmax[0];
        a.absmax2 = narrow.absmax[1];
        v->k->adamw(v->c, &a, 1, NULL);
        if (halved)
            v->k->join(v->c, narrow.param, a.halves, n);
        ASSERT(memcmp(narrow.param, wide.param, (size_t)n * sizeof(float)) == 0);
        for (int k = 0; k < 2; k++) {
            const int64_t of_row = (inner + FSDP_MAP_BLOCK - 1) / FSDP_MAP_BLOCK;
            ASSERT(memcmp(narrow.codes[k], wide.codes[k], (size_t)n) == 0);
            ASSERT(memcmp(narrow.absmax[k], wide.absmax[k],
                          (size_t)(ROWS * of_row) * sizeof(float)) == 0);
        }
    }
    ASSERT(operands_close(&o));
}

TEST(adamw_in_8_bits_is_adamw_between_widening_and_narrowing)
{
    static const int64_t widths[] = {16, 256, 272, 496};
    variants v = variants_open(t);
    CHECK_HERE();
    for (int j = 0; j < v.n; j++)
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
            for (int halved = 0; halved < 2; halved++) {
                check_8bit(t, &v.at[j], widths[w], halved);
                CHECK_HERE();
            }
    variants_close(&v);
}

/* --- stochastic rounding --- */

static uint16_t rounded(uint64_t key, int64_t e, float x)
{
    const fsdp_philox random = fsdp_philox4x32(key, (uint64_t)e / 8, 0);
    const uint32_t word = random.v[e % 8 / 2];
    const uint32_t half = e % 2 ? word >> 16 : word & 0xffffu;
    return (uint16_t)((fsdp_bits_from_f32(x) + half) >> 16);
}

/* A step of Adam with float32 arrays gives the values that the other arrays store rounded. */
static void check_rounding(fsdp_test *t, const variant *v, int64_t n, int64_t first)
{
    operands o = {.n = 0};
    float *grad = operand(&o, FSDP_DTYPE_F32, n), *wide[3];
    uint16_t *narrow[3];
    const uint64_t key = fsdp_rounding_key(7, 3, 5);
    fsdp_adamw_args args = {.n = n,
                            .lr = 0.01,
                            .beta1 = 0.9,
                            .beta2 = 0.95,
                            .eps = 1e-8,
                            .decoupled = true,
                            .step = 3,
                            .grad = grad,
                            .grad_scale = 1.0f,
                            .copy_dtype = FSDP_DTYPE_BF16,
                            .first = first,
                            .rounding_key = key};
    fill_uniform(grad, FSDP_DTYPE_F32, n, 4, -2.0, 2.0);
    for (int k = 0; k < 3; k++) {
        wide[k] = operand(&o, FSDP_DTYPE_F32, n);
        narrow[k] = operand(&o, FSDP_DTYPE_BF16, n);
        fill_uniform(narrow[k], FSDP_DTYPE_BF16, n, (uint64_t)k, k == 2 ? 0.0 : -1.0, 1.0);
        for (int64_t i = 0; i < n; i++)
            wide[k][i] = fsdp_f32_from_bf16(narrow[k][i]);
    }
    args.param = wide[0];
    args.exp_avg = wide[1];
    args.exp_avg_sq = wide[2];
    v->k->adamw(v->c, &args, 1, NULL);
    args.param = NULL;
    args.copy = narrow[0];
    args.exp_avg = narrow[1];
    args.exp_avg_sq = narrow[2];
    args.state_dtype = FSDP_DTYPE_BF16;
    args.stochastic = true;
    v->k->adamw(v->c, &args, 1, NULL);
    for (int k = 0; k < 3; k++)
        for (int64_t i = 0; i < n; i++)
            ASSERT_INT(narrow[k][i], rounded(fsdp_mix64(key + (uint64_t)k), first + i, wide[k][i]));
    ASSERT(operands_close(&o));
}

TEST(stochastic_rounding_is_a_function_of_the_index_in_the_whole_tensor)
{
    static const int64_t lengths[] = {1, 255, 256, 300, 17000};
    variants v = variants_open(t);
    CHECK_HERE();
    for (int j = 0; j < v.n; j++)
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++)
            for (int64_t first = 0; first < 9; first += 4) {
                check_rounding(t, &v.at[j], lengths[k], first + (k == 3 ? 1001 : 0));
                CHECK_HERE();
            }
    variants_close(&v);
}

/* An update of 1/1024 of the distance of two bfloat16 values is lost by rounding to nearest. The
 * mean of many values follows it. */
TEST(stochastic_rounding_keeps_small_updates_on_average)
{
    enum {
        N = 1 << 16
    };
    variants v = variants_open(t);
    CHECK_HERE();
    operands o = {.n = 0};
    float *grad = operand(&o, FSDP_DTYPE_F32, N), *m = operand(&o, FSDP_DTYPE_F32, N);
    float *s = operand(&o, FSDP_DTYPE_F32, N);
    uint16_t *p = operand(&o, FSDP_DTYPE_BF16, N);
    for (int stochastic = 0; stochastic < 2; stochastic++) {
        double sum = 0.0;
        for (int i = 0; i < N; i++) {
            grad[i] = -1.0f;
            m[i] = s[i] = 0.0f;
            p[i] = fsdp_bf16_from_f32(1.0f);
        }
        for (int step = 1; step <= 64; step++) {
            const fsdp_adamw_args args = {.n = N,
                                          .lr = 0x1p-17,
                                          .beta1 = 0.9,
                                          .beta2 = 0.95,
                                          .decoupled = true,
                                          .step = step,
                                          .grad = grad,
                                          .grad_scale = 1.0f,
                                          .copy = p,
                                          .exp_avg = m,
                                          .exp_avg_sq = s,
                                          .copy_dtype = FSDP_DTYPE_BF16,
                                          .stochastic = stochastic,
                                          .rounding_key = fsdp_rounding_key(1, step, 0)};
            v.at[0].k->adamw(v.at[0].c, &args, 1, NULL);
        }
        for (int i = 0; i < N; i++)
            sum += (double)fsdp_f32_from_bf16(p[i]) - 1.0;
        /* 64 updates of 2^-17, with a standard deviation of about 1e-5 */
        if (stochastic)
            ASSERT_NEAR(sum / N, 64 * 0x1p-17, 6e-5);
        else
            ASSERT(sum == 0.0);
    }
    ASSERT(operands_close(&o));
    variants_close(&v);
}
