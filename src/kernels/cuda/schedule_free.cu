/* Schedule-Free AdamW. See optim.cuh. */
#include "src/kernels/cuda/optim.cuh"

struct schedule_free_tensor {
    parameter p; /* y */
    float *z, *exp_avg_sq;
    const float *grad; /* NULL: the tensor only switches between training and evaluation */
    float *kept;       /* NULL: a switch does not keep the old y */
    int64_t n, set;
};

struct schedule_free_scalars {
    float grad_scale;
    float beta2, rest2; /* rest2: 1 - beta2 */
    float correction2;  /* 1 - beta2^step */
    float eps, weight_decay, lr;
    float y_step; /* lr (beta1 (1 - average) - 1) */
    /* y moves toward z as torch.lerp() does: Note [Adam's lerp] in adamw.cuh. */
    float toward;
    int from_y;
    int first;    /* 1: z is set to y before the step */
    int restores; /* 1: a switch sets y to `kept` */
};

FSDP_DEVICE float moved_toward(const schedule_free_scalars &s, float y, float z)
{
    return (s.from_y ? y : z) + s.toward * (z - y);
}

FSDP_DEVICE void schedule_free_element(const schedule_free_scalars &s, float &y, float &z, float &v,
                                       float grad)
{
    const float g = grad * s.grad_scale;
    if (s.first)
        z = y;
    v = v * s.beta2 + s.rest2 * g * g;
    const float update = g / (sqrtf(v / s.correction2) + s.eps) + s.weight_decay * y;
    y = moved_toward(s, y, z);
    y += s.y_step * update;
    z -= s.lr * update;
}

/* Update elements [i, i + 4) of a tensor whose elements before the step are y. */
template <bool WHOLE>
FSDP_DEVICE void step_four(const schedule_free_tensor &t, const schedule_free_scalars &s,
                           float (&y)[4], int64_t i)
{
    float z[4] = {0.0f, 0.0f, 0.0f, 0.0f}, v[4], g[4];
    if (!s.first)
        load_four<WHOLE>(z, t.z, i, t.n);
    load_four<WHOLE>(v, t.exp_avg_sq, i, t.n);
    load_four<WHOLE>(g, t.grad, i, t.n);
    for (int e = 0; e < 4; e++)
        schedule_free_element(s, y[e], z[e], v[e], g[e]);
    store_four<WHOLE>(t.z, z, i, t.n);
    store_four<WHOLE>(t.exp_avg_sq, v, i, t.n);
}

/* Change elements [i, i + 4) of a tensor without a step. */
template <bool WHOLE>
FSDP_DEVICE void switch_four(const schedule_free_tensor &t, const schedule_free_scalars &s,
                             float (&y)[4], int64_t i)
{
    if (s.restores) {
        load_four<WHOLE>(y, t.kept, i, t.n);
        return;
    }
    float z[4];
    load_four<WHOLE>(z, t.z, i, t.n);
    if (t.kept)
        store_four<WHOLE>(t.kept, y, i, t.n);
    for (int e = 0; e < 4; e++)
        y[e] = moved_toward(s, y[e], z[e]);
}

template <stored_as STORAGE, bool WHOLE, typename COPY>
static __global__ void __launch_bounds__(THREADS)
    schedule_free(table_of<schedule_free_tensor> table, sets_of<schedule_free_scalars> sets,
                  const fsdp_clip_result *clip)
{
    if (clip && clip->refused)
        return;
    const int at = tensor_of_block(table);
    const schedule_free_tensor t = table.tensors[at];
    const int64_t chunk = blockIdx.x - table.first[at];
    schedule_free_scalars s = sets.at[t.set];
    if (clip)
        s.grad_scale = clip->scale;
#pragma unroll
    for (int k = 0; k < CHUNK / (4 * THREADS); k++) {
        const int64_t i = element_of(chunk, k);
        if (!warp_begins_before(i, t.n))
            return;
        float y[4];
        open_param<STORAGE, WHOLE, COPY>(y, t.p, i, t.n);
        if (t.grad)
            step_four<WHOLE>(t, s, y, i);
        else
            switch_four<WHOLE>(t, s, y, i);
        close_param<STORAGE, WHOLE, COPY>(t.p, y, i, t.n);
    }
}

struct schedule_free_method {
    typedef fsdp_schedule_free_args ARGS;
    typedef schedule_free_tensor TENSOR;
    typedef schedule_free_scalars SCALARS;
    static constexpr fsdp_cuda_table TABLE = FSDP_CUDA_TABLE_SCHEDULE_FREE;

    static bool is_for(const fsdp_schedule_free_args *)
    {
        return true;
    }
    static int64_t chunks_of(const fsdp_schedule_free_args *a)
    {
        return ::chunks_of(a->n);
    }
    static layout layout_of(const fsdp_schedule_free_args *a)
    {
        return ::layout_of(a, a->z, a->exp_avg_sq, a->grad, a->kept);
    }
    static void scalars_of(schedule_free_scalars *s, const fsdp_schedule_free_args *a)
    {
        const float average = (float)a->average;
        s->grad_scale = a->grad_scale;
        s->beta2 = (float)a->beta2;
        s->rest2 = (float)(1.0 - a->beta2);
        s->correction2 = (float)(1.0 - pow(a->beta2, (double)a->step));
        s->eps = (float)a->eps;
        s->weight_decay = (float)a->weight_decay;
        s->lr = (float)a->lr;
        s->y_step = (float)(a->lr * (a->beta1 * (1.0 - a->average) - 1.0));
        s->from_y = fabsf(average) < 0.5f;
        s->toward = s->from_y ? average : -(1.0f - average);
        s->first = a->first;
        s->restores = a->restores;
    }
    static void fill(schedule_free_tensor *t, const fsdp_schedule_free_args *a)
    {
        t->p = parameter_of(a);
        t->z = a->z;
        t->exp_avg_sq = a->exp_avg_sq;
        t->grad = a->grad;
        t->kept = a->kept;
        t->n = a->n;
    }
    template <stored_as STORAGE, bool WHOLE, typename COPY>
    static void launch(fsdp_cuda_context *c, unsigned blocks,
                       const table_of<schedule_free_tensor> &table,
                       const sets_of<schedule_free_scalars> &sets, const fsdp_clip_result *clip)
    {
        CUDA_LAUNCH((schedule_free<STORAGE, WHOLE, COPY>), blocks, THREADS, 0, fsdp_cuda_stream(c),
                    table, sets, clip);
    }
};

extern "C" void fsdp_cuda_schedule_free(fsdp_kernel_context *context,
                                        const fsdp_schedule_free_args *tensors, size_t n,
                                        const fsdp_clip_result *clip)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    update_all<schedule_free_method>(c, tensors, n, clip);
    fsdp_cuda_launched(c, "schedule_free");
}
