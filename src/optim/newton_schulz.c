/* See newton_schulz.h. */
#include "src/optim/newton_schulz.h"

#include <math.h>

#include "src/base/bf16.h"
#include "src/tensor/device.h"
#include "src/tensor/host_copy.h"
#include "src/tensor/tensor.h"

static void *at(const fsdp_tensor *t)
{
    return fsdp_tensor_ptr(t);
}

static fsdp_status create(fsdp_device *device, fsdp_dtype dtype, int64_t n, fsdp_tensor **t)
{
    return fsdp_tensor_create(device, dtype, 1, &n, FSDP_TAG_OPTIM, t);
}

fsdp_status fsdp_newton_schulz_open(fsdp_device *device, int64_t numel, int64_t side, int64_t rows,
                                    fsdp_newton_schulz *n)
{
    *n = (fsdp_newton_schulz){.device = device};
    FSDP_TRY(create(device, FSDP_DTYPE_BF16, side * side, &n->gram));
    FSDP_TRY(create(device, FSDP_DTYPE_BF16, side * side, &n->polynomial));
    FSDP_TRY(create(device, FSDP_DTYPE_F32, side * side, &n->square));
    FSDP_TRY(create(device, FSDP_DTYPE_F32, numel, &n->product));
    return create(device, FSDP_DTYPE_F64, rows, &n->sums);
}

void fsdp_newton_schulz_close(fsdp_newton_schulz *n)
{
    fsdp_tensor_release(n->gram);
    fsdp_tensor_release(n->polynomial);
    fsdp_tensor_release(n->square);
    fsdp_tensor_release(n->product);
    fsdp_tensor_release(n->sums);
}

/* Compute the product of two matrices of the iteration. If args.beta is 1, add it to args.c. */
static fsdp_status multiply(const fsdp_newton_schulz *w, fsdp_gemm_args args)
{
    args.ab_dtype = FSDP_DTYPE_BF16;
    return w->device->kernels->gemm(w->device->context, &args);
}

/* Do one step of the iteration: X = a X + (b G + c G G) X with G = X X^T. If X has more rows than
 * columns, do this step for X^T instead: X = a X + X (b G + c G G) with G = X^T X. */
static fsdp_status iterate(const fsdp_newton_schulz *w, const fsdp_muon_options *options,
                           int64_t rows, int64_t cols, void *x)
{
    const fsdp_kernels *k = w->device->kernels;
    fsdp_kernel_context *c = w->device->context;
    const double *coefficients = options->ns_coefficients;
    const int64_t n = rows * cols;
    const bool tall = rows > cols;
    const int64_t m = tall ? cols : rows, other = tall ? rows : cols;
    FSDP_TRY(multiply(w, (fsdp_gemm_args){.m = m,
                                          .n = m,
                                          .k = other,
                                          .a = x,
                                          .b = x,
                                          .c = at(w->gram),
                                          .lda = cols,
                                          .ldb = cols,
                                          .ldc = m,
                                          .trans_a = tall,
                                          .trans_b = !tall,
                                          .c_dtype = FSDP_DTYPE_BF16}));
    k->cast(c, at(w->square), FSDP_DTYPE_F32, at(w->gram), FSDP_DTYPE_BF16, m * m);
    k->scale(c, at(w->square), at(w->square), (float)(coefficients[1] / coefficients[2]),
             FSDP_DTYPE_F32, m * m);
    FSDP_TRY(multiply(w, (fsdp_gemm_args){.m = m,
                                          .n = m,
                                          .k = m,
                                          .a = at(w->gram),
                                          .b = at(w->gram),
                                          .c = at(w->square),
                                          .lda = m,
                                          .ldb = m,
                                          .ldc = m,
                                          .c_dtype = FSDP_DTYPE_F32,
                                          .beta = 1.0f}));
    k->scale(c, at(w->square), at(w->square), (float)coefficients[2], FSDP_DTYPE_F32, m * m);
    k->cast(c, at(w->polynomial), FSDP_DTYPE_BF16, at(w->square), FSDP_DTYPE_F32, m * m);
    k->cast(c, at(w->product), FSDP_DTYPE_F32, x, FSDP_DTYPE_BF16, n);
    k->scale(c, at(w->product), at(w->product), (float)coefficients[0], FSDP_DTYPE_F32, n);
    FSDP_TRY(multiply(w, (fsdp_gemm_args){.m = rows,
                                          .n = cols,
                                          .k = m,
                                          .a = tall ? x : at(w->polynomial),
                                          .b = tall ? at(w->polynomial) : x,
                                          .c = at(w->product),
                                          .lda = m,
                                          .ldb = cols,
                                          .ldc = cols,
                                          .c_dtype = FSDP_DTYPE_F32,
                                          .beta = 1.0f}));
    k->cast(c, x, FSDP_DTYPE_BF16, at(w->product), FSDP_DTYPE_F32, n);
    return FSDP_OK;
}

/* Set *norm to the Frobenius norm of x. */
static fsdp_status norm_of(const fsdp_newton_schulz *w, int64_t rows, int64_t cols, const void *x,
                           double *norm)
{
    const fsdp_row_powers powers = {x, FSDP_DTYPE_BF16, rows, cols, at(w->sums)};
    fsdp_host_copy sums;
    double squares = 0.0;
    w->device->kernels->row_power_sums(w->device->context, &powers, 1, 2.0);
    fsdp_status status = fsdp_host_copy_create(&sums, w->sums);
    if (status == FSDP_OK)
        status = fsdp_host_copy_read_part(&sums, 0, (size_t)rows * sizeof(double));
    for (int64_t r = 0; r < rows && status == FSDP_OK; r++)
        squares += ((const double *)sums.data)[r];
    fsdp_host_copy_destroy(&sums);
    *norm = sqrt(squares);
    return status;
}

fsdp_status fsdp_newton_schulz_run(const fsdp_newton_schulz *w, const fsdp_muon_options *options,
                                   int64_t rows, int64_t cols, void *x)
{
    double exact;
    FSDP_TRY(norm_of(w, rows, cols, x, &exact));
    const float norm = fsdp_f32_from_bf16(fsdp_bf16_from_f32((float)exact));
    w->device->kernels->scale(w->device->context, x, x, 1.0f / fmaxf(norm, (float)options->eps),
                              FSDP_DTYPE_BF16, rows * cols);
    for (int step = 0; step < options->ns_steps; step++)
        FSDP_TRY(iterate(w, options, rows, cols, x));
    return FSDP_OK;
}
