/* LayerNorm (Ba, Kiros & Hinton 2016) and its gradient. The kernels are in norm.cuh. */
#include "src/kernels/cuda/norm.cuh"

extern "C" void fsdp_cuda_layer_norm(fsdp_kernel_context *context, void *y, float *mean,
                                     float *rstd, const void *x, const void *w, const void *bias,
                                     fsdp_dtype dtype, fsdp_dtype w_dtype, int64_t rows,
                                     int64_t width, float eps)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    norm_forward a = {};
    a.y = y;
    a.mean = mean;
    a.rstd = rstd;
    a.x = x;
    a.w = w;
    a.bias = bias;
    a.w_dtype = w_dtype;
    a.rows = rows;
    a.width = width;
    a.eps = eps;
    if (rows)
        start_norm_forward<true>(c, a, dtype);
    fsdp_cuda_launched(c, "layer_norm");
}

extern "C" void fsdp_cuda_layer_norm_backward(fsdp_kernel_context *context,
                                              const fsdp_layer_norm_backward_args *args)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    const column_outputs out = {{args->dw.dst, args->dbias.dst},
                                {args->dw.dtype, args->dbias.dtype},
                                {args->dw.beta, args->dbias.beta}};
    norm_backward a = {};
    a.dx = args->dx;
    a.dy = args->dy;
    a.x = args->x;
    a.w = args->w;
    a.mean = args->mean;
    a.rstd = args->rstd;
    a.w_dtype = args->w_dtype;
    a.rows = args->rows;
    a.width = args->width;
    if (args->width)
        start_norm_backward<true>(c, a, args->dtype, out);
    fsdp_cuda_launched(c, "layer_norm_backward");
}
