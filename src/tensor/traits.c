/* The settings that are best for the CPU and for cards: see fsdp_device_traits in device.h. */
#include "src/tensor/device.h"

/* The result of an activation function is computed in parts that fit the caches of a CPU. The GEMM
 * primitives of the CPU are cached by shape, so the chunks of the loss must have few different
 * shapes. With chunks of fewer than 192 rows, most of the time would be spent reading the weight
 * for each chunk. With chunks of 512 rows, the loss would be 1 % faster, but the logits would be
 * the largest part of the activations of a model with activation checkpointing. */
const fsdp_device_traits fsdp_cpu_traits = {.growth_bytes = (size_t)1 << 20,
                                            .loss_rows = 352,
                                            .least_loss_rows = 192,
                                            .loss_bytes = 24 << 20,
                                            .loss_columns = 1,
                                            .activated_bytes = 4 << 20,
                                            .small_activated_bytes = 2 << 20,
                                            .activated_rows_bytes = 1 << 20,
                                            .sum_numel = 1 << 18,
                                            .shared_bytes = 1};

/* A product with 2048 or more rows reaches the card's peak rate. The driver maps memory in units of
 * 2 MiB. */
const fsdp_device_traits fsdp_cuda_traits = {.growth_bytes = (size_t)1 << 21,
                                             .loss_rows = 8192,
                                             .least_loss_rows = 1024,
                                             .loss_bytes = 640 << 20,
                                             .loss_columns = 64,
                                             .activated_bytes = 512 << 20,
                                             .small_activated_bytes = 128 << 20,
                                             .activated_rows_bytes = 128 << 20,
                                             .sum_numel = 1 << 24,
                                             .joins_products = true,
                                             .joins_kernels = true,
                                             .joins_sums = true,
                                             .shared_bytes = (size_t)1 << 21,
                                             .multiplies_float8 = true,
                                             .keeps_idle_memory = true};
