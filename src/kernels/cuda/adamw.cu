/* AdamW and Adam. See optim.cuh. */
#include "src/kernels/cuda/optim.cuh"

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

template <stored_as STORAGE, bool WHOLE, typename COPY>
FSDP_DEVICE void adam_chunk(const adam_tensor &t, const adam_scalars &s, int64_t chunk)
{
#pragma unroll
    for (int k = 0; k < CHUNK / (4 * THREADS); k++) {
        const int64_t i = element_of(chunk, k);
        if (!warp_begins_before(i, t.n))
            return;
        float p[4], m[4], v[4], g[4];
        open_param<STORAGE, WHOLE, COPY>(p, t.p, i, t.n);
        load_moment<WHOLE>(m, t, t.exp_avg, i);
        load_moment<WHOLE>(v, t, t.exp_avg_sq, i);
        load_four<WHOLE>(g, t.grad, i, t.n);
        for (int e = 0; e < 4; e++)
            adam_element(s, p[e], m[e], v[e], g[e]);
        close_param<STORAGE, WHOLE, COPY>(t.p, p, i, t.n);
        store_moment<WHOLE>(t, t.exp_avg, m, i);
        store_moment<WHOLE>(t, t.exp_avg_sq, v, i);
    }
}

template <stored_as STORAGE, bool WHOLE, typename COPY>
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
    adam_chunk<STORAGE, WHOLE, COPY>(t, s, blockIdx.x - table.first[i]);
}

struct adam_method {
    typedef fsdp_adamw_args ARGS;
    typedef adam_tensor TENSOR;
    typedef adam_scalars SCALARS;
    static constexpr fsdp_cuda_table TABLE = FSDP_CUDA_TABLE_ADAMW;

    static layout layout_of(const fsdp_adamw_args *a)
    {
        layout l = ::layout_of(a, a->grad);
        l.whole = l.whole && array_has_fours(a->exp_avg, a->state_dtype) &&
                  array_has_fours(a->exp_avg_sq, a->state_dtype);
        return l;
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
    template <stored_as STORAGE, bool WHOLE, typename COPY>
    static void launch(cudaStream_t stream, unsigned blocks, const table_of<adam_tensor> &table,
                       const sets_of<adam_scalars> &sets, const fsdp_clip_result *clip)
    {
        CUDA_LAUNCH((adam<STORAGE, WHOLE, COPY>), blocks, THREADS, 0, stream, table, sets, clip);
    }
};

extern "C" void fsdp_cuda_adamw(fsdp_kernel_context *context, const fsdp_adamw_args *tensors,
                                size_t n, const fsdp_clip_result *clip)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    update_all<adam_method>(c, tensors, n, clip);
    fsdp_cuda_launched(c, "adamw");
}
