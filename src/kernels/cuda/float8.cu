/* Casts to float8 and back, and the scales of float8 products: Note [Float8 scales] in
 * src/base/float8.h. gemm_float8.c computes the products. The Makefile compiles this file with
 * -fmad=false, so scales, codes and descaled values have the bits of the CPU, except that the bits
 * of a NaN may differ.
 *
 * Scales are computed by two kernels. In the first kernel, each block finds the largest magnitude
 * of its elements, and atomicMax() combines the results of the blocks. It compares the bits of the
 * magnitudes, which are ordered like the magnitudes; the bits of NaN are larger than all others. So
 * the result does not depend on the order of the blocks. The second kernel computes the scales from
 * the largest magnitudes. */
#include "src/kernels/cuda/gemm_float8.h"
#include "src/kernels/cuda/row_access.cuh"

enum {
    THREADS = 256,
    GROUP = 8,                 /* adjacent elements that a thread processes at a time */
    LANES = 32,                /* threads that process adjacent groups of a row */
    ROWS = THREADS / LANES,    /* rows that a block processes at a time */
    BLOCK_ROWS = 16 * ROWS,    /* rows that a block of largest_of_columns() processes at a time */
    MOST_ROW_BLOCKS = 1 << 12, /* maximum of gridDim.y, which divides the rows */
    TILE_ROWS = 128,           /* the part of a matrix that a block transposes at a time @{ */
    TILE_COLUMNS = 64,         /* @} */
    TILE_LANES = TILE_COLUMNS / GROUP,
    /* The row stride of a transposed tile, in words of 4 codes. It is odd, so threads that access
     * different rows access different banks of shared memory. */
    TILE_WORDS = TILE_ROWS / 4 + 1
};

/* --- one value --- */

/* The constants of a float8 format; see format_bits in src/kernels/cpu/isa/float8.c. */
struct format_bits {
    uint32_t largest, least_normal;
    int shift;
    float to_subnormal, max;
};

FSDP_DEVICE format_bits bits_of(fsdp_float8_format format)
{
    return format == FSDP_FLOAT8_E4M3FN
               ? format_bits{0x43e00000u, 0x3c800000u, 20, 0x1p14f, 448.0f}
               : format_bits{0x47600000u, 0x38800000u, 21, 0x1p7f, 57344.0f};
}

/* Return the code of the float8 value that is nearest to f, clamped to finite values. */
FSDP_DEVICE uint32_t nearest_code(float f, format_bits b)
{
    const uint32_t bits = __float_as_uint(f), sign = bits >> 24 & 0x80u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return sign | 0x7fu;
    magnitude = magnitude < b.largest ? magnitude : b.largest;
    if (magnitude < b.least_normal)
        return sign | (__float_as_uint(__uint_as_float(magnitude) + b.to_subnormal) -
                       __float_as_uint(b.to_subnormal));
    /* The code of the smallest normal value has the exponent 1 and the mantissa 0. So subtracting
     * `bias` from the bits of this value must give 1 << 23. */
    const uint32_t half = (1u << (b.shift - 1)) - 1, bias = b.least_normal - (1u << 23);
    return sign | (magnitude + half + (magnitude >> b.shift & 1) - bias) >> b.shift;
}

/* Return the value of a code as bfloat16. */
FSDP_DEVICE uint16_t value_of(uint32_t code, fsdp_float8_format format)
{
    const bool is_e4m3 = format == FSDP_FLOAT8_E4M3FN;
    const uint32_t sign = code << 8 & 0x8000u, magnitude = code & 0x7fu;
    const int mantissa_bits = is_e4m3 ? 3 : 2;
    const uint32_t exponent = magnitude >> mantissa_bits;
    const uint32_t mantissa = magnitude & ((1u << mantissa_bits) - 1);
    if (is_e4m3 ? magnitude == 0x7fu : magnitude > 0x7cu)
        return (uint16_t)(sign | 0x7fc0u);
    if (!is_e4m3 && magnitude == 0x7cu)
        return (uint16_t)(sign | 0x7f80u);
    if (!exponent)
        return (uint16_t)(sign |
                          __float_as_uint((float)mantissa * (is_e4m3 ? 0x1p-9f : 0x1p-16f)) >> 16);
    return (uint16_t)(sign | (exponent + (is_e4m3 ? 120 : 112)) << 7 |
                      mantissa << (7 - mantissa_bits));
}

/* --- scales --- */

FSDP_DEVICE uint32_t magnitude_of(float x)
{
    return __float_as_uint(x) & 0x7fffffffu;
}

/* Return the largest `most` of a warp, in all of its threads. */
FSDP_DEVICE uint32_t largest_of_warp(uint32_t most)
{
#pragma unroll
    for (int i = WARP / 2; i; i /= 2) {
        const uint32_t other = __shfl_xor_sync(~0u, most, i);
        most = other > most ? other : most;
    }
    return most;
}

/* For each row of x, set most[row] to the maximum of most[row] and the bits of the row's
 * magnitudes. A warp processes every (gridDim.y * ROWS)-th row. In each of these rows, it reads
 * only the columns that blockIdx.x selects. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    largest_of_rows(unsigned *most, const T *x, int64_t rows, int64_t columns, bool vectors)
{
    const int64_t width = (int64_t)gridDim.x * LANES * GROUP;
    const int64_t first = ((int64_t)blockIdx.x * LANES + threadIdx.x) * GROUP;
    for (int64_t row = (int64_t)blockIdx.y * ROWS + threadIdx.y; row < rows;
         row += (int64_t)gridDim.y * ROWS) {
        uint32_t largest = 0;
        for (int64_t j = first; j < columns; j += width) {
            float values[GROUP];
            load_floats<GROUP>(values, x + row * columns, j, columns,
                               vectors && j + GROUP <= columns);
#pragma unroll
            for (int e = 0; e < GROUP; e++) {
                const uint32_t magnitude = magnitude_of(values[e]);
                largest = magnitude > largest ? magnitude : largest;
            }
        }
        largest = largest_of_warp(largest);
        if (threadIdx.x == 0)
            atomicMax(&most[row], largest);
    }
}

/* For each column of x, set most[column] to the maximum of most[column] and the bits of the
 * column's magnitudes. A block processes BLOCK_ROWS rows at a time. Each of its threads reads GROUP
 * columns of every ROWS-th one of these rows. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    largest_of_columns(unsigned *most, const T *x, int64_t rows, int64_t columns, bool vectors)
{
    const int64_t j = ((int64_t)blockIdx.x * LANES + threadIdx.x) * GROUP;
    if (j >= columns)
        return;
    for (int64_t begin = (int64_t)blockIdx.y * BLOCK_ROWS; begin < rows;
         begin += (int64_t)gridDim.y * BLOCK_ROWS) {
        uint32_t largest[GROUP] = {};
        for (int64_t row = begin + threadIdx.y; row < rows && row < begin + BLOCK_ROWS;
             row += ROWS) {
            float values[GROUP];
            load_floats<GROUP>(values, x + row * columns, j, columns,
                               vectors && j + GROUP <= columns);
#pragma unroll
            for (int e = 0; e < GROUP; e++) {
                const uint32_t magnitude = magnitude_of(values[e]);
                largest[e] = magnitude > largest[e] ? magnitude : largest[e];
            }
        }
#pragma unroll
        for (int e = 0; e < GROUP; e++)
            if (j + e < columns && largest[e])
                atomicMax(&most[j + e], largest[e]);
    }
}

/* Return the same scale as fsdp_float8_scale(). `most` has the bits of the largest magnitude. */
FSDP_DEVICE float scale_of(fsdp_float8_format format, uint32_t most, bool power_of_2)
{
    const double least = 1e-12, amax = (double)__uint_as_float(most);
    const float scale = (float)((double)bits_of(format).max / (amax < least ? least : amax));
    if (!power_of_2 || !(scale > 0.0f))
        return scale;
    return ldexpf(1.0f, (int)floorf((float)log2((double)scale)));
}

static __global__ void __launch_bounds__(THREADS)
    store_scales(float *scales, const unsigned *most, int64_t n, fsdp_float8_format format,
                 bool power_of_2)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * THREADS)
        scales[i] = scale_of(format, most[i], power_of_2);
}

static unsigned row_blocks_for(int64_t rows, int64_t rows_of_block)
{
    return blocks_for(rows, (int)rows_of_block, MOST_ROW_BLOCKS);
}

static unsigned column_blocks_for(int64_t columns)
{
    return (unsigned)ceil_div(columns, LANES * GROUP);
}

template <typename T>
static void find_largest(fsdp_cuda_context *c, unsigned *most, const fsdp_float8_cast_args *a)
{
    const T *x = (const T *)a->x;
    const dim3 threads(LANES, ROWS);
    const int64_t all = a->rows * a->columns;
    const bool is_whole = is_aligned_16(x) && a->columns % vector_of<T>::N == 0;
    if (!all)
        return;
    if (a->axis == FSDP_FLOAT8_COLUMN)
        CUDA_LAUNCH(largest_of_columns<T>,
                    dim3(column_blocks_for(a->columns), row_blocks_for(a->rows, BLOCK_ROWS)),
                    threads, 0, fsdp_cuda_stream(c), most, x, a->rows, a->columns, is_whole);
    else if (a->axis == FSDP_FLOAT8_ROW)
        CUDA_LAUNCH(largest_of_rows<T>, dim3(1, row_blocks_for(a->rows, ROWS)), threads, 0,
                    fsdp_cuda_stream(c), most, x, a->rows, a->columns, is_whole);
    else /* the tensor is one row; a warp reads a part of it */
        CUDA_LAUNCH(largest_of_rows<T>, dim3(blocks_for(all, LANES * GROUP * 16, 1 << 12)),
                    dim3(LANES), 0, fsdp_cuda_stream(c), most, x, (int64_t)1, all,
                    is_aligned_16(x));
}

extern "C" void fsdp_cuda_float8_scales(fsdp_kernel_context *context,
                                        const fsdp_float8_cast_args *args)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    const int64_t n = args->axis == FSDP_FLOAT8_TENSOR ? 1
                      : args->axis == FSDP_FLOAT8_ROW  ? args->rows
                                                       : args->columns;
    if (!n)
        return;
    unsigned *most = (unsigned *)fsdp_cuda_scratch(c, (size_t)n * sizeof *most);
    if (!most ||
        !fsdp_cuda_check(c, cudaMemsetAsync(most, 0, (size_t)n * sizeof *most, fsdp_cuda_stream(c)),
                         "float8_scales"))
        return;
    with_type(args->dtype, [&](auto zero) { find_largest<decltype(zero)>(c, most, args); });
    CUDA_LAUNCH(store_scales, blocks_for(n, THREADS), THREADS, 0, fsdp_cuda_stream(c), args->scales,
                most, n, args->format, args->power_of_2);
    fsdp_cuda_launched(c, "float8_scales");
}

/* --- casts --- */

/* Where codes are stored. */
struct code_array {
    void *at;
    bool is_bfloat16; /* true: the values of the codes are stored, not the codes */
};

/* Store the codes of elements [j, j + GROUP) of a row. */
FSDP_DEVICE void store_group(const code_array &to, const uint32_t (&codes)[GROUP],
                             fsdp_float8_format format, int64_t row, int64_t j, int64_t columns,
                             bool vectors)
{
    const int64_t i = row * columns + j;
    const bool whole = vectors && j + GROUP <= columns;
    if (to.is_bfloat16) {
        vector_of<uint16_t> v;
#pragma unroll
        for (int e = 0; e < GROUP; e++)
            v.at[e] = value_of(codes[e], format);
        if (whole)
            store_16((uint16_t *)to.at + i, v);
        else
            for (int e = 0; e < GROUP; e++)
                if (j + e < columns)
                    ((uint16_t *)to.at)[i + e] = v.at[e];
        return;
    }
    uint8_t *out = (uint8_t *)to.at;
    if (whole) {
        uint2 bytes;
        bytes.x = codes[0] | codes[1] << 8 | codes[2] << 16 | codes[3] << 24;
        bytes.y = codes[4] | codes[5] << 8 | codes[6] << 16 | codes[7] << 24;
        *(uint2 *)(out + i) = bytes;
        return;
    }
    for (int e = 0; e < GROUP; e++)
        if (j + e < columns)
            out[i + e] = (uint8_t)codes[e];
}

/* A matrix that is cast, and its scales. */
template <typename T> struct cast_source {
    const T *x;
    const float *scales;
    fsdp_float8_axis axis;
    fsdp_float8_format format;
    int64_t rows, columns;
    bool vectors; /* true: groups of x may be read by accesses of 16 bytes */
};

/* Casts elements [j, j + GROUP) of any rows. */
template <typename T> struct group_caster {
    const cast_source<T> &from;
    int64_t j;
    format_bits bits;
    float of_column[GROUP]; /* the scales of the columns, if each column has one */

    __device__ __forceinline__ group_caster(const cast_source<T> &from, int64_t j)
        : from(from), j(j), bits(bits_of(from.format))
    {
        if (from.axis == FSDP_FLOAT8_COLUMN)
            load_floats<GROUP>(of_column, from.scales, j, from.columns, false);
    }
    __device__ __forceinline__ void operator()(uint32_t (&codes)[GROUP], int64_t row) const
    {
        const float scale = from.axis == FSDP_FLOAT8_TENSOR ? from.scales[0]
                            : from.axis == FSDP_FLOAT8_ROW  ? from.scales[row]
                                                            : 0.0f;
        float values[GROUP];
        load_floats<GROUP>(values, from.x + row * from.columns, j, from.columns,
                           from.vectors && j + GROUP <= from.columns);
#pragma unroll
        for (int e = 0; e < GROUP; e++)
            codes[e] = nearest_code(
                values[e] * (from.axis == FSDP_FLOAT8_COLUMN ? of_column[e] : scale), bits);
    }
};

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    cast(code_array to, cast_source<T> from, bool vectors)
{
    const int64_t j = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * GROUP;
    if (j >= from.columns)
        return;
    const group_caster<T> codes_of(from, j);
    for (int64_t row = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; row < from.rows;
         row += (int64_t)gridDim.y * blockDim.y) {
        uint32_t codes[GROUP];
        codes_of(codes, row);
        store_group(to, codes, from.format, row, j, from.columns, vectors);
    }
}

/* --- transposed codes --- */

/* Write the codes of a matrix [rows, columns], transposed, to `out` [columns, ld]. ld is `rows`
 * rounded up to a multiple of 16, and the elements of `out` in columns [rows, ld) are zeros. The
 * block processes the tile whose row and column are blockIdx.y and blockIdx.x, and then every
 * gridDim.y-th tile below it. codes_of(codes, row) sets `codes` to the codes of row `row` in this
 * thread's columns [j, j + GROUP). A tile passes through shared memory, so that adjacent threads
 * both read and write adjacent bytes. `out` is aligned to 16 bytes. All threads of the block must
 * call this. */
template <typename F>
FSDP_DEVICE void transpose_tiles(uint8_t *out, int64_t ld, int64_t rows, int64_t columns, int64_t j,
                                 F codes_of)
{
    SHARED(uint32_t, tile, [TILE_COLUMNS][TILE_WORDS]);
    const int lane = (int)threadIdx.x, line = (int)threadIdx.y, lines = THREADS / TILE_LANES;
    for (int64_t begin = (int64_t)blockIdx.y * TILE_ROWS; begin < rows;
         begin += (int64_t)gridDim.y * TILE_ROWS) {
        for (int i = line; i < TILE_ROWS && begin + i < ld && j < columns; i += lines) {
            uint32_t codes[GROUP] = {};
            if (begin + i < rows)
                codes_of(codes, begin + i);
#pragma unroll
            for (int e = 0; e < GROUP; e++)
                ((uint8_t *)tile[lane * GROUP + e])[i] = (uint8_t)codes[e];
        }
        __syncthreads();
        /* Each thread writes 16 codes of a column at a time. */
        const int64_t row = begin + lane * 16;
        for (int k = line; k < TILE_COLUMNS && row < ld; k += lines) {
            const int64_t column = (int64_t)blockIdx.x * TILE_COLUMNS + k;
            const uint32_t *words = tile[k] + lane * 4;
            if (column < columns)
                st_global16(out + column * ld + row,
                            make_uint4(words[0], words[1], words[2], words[3]));
        }
        __syncthreads();
    }
}

/* Return the argument j of transpose_tiles(): the first of this thread's columns. */
FSDP_DEVICE int64_t tile_column(void)
{
    return (int64_t)blockIdx.x * TILE_COLUMNS + threadIdx.x * GROUP;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    cast_transposed(uint8_t *out, int64_t ld, cast_source<T> from)
{
    const int64_t j = tile_column();
    transpose_tiles(out, ld, from.rows, from.columns, j, group_caster<T>(from, j));
}

static dim3 tile_block(void)
{
    return dim3(TILE_LANES, THREADS / TILE_LANES);
}
static dim3 tile_grid(int64_t rows, int64_t columns)
{
    return dim3((unsigned)ceil_div(columns, TILE_COLUMNS), row_blocks_for(rows, TILE_ROWS));
}

/* --- casts of whole matrices --- */

/* These functions are for kernels in which each thread processes groups of GROUP columns.
 * block_of() returns the shape of a block, and grid_of() returns the shape of the grid. @{ */
static dim3 block_of(int64_t rows)
{
    return rows == 1 ? dim3(THREADS) : dim3(LANES, ROWS);
}
static dim3 grid_of(int64_t rows, int64_t columns)
{
    const dim3 block = block_of(rows);
    return dim3((unsigned)ceil_div(columns, block.x * GROUP), row_blocks_for(rows, block.y));
}
/* @} */

extern "C" void fsdp_cuda_float8_cast(fsdp_kernel_context *context,
                                      const fsdp_float8_cast_args *args)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    const fsdp_float8_cast_args *a = args;
    const bool is_bfloat16 = a->codes_dtype == FSDP_DTYPE_BF16;
    const bool vectors = a->columns % GROUP == 0 && is_aligned_16(a->x);
    if (!a->rows || !a->columns)
        return;
    with_type(a->dtype, [&](auto zero) {
        typedef decltype(zero) T;
        const cast_source<T> from = {(const T *)a->x, a->scales,  a->axis, a->format,
                                     a->rows,         a->columns, vectors};
        if (a->transposed && !is_bfloat16)
            CUDA_LAUNCH(cast_transposed<T>, tile_grid(a->rows, a->columns), tile_block(), 0,
                        fsdp_cuda_stream(c), (uint8_t *)a->codes,
                        fsdp_float8_transposed_ld(a->rows), from);
        else
            CUDA_LAUNCH(cast<T>, grid_of(a->rows, a->columns), block_of(a->rows), 0,
                        fsdp_cuda_stream(c), code_array{a->codes, is_bfloat16}, from,
                        vectors && is_aligned_16(a->codes));
    });
    fsdp_cuda_launched(c, "float8_cast");
}

/* --- values of codes --- */

/* Load the codes of elements [j, j + GROUP) of a row of codes. */
FSDP_DEVICE void load_codes(uint32_t (&codes)[GROUP], const uint8_t *from, int64_t row, int64_t j,
                            int64_t columns, bool vectors)
{
    const uint8_t *p = from + row * columns + j;
    if (vectors && j + GROUP <= columns) {
        const uint2 bytes = *(const uint2 *)p;
#pragma unroll
        for (int e = 0; e < GROUP; e++)
            codes[e] = (e < 4 ? bytes.x : bytes.y) >> e % 4 * 8 & 0xff;
        return;
    }
    for (int e = 0; e < GROUP; e++)
        codes[e] = j + e < columns ? p[e] : 0;
}

static __global__ void __launch_bounds__(THREADS)
    decode(code_array to, const uint8_t *from, fsdp_float8_format format, int64_t rows,
           int64_t columns, bool vectors)
{
    const int64_t j = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * GROUP;
    if (j >= columns)
        return;
    for (int64_t row = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; row < rows;
         row += (int64_t)gridDim.y * blockDim.y) {
        uint32_t codes[GROUP];
        load_codes(codes, from, row, j, columns, vectors);
        store_group(to, codes, format, row, j, columns, vectors);
    }
}

static __global__ void __launch_bounds__(THREADS)
    transpose_codes(uint8_t *out, int64_t ld, const uint8_t *from, int64_t rows, int64_t columns,
                    bool vectors)
{
    const int64_t j = tile_column();
    transpose_tiles(out, ld, rows, columns, j, [=](uint32_t(&codes)[GROUP], int64_t row) {
        load_codes(codes, from, row, j, columns, vectors);
    });
}

extern "C" void fsdp_cuda_float8_decode(fsdp_kernel_context *context,
                                        const fsdp_float8_decode_args *args)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    const fsdp_float8_decode_args *a = args;
    const bool vectors = a->columns % GROUP == 0 && is_aligned_16(a->codes);
    if (!a->rows || !a->columns)
        return;
    if (a->out_dtype == FSDP_DTYPE_BF16)
        CUDA_LAUNCH(decode, grid_of(a->rows, a->columns), block_of(a->rows), 0, fsdp_cuda_stream(c),
                    code_array{a->out, true}, a->codes, a->format, a->rows, a->columns,
                    vectors && is_aligned_16(a->out));
    else
        CUDA_LAUNCH(transpose_codes, tile_grid(a->rows, a->columns), tile_block(), 0,
                    fsdp_cuda_stream(c), (uint8_t *)a->out, fsdp_float8_transposed_ld(a->rows),
                    a->codes, a->rows, a->columns, vectors);
    fsdp_cuda_launched(c, "float8_decode");
}

/* --- products --- */

/* Set out[0] and out[FSDP_FLOAT8_SCALE_STRIDE] to the reciprocals of two scales. */
static __global__ void store_reciprocals(float *out, const float *a_scale, const float *b_scale)
{
    out[threadIdx.x * FSDP_FLOAT8_SCALE_STRIDE] = 1.0f / (threadIdx.x ? *b_scale : *a_scale);
}

extern "C" void fsdp_cuda_float8_reciprocals(fsdp_cuda_context *c, float *out, const float *a_scale,
                                             const float *b_scale)
{
    CUDA_LAUNCH(store_reciprocals, 1, 2, 0, fsdp_cuda_stream(c), out, a_scale, b_scale);
    fsdp_cuda_launched(c, "float8_gemm");
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    descale(T *out, const float *sums, const float *a_scales, const float *b_scales, bool a_by_row,
            bool b_by_column, const T *bias, bool adds, int64_t rows, int64_t columns, bool vectors)
{
    const int64_t j = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * GROUP;
    if (j >= columns)
        return;
    const bool whole = vectors && j + GROUP <= columns;
    float of_column[GROUP], added[GROUP] = {};
    if (b_by_column)
        load_floats<GROUP>(of_column, b_scales, j, columns, false);
#pragma unroll
    for (int e = 0; e < GROUP; e++)
        of_column[e] = 1.0f / (b_by_column ? of_column[e] : b_scales[0]);
    if (bias)
        load_floats<GROUP>(added, bias, j, columns, false);
    for (int64_t row = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; row < rows;
         row += (int64_t)gridDim.y * blockDim.y) {
        const float of_row = 1.0f / a_scales[a_by_row ? row : 0];
        float values[GROUP], old[GROUP];
        load_floats<GROUP>(values, sums + row * columns, j, columns, whole);
        if (adds)
            load_floats<GROUP>(old, out + row * columns, j, columns, whole);
#pragma unroll
        for (int e = 0; e < GROUP; e++) {
            values[e] = values[e] * (of_row * of_column[e]);
            if (bias)
                values[e] += added[e];
            if (adds)
                values[e] += old[e];
        }
        store_floats<GROUP>(out + row * columns, j, columns, values, whole);
    }
}

extern "C" void fsdp_cuda_float8_descale(fsdp_kernel_context *context,
                                         const fsdp_float8_descale_args *args)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    const fsdp_float8_descale_args *a = args;
    if (!a->rows || !a->columns)
        return;
    with_type(a->out_dtype, [&](auto zero) {
        typedef decltype(zero) T;
        CUDA_LAUNCH(descale<T>, grid_of(a->rows, a->columns), block_of(a->rows), 0,
                    fsdp_cuda_stream(c), (T *)a->out, a->sums, a->a_scales, a->b_scales,
                    a->a_by_row, a->b_by_column, (const T *)a->bias, a->beta != 0.0f, a->rows,
                    a->columns,
                    a->columns % GROUP == 0 && is_aligned_16(a->sums) && is_aligned_16(a->out));
    });
    fsdp_cuda_launched(c, "float8_descale");
}
