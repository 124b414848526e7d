/* Attention by tensor cores for bfloat16 and head widths up to 64. Models with such heads have
 * biases, dropout, both or neither, so each combination has its own kernels. */
#include "src/kernels/cuda/attention_tensor.cuh"

const attention_kernels fsdp_cuda_attention_bf16 = tensor_attention<__nv_bfloat16, 64, true>();
