/* Losses of targets that are numbers: mean squared error and binary cross-entropy. A warp computes
 * one row, in double, as on the CPU. */
#include "src/kernels/cuda/row_access.cuh"

enum {
    ROWS = 8 /* rows that a block computes at a time */
};

/* Return the loss of one logit x with the target t, and set *gradient to the derivative of the
 * loss. */
FSDP_DEVICE double element_loss(double x, double t, bool binary, double *gradient)
{
    if (!binary) {
        *gradient = 2.0 * (x - t);
        return (x - t) * (x - t);
    }
    const double small = exp(-fabs(x));
    *gradient = (x >= 0 ? 1.0 : small) / (1.0 + small) - t;
    return (x > 0 ? x : 0.0) - x * t + log1p(small);
}

static __global__ void __launch_bounds__(WARP *ROWS)
    target_loss(float *losses, float *logits, const float *targets, int64_t rows, int64_t width,
                bool binary, bool gradient, float factor)
{
    for (int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.y; row < rows;
         row += (int64_t)gridDim.x * ROWS) {
        float *x = logits + row * width;
        const float *t = targets + row * width;
        const bool ignored = isnan(t[0]);
        double total = 0.0;
        for (int64_t i = threadIdx.x; i < width; i += WARP) {
            double of_x = 0.0;
            if (!ignored)
                total += element_loss((double)x[i], (double)t[i], binary, &of_x);
            if (gradient)
                x[i] = (float)(of_x * (double)factor / (double)width);
        }
#pragma unroll
        for (int i = WARP / 2; i; i /= 2)
            total += __shfl_xor_sync(~0u, total, i);
        if (threadIdx.x == 0)
            losses[row] = (float)(total / (double)width);
    }
}

extern "C" void fsdp_cuda_target_loss(fsdp_kernel_context *context, float *losses, float *logits,
                                      const float *targets, int64_t rows, int64_t width,
                                      bool binary, bool gradient, float factor)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    const float *uploaded =
        (const float *)fsdp_cuda_upload(c, targets, (size_t)(rows * width) * sizeof *targets);
    if (!uploaded)
        return;
    CUDA_LAUNCH(target_loss, blocks_for(rows, ROWS), dim3(WARP, ROWS), 0, fsdp_cuda_stream(c),
                losses, logits, uploaded, rows, width, binary, gradient, factor);
    fsdp_cuda_launched(c, "target_loss");
}
