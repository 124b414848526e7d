/* Attention with tensor cores for bfloat16 and head widths up to 64. Some models with such heads
 * use a bias, some use dropout, some use both, and some use neither. So there are separate kernels
 * for each combination. */
#include "src/kernels/cuda/attention_tensor.cuh"

const attention_kernels fsdp_cuda_attention_bf16 = tensor_attention<__nv_bfloat16, 64, true>();
