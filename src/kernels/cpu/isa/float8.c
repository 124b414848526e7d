/* Casts values to float8, converts float8 codes back, and applies scales to the results of float8
 * products: see Note [Float8 scales] in src/base/float8.h. The products themselves are computed in
 * bfloat16, whose 8 significant bits represent every float8 value exactly. */
#include <stdatomic.h>

#include "src/kernels/cpu/isa/block.h"

/* --- the conversions of src/base/float8.h for one value, without branches --- */

/* The constants of a float8 format. The functions below are inlined with a constant format, so the
 * compiler knows these values. */
typedef struct format_bits {
    uint32_t largest;      /* bits of the largest finite value */
    uint32_t least_normal; /* bits of the smallest normal value */
    uint32_t shift;        /* number of bits of float32's mantissa that the format does not have */
    float to_subnormal;    /* adding this number rounds a value to a multiple of the smallest
                            * subnormal value */
    uint32_t nan;          /* code of NaN */
} format_bits;

static inline format_bits bits_of(fsdp_float8_format format)
{
    return format == FSDP_FLOAT8_E4M3FN ? (format_bits){0x43e00000u, 0x3c800000u, 20, 0x1p14f, 0x7f}
                                        : (format_bits){0x47600000u, 0x38800000u, 21, 0x1p7f, 0x7f};
}

/* Return the bits of |f|, clamped to the largest finite value of the format. Set *nan to all ones
 * if f is NaN, else to 0. */
static inline uint32_t clamped_magnitude(float f, format_bits b, uint32_t *nan)
{
    const uint32_t magnitude = fsdp_bits_from_f32(f) & 0x7fffffffu;
    *nan = -(uint32_t)(magnitude > 0x7f800000u);
    return magnitude < b.largest ? magnitude : b.largest;
}

/* Return the float8 value that is nearest to f, as bfloat16. */
static inline uint16_t nearest_value(float f, format_bits b)
{
    uint32_t nan;
    const uint32_t magnitude = clamped_magnitude(f, b, &nan);
    const uint32_t sign = fsdp_bits_from_f32(f) & 0x80000000u;
    const uint32_t subnormal = -(uint32_t)(magnitude < b.least_normal);
    const uint32_t half = (1u << (b.shift - 1)) - 1;
    const uint32_t normal = (magnitude + half + (magnitude >> b.shift & 1)) & -(1u << b.shift);
    const uint32_t tiny =
        fsdp_bits_from_f32((fsdp_f32_from_bits(magnitude) + b.to_subnormal) - b.to_subnormal);
    const uint32_t value = (tiny & subnormal) | (normal & ~subnormal);
    return (uint16_t)((sign | (value & ~nan) | (0x7fc00000u & nan)) >> 16);
}

/* Return the code of the float8 value that is nearest to f. */
static inline uint8_t nearest_code(float f, format_bits b)
{
    uint32_t nan;
    const uint32_t magnitude = clamped_magnitude(f, b, &nan);
    const uint32_t sign = fsdp_bits_from_f32(f) >> 24 & 0x80u;
    const uint32_t subnormal = -(uint32_t)(magnitude < b.least_normal);
    const uint32_t half = (1u << (b.shift - 1)) - 1;
    /* The code of the smallest normal value has the exponent 1 and the mantissa 0. So subtracting
     * `bias` from the bits of this value must give 1 << 23. */
    const uint32_t bias = b.least_normal - (1u << 23);
    const uint32_t normal = (magnitude + half + (magnitude >> b.shift & 1) - bias) >> b.shift;
    const uint32_t tiny = fsdp_bits_from_f32(fsdp_f32_from_bits(magnitude) + b.to_subnormal) -
                          fsdp_bits_from_f32(b.to_subnormal);
    const uint32_t code = (tiny & subnormal) | (normal & ~subnormal);
    return (uint8_t)(sign | (code & ~nan) | (b.nan & nan));
}

/* --- scales --- */

typedef struct cast_job {
    const fsdp_float8_cast_args *args;
    int64_t task_rows;
    /* If the tensor has one scale: the bits of the largest magnitude so far. The bits of
     * magnitudes, as integers, are ordered like the magnitudes, and the bits of NaN are larger than
     * all others. */
    atomic_uint most;
} cast_job;

/* Return the maximum of `most` and the bits of the magnitudes of x [n]. */
static uint32_t largest_bits(uint32_t most, const float *restrict x, int n)
{
    uint32_t lanes[FSDP_LANES] = {0};
    for (int j = 0; j < fsdp_padded(n); j += FSDP_LANES)
        for (int l = 0; l < FSDP_LANES; l++) {
            const uint32_t magnitude = fsdp_bits_from_f32(x[j + l]) & 0x7fffffffu;
            lanes[l] = magnitude > lanes[l] ? magnitude : lanes[l];
        }
    for (int l = 0; l < FSDP_LANES; l++)
        most = lanes[l] > most ? lanes[l] : most;
    return most;
}

static float scale_of(const fsdp_float8_cast_args *a, uint32_t most)
{
    return fsdp_float8_scale(a->format, fsdp_f32_from_bits(most), a->power_of_2);
}

/* Return the bits of the largest magnitude of elements [begin, end). */
static uint32_t largest_of(const fsdp_float8_cast_args *a, int64_t begin, int64_t end)
{
    float buffer[FSDP_BLOCK];
    uint32_t most = 0;
    for (int64_t i = begin; i < end; i += FSDP_BLOCK) {
        const int n = (int)fsdp_min_i64(end - i, FSDP_BLOCK);
        most = largest_bits(most, fsdp_load_block(buffer, a->x, a->dtype, i, n), n);
    }
    return most;
}

static void tensor_scale_task(void *arg, int64_t task, int worker)
{
    cast_job *job = arg;
    const fsdp_float8_cast_args *a = job->args;
    const int64_t numel = a->rows * a->columns;
    const uint32_t most =
        largest_of(a, task * FSDP_CHUNK, fsdp_min_i64(numel, (task + 1) * FSDP_CHUNK));
    unsigned old = atomic_load(&job->most);
    (void)worker;
    while (most > old && !atomic_compare_exchange_weak(&job->most, &old, most))
        ;
}

static void row_scales_task(void *arg, int64_t task, int worker)
{
    const cast_job *job = arg;
    const fsdp_float8_cast_args *a = job->args;
    const int64_t end = fsdp_min_i64(a->rows, (task + 1) * job->task_rows);
    (void)worker;
    for (int64_t row = task * job->task_rows; row < end; row++)
        a->scales[row] = scale_of(a, largest_of(a, row * a->columns, (row + 1) * a->columns));
}

/* Compute the scales of the columns of one block. Each task has one block of columns. */
static void column_scales_task(void *arg, int64_t task, int worker)
{
    const cast_job *job = arg;
    const fsdp_float8_cast_args *a = job->args;
    const int64_t first = task * FSDP_BLOCK;
    const int n = (int)fsdp_min_i64(a->columns - first, FSDP_BLOCK);
    uint32_t most[FSDP_BLOCK] = {0};
    float buffer[FSDP_BLOCK];
    (void)worker;
    for (int64_t row = 0; row < a->rows; row++) {
        const float *restrict x =
            fsdp_load_block(buffer, a->x, a->dtype, row * a->columns + first, n);
        for (int j = 0; j < fsdp_padded(n); j++) {
            const uint32_t magnitude = fsdp_bits_from_f32(x[j]) & 0x7fffffffu;
            most[j] = magnitude > most[j] ? magnitude : most[j];
        }
    }
    for (int j = 0; j < n; j++)
        a->scales[first + j] = scale_of(a, most[j]);
}

static void float8_scales(fsdp_kernel_context *c, const fsdp_float8_cast_args *args)
{
    cast_job job = {.args = args, .task_rows = fsdp_task_rows(args->columns)};
    atomic_init(&job.most, 0);
    switch (args->axis) {
    case FSDP_FLOAT8_TENSOR:
        fsdp_run_tasks(c, fsdp_ceil_div(args->rows * args->columns, FSDP_CHUNK), tensor_scale_task,
                       &job);
        args->scales[0] = scale_of(args, atomic_load(&job.most));
        break;
    case FSDP_FLOAT8_ROW:
        fsdp_run_tasks(c, fsdp_ceil_div(args->rows, job.task_rows), row_scales_task, &job);
        break;
    case FSDP_FLOAT8_COLUMN:
        fsdp_run_tasks(c, fsdp_ceil_div(args->columns, FSDP_BLOCK), column_scales_task, &job);
        break;
    }
}

/* --- casts --- */

static inline void store_values(uint16_t *restrict out, const float *restrict scaled, int n,
                                format_bits b)
{
    for (int j = 0; j < n; j++)
        out[j] = nearest_value(scaled[j], b);
}

static inline void store_codes(uint8_t *restrict out, const float *restrict scaled, int n,
                               format_bits b)
{
    for (int j = 0; j < n; j++)
        out[j] = nearest_code(scaled[j], b);
}

/* Store the results of a block that begins at element i: the values of the codes if codes_dtype is
 * bfloat16, otherwise the codes. */
static void store_scaled(const fsdp_float8_cast_args *a, int64_t i, const float *scaled, int n)
{
    const bool is_e4m3 = a->format == FSDP_FLOAT8_E4M3FN;
    if (a->codes_dtype == FSDP_DTYPE_BF16 && is_e4m3)
        store_values((uint16_t *)a->codes + i, scaled, n, bits_of(FSDP_FLOAT8_E4M3FN));
    else if (a->codes_dtype == FSDP_DTYPE_BF16)
        store_values((uint16_t *)a->codes + i, scaled, n, bits_of(FSDP_FLOAT8_E5M2));
    else if (is_e4m3)
        store_codes((uint8_t *)a->codes + i, scaled, n, bits_of(FSDP_FLOAT8_E4M3FN));
    else
        store_codes((uint8_t *)a->codes + i, scaled, n, bits_of(FSDP_FLOAT8_E5M2));
}

/* Cast elements [begin, end) with one scale. */
static void cast_range(const fsdp_float8_cast_args *a, int64_t begin, int64_t end, float scale)
{
    float buffer[FSDP_BLOCK], scaled[FSDP_BLOCK];
    for (int64_t i = begin; i < end; i += FSDP_BLOCK) {
        const int n = (int)fsdp_min_i64(end - i, FSDP_BLOCK);
        const float *restrict x = fsdp_load_block(buffer, a->x, a->dtype, i, n);
        for (int j = 0; j < fsdp_padded(n); j++)
            scaled[j] = x[j] * scale;
        store_scaled(a, i, scaled, n);
    }
}

static void cast_tensor_task(void *arg, int64_t task, int worker)
{
    const cast_job *job = arg;
    const fsdp_float8_cast_args *a = job->args;
    (void)worker;
    cast_range(a, task * FSDP_CHUNK, fsdp_min_i64(a->rows * a->columns, (task + 1) * FSDP_CHUNK),
               a->scales[0]);
}

static void cast_row(const fsdp_float8_cast_args *a, int64_t row)
{
    float buffer[FSDP_BLOCK], scaled[FSDP_BLOCK], factors[FSDP_BLOCK];
    for (int64_t i = 0; i < a->columns; i += FSDP_BLOCK) {
        const int n = (int)fsdp_min_i64(a->columns - i, FSDP_BLOCK);
        const float *restrict x = fsdp_load_block(buffer, a->x, a->dtype, row * a->columns + i, n);
        const float *restrict scale = fsdp_load_block(factors, a->scales, FSDP_DTYPE_F32, i, n);
        for (int j = 0; j < fsdp_padded(n); j++)
            scaled[j] = x[j] * scale[j];
        store_scaled(a, row * a->columns + i, scaled, n);
    }
}

static void cast_rows_task(void *arg, int64_t task, int worker)
{
    const cast_job *job = arg;
    const fsdp_float8_cast_args *a = job->args;
    const int64_t end = fsdp_min_i64(a->rows, (task + 1) * job->task_rows);
    (void)worker;
    for (int64_t row = task * job->task_rows; row < end; row++) {
        if (a->axis == FSDP_FLOAT8_ROW)
            cast_range(a, row * a->columns, (row + 1) * a->columns, a->scales[row]);
        else
            cast_row(a, row);
    }
}

static void float8_cast(fsdp_kernel_context *c, const fsdp_float8_cast_args *args)
{
    cast_job job = {.args = args, .task_rows = fsdp_task_rows(args->columns)};
    FSDP_ASSERT(!args->transposed);
    if (args->axis == FSDP_FLOAT8_TENSOR)
        fsdp_run_tasks(c, fsdp_ceil_div(args->rows * args->columns, FSDP_CHUNK), cast_tensor_task,
                       &job);
    else
        fsdp_run_tasks(c, fsdp_ceil_div(args->rows, job.task_rows), cast_rows_task, &job);
}

/* --- values of codes --- */

typedef struct decode_job {
    const fsdp_float8_decode_args *args;
    uint16_t values[256]; /* the value of each code as bfloat16 */
} decode_job;

static void decode_task(void *arg, int64_t task, int worker)
{
    const decode_job *job = arg;
    const fsdp_float8_decode_args *a = job->args;
    const int64_t end = fsdp_min_i64(a->rows * a->columns, (task + 1) * FSDP_CHUNK);
    uint16_t *out = a->out;
    (void)worker;
    for (int64_t i = task * FSDP_CHUNK; i < end; i++)
        out[i] = job->values[a->codes[i]];
}

static void float8_decode(fsdp_kernel_context *c, const fsdp_float8_decode_args *args)
{
    decode_job job = {.args = args};
    FSDP_ASSERT(args->out_dtype == FSDP_DTYPE_BF16);
    for (int code = 0; code < 256; code++)
        job.values[code] = fsdp_bf16_from_f32(fsdp_f32_from_float8(args->format, (uint8_t)code));
    fsdp_run_tasks(c, fsdp_ceil_div(args->rows * args->columns, FSDP_CHUNK), decode_task, &job);
}

/* --- after a product --- */

typedef struct descale_job {
    const fsdp_float8_descale_args *args;
    int64_t task_rows;
} descale_job;

static void descale_row(const fsdp_float8_descale_args *a, int64_t row)
{
    float buffer[FSDP_BLOCK], added[FSDP_BLOCK], scales[FSDP_BLOCK], result[FSDP_BLOCK];
    const float of_row = 1.0f / a->a_scales[a->a_by_row ? row : 0];
    const float of_all = of_row * (1.0f / a->b_scales[0]);
    for (int64_t i = 0; i < a->columns; i += FSDP_BLOCK) {
        const int n = (int)fsdp_min_i64(a->columns - i, FSDP_BLOCK), padded = fsdp_padded(n);
        const float *restrict sums =
            fsdp_load_block(buffer, a->sums, FSDP_DTYPE_F32, row * a->columns + i, n);
        if (a->b_by_column) {
            const float *restrict b = fsdp_load_block(scales, a->b_scales, FSDP_DTYPE_F32, i, n);
            for (int j = 0; j < padded; j++)
                result[j] = sums[j] * (of_row * (1.0f / b[j]));
        } else {
            for (int j = 0; j < padded; j++)
                result[j] = sums[j] * of_all;
        }
        if (a->bias) {
            const float *restrict bias = fsdp_load_block(added, a->bias, a->out_dtype, i, n);
            for (int j = 0; j < padded; j++)
                result[j] += bias[j];
        }
        fsdp_accumulate_block(a->out, a->out_dtype, row * a->columns + i, a->beta, result, n);
    }
}

static void descale_task(void *arg, int64_t task, int worker)
{
    const descale_job *job = arg;
    const int64_t end = fsdp_min_i64(job->args->rows, (task + 1) * job->task_rows);
    (void)worker;
    for (int64_t row = task * job->task_rows; row < end; row++)
        descale_row(job->args, row);
}

static void float8_descale(fsdp_kernel_context *c, const fsdp_float8_descale_args *args)
{
    descale_job job = {.args = args, .task_rows = fsdp_task_rows(args->columns)};
    fsdp_run_tasks(c, fsdp_ceil_div(args->rows, job.task_rows), descale_task, &job);
}

void FSDP_ISA_NAME_OF(fsdp_cpu_fill_float8)(fsdp_kernels *k)
{
    k->float8_scales = float8_scales;
    k->float8_cast = float8_cast;
    k->float8_decode = float8_decode;
    k->float8_descale = float8_descale;
}
