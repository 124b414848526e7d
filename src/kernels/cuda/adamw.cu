/* AdamW and Adam with moments of float32 or bfloat16. See optim.cuh.
 *
 * If the bfloat16 arrays of a tensor are rounded stochastically, the keys of their random numbers
 * are in the tensor's entry of the table. These keys change in each step. So the table is copied to
 * the device again in each step. */
#include "src/kernels/cuda/adamw.cuh"

struct adam_tensor {
    parameter p;
    void *exp_avg, *exp_avg_sq;
    int64_t in_bfloat16; /* 1: the moments are bfloat16; 0: they are float32 */
    const float *grad;
    int64_t n, set;
    rounding rounded; /* used only by stochastic rounding */
};

/* Load or store elements [i, i + 4) of a moment. */
template <bool WHOLE>
FSDP_DEVICE void load_moment(float (&x)[4], const adam_tensor &t, const void *moment, int64_t i)
{
    if (t.in_bfloat16)
        load_four<WHOLE>(x, (const __nv_bfloat16 *)moment, i, t.n);
    else
        load_four<WHOLE>(x, (const float *)moment, i, t.n);
}
template <bool ROUNDS, bool WHOLE>
FSDP_DEVICE void store_moment(const adam_tensor &t, int array, void *moment, const float (&x)[4],
                              int64_t i)
{
    if (!t.in_bfloat16)
        store_four<WHOLE>((float *)moment, x, i, t.n);
    else if (ROUNDS)
        store_four_rounded<WHOLE>(t.rounded, array, moment, x, i, t.n);
    else
        store_four<WHOLE>((__nv_bfloat16 *)moment, x, i, t.n);
}

template <bool ROUNDS, stored_as STORAGE, bool WHOLE, typename COPY>
FSDP_DEVICE void close_adam_param(const adam_tensor &t, const float (&x)[4], int64_t i)
{
    if (ROUNDS && STORAGE == STORED_ONLY_IN_COPY && std::is_same<COPY, __nv_bfloat16>::value)
        store_four_rounded<WHOLE>(t.rounded, ROUND_PARAM, t.p.copy, x, i, t.n);
    else
        close_param<STORAGE, WHOLE, COPY>(t.p, x, i, t.n);
}

template <bool ROUNDS, stored_as STORAGE, bool WHOLE, typename COPY>
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
        close_adam_param<ROUNDS, STORAGE, WHOLE, COPY>(t, p, i);
        store_moment<ROUNDS, WHOLE>(t, ROUND_EXP_AVG, t.exp_avg, m, i);
        store_moment<ROUNDS, WHOLE>(t, ROUND_EXP_AVG_SQ, t.exp_avg_sq, v, i);
    }
}

template <bool ROUNDS, stored_as STORAGE, bool WHOLE, typename COPY>
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
    adam_chunk<ROUNDS, STORAGE, WHOLE, COPY>(t, s, blockIdx.x - table.first[i]);
}

/* ROUNDS: this method updates the tensors that are rounded stochastically. */
template <bool ROUNDS> struct adam_method {
    typedef fsdp_adamw_args ARGS;
    typedef adam_tensor TENSOR;
    typedef adam_scalars SCALARS;
    static constexpr fsdp_cuda_table TABLE =
        ROUNDS ? FSDP_CUDA_TABLE_ADAMW_ROUNDED : FSDP_CUDA_TABLE_ADAMW;

    static bool is_for(const fsdp_adamw_args *a)
    {
        return a->state_dtype != FSDP_DTYPE_U8 && a->stochastic == ROUNDS;
    }
    static int64_t chunks_of(const fsdp_adamw_args *a)
    {
        return ::chunks_of(a->n);
    }
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
        if (ROUNDS)
            t->rounded = rounding_of(a);
    }
    template <stored_as STORAGE, bool WHOLE, typename COPY>
    static void launch(fsdp_cuda_context *c, unsigned blocks, const table_of<adam_tensor> &table,
                       const sets_of<adam_scalars> &sets, const fsdp_clip_result *clip)
    {
        CUDA_LAUNCH((adam<ROUNDS, STORAGE, WHOLE, COPY>), blocks, THREADS, 0, fsdp_cuda_stream(c),
                    table, sets, clip);
    }
};

extern "C" void fsdp_cuda_adamw(fsdp_kernel_context *context, const fsdp_adamw_args *tensors,
                                size_t n, const fsdp_clip_result *clip)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    update_all<adam_method<false>>(c, tensors, n, clip);
    update_all<adam_method<true>>(c, tensors, n, clip);
    fsdp_cuda_adamw_8bit(c, tensors, n, clip);
    fsdp_cuda_launched(c, "adamw");
}
