/* AdamW, Adam and SGD; src/kernels/cpu/isa/optim.c explains the formulas. The Makefile compiles
 * this file with -fmad=false, so that every product and every sum is rounded, as on the CPU: both
 * devices compute the same bits, except that NaNs may differ.
 *
 * A block updates a chunk of a tensor. What it does is a function of the tensor, of the scalars and
 * of the chunk's index, so that one launch could also update the chunks of many tensors. */
#include "src/kernels/cuda/four_halves.cuh"

enum {
    THREADS = 256,
    CHUNK = 4096, /* elements; a multiple of 4 * THREADS */
};

/* --- a parameter --- */

/* The array of a parameter, or its halves if HALVES. */
struct parameter {
    float *param;
    fsdp_halves halves;
    void *copy; /* NULL: none */
};

template <bool HALVES, bool WHOLE>
FSDP_DEVICE void open_param(float (&x)[4], const parameter &p, int64_t i, int64_t n)
{
    if (HALVES)
        load_four_halves<WHOLE>(x, p.halves, i, n);
    else
        load_four<WHOLE>(x, p.param, i, n);
}

template <bool HALVES, bool WHOLE, typename COPY>
FSDP_DEVICE void close_param(const parameter &p, const float (&x)[4], int64_t i, int64_t n)
{
    if (HALVES)
        store_four_halves<WHOLE>(p.halves, x, i, n);
    else
        store_four<WHOLE>(p.param, x, i, n);
    if (p.copy)
        store_four<WHOLE>((COPY *)p.copy, x, i, n);
}

/* Return the first of this thread's elements in round k of a chunk. */
FSDP_DEVICE int64_t element_of(int64_t chunk, int k)
{
    return chunk * CHUNK + k * 4 * THREADS + (int64_t)threadIdx.x * 4;
}

/* True if a thread of this warp has an element before n. `i` is this thread's first element. */
FSDP_DEVICE bool warp_begins_before(int64_t i, int64_t n)
{
    return i - threadIdx.x % 32 * 4 < n;
}

static bool parameter_has_fours(const parameter &p)
{
    return has_fours<float>(p.param) && has_fours<uint16_t>(p.halves.hi, p.halves.lo);
}

static bool copy_has_fours(const void *copy, fsdp_dtype dtype)
{
    return dtype == FSDP_DTYPE_F32 ? has_fours<float>(copy) : has_fours<uint16_t>(copy);
}

static parameter parameter_of(float *param, fsdp_halves halves, void *copy)
{
    parameter p = {param, halves, copy};
    if (param)
        p.halves = fsdp_halves{};
    return p;
}

/* Call f with three values whose types are flags and the dtype of the copy: HALVES, WHOLE, COPY. */
template <bool VALUE> struct flag {
    static constexpr bool value = VALUE;
};
template <typename F> static void with_kind(bool halves, bool whole, fsdp_dtype copy, F f)
{
    with_type(copy, [&](auto zero) {
        if (halves && whole)
            f(flag<true>(), flag<true>(), zero);
        else if (halves)
            f(flag<true>(), flag<false>(), zero);
        else if (whole)
            f(flag<false>(), flag<true>(), zero);
        else
            f(flag<false>(), flag<false>(), zero);
    });
}

/* --- adamw --- */

struct adam_tensor {
    parameter p;
    float *exp_avg, *exp_avg_sq;
    const float *grad;
    int64_t n;
};

struct adam_scalars {
    float grad_scale;
    float keep;         /* the factor of decoupled weight decay */
    float weight_decay; /* the factor of weight decay that is added to the gradient */
    float toward;       /* factor of g - m: Note [Adam's lerp] */
    bool from_m;
    float beta2, rest2; /* rest2: 1 - beta2 */
    float correction2;  /* sqrt(1 - beta2^step) */
    float eps;
    float step_size; /* -lr / (1 - beta1^step) */
};

/* Note [Adam's lerp]. torch.lerp(m, g, weight) computes m + weight (g - m) if weight = 1 - beta1 is
 * less than 1/2, and g - (g - m) (1 - weight) otherwise. */
static adam_scalars adam_scalars_of(const fsdp_adamw_args *a)
{
    const double correction1 = 1.0 - pow(a->beta1, (double)a->step);
    const double correction2 = 1.0 - pow(a->beta2, (double)a->step);
    const float weight = (float)(1.0 - a->beta1);
    adam_scalars s;
    s.grad_scale = a->grad_scale;
    s.keep = a->decoupled ? (float)(1.0 - a->lr * a->weight_decay) : 1.0f;
    s.weight_decay = a->decoupled ? 0.0f : (float)a->weight_decay;
    s.from_m = weight < 0.5f;
    s.toward = s.from_m ? weight : -(1.0f - weight);
    s.beta2 = (float)a->beta2;
    s.rest2 = (float)(1.0 - a->beta2);
    s.correction2 = (float)sqrt(correction2);
    s.eps = (float)a->eps;
    s.step_size = (float)-(a->lr / correction1);
    return s;
}

FSDP_DEVICE void adam_element(const adam_scalars &s, float &param, float &m, float &v, float grad)
{
    const float p = param * s.keep;
    const float g = grad * s.grad_scale + s.weight_decay * p;
    m = (s.from_m ? m : g) + s.toward * (g - m);
    v = v * s.beta2 + s.rest2 * g * g;
    const float denominator = sqrtf(v) / s.correction2 + s.eps;
    param = p + s.step_size * m / denominator;
}

template <bool HALVES, bool WHOLE, typename COPY>
FSDP_DEVICE void adam_chunk(const adam_tensor &t, const adam_scalars &s, int64_t chunk)
{
#pragma unroll
    for (int k = 0; k < CHUNK / (4 * THREADS); k++) {
        const int64_t i = element_of(chunk, k);
        if (!warp_begins_before(i, t.n))
            return;
        float p[4], m[4], v[4], g[4];
        open_param<HALVES, WHOLE>(p, t.p, i, t.n);
        load_four<WHOLE>(m, t.exp_avg, i, t.n);
        load_four<WHOLE>(v, t.exp_avg_sq, i, t.n);
        load_four<WHOLE>(g, t.grad, i, t.n);
        for (int e = 0; e < 4; e++)
            adam_element(s, p[e], m[e], v[e], g[e]);
        close_param<HALVES, WHOLE, COPY>(t.p, p, i, t.n);
        store_four<WHOLE>(t.exp_avg, m, i, t.n);
        store_four<WHOLE>(t.exp_avg_sq, v, i, t.n);
    }
}

template <bool HALVES, bool WHOLE, typename COPY>
static __global__ void __launch_bounds__(THREADS) adam(adam_tensor t, adam_scalars s)
{
    adam_chunk<HALVES, WHOLE, COPY>(t, s, blockIdx.x);
}

extern "C" void fsdp_cuda_adamw(fsdp_kernel_context *context, const fsdp_adamw_args *args)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    if (!args->n)
        return;
    const adam_tensor t = {parameter_of(args->param, args->halves, args->copy), args->exp_avg,
                           args->exp_avg_sq, args->grad, args->n};
    const adam_scalars s = adam_scalars_of(args);
    const bool whole = parameter_has_fours(t.p) && copy_has_fours(args->copy, args->copy_dtype) &&
                       has_fours<float>(t.exp_avg, t.exp_avg_sq, t.grad);
    const fsdp_dtype copy_dtype = args->copy ? args->copy_dtype : FSDP_DTYPE_F32;
    with_kind(!args->param, whole, copy_dtype, [&](auto halves, auto fours, auto copy) {
        typedef decltype(copy) COPY;
        constexpr bool HALVES = decltype(halves)::value, WHOLE = decltype(fours)::value;
        CUDA_LAUNCH((adam<HALVES, WHOLE, COPY>), (unsigned)((t.n + CHUNK - 1) / CHUNK), THREADS, 0,
                    fsdp_cuda_stream(c), t, s);
    });
    fsdp_cuda_launched(c, "adamw");
}

/* --- sgd --- */

struct sgd_tensor {
    parameter p;
    float *buffer; /* NULL without momentum */
    const float *grad;
    int64_t n;
};

struct sgd_scalars {
    float grad_scale, weight_decay;
    float step;           /* -lr */
    float momentum, rest; /* factors of the buffer and of the gradient */
    float ahead;          /* the factor of the buffer in Nesterov's update */
    bool nesterov, first; /* first: the buffer's old values are undefined */
};

FSDP_DEVICE void sgd_element(const sgd_scalars &s, float &param, float &buffer, float grad)
{
    const float p = param, g = grad * s.grad_scale + s.weight_decay * p;
    buffer = s.momentum * buffer + s.rest * g;
    param = p + s.step * (s.nesterov ? g + s.ahead * buffer : buffer);
}

template <bool HALVES, bool WHOLE, typename COPY>
FSDP_DEVICE void sgd_chunk(const sgd_tensor &t, const sgd_scalars &s, int64_t chunk)
{
#pragma unroll
    for (int k = 0; k < CHUNK / (4 * THREADS); k++) {
        const int64_t i = element_of(chunk, k);
        if (!warp_begins_before(i, t.n))
            return;
        float p[4], b[4] = {0.0f, 0.0f, 0.0f, 0.0f}, g[4];
        open_param<HALVES, WHOLE>(p, t.p, i, t.n);
        load_four<WHOLE>(g, t.grad, i, t.n);
        if (t.buffer && !s.first)
            load_four<WHOLE>(b, t.buffer, i, t.n);
        for (int e = 0; e < 4; e++)
            if (t.buffer)
                sgd_element(s, p[e], b[e], g[e]);
            else
                p[e] += s.step * (g[e] * s.grad_scale + s.weight_decay * p[e]);
        close_param<HALVES, WHOLE, COPY>(t.p, p, i, t.n);
        if (t.buffer)
            store_four<WHOLE>(t.buffer, b, i, t.n);
    }
}

template <bool HALVES, bool WHOLE, typename COPY>
static __global__ void __launch_bounds__(THREADS) descend(sgd_tensor t, sgd_scalars s)
{
    sgd_chunk<HALVES, WHOLE, COPY>(t, s, blockIdx.x);
}

static sgd_scalars sgd_scalars_of(const fsdp_sgd_args *a)
{
    sgd_scalars s;
    s.grad_scale = a->grad_scale;
    s.weight_decay = (float)a->weight_decay;
    s.step = (float)-a->lr;
    s.momentum = a->first ? 0.0f : (float)a->momentum;
    s.rest = a->first ? 1.0f : (float)(1.0 - a->dampening);
    s.ahead = (float)a->momentum;
    s.nesterov = a->nesterov;
    s.first = a->first;
    return s;
}

extern "C" void fsdp_cuda_sgd(fsdp_kernel_context *context, const fsdp_sgd_args *args)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    if (!args->n)
        return;
    const sgd_tensor t = {parameter_of(args->param, args->halves, args->copy),
                          args->momentum_buffer, args->grad, args->n};
    const sgd_scalars s = sgd_scalars_of(args);
    const bool whole = parameter_has_fours(t.p) && copy_has_fours(args->copy, args->copy_dtype) &&
                       has_fours<float>(t.buffer, t.grad);
    const fsdp_dtype copy_dtype = args->copy ? args->copy_dtype : FSDP_DTYPE_F32;
    with_kind(!args->param, whole, copy_dtype, [&](auto halves, auto fours, auto copy) {
        typedef decltype(copy) COPY;
        constexpr bool HALVES = decltype(halves)::value, WHOLE = decltype(fours)::value;
        CUDA_LAUNCH((descend<HALVES, WHOLE, COPY>), (unsigned)((t.n + CHUNK - 1) / CHUNK), THREADS,
                    0, fsdp_cuda_stream(c), t, s);
    });
    fsdp_cuda_launched(c, "sgd");
}
