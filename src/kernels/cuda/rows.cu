/* The kernels that copy rows: gather_rows, scatter_rows, split_columns, join_columns. They copy
 * bytes in units of 16 bytes, 4 bytes, 2 bytes or 1 byte. A call uses the largest unit that divides
 * all addresses and widths. */
#include "src/kernels/cuda/row_access.cuh"

enum {
    THREADS = 256,
    MOST_PARTS = 64 /* maximum number of parts that one launch of a kernel for columns copies */
};

typedef uint4 unit_16;

/* Call f with a value of the widest type (16, 4, 2 or 1 bytes) whose size divides all addresses and
 * widths. `bits` is the bitwise OR of the addresses and widths. */
template <typename F> static void with_unit(uintptr_t bits, F f)
{
    if (bits % 16 == 0)
        f(unit_16());
    else if (bits % 4 == 0)
        f(uint32_t());
    else if (bits % 2 == 0)
        f(uint16_t());
    else
        f(uint8_t());
}

/* Return the shape of a block of threads that copies rows of `items` items. If rows have few items,
 * one block copies several rows. */
static dim3 block_for(int64_t items)
{
    const unsigned x = warps_of(smaller(items, THREADS));
    return dim3(x, x < THREADS ? THREADS / x : 1);
}

/* --- gather_rows, scatter_rows --- */

typedef struct rows_job {
    void *out;
    const void *x;
    const int32_t *index;
    int64_t n, units; /* n: number of rows to copy; units: number of units in a row */
} rows_job;

/* If GATHER is true, compute out[t] = x[index[t]]. Otherwise compute out[index[t]] = x[t]. */
template <typename U, bool GATHER>
static __global__ void __launch_bounds__(THREADS) copy_rows(rows_job job)
{
    const int64_t t = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (t >= job.n)
        return;
    const int64_t other = job.index[t];
    const U *from = (const U *)job.x + (GATHER ? other : t) * job.units;
    U *to = (U *)job.out + (GATHER ? t : other) * job.units;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < job.units; i += blockDim.x)
        to[i] = from[i];
}

template <bool GATHER>
static void start_copy_rows(fsdp_cuda_context *c, void *out, const void *x, const int32_t *rows,
                            int64_t n, size_t row_bytes)
{
    rows_job job = {};
    job.out = out;
    job.x = x;
    job.n = n;
    job.index = (const int32_t *)fsdp_cuda_upload(c, rows, (size_t)n * sizeof *rows);
    if (!job.index)
        return;
    with_unit((uintptr_t)out | (uintptr_t)x | row_bytes, [&](auto unit) {
        typedef decltype(unit) U;
        job.units = (int64_t)(row_bytes / sizeof(U));
        const dim3 block = block_for(job.units);
        CUDA_LAUNCH((copy_rows<U, GATHER>), (unsigned)ceil_div(n, block.y), block, 0,
                    fsdp_cuda_stream(c), job);
    });
}

extern "C" void fsdp_cuda_gather_rows(fsdp_kernel_context *context, void *out, const void *x,
                                      const int32_t *rows, int64_t n, size_t row_bytes)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    if (row_bytes)
        start_copy_rows<true>(c, out, x, rows, n, row_bytes);
    fsdp_cuda_launched(c, "gather_rows");
}

extern "C" void fsdp_cuda_scatter_rows(fsdp_kernel_context *context, void *out, int64_t out_rows,
                                       const void *x, const int32_t *rows, int64_t n,
                                       size_t row_bytes)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    const size_t bytes = (size_t)out_rows * row_bytes;
    if (!bytes ||
        !fsdp_cuda_check(c, cudaMemsetAsync(out, 0, bytes, fsdp_cuda_stream(c)), "scatter_rows"))
        return;
    start_copy_rows<false>(c, out, x, rows, n, row_bytes);
    fsdp_cuda_launched(c, "scatter_rows");
}

/* --- split_columns, join_columns --- */

/* Up to MOST_PARTS of the parts of a matrix, passed to the kernel by value. */
typedef struct columns_job {
    void *part[MOST_PARTS]; /* in join_columns(), NULL means that the part is zeros */
    char *whole; /* the address in row 0 of the matrix at which the first of these parts begins */
    int64_t rows, part_units, row_units;
    int n;
} columns_job;

template <typename U, bool SPLIT>
static __global__ void __launch_bounds__(THREADS) copy_columns(columns_job job)
{
    const int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= job.rows)
        return;
    U *whole = (U *)job.whole + row * job.row_units;
    for (int p = 0; p < job.n; p++, whole += job.part_units) {
        U *part = job.part[p] ? (U *)job.part[p] + row * job.part_units : NULL;
#pragma unroll 4
        for (int64_t i = threadIdx.x; i < job.part_units; i += blockDim.x)
            if (SPLIT)
                part[i] = whole[i];
            else
                whole[i] = part ? part[i] : U();
    }
}

template <bool SPLIT>
static void start_copy_columns(fsdp_cuda_context *c, void *whole, const void *const *parts, int n,
                               int64_t rows, size_t part_bytes)
{
    for (int first = 0; first < n; first += MOST_PARTS) {
        columns_job job = {};
        job.n = (int)smaller(n - first, MOST_PARTS);
        job.whole = (char *)whole + (size_t)first * part_bytes;
        job.rows = rows;
        uintptr_t bits = (uintptr_t)whole | part_bytes;
        for (int i = 0; i < job.n; i++) {
            job.part[i] = const_cast<void *>(parts[first + i]);
            bits |= (uintptr_t)job.part[i];
        }
        with_unit(bits, [&](auto unit) {
            typedef decltype(unit) U;
            job.part_units = (int64_t)(part_bytes / sizeof(U));
            job.row_units = n * job.part_units;
            const dim3 block = block_for(job.part_units);
            CUDA_LAUNCH((copy_columns<U, SPLIT>), (unsigned)ceil_div(rows, block.y), block, 0,
                        fsdp_cuda_stream(c), job);
        });
    }
}

extern "C" void fsdp_cuda_split_columns(fsdp_kernel_context *context, void *const *parts,
                                        const void *x, int n, int64_t rows, size_t part_bytes)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    if (rows && part_bytes)
        start_copy_columns<true>(c, const_cast<void *>(x), parts, n, rows, part_bytes);
    fsdp_cuda_launched(c, "split_columns");
}

extern "C" void fsdp_cuda_join_columns(fsdp_kernel_context *context, void *out,
                                       const void *const *parts, int n, int64_t rows,
                                       size_t part_bytes)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    if (rows && part_bytes)
        start_copy_columns<false>(c, out, parts, n, rows, part_bytes);
    fsdp_cuda_launched(c, "join_columns");
}
