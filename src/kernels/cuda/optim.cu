/* AdamW, Adam and SGD; src/kernels/cpu/isa/optim.c explains the formulas. The Makefile compiles
 * this file with -fmad=false, so that products and sums are rounded separately, as on the CPU. So
 * the results have the same bits as on the CPU, except that the bits of a NaN may differ.
 *
 * A block updates a chunk of a tensor. One launch updates the chunks of many tensors: Note [Tables]
 * in tables.h. Scalars, such as the learning rate, change in each step, so they are arguments of
 * the kernel and not a part of the table. Tensors that are stored in different ways need different
 * kernels, so there is one launch for each way that occurs. */
#include <string.h>

#include "src/kernels/cuda/four_halves.cuh"
#include "src/kernels/cuda/tables.cuh"

enum {
    THREADS = 256,
    CHUNK = 4096,   /* number of elements; a multiple of 4 * THREADS */
    MOST_SETS = 16, /* maximum number of different sets of scalars in one launch */
};

/* --- a parameter --- */

enum place {
    IN_FLOATS, /* in parameter.param */
    IN_HALVES,
    IN_COPY
};

struct parameter {
    float *param;
    fsdp_halves halves;
    void *copy; /* NULL: there is no copy */
};

template <place PLACE, bool WHOLE, typename COPY>
FSDP_DEVICE void open_param(float (&x)[4], const parameter &p, int64_t i, int64_t n)
{
    if (PLACE == IN_HALVES)
        load_four_halves<WHOLE>(x, p.halves, i, n);
    else if (PLACE == IN_FLOATS)
        load_four<WHOLE>(x, p.param, i, n);
    else
        load_four<WHOLE>(x, (const COPY *)p.copy, i, n);
}

template <place PLACE, bool WHOLE, typename COPY>
FSDP_DEVICE void close_param(const parameter &p, const float (&x)[4], int64_t i, int64_t n)
{
    if (PLACE == IN_HALVES)
        store_four_halves<WHOLE>(p.halves, x, i, n);
    else if (PLACE == IN_FLOATS)
        store_four<WHOLE>(p.param, x, i, n);
    if (p.copy)
        store_four<WHOLE>((COPY *)p.copy, x, i, n);
}

/* A chunk is processed in rounds, in which each thread updates four elements. Return the first of
 * this thread's elements in round k. */
FSDP_DEVICE int64_t element_of(int64_t chunk, int k)
{
    return chunk * CHUNK + k * 4 * THREADS + (int64_t)threadIdx.x * 4;
}

/* Return true if at least one thread of this warp has an element before n. `i` is this thread's
 * first element. */
FSDP_DEVICE bool warp_begins_before(int64_t i, int64_t n)
{
    return i - threadIdx.x % 32 * 4 < n;
}

/* How the arrays of a tensor are stored. All tensors of one launch have the same kind. */
struct kind {
    place of;
    bool whole; /* true: all arrays are aligned for accesses of four elements */
    fsdp_dtype copy;
};

template <typename ARGS> static place place_of(const ARGS *a)
{
    return a->param ? IN_FLOATS : a->halves.hi ? IN_HALVES : IN_COPY;
}

template <typename ARGS> static parameter parameter_of(const ARGS *a)
{
    parameter p = {a->param, a->halves, a->copy};
    if (a->param)
        p.halves = fsdp_halves{};
    return p;
}

static bool array_has_fours(const void *array, fsdp_dtype dtype)
{
    return dtype == FSDP_DTYPE_F32 ? has_fours<float>(array) : has_fours<uint16_t>(array);
}

/* Return the kind of the tensor that `a` describes. `others` are the arrays of the tensor besides
 * the parameter and its copy. */
template <typename ARGS, typename... P> static kind kind_of(const ARGS *a, P... others)
{
    const parameter p = parameter_of(a);
    return {place_of(a),
            has_fours<float>(p.param, others...) && has_fours<uint16_t>(p.halves.hi, p.halves.lo) &&
                array_has_fours(a->copy, a->copy_dtype),
            a->copy ? a->copy_dtype : FSDP_DTYPE_F32};
}

static bool is_same(const kind &a, const kind &b)
{
    return a.of == b.of && a.whole == b.whole && a.copy == b.copy;
}

/* Call f with three arguments whose values do not matter. From their types, f gets at compile time
 * the constant PLACE, the constant WHOLE, and COPY, the type of the copy's elements. */
template <typename T, T VALUE> struct constant {
    static constexpr T value = VALUE;
};
template <bool WHOLE, typename F> static void with_place(place of, fsdp_dtype copy, F f)
{
    with_type(copy, [&](auto zero) {
        if (of == IN_FLOATS)
            f(constant<place, IN_FLOATS>(), constant<bool, WHOLE>(), zero);
        else if (of == IN_HALVES)
            f(constant<place, IN_HALVES>(), constant<bool, WHOLE>(), zero);
        else
            f(constant<place, IN_COPY>(), constant<bool, WHOLE>(), zero);
    });
}
template <typename F> static void with_kind(const kind &k, F f)
{
    if (k.whole)
        with_place<true>(k.of, k.copy, f);
    else
        with_place<false>(k.of, k.copy, f);
}

/* --- many tensors --- */

/* The different sets of scalars (learning rate, betas, ...) in one launch. Most tensors of an
 * optimizer share one set. */
template <typename SCALARS> struct sets_of {
    SCALARS at[MOST_SETS];
    int n;
};

/* Return the index of the set of scalars that equals `s`. If there is no such set, add `s` and
 * return its index. Return -1 if there are MOST_SETS sets already. */
template <typename SCALARS> static int set_of(sets_of<SCALARS> *sets, const SCALARS &s)
{
    for (int i = 0; i < sets->n; i++)
        if (memcmp(&sets->at[i], &s, sizeof s) == 0)
            return i;
    if (sets->n == MOST_SETS)
        return -1;
    sets->at[sets->n] = s;
    return sets->n++;
}

static int64_t chunks_of(int64_t n)
{
    return (n + CHUNK - 1) / CHUNK;
}

/* Update tensors of kind k by one launch, beginning with tensor `first`. If a tensor needs a new
 * set of scalars but there are MOST_SETS sets already, stop, and return the index of this tensor.
 * Return n if all tensors of kind k have been updated. The class METHOD describes an optimizer:
 *     ARGS, TENSOR, SCALARS     types: the arguments of a tensor, its entry in the table, scalars
 *     TABLE                     its table
 *     kind kind_of(args), void scalars_of(SCALARS *, args), void fill(TENSOR *, args)
 *     launch<PLACE, WHOLE, COPY>(stream, blocks, table, sets, clip) */
template <typename METHOD>
static size_t update_some(fsdp_cuda_context *c, const typename METHOD::ARGS *tensors, size_t first,
                          size_t n, const kind &k, const fsdp_clip_result *clip)
{
    table_writer<typename METHOD::TENSOR> writer;
    table_of<typename METHOD::TENSOR> table;
    sets_of<typename METHOD::SCALARS> sets;
    size_t i = first;
    memset(&sets, 0, sizeof sets);
    if (!writer.begin(c, METHOD::TABLE, n - first))
        return n;
    for (; i < n; i++) {
        typename METHOD::SCALARS scalars;
        const typename METHOD::ARGS *a = &tensors[i];
        if (!a->n || !is_same(METHOD::kind_of(a), k))
            continue;
        memset(&scalars, 0, sizeof scalars);
        METHOD::scalars_of(&scalars, a);
        const int set = set_of(&sets, scalars);
        if (set < 0)
            break;
        typename METHOD::TENSOR *t = writer.add(chunks_of(a->n));
        METHOD::fill(t, a);
        t->set = set;
    }
    if (writer.end(&table))
        with_kind(k, [&](auto of, auto whole, auto copy) {
            METHOD::template launch<decltype(of)::value, decltype(whole)::value, decltype(copy)>(
                fsdp_cuda_stream(c), writer.blocks(), table, sets, clip);
        });
    return i;
}

/* Return true if no tensor before tensor i has the same kind as tensor i. */
template <typename METHOD> static bool begins_kind(const typename METHOD::ARGS *tensors, size_t i)
{
    const kind k = METHOD::kind_of(&tensors[i]);
    for (size_t j = 0; j < i; j++)
        if (tensors[j].n && is_same(METHOD::kind_of(&tensors[j]), k))
            return false;
    return true;
}

template <typename METHOD>
static void update_all(fsdp_cuda_context *c, const typename METHOD::ARGS *tensors, size_t n,
                       const fsdp_clip_result *clip)
{
    for (size_t i = 0; i < n; i++)
        if (tensors[i].n && begins_kind<METHOD>(tensors, i))
            for (size_t first = i; first < n;)
                first =
                    update_some<METHOD>(c, tensors, first, n, METHOD::kind_of(&tensors[i]), clip);
}

/* --- adamw --- */

struct adam_tensor {
    parameter p;
    void *exp_avg, *exp_avg_sq;
    int64_t in_bfloat16; /* 1: the moments are bfloat16; 0: they are float32 */
    const float *grad;
    int64_t n, set;
};

struct adam_scalars {
    float grad_scale;
    float keep;         /* the factor of the parameter in decoupled weight decay */
    float weight_decay; /* the factor of weight decay that is added to the gradient */
    float toward;       /* factor of g - m: Note [Adam's lerp] */
    int from_m;
    float beta2, rest2; /* rest2: 1 - beta2 */
    float correction2;  /* sqrt(1 - beta2^step) */
    float eps;
    float step_size; /* -lr / (1 - beta1^step) */
};

/* Note [Adam's lerp]. torch.lerp(m, g, weight) computes m + weight (g - m) if weight is less than
 * 1/2, and g - (g - m) (1 - weight) otherwise. Here, weight is 1 - beta1. */
static void set_adam_scalars(adam_scalars *to, const fsdp_adamw_args *a)
{
    const double correction1 = 1.0 - pow(a->beta1, (double)a->step);
    const double correction2 = 1.0 - pow(a->beta2, (double)a->step);
    const float weight = (float)(1.0 - a->beta1);
    adam_scalars &s = *to;
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

/* Load or store elements [i, i + 4) of a moment. */
template <bool WHOLE>
FSDP_DEVICE void load_moment(float (&x)[4], const adam_tensor &t, const void *moment, int64_t i)
{
    if (t.in_bfloat16)
        load_four<WHOLE>(x, (const __nv_bfloat16 *)moment, i, t.n);
    else
        load_four<WHOLE>(x, (const float *)moment, i, t.n);
}
template <bool WHOLE>
FSDP_DEVICE void store_moment(const adam_tensor &t, void *moment, const float (&x)[4], int64_t i)
{
    if (t.in_bfloat16)
        store_four<WHOLE>((__nv_bfloat16 *)moment, x, i, t.n);
    else
        store_four<WHOLE>((float *)moment, x, i, t.n);
}

template <place PLACE, bool WHOLE, typename COPY>
FSDP_DEVICE void adam_chunk(const adam_tensor &t, const adam_scalars &s, int64_t chunk)
{
#pragma unroll
    for (int k = 0; k < CHUNK / (4 * THREADS); k++) {
        const int64_t i = element_of(chunk, k);
        if (!warp_begins_before(i, t.n))
            return;
        float p[4], m[4], v[4], g[4];
        open_param<PLACE, WHOLE, COPY>(p, t.p, i, t.n);
        load_moment<WHOLE>(m, t, t.exp_avg, i);
        load_moment<WHOLE>(v, t, t.exp_avg_sq, i);
        load_four<WHOLE>(g, t.grad, i, t.n);
        for (int e = 0; e < 4; e++)
            adam_element(s, p[e], m[e], v[e], g[e]);
        close_param<PLACE, WHOLE, COPY>(t.p, p, i, t.n);
        store_moment<WHOLE>(t, t.exp_avg, m, i);
        store_moment<WHOLE>(t, t.exp_avg_sq, v, i);
    }
}

template <place PLACE, bool WHOLE, typename COPY>
static __global__ void __launch_bounds__(THREADS)
    adam(table_of<adam_tensor> table, sets_of<adam_scalars> sets, const fsdp_clip_result *clip)
{
    if (clip && clip->refused)
        return;
    const int i = tensor_of_block(table);
    const adam_tensor t = table.tensors[i];
    adam_scalars s = sets.at[t.set];
    if (clip)
        s.grad_scale = clip->scale;
    adam_chunk<PLACE, WHOLE, COPY>(t, s, blockIdx.x - table.first[i]);
}

struct adam_method {
    typedef fsdp_adamw_args ARGS;
    typedef adam_tensor TENSOR;
    typedef adam_scalars SCALARS;
    static constexpr fsdp_cuda_table TABLE = FSDP_CUDA_TABLE_ADAMW;

    static kind kind_of(const fsdp_adamw_args *a)
    {
        kind k = ::kind_of(a, a->grad);
        k.whole = k.whole && array_has_fours(a->exp_avg, a->state_dtype) &&
                  array_has_fours(a->exp_avg_sq, a->state_dtype);
        return k;
    }
    static void scalars_of(adam_scalars *s, const fsdp_adamw_args *a)
    {
        set_adam_scalars(s, a);
    }
    static void fill(adam_tensor *t, const fsdp_adamw_args *a)
    {
        t->p = parameter_of(a);
        t->exp_avg = a->exp_avg;
        t->exp_avg_sq = a->exp_avg_sq;
        t->in_bfloat16 = a->state_dtype == FSDP_DTYPE_BF16;
        t->grad = a->grad;
        t->n = a->n;
    }
    template <place PLACE, bool WHOLE, typename COPY>
    static void launch(cudaStream_t stream, unsigned blocks, const table_of<adam_tensor> &table,
                       const sets_of<adam_scalars> &sets, const fsdp_clip_result *clip)
    {
        CUDA_LAUNCH((adam<PLACE, WHOLE, COPY>), blocks, THREADS, 0, stream, table, sets, clip);
    }
};

extern "C" void fsdp_cuda_adamw(fsdp_kernel_context *context, const fsdp_adamw_args *tensors,
                                size_t n, const fsdp_clip_result *clip)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    update_all<adam_method>(c, tensors, n, clip);
    fsdp_cuda_launched(c, "adamw");
}

/* --- sgd --- */

struct sgd_tensor {
    parameter p;
    float *buffer; /* the momentum buffer; NULL: no momentum */
    const float *grad;
    int64_t n, set;
};

struct sgd_scalars {
    float grad_scale, weight_decay;
    float step;           /* -lr */
    float momentum, rest; /* momentum: factor of the old buffer. rest: factor of the gradient. */
    float ahead;          /* factor of the momentum buffer in Nesterov's update */
    /* first: 1 if the buffer has undefined values because this is the first step */
    int nesterov, first;
};

FSDP_DEVICE void sgd_element(const sgd_scalars &s, float &param, float &buffer, float grad)
{
    const float p = param, g = grad * s.grad_scale + s.weight_decay * p;
    buffer = s.momentum * buffer + s.rest * g;
    param = p + s.step * (s.nesterov ? g + s.ahead * buffer : buffer);
}

template <place PLACE, bool WHOLE, typename COPY>
FSDP_DEVICE void sgd_chunk(const sgd_tensor &t, const sgd_scalars &s, int64_t chunk)
{
#pragma unroll
    for (int k = 0; k < CHUNK / (4 * THREADS); k++) {
        const int64_t i = element_of(chunk, k);
        if (!warp_begins_before(i, t.n))
            return;
        float p[4], b[4] = {0.0f, 0.0f, 0.0f, 0.0f}, g[4];
        open_param<PLACE, WHOLE, COPY>(p, t.p, i, t.n);
        load_four<WHOLE>(g, t.grad, i, t.n);
        if (t.buffer && !s.first)
            load_four<WHOLE>(b, t.buffer, i, t.n);
        for (int e = 0; e < 4; e++)
            if (t.buffer)
                sgd_element(s, p[e], b[e], g[e]);
            else
                p[e] += s.step * (g[e] * s.grad_scale + s.weight_decay * p[e]);
        close_param<PLACE, WHOLE, COPY>(t.p, p, i, t.n);
        if (t.buffer)
            store_four<WHOLE>(t.buffer, b, i, t.n);
    }
}

template <place PLACE, bool WHOLE, typename COPY>
static __global__ void __launch_bounds__(THREADS)
    descend(table_of<sgd_tensor> table, sets_of<sgd_scalars> sets, const fsdp_clip_result *clip)
{
    if (clip && clip->refused)
        return;
    const int i = tensor_of_block(table);
    const sgd_tensor t = table.tensors[i];
    sgd_scalars s = sets.at[t.set];
    if (clip)
        s.grad_scale = clip->scale;
    sgd_chunk<PLACE, WHOLE, COPY>(t, s, blockIdx.x - table.first[i]);
}

struct sgd_method {
    typedef fsdp_sgd_args ARGS;
    typedef sgd_tensor TENSOR;
    typedef sgd_scalars SCALARS;
    static constexpr fsdp_cuda_table TABLE = FSDP_CUDA_TABLE_SGD;

    static kind kind_of(const fsdp_sgd_args *a)
    {
        return ::kind_of(a, a->momentum_buffer, a->grad);
    }
    static void scalars_of(sgd_scalars *s, const fsdp_sgd_args *a)
    {
        s->grad_scale = a->grad_scale;
        s->weight_decay = (float)a->weight_decay;
        s->step = (float)-a->lr;
        s->momentum = a->first ? 0.0f : (float)a->momentum;
        s->rest = a->first ? 1.0f : (float)(1.0 - a->dampening);
        s->ahead = (float)a->momentum;
        s->nesterov = a->nesterov;
        s->first = a->first;
    }
    static void fill(sgd_tensor *t, const fsdp_sgd_args *a)
    {
        t->p = parameter_of(a);
        t->buffer = a->momentum_buffer;
        t->grad = a->grad;
        t->n = a->n;
    }
    template <place PLACE, bool WHOLE, typename COPY>
    static void launch(cudaStream_t stream, unsigned blocks, const table_of<sgd_tensor> &table,
                       const sets_of<sgd_scalars> &sets, const fsdp_clip_result *clip)
    {
        CUDA_LAUNCH((descend<PLACE, WHOLE, COPY>), blocks, THREADS, 0, stream, table, sets, clip);
    }
};

extern "C" void fsdp_cuda_sgd(fsdp_kernel_context *context, const fsdp_sgd_args *tensors, size_t n,
                              const fsdp_clip_result *clip)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    update_all<sgd_method>(c, tensors, n, clip);
    fsdp_cuda_launched(c, "sgd");
}
