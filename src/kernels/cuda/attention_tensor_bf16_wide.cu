/* Attention with tensor cores for bfloat16 and head widths up to 128. */
#include "src/kernels/cuda/attention_tensor.cuh"

const attention_kernels fsdp_cuda_attention_bf16_wide =
    tensor_attention<__nv_bfloat16, 128, false>();
