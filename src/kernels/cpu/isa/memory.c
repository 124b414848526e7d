/* Kernels that fill, copy and cast memory, and that generate normally distributed values. */
#include "src/kernels/cpu/isa/block.h"
#include "src/kernels/cpu/isa/philox.h"
#include "src/kernels/cpu/isa/vector.h"

enum {
    COPY_CHUNK = 1 << 20 /* bytes per task */
};

/* --- fill --- */

typedef struct fill_job {
    char *dst;
    const char *pattern; /* FSDP_BLOCK elements */
    size_t size;         /* bytes of an element */
    int64_t n;
} fill_job;

static void fill_task(void *arg, int64_t task, int worker)
{
    const fill_job *job = arg;
    int64_t end = fsdp_min_i64(job->n, (task + 1) * FSDP_CHUNK);
    (void)worker;
    for (int64_t i = task * FSDP_CHUNK; i < end; i += FSDP_BLOCK)
        memcpy(job->dst + (size_t)i * job->size, job->pattern,
               (size_t)fsdp_min_i64(end - i, FSDP_BLOCK) * job->size);
}

typedef struct zero_job {
    char *dst;
    size_t bytes;
} zero_job;

static void zero_task(void *arg, int64_t task, int worker)
{
    const zero_job *job = arg;
    size_t begin = (size_t)task * COPY_CHUNK;
    size_t left = job->bytes - begin;
    (void)worker;
    memset(job->dst + begin, 0, left < COPY_CHUNK ? left : COPY_CHUNK);
}

/* --- copy --- */

typedef struct copy_job {
    char *dst;
    const char *src;
    size_t bytes;
} copy_job;

static void copy_task(void *arg, int64_t task, int worker)
{
    const copy_job *job = arg;
    size_t begin = (size_t)task * COPY_CHUNK;
    size_t left = job->bytes - begin;
    (void)worker;
    memcpy(job->dst + begin, job->src + begin, left < COPY_CHUNK ? left : COPY_CHUNK);
}

static void copy(fsdp_kernel_context *c, void *dst, const void *src, size_t bytes)
{
    copy_job job = {dst, src, bytes};
    fsdp_run_tasks(c, fsdp_ceil_div((int64_t)bytes, COPY_CHUNK), copy_task, &job);
}

/* --- cast --- */

/* A block of elements in the intermediate type of a cast. The intermediate type is float32 if both
 * dtypes are float32, bfloat16 or float16. Otherwise it is float64 if at least one of the dtypes is
 * a floating dtype, and int64 if both are integer dtypes. */
typedef union cast_block {
    float f32[FSDP_BLOCK];
    double f64[FSDP_BLOCK];
    int64_t i64[FSDP_BLOCK];
} cast_block;

typedef struct cast_job {
    char *dst;
    const char *src;
    fsdp_dtype to, from;
    size_t to_size, from_size;
    int64_t n;
} cast_job;

static bool within_f32(fsdp_dtype dtype)
{
    return dtype == FSDP_DTYPE_F32 || dtype == FSDP_DTYPE_BF16 || dtype == FSDP_DTYPE_F16;
}

/* Converts i to double, rounded to odd as by to_odd(). If the caller then rounds the double to a
 * narrower type, the result is the same as if i had been rounded directly to that type. */
static double odd_from_i64(int64_t i)
{
    uint64_t magnitude = i < 0 ? -(uint64_t)i : (uint64_t)i;
    if (magnitude >> 53)
        magnitude = (magnitude & ~(uint64_t)0x7ff) | ((magnitude & 0x7ff) ? 0x800 : 0);
    return i < 0 ? -(double)magnitude : (double)magnitude;
}

/* Loads a block as float64. An int64 that needs more than 53 bits is rounded. If `again` is true,
 * the caller will round the loaded values a second time, to a narrower type. Rounding to nearest
 * twice could give a wrong result. So in this case, this function rounds to odd (see to_odd()),
 * which makes the result of the second rounding correct. */
static void load_f64(double *restrict to, const void *src, fsdp_dtype dtype, int n, bool again)
{
    float wide[FSDP_BLOCK];
    switch (dtype) {
    case FSDP_DTYPE_F64:
        memcpy(to, src, (size_t)n * sizeof *to);
        break;
    case FSDP_DTYPE_I64:
        for (int j = 0; j < n; j++)
            to[j] =
                again ? odd_from_i64(((const int64_t *)src)[j]) : (double)((const int64_t *)src)[j];
        break;
    case FSDP_DTYPE_I32:
        for (int j = 0; j < n; j++)
            to[j] = (double)((const int32_t *)src)[j];
        break;
    case FSDP_DTYPE_U8:
        for (int j = 0; j < n; j++)
            to[j] = (double)((const uint8_t *)src)[j];
        break;
    default: {
        const float *f = fsdp_load_block(wide, src, dtype, 0, n);
        for (int j = 0; j < n; j++)
            to[j] = (double)f[j];
    }
    }
}

/* Rounds x to float32 by "rounding to odd": if the float32 is not equal to x, its lowest bit is
 * set. If the caller then rounds the float32 to a type that has at least two bits fewer, the result
 * is the same as if x had been rounded directly to that type. */
static float to_odd(double x)
{
    float f = (float)x;
    if ((double)f == x || !(fabs(x) <= (double)0x1.fffffep127f))
        return f;
    uint32_t bits = fsdp_bits_from_f32(f);
    if (fabs((double)f) > fabs(x))
        bits--;
    return fsdp_f32_from_bits(bits | 1);
}

/* Converts x to an integer, rounded towards zero and limited to [low, high]; NaN gives 0. */
static int64_t to_i64(double x, int64_t low, int64_t high)
{
    if (!(x > (double)low))
        return x <= (double)low ? low : 0;
    return x < (double)high ? (int64_t)x : high;
}

static void store_f64(void *dst, fsdp_dtype dtype, const double *restrict from, int n)
{
    float narrow[FSDP_BLOCK] = {0};
    switch (dtype) {
    case FSDP_DTYPE_F64:
        memcpy(dst, from, (size_t)n * sizeof *from);
        break;
    case FSDP_DTYPE_F32:
        for (int j = 0; j < n; j++)
            ((float *)dst)[j] = (float)from[j];
        break;
    case FSDP_DTYPE_I64:
        for (int j = 0; j < n; j++)
            ((int64_t *)dst)[j] = to_i64(from[j], INT64_MIN, INT64_MAX);
        break;
    case FSDP_DTYPE_I32:
        for (int j = 0; j < n; j++)
            ((int32_t *)dst)[j] = (int32_t)to_i64(from[j], INT32_MIN, INT32_MAX);
        break;
    case FSDP_DTYPE_U8:
        for (int j = 0; j < n; j++)
            ((uint8_t *)dst)[j] = (uint8_t)to_i64(from[j], 0, UINT8_MAX);
        break;
    default:
        for (int j = 0; j < n; j++)
            narrow[j] = to_odd(from[j]);
        fsdp_store_block(dst, dtype, 0, narrow, n);
    }
}

static void load_i64(int64_t *restrict to, const void *src, fsdp_dtype dtype, int n)
{
    if (dtype == FSDP_DTYPE_I64)
        memcpy(to, src, (size_t)n * sizeof *to);
    else if (dtype == FSDP_DTYPE_I32)
        for (int j = 0; j < n; j++)
            to[j] = ((const int32_t *)src)[j];
    else
        for (int j = 0; j < n; j++)
            to[j] = ((const uint8_t *)src)[j];
}

/* Stores integers as `dtype`. If a value is out of range, its low bits are stored. */
static void store_i64(void *dst, fsdp_dtype dtype, const int64_t *restrict from, int n)
{
    if (dtype == FSDP_DTYPE_I64)
        memcpy(dst, from, (size_t)n * sizeof *from);
    else if (dtype == FSDP_DTYPE_I32)
        for (int j = 0; j < n; j++)
            ((int32_t *)dst)[j] = (int32_t)(uint32_t)from[j];
    else
        for (int j = 0; j < n; j++)
            ((uint8_t *)dst)[j] = (uint8_t)from[j];
}

/* Casts elements of [begin, end) from float32 to bfloat16, in groups of sixteen. If fewer than
 * sixteen elements are left at the end, they are not cast. Returns the index of the first element
 * that was not cast. This function casts whole master weights, which are too large for the caches.
 * The loop prefetches and uses vectors, so only the speed of memory limits it. */
static int64_t round_to_bf16(uint16_t *dst, const float *src, int64_t begin, int64_t end)
{
    enum {
        AHEAD = 1024 /* prefetch distance in elements */
    };
    int64_t i = begin;
    for (; i + 16 <= end; i += 16) {
        __builtin_prefetch((const void *)((uintptr_t)(src + i) + AHEAD * sizeof *src));
        for (int64_t j = i; j < i + 16; j += FSDP_VEC)
            fsdp_vec_store_bf16(dst + j, fsdp_vec_load(src + j));
    }
    return i;
}

static void cast_task(void *arg, int64_t task, int worker)
{
    const cast_job *job = arg;
    cast_block block;
    int64_t i = task * FSDP_CHUNK, end = fsdp_min_i64(job->n, i + FSDP_CHUNK);
    (void)worker;
    if (job->to == FSDP_DTYPE_BF16 && job->from == FSDP_DTYPE_F32)
        i = round_to_bf16((uint16_t *)(void *)job->dst, (const float *)(const void *)job->src, i,
                          end);
    for (; i < end; i += FSDP_BLOCK) {
        int n = (int)fsdp_min_i64(end - i, FSDP_BLOCK);
        char *dst = job->dst + (size_t)i * job->to_size;
        const char *src = job->src + (size_t)i * job->from_size;
        if (within_f32(job->to) && within_f32(job->from)) {
            fsdp_store_block(dst, job->to, 0, fsdp_load_block(block.f32, src, job->from, 0, n), n);
        } else if (fsdp_dtype_is_floating(job->to) || fsdp_dtype_is_floating(job->from)) {
            load_f64(block.f64, src, job->from, n, job->to != FSDP_DTYPE_F64);
            store_f64(dst, job->to, block.f64, n);
        } else {
            load_i64(block.i64, src, job->from, n);
            store_i64(dst, job->to, block.i64, n);
        }
    }
}

static void cast(fsdp_kernel_context *c, void *dst, fsdp_dtype to, const void *src, fsdp_dtype from,
                 int64_t n)
{
    cast_job job = {dst, src, to, from, fsdp_dtype_size(to), fsdp_dtype_size(from), n};
    if (to == from && dst == src)
        return;
    if (to == from)
        copy(c, dst, src, (size_t)n * job.to_size);
    else
        fsdp_run_tasks(c, fsdp_ceil_div(n, FSDP_CHUNK), cast_task, &job);
}

static void fill(fsdp_kernel_context *c, void *dst, fsdp_dtype dtype, double value, int64_t n)
{
    cast_block pattern;
    double values[FSDP_BLOCK];
    size_t size = fsdp_dtype_size(dtype);
    if (value == 0.0 && !signbit(value)) {
        zero_job job = {dst, (size_t)n * size};
        fsdp_run_tasks(c, fsdp_ceil_div((int64_t)job.bytes, COPY_CHUNK), zero_task, &job);
        return;
    }
    for (int j = 0; j < FSDP_BLOCK; j++)
        values[j] = value;
    store_f64(&pattern, dtype, values, FSDP_BLOCK);
    fill_job job = {dst, (const char *)&pattern, size, n};
    fsdp_run_tasks(c, fsdp_ceil_div(n, FSDP_CHUNK), fill_task, &job);
}

/* --- normal --- */

typedef struct normal_job {
    char *dst;
    fsdp_dtype dtype;
    uint64_t key;
    int64_t first, n;
    float mean, std;
} normal_job;

/* Sets *sine and *cosine to sin and cos of 2 pi u, for u in [0, 1). The angle is 4 u quarter turns.
 * 4 u is split into an integer q and a remainder y with |y| <= 1/2. */
static inline void sin_cos_turn(float u, float *restrict sine, float *restrict cosine)
{
    float quarters = 4.0f * u;
    float q = (quarters + 0x1.8p23f) - 0x1.8p23f;
    uint32_t turn = fsdp_bits_from_f32(quarters + 0x1.8p23f);
    float y = quarters - q, z = y * y;
    float s = -0x1.2d9b30p-8f;
    s = s * z + 0x1.465ec4p-4f;
    s = s * z - 0x1.4abbbap-1f;
    s = (s * z + 0x1.921fb6p+0f) * y;
    float c = 0x1.d9fc24p-11f;
    c = c * z - 0x1.55c676p-6f;
    c = c * z + 0x1.03c1dep-2f;
    c = c * z - 0x1.3bd3ccp+0f;
    c = c * z + 1.0f;
    uint32_t odd = -(turn & 1), sine_sign = (turn & 2) << 30, cosine_sign = ((turn + 1) & 2) << 30;
    *sine = fsdp_f32_from_bits(fsdp_bits_from_f32(fsdp_select(odd, c, s)) ^ sine_sign);
    *cosine = fsdp_f32_from_bits(fsdp_bits_from_f32(fsdp_select(odd, s, c)) ^ cosine_sign);
}

/* Computes FSDP_BLOCK normally distributed values (Box & Muller 1958). The random bits are those of
 * Philox for `counter` and the counters after it. Each counter gives four words: words 0 and 1 give
 * two values, and words 2 and 3 give two more. Two words determine the radius and the angle of a
 * random point, whose two coordinates are the values. The radius is computed from a number in
 * [2^-32, 1], so it is at most about 6.7 standard deviations, and no value has a larger
 * magnitude. */
static void normal_block(float z[restrict FSDP_BLOCK], uint64_t key, uint64_t counter)
{
    uint32_t bits[FSDP_BLOCK];
    fsdp_philox_block(bits, key, counter);
    for (int j = 0; j < FSDP_BLOCK / 2; j++) {
        float u = (float)(int32_t)(bits[2 * j] >> 1) * 0x1p-31f + 0x1p-32f;
        float radius = sqrtf(-2.0f * fsdp_log(u)), sine, cosine;
        sin_cos_turn(fsdp_uniform_from_bits(bits[2 * j + 1]), &sine, &cosine);
        z[2 * j] = radius * cosine;
        z[2 * j + 1] = radius * sine;
    }
}

/* Generates the random values of the part of a parameter that belongs to one task. The values do
 * not depend on how the parameter is divided into parts, because the blocks of random values begin
 * at fixed positions in the whole parameter. */
static void normal_task(void *arg, int64_t task, int worker)
{
    const normal_job *job = arg;
    int64_t last = job->first + job->n;
    int64_t begin = (job->first / FSDP_CHUNK + task) * FSDP_CHUNK;
    int64_t end = fsdp_min_i64(last, begin + FSDP_CHUNK);
    (void)worker;
    for (int64_t block = begin; block < end; block += FSDP_BLOCK) {
        float z[2 * FSDP_BLOCK] = {0};
        int64_t from = block > job->first ? block : job->first;
        int64_t to = fsdp_min_i64(end, block + FSDP_BLOCK);
        if (from >= to)
            continue;
        normal_block(z, job->key, (uint64_t)block / 4);
        for (int j = 0; j < FSDP_BLOCK; j++)
            z[j] = job->mean + job->std * z[j];
        fsdp_store_block(job->dst, job->dtype, from - job->first, z + (from - block),
                         (int)(to - from));
    }
}

static void normal(fsdp_kernel_context *c, void *dst, fsdp_dtype dtype, uint64_t key, int64_t first,
                   int64_t n, float mean, float std)
{
    normal_job job = {dst, dtype, key, first, n, mean, std};
    if (n > 0)
        fsdp_run_tasks(c, fsdp_ceil_div(first + n, FSDP_CHUNK) - first / FSDP_CHUNK, normal_task,
                       &job);
}

void FSDP_ISA_NAME_OF(fsdp_cpu_fill_memory)(fsdp_kernels *k)
{
    k->fill = fill;
    k->copy = copy;
    k->cast = cast;
    k->normal = normal;
}
