/* Attention with tensor cores for float16: kernels for head widths up to 64 and (`wide`) up to
 * 128. */
#include "src/kernels/cuda/attention_tensor.cuh"

const attention_kernels fsdp_cuda_attention_f16 = tensor_attention<__half, 64, false>();
const attention_kernels fsdp_cuda_attention_f16_wide = tensor_attention<__half, 128, false>();
