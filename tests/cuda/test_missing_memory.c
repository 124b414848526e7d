/* A CUDA device that has no memory for a moment: the failure is reported once, and the same call
 * succeeds after that. The emulator lets allocations of scratch memory, tables and uploads fail. */
#include "tests/cuda/conform.h"

/* A function of tests/cuda/emulator/memory.cpp. NULL on a card, whose memory cannot be made to
 * fail.
 */
extern void emu_fail_allocations(int n) __attribute__((weak));
/* A function of tests/cuda/emulator/cublaslt.cpp. */
extern void emu_fail_choices(int n) __attribute__((weak));

/* Opens both devices, unless there is no emulator. */
#define MISSING_MEMORY_OPEN(x)                                                                     \
    if (!emu_fail_allocations)                                                                     \
        SKIP("no emulator: allocations cannot be made to fail");                                   \
    CONFORM_OPEN(x)

typedef void (*start_fn)(conform *x, conform_array *const *a, bool on_device);

static void *on(const conform_array *a, bool on_device)
{
    return on_device ? a->device : a->host;
}

/* Starts a function whose next allocation fails. The next wait returns the failure, later waits do
 * not. Started again, the function computes a[0]. */
static void check_recovery(conform *x, start_fn start, conform_array *const *a, const char *what)
{
    fsdp_test *t = x->t;
    emu_fail_allocations(1);
    start(x, a, true);
    ASSERT_ERROR(fsdp_device_synchronize(x->gpu), FSDP_ERR_NOMEM, "out of memory");
    ASSERT_OK(fsdp_device_synchronize(x->gpu));
    /* The next kernel must not report the old failure as its own. */
    x->dk->fill(x->dc, a[0]->device, a[0]->dtype, 0.0, a[0]->n);
    ASSERT_OK(fsdp_device_synchronize(x->gpu));
    start(x, a, true);
    start(x, a, false);
    conform_near(x, a[0], 1e-5, 1e-6, what);
    conform_free(x);
}

enum {
    ROWS = 70,
    WIDTH = 40
};

static void column_sum(conform *x, conform_array *const *a, bool on_device)
{
    const fsdp_kernels *k = on_device ? x->dk : x->k;
    k->column_sum(on_device ? x->dc : x->c, on(a[0], on_device), FSDP_DTYPE_F32, 0.0f,
                  on(a[1], on_device), FSDP_DTYPE_F32, ROWS, WIDTH);
}

TEST(scratch_memory_is_asked_for_again)
{
    MISSING_MEMORY_OPEN(x);
    conform_array *const a[] = {
        conform_output(&x, FSDP_DTYPE_F32, WIDTH),
        conform_input(&x, FSDP_DTYPE_F32, (int64_t)ROWS * WIDTH, 1, -1.0, 1.0)};
    check_recovery(&x, column_sum, a, "column_sum");
    conform_close(&x);
}

static void sgd(conform *x, conform_array *const *a, bool on_device)
{
    const fsdp_kernels *k = on_device ? x->dk : x->k;
    /* The parameter begins with the values of a[1], so that the function can be started twice. */
    k->copy(on_device ? x->dc : x->c, on(a[0], on_device), on(a[1], on_device), WIDTH * 4);
    const fsdp_sgd_args args = {.n = WIDTH,
                                .param = on(a[0], on_device),
                                .grad = on(a[1], on_device),
                                .lr = 0.5,
                                .grad_scale = 1.0f};
    k->sgd(on_device ? x->dc : x->c, &args, 1, NULL);
}

TEST(a_table_is_copied_again)
{
    MISSING_MEMORY_OPEN(x);
    conform_array *const a[] = {conform_output(&x, FSDP_DTYPE_F32, WIDTH),
                                conform_input(&x, FSDP_DTYPE_F32, WIDTH, 1, -1.0, 1.0)};
    check_recovery(&x, sgd, a, "sgd");
    conform_close(&x);
}

enum {
    TOKENS = 700000 /* more ids than the ring of uploads can take */
};
static int32_t ids[TOKENS];

static void embedding(conform *x, conform_array *const *a, bool on_device)
{
    const fsdp_kernels *k = on_device ? x->dk : x->k;
    k->embedding(on_device ? x->dc : x->c, on(a[0], on_device), FSDP_DTYPE_F32, on(a[1], on_device),
                 FSDP_DTYPE_F32, ids, TOKENS, 1);
}

/* The pinned memory of a larger ring is missing. */
TEST(the_ring_of_uploads_is_opened_again)
{
    MISSING_MEMORY_OPEN(x);
    for (int i = 0; i < TOKENS; i++)
        ids[i] = i % 3;
    conform_array *const a[] = {conform_output(&x, FSDP_DTYPE_F32, TOKENS),
                                conform_input(&x, FSDP_DTYPE_F32, 3, 1, -1.0, 1.0)};
    check_recovery(&x, embedding, a, "embedding");
    conform_close(&x);
}

/* A function that returns a status returns the failure itself, and no wait returns it again. But
 * it does not hide the failure of an earlier function, which returns nothing. */
TEST(a_product_returns_its_own_failure_only)
{
    MISSING_MEMORY_OPEN(x);
    conform_array *a = conform_input(&x, FSDP_DTYPE_F32, 64, 1, -1.0, 1.0);
    conform_array *b = conform_input(&x, FSDP_DTYPE_F32, 64, 2, -1.0, 1.0);
    conform_array *c = conform_output(&x, FSDP_DTYPE_F32, 64);
    conform_array *dy = conform_input(&x, FSDP_DTYPE_F32, (int64_t)ROWS * WIDTH, 3, -1.0, 1.0);
    conform_array *sums = conform_output(&x, FSDP_DTYPE_F32, WIDTH);
    const fsdp_gemm_args args = {.m = 8,
                                 .n = 8,
                                 .k = 8,
                                 .a = a->device,
                                 .b = b->device,
                                 .c = c->device,
                                 .lda = 8,
                                 .ldb = 8,
                                 .ldc = 8,
                                 .ab_dtype = FSDP_DTYPE_F32,
                                 .c_dtype = FSDP_DTYPE_F32};
    emu_fail_allocations(1);
    ASSERT_ERROR(x.dk->gemm(x.dc, &args), FSDP_ERR_NOMEM, "scratch: out of memory");
    ASSERT_OK(fsdp_device_synchronize(x.gpu));
    emu_fail_allocations(1);
    column_sum(&x, (conform_array *const[]){sums, dy}, true);
    ASSERT_ERROR(x.dk->gemm(x.dc, &args), FSDP_ERR_NOMEM, "scratch: out of memory");
    ASSERT_ERROR(fsdp_device_synchronize(x.gpu), FSDP_ERR_NOMEM, "scratch: out of memory");
    ASSERT_OK(x.dk->gemm(x.dc, &args));
    ASSERT_OK(fsdp_device_synchronize(x.gpu));
    conform_close(&x);
}

/* cublasLt fails once when it chooses an algorithm for a product. The plan that it makes later is
 * not that of a product without an algorithm. */
TEST(a_product_is_planned_again_after_a_failure)
{
    MISSING_MEMORY_OPEN(x);
    const fsdp_float8_gemm_args codes = {.m = 16, .n = 16, .k = 16, .c_dtype = FSDP_DTYPE_F32};
    emu_fail_choices(1);
    ASSERT(!x.dk->float8_multiplies_codes(x.dc, &codes));
    ASSERT(strstr(fsdp_last_error(),
                  "cublasLt failed to choose an algorithm: CUBLAS_STATUS_INTERNAL_ERROR"));
    ASSERT(x.dk->float8_multiplies_codes(x.dc, &codes));
    conform_close(&x);
}
