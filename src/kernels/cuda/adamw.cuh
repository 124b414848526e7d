/* The arithmetic of AdamW and Adam, for the kernels that store moments in different ways. */
#pragma once
#include <type_traits>

#include "src/base/philox.h"
#include "src/kernels/cuda/optim.cuh"
#include "src/kernels/cuda/philox.cuh"

/* Update those of n tensors whose moments are codes of 8 bits. See fsdp_adamw_args. */
void fsdp_cuda_adamw_8bit(fsdp_cuda_context *c, const fsdp_adamw_args *tensors, size_t n,
                          const fsdp_clip_result *clip);

struct adam_scalars {
    float grad_scale;
    float keep; /* factor of the parameter: 1 - lr * weight_decay if decay is decoupled, else 1 */
    float weight_decay; /* this times the parameter is added to the gradient; 0 if decoupled */
    float toward;       /* factor of g - m: Note [Adam's lerp] */
    int from_m;
    float beta2, rest2; /* rest2: 1 - beta2 */
    float correction2;  /* sqrt(1 - beta2^step) */
    float eps;
    float step_size; /* -lr / (1 - beta1^step) */
};

/* Note [Adam's lerp]. torch.lerp(m, g, weight) computes m + weight (g - m) if weight is less than
 * 1/2, and g - (g - m) (1 - weight) otherwise. Here, weight is 1 - beta1. */
static inline void set_adam_scalars(adam_scalars *to, const fsdp_adamw_args *a)
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

/* --- stochastic rounding --- */

/* The arrays that are rounded stochastically; see fsdp_rounding_key() in src/base/philox.h. */
enum {
    ROUND_PARAM,
    ROUND_EXP_AVG,
    ROUND_EXP_AVG_SQ,
    N_ROUNDED
};

/* What the random numbers of a tensor depend on. */
struct rounding {
    uint64_t keys[N_ROUNDED]; /* the key of each array */
    int64_t first;            /* index of the shard's element 0 in the whole parameter */
};

static inline rounding rounding_of(const fsdp_adamw_args *a)
{
    rounding r = {};
    for (int array = 0; array < N_ROUNDED; array++)
        r.keys[array] = fsdp_mix64(a->rounding_key + (uint64_t)array);
    r.first = a->first;
    return r;
}

/* The random numbers of four adjacent elements. */
struct four_randoms {
    uint32_t at[4];
};

/* Return the random numbers of elements [e, e + 4) of the whole parameter. These numbers may
 * belong to two counters of Philox. */
FSDP_DEVICE four_randoms randoms_of(uint64_t key, int64_t e)
{
    const uint64_t counter = (uint64_t)e / PHILOX_HALVES;
    const int half = (int)(e % PHILOX_HALVES);
    const philox_words own = philox(key, counter);
    philox_words next = own;
    four_randoms r;
    if (half > PHILOX_HALVES - 4)
        next = philox(key, counter + 1);
#pragma unroll
    for (int i = 0; i < 4; i++)
        r.at[i] = half + i < PHILOX_HALVES ? philox_half(own, half + i)
                                           : philox_half(next, half + i - PHILOX_HALVES);
    return r;
}

/* Return x rounded to bfloat16 with a random number of 16 bits. NaN stays NaN. */
FSDP_DEVICE __nv_bfloat16 round_stochastically(float x, uint32_t random)
{
    const uint32_t bits = __float_as_uint(x);
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return __ushort_as_bfloat16((uint16_t)((nan ? bits | 0x400000u : bits + random) >> 16));
}

/* Round x stochastically, and store it in elements [i, i + 4) of the array `to` of n elements. `to`
 * is array number `array` of its tensor. */
template <bool WHOLE>
FSDP_DEVICE void store_four_rounded(const rounding &r, int array, void *to, const float (&x)[4],
                                    int64_t i, int64_t n)
{
    __nv_bfloat16 *p = (__nv_bfloat16 *)to + i;
    const four_randoms random = randoms_of(r.keys[array], r.first + i);
    four_of<__nv_bfloat16> v;
#pragma unroll
    for (int e = 0; e < 4; e++)
        v.at[e] = round_stochastically(x[e], random.at[e]);
    if (WHOLE && i + 4 <= n)
        *(four_of<__nv_bfloat16> *)p = v;
    else
        for (int e = 0; e < 4; e++)
            if (i + e < n)
                p[e] = v.at[e];
}
