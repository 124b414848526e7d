/* RMSNorm (Zhang & Sennrich 2019) and its gradient. The kernels are in norm.cuh. */
#include "src/kernels/cuda/norm.cuh"

extern "C" void fsdp_cuda_rms_norm(fsdp_kernel_context *context, void *y, float *rstd,
                                   const void *x, const void *w, fsdp_dtype dtype,
                                   fsdp_dtype w_dtype, int64_t rows, int64_t width, float eps)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    norm_forward a = {};
    a.y = y;
    a.rstd = rstd;
    a.x = x;
    a.w = w;
    a.w_dtype = w_dtype;
    a.rows = rows;
    a.width = width;
    a.eps = eps;
    if (rows)
        start_norm_forward<false>(c, a, dtype);
    fsdp_cuda_launched(c, "rms_norm");
}

extern "C" void fsdp_cuda_rms_norm_backward(fsdp_kernel_context *context, void *dx, void *dw,
                                            fsdp_dtype dw_dtype, float dw_beta, const void *dy,
                                            const void *x, const float *rstd, const void *w,
                                            fsdp_dtype dtype, fsdp_dtype w_dtype, int64_t rows,
                                            int64_t width)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    const column_outputs out = {{dw}, {dw_dtype}, {dw_beta}};
    norm_backward a = {};
    a.dx = dx;
    a.dy = dy;
    a.x = x;
    a.w = w;
    a.rstd = rstd;
    a.w_dtype = w_dtype;
    a.rows = rows;
    a.width = width;
    if (width)
        start_norm_backward<false>(c, a, dtype, out);
    fsdp_cuda_launched(c, "rms_norm_backward");
}
