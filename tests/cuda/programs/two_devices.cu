/* A training step of two layers on two devices, in the way of FSDP, against one device:
 *
 *   w          all_gather of the ranks' halves (bf16), in a stream of its own
 *   h          gelu(x W1^T + b1)      cublasLt, GELU_AUX_BIAS
 *   y          h W2^T + b2            cublasLt, BIAS
 *   d_y, loss  of (y - target)^2      a kernel of this file
 *   gradients  of W2, h (DGELU), W1   cublasLt; the biases' by a kernel
 *   g          reduce_scatter of the gradients (f32), in the stream of its own
 *   update     of the rank's half
 *
 * The single device takes the batches of both ranks as two micro-steps, so all sums have one order
 * and the parameters must have the same bits. `two_devices N` leaves out the N-th of four waits for
 * an event, which must be found. */
#include <cublasLt.h>
#include <math.h>
#include <nccl.h>
#include <thread>
#include <vector>

#include "src/kernels/cuda/device.cuh"
#include "tests/cuda/programs/program.h"

#define EXPECT_SUCCESS(call) EXPECT((int)(call) == 0)

typedef __nv_bfloat16 bf16;
enum {
    ROWS = 24,
    IN = 32,
    MIDDLE = 64,
    OUT = 16,
    STEPS = 3,
    BATCHES = 2 * STEPS,
    ROW_VALUES = IN + OUT, /* inputs, then targets */
    /* Offsets into the parameters. */
    W1 = 0,
    B1 = W1 + MIDDLE * IN,
    W2 = B1 + MIDDLE,
    B2 = W2 + OUT * MIDDLE,
    USED = B2 + OUT,
    ALL = (USED + 4095) / 4096 * 4096
};
static int left_out;

static void wait_for_event(int number, cudaStream_t s, cudaEvent_t e)
{
    if (number != left_out)
        CHECK_CUDA(cudaStreamWaitEvent(s, e, 0));
}

/* --- kernels --- */

static __global__ void loss_gradient(bf16 *d_y, float *loss, const bf16 *y, const bf16 *target,
                                     int n, float factor)
{
    SHARED(float, sums, [8]);
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += 256) {
        const float e = __bfloat162float(y[i]) - __bfloat162float(target[i]);
        d_y[i] = __float2bfloat16(e * factor);
        sum += e * e;
    }
    for (int i = 16; i; i >>= 1)
        sum += __shfl_xor_sync(~0u, sum, i);
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x)
        return;
    for (int i = 1; i < 8; i++)
        sum += sums[i];
    *loss = sum * factor * 0.5f;
}

/* The gradient of a bias: the sums of the columns of x, added to beta times the old gradient. */
static __global__ void column_sums(float *out, const bf16 *x, int rows, int width, float beta)
{
    const int column = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (column >= width)
        return;
    float sum = 0;
    for (int r = 0; r < rows; r++)
        sum += __bfloat162float(x[r * width + column]);
    out[column] = beta == 0 ? sum : sum + beta * out[column];
}

/* Gradient descent with momentum; the copy is what the next step gathers. */
static __global__ void update(float *w, float *momentum, bf16 *copy, const float *g, int n)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n)
        return;
    momentum[i] = 0.9f * momentum[i] + g[i];
    w[i] -= 0.2f * momentum[i];
    copy[i] = __float2bfloat16(w[i]);
}

/* --- products --- */

/* Row-major C[m, n] (+)= op(A) op(B), which is a column-major product of the transposes. */
struct product {
    const void *a, *b;
    void *c;
    int m, n, k;
    bool trans_a, trans_b; /* A is stored as [k, m], B as [n, k] */
    cudaDataType type;     /* the type of C */
    float beta;
    cublasLtEpilogue_t epilogue;
    const void *bias;
    void *aux;
};

template <typename T>
static void set_attribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t name, T value)
{
    EXPECT_SUCCESS(cublasLtMatmulDescSetAttribute(d, name, &value, sizeof value));
}

static cublasLtMatrixLayout_t make_layout(cudaDataType type, int rows, int columns)
{
    cublasLtMatrixLayout_t layout;
    EXPECT_SUCCESS(cublasLtMatrixLayoutCreate(&layout, type, rows, columns, rows));
    return layout;
}

static void multiply(cublasLtHandle_t lt, const product &p, cudaStream_t s)
{
    cublasLtMatmulDesc_t d;
    const float one = 1;
    EXPECT_SUCCESS(cublasLtMatmulDescCreate(&d, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set_attribute(d, CUBLASLT_MATMUL_DESC_TRANSA, p.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set_attribute(d, CUBLASLT_MATMUL_DESC_TRANSB, p.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set_attribute(d, CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue);
    if (p.bias)
        set_attribute(d, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    if (p.aux) {
        set_attribute(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.aux);
        set_attribute(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, (int64_t)p.n);
    }
    cublasLtMatrixLayout_t b =
        p.trans_b ? make_layout(CUDA_R_16BF, p.k, p.n) : make_layout(CUDA_R_16BF, p.n, p.k);
    cublasLtMatrixLayout_t a =
        p.trans_a ? make_layout(CUDA_R_16BF, p.m, p.k) : make_layout(CUDA_R_16BF, p.k, p.m);
    cublasLtMatrixLayout_t c = make_layout(p.type, p.n, p.m);
    EXPECT_SUCCESS(
        cublasLtMatmul(lt, d, &one, p.b, b, p.a, a, &p.beta, p.c, c, p.c, c, NULL, NULL, 0, s));
    EXPECT_SUCCESS(cublasLtMatmulDescDestroy(d));
    for (cublasLtMatrixLayout_t layout : {a, b, c})
        EXPECT_SUCCESS(cublasLtMatrixLayoutDestroy(layout));
}

/* --- a rank --- */

struct rank_state {
    int rank, n_ranks, half; /* half: parameters of this rank */
    ncclComm_t communicator;
    cublasLtHandle_t lt;
    cudaStream_t compute, communication;
    cudaEvent_t gathered, summed, scattered, updated;
    std::vector<void *> device, pinned; /* to be freed */
    float *master, *momentum, *g, *g_half, *loss;
    bf16 *copy, *w; /* the rank's half, and all parameters */
    bf16 *x, *target, *h, *aux, *y, *d_y, *d_h;
    /* Pinned memory. */
    float *host_parameters, *host_losses;
    bf16 *host_batches;
};

template <typename T> static T *allocate(rank_state *r, size_t n)
{
    void *p;
    CHECK_CUDA(cudaMalloc(&p, n * sizeof(T)));
    r->device.push_back(p);
    return (T *)p;
}

template <typename T> static T *allocate_pinned(rank_state *r, size_t n)
{
    void *p;
    CHECK_CUDA(cudaMallocHost(&p, n * sizeof(T)));
    r->pinned.push_back(p);
    return (T *)p;
}

/* A number in [-0.5, 0.5). */
static float random_value(uint32_t i, uint32_t salt)
{
    uint32_t h = i * 2654435761u ^ salt;
    h = (h ^ h >> 16) * 0x85ebca6bu;
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    return (float)((h ^ h >> 16) & 0xffff) / 65536.0f - 0.5f;
}

static float first_parameter(int i)
{
    return i < USED ? random_value((uint32_t)i, 1) * 0.4f : 0;
}

static void open_rank(rank_state *r, ncclUniqueId id)
{
    CHECK_CUDA(cudaSetDevice(r->rank));
    if (r->n_ranks > 1)
        EXPECT_SUCCESS(ncclCommInitRank(&r->communicator, r->n_ranks, id, r->rank));
    for (cudaStream_t *s : {&r->compute, &r->communication})
        CHECK_CUDA(cudaStreamCreateWithFlags(s, cudaStreamNonBlocking));
    for (cudaEvent_t *e : {&r->gathered, &r->summed, &r->scattered, &r->updated})
        CHECK_CUDA(cudaEventCreateWithFlags(e, cudaEventDisableTiming));
    EXPECT_SUCCESS(cublasLtCreate(&r->lt));
    const size_t half = (size_t)r->half;
    r->master = allocate<float>(r, half);
    r->momentum = allocate<float>(r, half);
    r->copy = allocate<bf16>(r, half);
    r->g = allocate<float>(r, ALL);
    r->g_half = r->n_ranks > 1 ? allocate<float>(r, half) : r->g;
    r->w = r->n_ranks > 1 ? allocate<bf16>(r, ALL) : r->copy;
    r->x = allocate<bf16>(r, ROWS * IN);
    r->target = allocate<bf16>(r, ROWS * OUT);
    r->h = allocate<bf16>(r, ROWS * MIDDLE);
    r->aux = allocate<bf16>(r, ROWS * MIDDLE);
    r->y = allocate<bf16>(r, ROWS * OUT);
    r->d_y = allocate<bf16>(r, ROWS * OUT);
    r->d_h = allocate<bf16>(r, ROWS * MIDDLE);
    r->loss = allocate<float>(r, 1);
    r->host_parameters = allocate_pinned<float>(r, half);
    r->host_losses = allocate_pinned<float>(r, BATCHES);
    r->host_batches = allocate_pinned<bf16>(r, BATCHES * ROWS * ROW_VALUES);
}

static void close_rank(rank_state *r)
{
    CHECK_CUDA(cudaStreamSynchronize(r->communication));
    for (cudaEvent_t e : {r->gathered, r->summed, r->scattered, r->updated})
        CHECK_CUDA(cudaEventDestroy(e));
    for (void *p : r->device)
        CHECK_CUDA(cudaFree(p));
    for (void *p : r->pinned)
        CHECK_CUDA(cudaFreeHost(p));
    for (cudaStream_t s : {r->compute, r->communication})
        CHECK_CUDA(cudaStreamDestroy(s));
    EXPECT_SUCCESS(cublasLtDestroy(r->lt));
    if (r->n_ranks > 1)
        EXPECT_SUCCESS(ncclCommDestroy(r->communicator));
}

static void begin_training(rank_state *r)
{
    const size_t half = (size_t)r->half;
    std::vector<bf16> copy(half);
    for (int i = 0; i < r->half; i++) {
        r->host_parameters[i] = first_parameter(r->rank * r->half + i);
        copy[(size_t)i] = __float2bfloat16(r->host_parameters[i]);
    }
    for (int i = 0; i < BATCHES * ROWS * ROW_VALUES; i++)
        r->host_batches[i] = __float2bfloat16(random_value((uint32_t)i, 2));
    CHECK_CUDA(cudaMemcpyAsync(r->master, r->host_parameters, half * sizeof(float),
                               cudaMemcpyHostToDevice, r->compute));
    CHECK_CUDA(cudaMemcpyAsync(r->copy, copy.data(), half * sizeof(bf16), cudaMemcpyHostToDevice,
                               r->compute));
    CHECK_CUDA(cudaMemsetAsync(r->momentum, 0, half * sizeof(float), r->compute));
    /* The parameters after USED have no gradient. */
    CHECK_CUDA(cudaMemsetAsync(r->g, 0, ALL * sizeof(float), r->compute));
    CHECK_CUDA(cudaEventRecord(r->updated, r->compute));
}

static void run_batch(rank_state *r, int batch, float beta)
{
    cudaStream_t s = r->compute;
    const bf16 *inputs = r->host_batches + batch * ROWS * ROW_VALUES;
    const bf16 *w1 = r->w + W1, *b1 = r->w + B1, *w2 = r->w + W2, *b2 = r->w + B2;
    const cudaDataType half = CUDA_R_16BF, single = CUDA_R_32F;
    const cublasLtEpilogue_t none = CUBLASLT_EPILOGUE_DEFAULT;
    CHECK_CUDA(cudaMemcpyAsync(r->x, inputs, ROWS * IN * sizeof(bf16), cudaMemcpyHostToDevice, s));
    CHECK_CUDA(cudaMemcpyAsync(r->target, inputs + ROWS * IN, ROWS * OUT * sizeof(bf16),
                               cudaMemcpyHostToDevice, s));
    multiply(r->lt,
             {r->x, w1, r->h, ROWS, MIDDLE, IN, false, true, half, 0,
              CUBLASLT_EPILOGUE_GELU_AUX_BIAS, b1, r->aux},
             s);
    multiply(
        r->lt,
        {r->h, w2, r->y, ROWS, OUT, MIDDLE, false, true, half, 0, CUBLASLT_EPILOGUE_BIAS, b2, NULL},
        s);
    CUDA_LAUNCH(loss_gradient, 1, 256, 0, s, r->d_y, r->loss, r->y, r->target, ROWS * OUT,
                1.0f / (2 * ROWS));
    CHECK_CUDA(
        cudaMemcpyAsync(r->host_losses + batch, r->loss, sizeof(float), cudaMemcpyDeviceToHost, s));
    multiply(
        r->lt,
        {r->d_y, r->h, r->g + W2, OUT, MIDDLE, ROWS, true, false, single, beta, none, NULL, NULL},
        s);
    CUDA_LAUNCH(column_sums, 1, 64, 0, s, r->g + B2, r->d_y, ROWS, OUT, beta);
    multiply(r->lt,
             {r->d_y, w2, r->d_h, ROWS, MIDDLE, OUT, false, false, half, 0, CUBLASLT_EPILOGUE_DGELU,
              NULL, r->aux},
             s);
    multiply(
        r->lt,
        {r->d_h, r->x, r->g + W1, MIDDLE, IN, ROWS, true, false, single, beta, none, NULL, NULL},
        s);
    CUDA_LAUNCH(column_sums, 1, 64, 0, s, r->g + B1, r->d_h, ROWS, MIDDLE, beta);
}

static void run_step(rank_state *r, int step)
{
    const size_t half = (size_t)r->half;
    const bool is_sharded = r->n_ranks > 1;
    if (is_sharded) {
        wait_for_event(1, r->communication, r->updated);
        EXPECT_SUCCESS(
            ncclAllGather(r->copy, r->w, half, ncclBfloat16, r->communicator, r->communication));
        CHECK_CUDA(cudaEventRecord(r->gathered, r->communication));
        wait_for_event(2, r->compute, r->gathered);
    }
    for (int i = 0; i < 2 / r->n_ranks; i++)
        run_batch(r, step * 2 + (is_sharded ? r->rank : i), i ? 1.0f : 0.0f);
    if (is_sharded) {
        CHECK_CUDA(cudaEventRecord(r->summed, r->compute));
        wait_for_event(3, r->communication, r->summed);
        EXPECT_SUCCESS(ncclReduceScatter(r->g, r->g_half, half, ncclFloat32, ncclSum,
                                         r->communicator, r->communication));
        CHECK_CUDA(cudaEventRecord(r->scattered, r->communication));
        wait_for_event(4, r->compute, r->scattered);
    }
    CUDA_LAUNCH(update, (unsigned)(r->half + 255) / 256, 256, 0, r->compute, r->master, r->momentum,
                r->copy, r->g_half, r->half);
    CHECK_CUDA(cudaEventRecord(r->updated, r->compute));
}

static void train(int rank, int n_ranks, ncclUniqueId id, float *parameters, float *losses)
{
    rank_state r = {};
    r.rank = rank;
    r.n_ranks = n_ranks;
    r.half = ALL / n_ranks;
    open_rank(&r, id);
    begin_training(&r);
    for (int step = 0; step < STEPS; step++)
        run_step(&r, step);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaMemcpyAsync(r.host_parameters, r.master, (size_t)r.half * sizeof(float),
                               cudaMemcpyDeviceToHost, r.compute));
    CHECK_CUDA(cudaStreamSynchronize(r.compute));
    for (int i = 0; i < r.half; i++)
        parameters[rank * r.half + i] = r.host_parameters[i];
    for (int i = 0; i < BATCHES; i++)
        if (n_ranks == 1 || i % 2 == rank)
            losses[i] = r.host_losses[i];
    close_rank(&r);
}

int main(int argc, char **argv)
{
    left_out = argc > 1 ? atoi(argv[1]) : 0;
    std::vector<float> one(ALL), two(ALL), one_losses(BATCHES), two_losses(BATCHES);
    ncclUniqueId id;
    EXPECT_SUCCESS(ncclGetUniqueId(&id));
    train(0, 1, id, one.data(), one_losses.data());
    std::thread other(train, 1, 2, id, two.data(), two_losses.data());
    train(0, 2, id, two.data(), two_losses.data());
    other.join();
    float moved = 0;
    for (int i = 0; i < USED; i++)
        moved += fabsf(one[(size_t)i] - first_parameter(i));
    const float first = one_losses[0] + one_losses[1];
    const float last = one_losses[BATCHES - 2] + one_losses[BATCHES - 1];
    printf("loss %.4f -> %.4f\n", first, last);
    EXPECT(moved > 0.1f);
    EXPECT(first > 0 && last < first);
    EXPECT(memcmp(one.data(), two.data(), USED * sizeof(float)) == 0);
    EXPECT(memcmp(one_losses.data(), two_losses.data(), BATCHES * sizeof(float)) == 0);
    return 0;
}
