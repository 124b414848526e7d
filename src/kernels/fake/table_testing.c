/* The fake device's kernels. Each kernel copies its arguments and puts the CPU's kernel of the same
 * name into the stream. The kernel context is an fsdp_fake_stream. */
#include <stddef.h>

#include "src/kernels/fake/stream_testing.h"

static fsdp_fake_stream *stream_of(fsdp_kernel_context *c)
{
    return (fsdp_fake_stream *)(void *)c;
}

/* Macros for a kernel with n arguments. The names of arguments count backwards: the first of three
 * arguments is a3, and the last is a1. FIELDS_n and PARAMETERS_n are called with the types of the
 * kernel's arguments. FIELDS_n declares a field of a struct for each of these types, and
 * PARAMETERS_n declares a function parameter for each. NAMES_n lists the parameters. OF_P_n lists
 * the fields of the struct that `p` points to. @{ */
#define FIELDS_3(t, u, v)                                                                          \
    t a3;                                                                                          \
    u a2;                                                                                          \
    v a1;
#define FIELDS_4(t, ...)                                                                           \
    t a4;                                                                                          \
    FIELDS_3(__VA_ARGS__)
#define FIELDS_5(t, ...)                                                                           \
    t a5;                                                                                          \
    FIELDS_4(__VA_ARGS__)
#define FIELDS_6(t, ...)                                                                           \
    t a6;                                                                                          \
    FIELDS_5(__VA_ARGS__)
#define FIELDS_7(t, ...)                                                                           \
    t a7;                                                                                          \
    FIELDS_6(__VA_ARGS__)
#define FIELDS_8(t, ...)                                                                           \
    t a8;                                                                                          \
    FIELDS_7(__VA_ARGS__)
#define FIELDS_9(t, ...)                                                                           \
    t a9;                                                                                          \
    FIELDS_8(__VA_ARGS__)
#define FIELDS_10(t, ...)                                                                          \
    t a10;                                                                                         \
    FIELDS_9(__VA_ARGS__)
#define FIELDS_11(t, ...)                                                                          \
    t a11;                                                                                         \
    FIELDS_10(__VA_ARGS__)
#define FIELDS_12(t, ...)                                                                          \
    t a12;                                                                                         \
    FIELDS_11(__VA_ARGS__)
#define PARAMETERS_3(t, u, v) t a3, u a2, v a1
#define PARAMETERS_4(t, ...) t a4, PARAMETERS_3(__VA_ARGS__)
#define PARAMETERS_5(t, ...) t a5, PARAMETERS_4(__VA_ARGS__)
#define PARAMETERS_6(t, ...) t a6, PARAMETERS_5(__VA_ARGS__)
#define PARAMETERS_7(t, ...) t a7, PARAMETERS_6(__VA_ARGS__)
#define PARAMETERS_8(t, ...) t a8, PARAMETERS_7(__VA_ARGS__)
#define PARAMETERS_9(t, ...) t a9, PARAMETERS_8(__VA_ARGS__)
#define PARAMETERS_10(t, ...) t a10, PARAMETERS_9(__VA_ARGS__)
#define PARAMETERS_11(t, ...) t a11, PARAMETERS_10(__VA_ARGS__)
#define PARAMETERS_12(t, ...) t a12, PARAMETERS_11(__VA_ARGS__)
#define NAMES_3 a3, a2, a1
#define NAMES_4 a4, NAMES_3
#define NAMES_5 a5, NAMES_4
#define NAMES_6 a6, NAMES_5
#define NAMES_7 a7, NAMES_6
#define NAMES_8 a8, NAMES_7
#define NAMES_9 a9, NAMES_8
#define NAMES_10 a10, NAMES_9
#define NAMES_11 a11, NAMES_10
#define NAMES_12 a12, NAMES_11
#define OF_P_3 p->a3, p->a2, p->a1
#define OF_P_4 p->a4, OF_P_3
#define OF_P_5 p->a5, OF_P_4
#define OF_P_6 p->a6, OF_P_5
#define OF_P_7 p->a7, OF_P_6
#define OF_P_8 p->a8, OF_P_7
#define OF_P_9 p->a9, OF_P_8
#define OF_P_10 p->a10, OF_P_9
#define OF_P_11 p->a11, OF_P_10
#define OF_P_12 p->a12, OF_P_11
/* @} */

/* Define a kernel with n arguments. `arrays` describes the arguments that point to host memory. */
#define KERNEL_OF(name, n, arrays, n_arrays, ...)                                                  \
    typedef struct name##_args {                                                                   \
        FIELDS_##n(__VA_ARGS__)                                                                    \
    } name##_args;                                                                                 \
    static fsdp_status run_##name(const fsdp_kernels *k, fsdp_kernel_context *c, const void *args) \
    {                                                                                              \
        const name##_args *p = args;                                                               \
        k->name(c, OF_P_##n);                                                                      \
        return FSDP_OK;                                                                            \
    }                                                                                              \
    static void fake_##name(fsdp_kernel_context *c, PARAMETERS_##n(__VA_ARGS__))                   \
    {                                                                                              \
        const name##_args args = {NAMES_##n};                                                      \
        fsdp_fake_launch(stream_of(c), run_##name, &args, sizeof args, arrays, n_arrays);          \
    }
#define KERNEL(name, n, ...) KERNEL_OF(name, n, NULL, 0, __VA_ARGS__)
/* Define a kernel whose argument `array` points to `bytes` bytes of host memory. */
#define KERNEL_WITH(name, n, array, bytes, ...)                                                    \
    KERNEL_OF(name, n, (&(fsdp_fake_array){offsetof(name##_args, array), bytes}), 1, __VA_ARGS__)
/* Define a kernel whose arguments are in a struct. */
#define KERNEL_OF_STRUCT(name, type)                                                               \
    static fsdp_status run_##name(const fsdp_kernels *k, fsdp_kernel_context *c, const void *args) \
    {                                                                                              \
        k->name(c, args);                                                                          \
        return FSDP_OK;                                                                            \
    }                                                                                              \
    static void fake_##name(fsdp_kernel_context *c, const type *args)                              \
    {                                                                                              \
        fsdp_fake_launch(stream_of(c), run_##name, args, sizeof *args, NULL, 0);                   \
    }

#define IDS(n) ((size_t)(n) * sizeof(int32_t))

/* clang-format off */
KERNEL(fill, 4, void *, fsdp_dtype, double, int64_t)
KERNEL(copy, 3, void *, const void *, size_t)
KERNEL(cast, 5, void *, fsdp_dtype, const void *, fsdp_dtype, int64_t)
KERNEL(join, 3, float *, fsdp_halves, int64_t)
KERNEL(split, 3, fsdp_halves, const float *, int64_t)
KERNEL(normal, 7, void *, fsdp_dtype, uint64_t, int64_t, int64_t, float, float)

KERNEL(add, 5, void *, const void *, const void *, fsdp_dtype, int64_t)
KERNEL(mul, 5, void *, const void *, const void *, fsdp_dtype, int64_t)
KERNEL(scale, 5, void *, const void *, float, fsdp_dtype, int64_t)
KERNEL(activation, 5, fsdp_activation, void *, const void *, fsdp_dtype, int64_t)
KERNEL(activation_backward, 6, fsdp_activation, void *, const void *, const void *, fsdp_dtype, int64_t)
KERNEL(gated, 6, fsdp_activation, void *, const void *, const void *, fsdp_dtype, int64_t)
KERNEL(gated_backward, 8, fsdp_activation, void *, void *, const void *, const void *, const void *, fsdp_dtype, int64_t)
KERNEL_OF_STRUCT(activated_backward, fsdp_activated_backward_args)
KERNEL(clamp_infinite, 3, void *, uint8_t *, int64_t)
KERNEL(clamp_infinite_backward, 4, void *, const void *, const uint8_t *, int64_t)
KERNEL_OF_STRUCT(dropout, fsdp_dropout_args)

KERNEL(rms_norm, 9, void *, float *, const void *, const void *, fsdp_dtype, fsdp_dtype, int64_t, int64_t, float)
KERNEL(rms_norm_backward, 12, void *, void *, fsdp_dtype, float, const void *, const void *, const float *, const void *, fsdp_dtype, fsdp_dtype, int64_t, int64_t)
KERNEL(layer_norm, 11, void *, float *, float *, const void *, const void *, const void *, fsdp_dtype, fsdp_dtype, int64_t, int64_t, float)
KERNEL_OF_STRUCT(layer_norm_backward, fsdp_layer_norm_backward_args)
KERNEL_WITH(rope, 9, a5, IDS(a4), void *, const void *, fsdp_dtype, const float *, const int32_t *, int64_t, int64_t, int64_t, bool)
KERNEL_WITH(embedding, 7, a3, IDS(a2), void *, fsdp_dtype, const void *, fsdp_dtype, const int32_t *, int64_t, int64_t)
KERNEL_WITH(embedding_backward, 10, a5, IDS(a4), void *, fsdp_dtype, float, const void *, fsdp_dtype, const int32_t *, int64_t, int64_t, int64_t, int32_t)
KERNEL_WITH(gather_rows, 5, a3, IDS(a2), void *, const void *, const int32_t *, int64_t, size_t)
KERNEL_WITH(gather_transposed, 6, a3, IDS(a2), float *, const void *, fsdp_dtype, const int32_t *, int64_t, int64_t)
KERNEL_WITH(gather_transposed_backward, 6, a4, IDS(a3), float *, const float *, const int32_t *, int64_t, int64_t, int64_t)
KERNEL_WITH(scatter_rows, 6, a3, IDS(a2), void *, int64_t, const void *, const int32_t *, int64_t, size_t)
KERNEL_WITH(split_columns, 5, a5, (size_t)a3 * sizeof *a5, void *const *, const void *, int, int64_t, size_t)
KERNEL_WITH(join_columns, 5, a4, (size_t)a3 * sizeof *a4, void *, const void *const *, int, int64_t, size_t)
KERNEL_WITH(segment_mean, 6, a3, IDS(a2 + 1), void *, const void *, fsdp_dtype, const int32_t *, int64_t, int64_t)
KERNEL_WITH(segment_mean_backward, 6, a3, IDS(a2 + 1), void *, const void *, fsdp_dtype, const int32_t *, int64_t, int64_t)
KERNEL(column_sum, 7, void *, fsdp_dtype, float, const void *, fsdp_dtype, int64_t, int64_t)
KERNEL(scale_columns, 7, void *, const void *, fsdp_dtype, const float *, const void *, int64_t, int64_t)
KERNEL(column_dots, 9, void *, fsdp_dtype, float, const void *, const void *, fsdp_dtype, const float *, int64_t, int64_t)
KERNEL(norms_of_squares, 4, float *, const double *, fsdp_dtype, int64_t)
KERNEL(magnitude_factors, 6, float *, float *, const void *, fsdp_dtype, const float *, int64_t)
KERNEL_WITH(cross_entropy, 9, a6, IDS(a5), float *, void *, fsdp_dtype, const int32_t *, int64_t, int64_t, int64_t, bool, float)
KERNEL_WITH(smoothed_cross_entropy, 10, a7, IDS(a6), float *, void *, fsdp_dtype, const int32_t *, int64_t, int64_t, int64_t, bool, float, float)
KERNEL_WITH(target_loss, 8, a6, (size_t)(a5 * a4) * sizeof *a6, float *, float *, const float *, int64_t, int64_t, bool, bool, float)
KERNEL(sum, 4, float *, const float *, int64_t, float)
KERNEL(argmax, 5, int32_t *, const void *, fsdp_dtype, int64_t, int64_t)

KERNEL_OF_STRUCT(float8_scales, fsdp_float8_cast_args)
KERNEL_OF_STRUCT(float8_cast, fsdp_float8_cast_args)
KERNEL_OF_STRUCT(float8_decode, fsdp_float8_decode_args)
KERNEL_OF_STRUCT(float8_descale, fsdp_float8_descale_args)

KERNEL_WITH(tree_sum, 6, a5, (size_t)a4 * sizeof *a5, float *, const void *const *, int, fsdp_dtype, int64_t, float)
KERNEL_WITH(row_power_sums, 3, a3, a2 * sizeof *a3, const fsdp_row_powers *, size_t, double)
KERNEL_WITH(combine, 3, a3, a2 * sizeof *a3, const fsdp_numbers *, size_t, bool)
KERNEL_OF_STRUCT(clip_factor, fsdp_clip_args)
KERNEL(clamp, 3, float *, float, int64_t)
KERNEL_WITH(adamw, 3, a3, a2 * sizeof *a3, const fsdp_adamw_args *, size_t, const fsdp_clip_result *)
KERNEL_WITH(sgd, 3, a3, a2 * sizeof *a3, const fsdp_sgd_args *, size_t, const fsdp_clip_result *)
KERNEL_WITH(schedule_free, 3, a3, a2 * sizeof *a3, const fsdp_schedule_free_args *, size_t, const fsdp_clip_result *)
KERNEL(square_row_sums, 6, double *, const float *, int64_t, int64_t, float, float)
KERNEL(square_column_sums, 6, double *, const float *, int64_t, int64_t, float, float)
KERNEL(moving_average, 5, float *, const double *, double, double, int64_t)
KERNEL(rsqrt, 4, float *, const float *, float, int64_t)
/* clang-format on */

static fsdp_status run_tree_sum_rows(const fsdp_kernels *k, fsdp_kernel_context *c,
                                     const void *args)
{
    k->tree_sum_rows(c, args);
    return FSDP_OK;
}

static void fake_tree_sum_rows(fsdp_kernel_context *c, const fsdp_tree_sum_rows_args *args)
{
    const fsdp_fake_array rows = {offsetof(fsdp_tree_sum_rows_args, rows),
                                  IDS(args->n * (1 + args->n_tables))};
    fsdp_fake_launch(stream_of(c), run_tree_sum_rows, args, sizeof *args, &rows, 1);
}

static fsdp_status run_adafactor_square_sums(const fsdp_kernels *k, fsdp_kernel_context *c,
                                             const void *args)
{
    const struct {
        double *sums;
        fsdp_adafactor_args of;
    } *p = args;
    k->adafactor_square_sums(c, p->sums, &p->of);
    return FSDP_OK;
}

static void fake_adafactor_square_sums(fsdp_kernel_context *c, double *sums,
                                       const fsdp_adafactor_args *args)
{
    const struct {
        double *sums;
        fsdp_adafactor_args of;
    } all = {sums, *args};
    fsdp_fake_launch(stream_of(c), run_adafactor_square_sums, &all, sizeof all, NULL, 0);
}

KERNEL_OF_STRUCT(adafactor, fsdp_adafactor_args)

/* --- kernels that may fail: the next synchronize() reports the failure --- */

static fsdp_status run_gemm(const fsdp_kernels *k, fsdp_kernel_context *c, const void *args)
{
    return k->gemm(c, args);
}

static fsdp_status fake_gemm(fsdp_kernel_context *c, const fsdp_gemm_args *args)
{
    fsdp_fake_launch(stream_of(c), run_gemm, args, sizeof *args, NULL, 0);
    return FSDP_OK;
}

static fsdp_status run_float8_gemm(const fsdp_kernels *k, fsdp_kernel_context *c, const void *args)
{
    return k->float8_gemm(c, args);
}

static fsdp_status fake_float8_gemm(fsdp_kernel_context *c, const fsdp_float8_gemm_args *args)
{
    fsdp_fake_launch(stream_of(c), run_float8_gemm, args, sizeof *args, NULL, 0);
    return FSDP_OK;
}

static void launch_attention(fsdp_kernel_context *c, fsdp_fake_command *run,
                             const fsdp_attention_args *args)
{
    const size_t bytes = IDS(args->n_sequences + 1);
    const fsdp_fake_array offsets[] = {
        {offsetof(fsdp_attention_args, q_offsets), bytes},
        {offsetof(fsdp_attention_args, k_offsets), bytes},
        {offsetof(fsdp_attention_args, k_ends), IDS(args->n_sequences)}};
    fsdp_fake_launch(stream_of(c), run, args, sizeof *args, offsets, 3);
}

static fsdp_status run_attention(const fsdp_kernels *k, fsdp_kernel_context *c, const void *args)
{
    return k->attention(c, args);
}

static fsdp_status fake_attention(fsdp_kernel_context *c, const fsdp_attention_args *args)
{
    launch_attention(c, run_attention, args);
    return FSDP_OK;
}

static fsdp_status run_attention_backward(const fsdp_kernels *k, fsdp_kernel_context *c,
                                          const void *args)
{
    return k->attention_backward(c, args);
}

static fsdp_status fake_attention_backward(fsdp_kernel_context *c, const fsdp_attention_args *args)
{
    launch_attention(c, run_attention_backward, args);
    return FSDP_OK;
}

#define SLOT(name) .name = fake_##name

const fsdp_kernels fsdp_kernels_fake = {.name = "fake",
                                        SLOT(fill),
                                        SLOT(copy),
                                        SLOT(cast),
                                        SLOT(join),
                                        SLOT(split),
                                        SLOT(normal),
                                        SLOT(add),
                                        SLOT(mul),
                                        SLOT(scale),
                                        SLOT(activation),
                                        SLOT(activation_backward),
                                        SLOT(gated),
                                        SLOT(gated_backward),
                                        SLOT(activated_backward),
                                        SLOT(dropout),
                                        SLOT(clamp_infinite),
                                        SLOT(clamp_infinite_backward),
                                        SLOT(rms_norm),
                                        SLOT(rms_norm_backward),
                                        SLOT(layer_norm),
                                        SLOT(layer_norm_backward),
                                        SLOT(rope),
                                        SLOT(embedding),
                                        SLOT(embedding_backward),
                                        SLOT(gather_rows),
                                        SLOT(gather_transposed),
                                        SLOT(gather_transposed_backward),
                                        SLOT(scatter_rows),
                                        SLOT(split_columns),
                                        SLOT(join_columns),
                                        SLOT(segment_mean),
                                        SLOT(segment_mean_backward),
                                        SLOT(column_sum),
                                        SLOT(scale_columns),
                                        SLOT(column_dots),
                                        SLOT(norms_of_squares),
                                        SLOT(magnitude_factors),
                                        SLOT(cross_entropy),
                                        SLOT(smoothed_cross_entropy),
                                        SLOT(target_loss),
                                        SLOT(sum),
                                        SLOT(argmax),
                                        SLOT(gemm),
                                        SLOT(attention),
                                        SLOT(attention_backward),
                                        SLOT(float8_scales),
                                        SLOT(float8_cast),
                                        SLOT(float8_decode),
                                        SLOT(float8_gemm),
                                        SLOT(float8_descale),
                                        SLOT(tree_sum),
                                        SLOT(tree_sum_rows),
                                        SLOT(row_power_sums),
                                        SLOT(combine),
                                        SLOT(clip_factor),
                                        SLOT(clamp),
                                        SLOT(adamw),
                                        SLOT(sgd),
                                        SLOT(schedule_free),
                                        SLOT(square_row_sums),
                                        SLOT(square_column_sums),
                                        SLOT(moving_average),
                                        SLOT(rsqrt),
                                        SLOT(adafactor_square_sums),
                                        SLOT(adafactor)};
