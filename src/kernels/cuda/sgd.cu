/* SGD. See optim.cuh. */
#include "src/kernels/cuda/optim.cuh"

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

template <stored_as STORAGE, bool WHOLE, typename COPY>
FSDP_DEVICE void sgd_chunk(const sgd_tensor &t, const sgd_scalars &s, int64_t chunk)
{
#pragma unroll
    for (int k = 0; k < CHUNK / (4 * THREADS); k++) {
        const int64_t i = element_of(chunk, k);
        if (!warp_begins_before(i, t.n))
            return;
        float p[4], b[4] = {0.0f, 0.0f, 0.0f, 0.0f}, g[4];
        open_param<STORAGE, WHOLE, COPY>(p, t.p, i, t.n);
        load_four<WHOLE>(g, t.grad, i, t.n);
        if (t.buffer && !s.first)
            load_four<WHOLE>(b, t.buffer, i, t.n);
        for (int e = 0; e < 4; e++)
            if (t.buffer)
                sgd_element(s, p[e], b[e], g[e]);
            else
                p[e] += s.step * (g[e] * s.grad_scale + s.weight_decay * p[e]);
        close_param<STORAGE, WHOLE, COPY>(t.p, p, i, t.n);
        if (t.buffer)
            store_four<WHOLE>(t.buffer, b, i, t.n);
    }
}

template <stored_as STORAGE, bool WHOLE, typename COPY>
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
    sgd_chunk<STORAGE, WHOLE, COPY>(t, s, blockIdx.x - table.first[i]);
}

struct sgd_method {
    typedef fsdp_sgd_args ARGS;
    typedef sgd_tensor TENSOR;
    typedef sgd_scalars SCALARS;
    static constexpr fsdp_cuda_table TABLE = FSDP_CUDA_TABLE_SGD;

    static bool is_for(const fsdp_sgd_args *)
    {
        return true;
    }
    static int64_t chunks_of(const fsdp_sgd_args *a)
    {
        return ::chunks_of(a->n);
    }
    static layout layout_of(const fsdp_sgd_args *a)
    {
        return ::layout_of(a, a->momentum_buffer, a->grad);
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
    template <stored_as STORAGE, bool WHOLE, typename COPY>
    static void launch(fsdp_cuda_context *c, unsigned blocks, const table_of<sgd_tensor> &table,
                       const sets_of<sgd_scalars> &sets, const fsdp_clip_result *clip)
    {
        CUDA_LAUNCH((descend<STORAGE, WHOLE, COPY>), blocks, THREADS, 0, fsdp_cuda_stream(c), table,
                    sets, clip);
    }
};

extern "C" void fsdp_cuda_sgd(fsdp_kernel_context *context, const fsdp_sgd_args *tensors, size_t n,
                              const fsdp_clip_result *clip)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    update_all<sgd_method>(c, tensors, n, clip);
    fsdp_cuda_launched(c, "sgd");
}
