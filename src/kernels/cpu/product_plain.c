/* Matrix products on one thread for builds without oneDNN. They are computed by plain loops, which
 * are correct on every CPU but slow. Such builds are for machines on which oneDNN cannot be
 * installed, and for programs that compute little. With AVX2 or AVX-512, our own tiles (tile.h)
 * still do most of the work. Sums are float32, added in order of k. */
#include "src/base/alloc.h"
#include "src/base/bf16.h"
#include "src/kernels/cpu/product_testing.h"

enum {
    /* The number of columns of C that are computed together. Their sums stay in the cache. */
    COLUMNS = 256
};

const int64_t fsdp_cpu_tiles_least_rows = 0;

struct fsdp_cpu_products {
    char none;
};

fsdp_status fsdp_cpu_products_create(int workers, fsdp_cpu_products **out)
{
    fsdp_cpu_products *products = fsdp_calloc(1, sizeof *products);
    if (!products)
        return fsdp_error_nomem();
    (void)workers;
    *out = products;
    return FSDP_OK;
}

void fsdp_cpu_products_destroy(fsdp_cpu_products *products)
{
    fsdp_free(products);
}

void fsdp_cpu_products_begin(fsdp_cpu_products *products)
{
    (void)products;
}

#ifdef FSDP_TESTING
size_t fsdp_cpu_products_count(const fsdp_cpu_products *products)
{
    (void)products;
    return 0;
}
#endif

bool fsdp_cpu_has_bf16(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512bf16");
}

bool fsdp_cpu_may_use_amx(void)
{
    return true;
}

/* --- one product --- */

static float load(const void *x, fsdp_dtype dtype, int64_t i)
{
    return dtype == FSDP_DTYPE_BF16 ? fsdp_f32_from_bf16(((const uint16_t *)x)[i])
                                    : ((const float *)x)[i];
}

static void store(void *x, fsdp_dtype dtype, int64_t i, float value)
{
    if (dtype == FSDP_DTYPE_BF16)
        ((uint16_t *)x)[i] = fsdp_bf16_from_f32(value);
    else
        ((float *)x)[i] = value;
}

/* Adds a * B[k, first + j] to sums[j], for each j < n. */
static void add_row(const fsdp_cpu_product *s, const void *b, int64_t k, int64_t first, int64_t n,
                    float a, float *sums)
{
    const int64_t at = s->trans_b ? first * s->ldb + k : k * s->ldb + first;
    const int64_t step = s->trans_b ? s->ldb : 1;
    if (s->ab_dtype == FSDP_DTYPE_F32 && !s->trans_b) {
        const float *row = (const float *)b + at;
        for (int64_t j = 0; j < n; j++)
            sums[j] += a * row[j];
        return;
    }
    for (int64_t j = 0; j < n; j++)
        sums[j] += a * load(b, s->ab_dtype, at + j * step);
}

/* Computes columns [first, first + n) of row i of C. */
static void run_row(const fsdp_cpu_product *s, int64_t i, int64_t first, int64_t n, const void *a,
                    const void *b, void *c, const void *bias)
{
    float sums[COLUMNS] = {0};
    for (int64_t k = 0; k < s->k; k++)
        add_row(s, b, k, first, n,
                load(a, s->ab_dtype, s->trans_a ? k * s->lda + i : i * s->lda + k), sums);
    for (int64_t j = 0; j < n; j++) {
        const int64_t at = i * s->ldc + first + j;
        if (s->bias)
            sums[j] += load(bias, s->ab_dtype, first + j);
        if (s->accumulate)
            sums[j] += load(c, s->c_dtype, at);
        store(c, s->c_dtype, at, sums[j]);
    }
}

fsdp_status fsdp_cpu_product_run(fsdp_cpu_products *products, int worker,
                                 const fsdp_cpu_product *shape, const void *a, const void *b,
                                 void *c, const void *bias)
{
    (void)products;
    (void)worker;
    for (int64_t first = 0; first < shape->n; first += COLUMNS) {
        const int64_t n = shape->n - first < COLUMNS ? shape->n - first : COLUMNS;
        for (int64_t i = 0; i < shape->m; i++)
            run_row(shape, i, first, n, a, b, c, bias);
    }
    return FSDP_OK;
}
