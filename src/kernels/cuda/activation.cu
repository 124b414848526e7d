/* Kernels for activations, for products of an activation with another array, and for the gradients
 * of both. The formulas are those of src/kernels/cpu/isa/elementwise.c. The activation is an
 * argument of each kernel, so that one kernel serves all activations, and all threads take the same
 * branch. Templates on the activation would give six times as many kernels.
 *
 * Note [Narrow activations]. For float32, the kernels use exp, tanh, erf and the division of CUDA's
 * math library, which are exact to a few units in the last place. They are so slow that computing
 * takes longer than reading and writing memory. For bfloat16 and float16, the kernels use
 * exponentials and reciprocals of the special function units instead. Their relative errors are
 * below 2^-16. The error of rounding the result to 16 bits is larger: its bound is 2^-12 or more. A
 * thread computes 16 bytes of elements, so the template argument N, the number of elements, is 8
 * for these dtypes and 4 for float32. */
#include "src/kernels/cuda/elementwise.cuh"

#define SQRT_2_OVER_PI 0x1.988454p-1f
#define SQRT_1_2 0x1.6a09e6p-1f
#define INV_SQRT_2_PI 0x1.988454p-2f

/* --- one element --- */

/* Return e^x. */
template <bool NARROW> FSDP_DEVICE float exponential(float x)
{
    return NARROW ? __expf(x) : expf(x);
}

/* Return 1 / x, for x between 1 and 2^126. */
template <bool NARROW> FSDP_DEVICE float reciprocal(float x)
{
    return NARROW ? __fdividef(1.0f, x) : 1.0f / x;
}

/* An activation a(x) and its derivative a'(x). If a kernel uses only one of the two, the compiler
 * removes the computation of the other one. */
struct activated {
    float value, slope;
};

/* Limit x to [-bound, bound]; NaN stays NaN. In the functions below, a slope has a term with the
 * factor x. There, x is limited first, because an infinite x times 0 would be NaN. The limit does
 * not change the slope, because for |x| > bound the slope is constant in float32. */
FSDP_DEVICE float within(float x, float bound)
{
    return x > bound ? bound : x < -bound ? -bound : x;
}

/* Return the logistic function 1 / (1 + e^-x) and its derivative. For negative x the function is
 * computed as e^x / (1 + e^x). The derivative is computed without cancellation. */
template <bool NARROW> FSDP_DEVICE activated sigmoid(float x)
{
    const float e = exponential<NARROW>(-fabsf(x)), larger = reciprocal<NARROW>(1.0f + e);
    const float smaller = e * larger;
    return {x < 0.0f ? smaller : larger, smaller * larger};
}

template <bool NARROW> FSDP_DEVICE activated none(float x)
{
    return {x, 1.0f};
}

/* Return relu(x) and its derivative. NaN stays NaN, as in torch.relu. */
template <bool NARROW> FSDP_DEVICE activated relu(float x)
{
    return {0.0f > x ? 0.0f : x, x > 0.0f ? 1.0f : 0.0f};
}

/* Return x times the logistic function of 2u, which is equal to 0.5 (1 + tanh u). */
template <bool NARROW> FSDP_DEVICE activated gelu_tanh(float x)
{
    const float z = within(x, 64.0f);
    const float u = x * (SQRT_2_OVER_PI + SQRT_2_OVER_PI * 0.044715f * (x * x));
    const float du = SQRT_2_OVER_PI + 3.0f * SQRT_2_OVER_PI * 0.044715f * (z * z);
    const activated s = sigmoid<NARROW>(u + u);
    return {x * s.value, s.value + 2.0f * z * du * s.slope};
}

/* Return the normal distribution's function phi(x) = (1 + erf(x / sqrt(2))) / 2, given e^(-x^2 /
 * 2). Let z = |x| / sqrt(2). A polynomial of t = 1 / (1 + p z) approximates erfc(z) e^(z^2). The
 * coefficients in Abramowitz and Stegun, 7.1.26, give a small absolute error. The coefficients here
 * were fitted for z from 0 to 10 and give a relative error of at most 8.7e-7 (weighted least
 * squares, repeated with weights that make the largest errors equal). */
FSDP_DEVICE float narrow_normal(float x, float exp_of_square)
{
    const float t = reciprocal<true>(1.0f + 0.51f * SQRT_1_2 * fabsf(x));
    float sum = 0.094507518f;
    sum = sum * t - 0.35916087f;
    sum = sum * t + 0.35848113f;
    sum = sum * t + 0.055028527f;
    sum = sum * t + 0.27907491f;
    sum = sum * t + 0.28415074f;
    sum = sum * t + 0.28791761f;
    const float tail = 0.5f * t * sum * exp_of_square;
    return x < 0.0f ? tail : 1.0f - tail;
}

template <bool NARROW> FSDP_DEVICE activated gelu_erf(float x)
{
    const float z = within(x, 64.0f), e = exponential<NARROW>(-0.5f * (z * z));
    const float phi = NARROW ? narrow_normal(x, e) : 0.5f * (1.0f + erff(x * SQRT_1_2));
    return {x * phi, phi + z * (INV_SQRT_2_PI * e)};
}

template <bool NARROW> FSDP_DEVICE activated silu(float x)
{
    const activated s = sigmoid<NARROW>(x);
    return {x * s.value, s.value + within(x, 128.0f) * s.slope};
}

template <bool NARROW> FSDP_DEVICE activated hyperbolic_tangent(float x)
{
    const float y = tanhf(x);
    return {y, 1.0f - y * y};
}

/* --- N elements --- */

template <activated (*FUNCTION)(float), int N>
FSDP_DEVICE void activate_each(float (&value)[N], float (&slope)[N], const float (&x)[N])
{
#pragma unroll
    for (int j = 0; j < N; j++) {
        const activated y = FUNCTION(x[j]);
        value[j] = y.value;
        slope[j] = y.slope;
    }
}

/* N must be vector_of<T>::N for the dtype T of the elements: see Note [Narrow activations]. */
template <int N>
FSDP_DEVICE void activate(fsdp_activation a, float (&value)[N], float (&slope)[N],
                          const float (&x)[N])
{
    constexpr bool NARROW = N == vector_of<__nv_bfloat16>::N;
    switch (a) {
    case FSDP_ACTIVATION_NONE:
        activate_each<none<NARROW>>(value, slope, x);
        break;
    case FSDP_ACTIVATION_RELU:
        activate_each<relu<NARROW>>(value, slope, x);
        break;
    case FSDP_ACTIVATION_GELU_TANH:
        activate_each<gelu_tanh<NARROW>>(value, slope, x);
        break;
    case FSDP_ACTIVATION_GELU_ERF:
        activate_each<gelu_erf<NARROW>>(value, slope, x);
        break;
    case FSDP_ACTIVATION_SILU:
        activate_each<silu<NARROW>>(value, slope, x);
        break;
    case FSDP_ACTIVATION_TANH:
        activate_each<hyperbolic_tangent<NARROW>>(value, slope, x);
        break;
    }
}

/* --- element-wise kernels --- */

struct activation_of {
    fsdp_activation a;
    template <int N>
    __device__ void operator()(float (&out)[1][N], const float (&in)[1][N], int64_t) const
    {
        float slope[N];
        activate(a, out[0], slope, in[0]);
    }
};

/* Computes the gradient of an activation. The inputs are dy and x, and the output is dx. */
struct activation_gradient {
    fsdp_activation a;
    template <int N>
    __device__ void operator()(float (&out)[1][N], const float (&in)[2][N], int64_t) const
    {
        float value[N];
        activate(a, value, out[0], in[1]);
#pragma unroll
        for (int j = 0; j < N; j++)
            out[0][j] *= in[0][j];
    }
};

/* Computes a(gate) * up. The inputs are gate and up. */
struct gated_product {
    fsdp_activation a;
    template <int N>
    __device__ void operator()(float (&out)[1][N], const float (&in)[2][N], int64_t) const
    {
        float slope[N];
        activate(a, out[0], slope, in[0]);
#pragma unroll
        for (int j = 0; j < N; j++)
            out[0][j] *= in[1][j];
    }
};

/* Computes the gradients of a(gate) * up with respect to gate and up. The inputs are dy, gate and
 * up. */
struct gated_gradients {
    fsdp_activation a;
    template <int N>
    __device__ void operator()(float (&out)[2][N], const float (&in)[3][N], int64_t) const
    {
        activate(a, out[1], out[0], in[1]);
#pragma unroll
        for (int j = 0; j < N; j++) {
            out[1][j] *= in[0][j];
            out[0][j] *= in[0][j] * in[2][j];
        }
    }
};

extern "C" void fsdp_cuda_activation(fsdp_kernel_context *context, fsdp_activation a, void *out,
                                     const void *x, fsdp_dtype dtype, int64_t n)
{
    const elementwise_arrays<1, 1> arrays = {{x}, {out}};
    start_elementwise<0>(context, "activation", dtype, n, arrays, activation_of{a});
}

extern "C" void fsdp_cuda_activation_backward(fsdp_kernel_context *context, fsdp_activation a,
                                              void *dx, const void *dy, const void *x,
                                              fsdp_dtype dtype, int64_t n)
{
    const elementwise_arrays<2, 1> arrays = {{dy, x}, {dx}};
    start_elementwise<0>(context, "activation_backward", dtype, n, arrays, activation_gradient{a});
}

extern "C" void fsdp_cuda_gated(fsdp_kernel_context *context, fsdp_activation a, void *out,
                                const void *gate, const void *up, fsdp_dtype dtype, int64_t n)
{
    const elementwise_arrays<2, 1> arrays = {{gate, up}, {out}};
    start_elementwise<0>(context, "gated", dtype, n, arrays, gated_product{a});
}

extern "C" void fsdp_cuda_gated_backward(fsdp_kernel_context *context, fsdp_activation a,
                                         void *d_gate, void *d_up, const void *dy, const void *gate,
                                         const void *up, fsdp_dtype dtype, int64_t n)
{
    const elementwise_arrays<3, 2> arrays = {{dy, gate, up}, {d_gate, d_up}};
    start_elementwise<0>(context, "gated_backward", dtype, n, arrays, gated_gradients{a});
}

/* --- activated_backward --- */

/* The groups of N elements that a thread reads, and those that it writes. `hidden` is both. */
template <typename T, int N> struct activated_group {
    raw_group<T, N> x, up, hidden, dx, d_up;
};

/* Elements are converted one by one, so that a thread needs few registers. */
template <activated (*FUNCTION)(float), typename T, int N>
FSDP_DEVICE void activated_each(activated_group<T, N> &g, bool is_gated, float factor)
{
#pragma unroll
    for (int j = 0; j < N; j++) {
        const activated y = FUNCTION(to_float(g.x.at(j)));
        const float d = to_float(g.hidden.at(j)), up = is_gated ? to_float(g.up.at(j)) : factor;
        g.dx.set(j, from_float<T>(y.slope * (d * up)));
        g.d_up.set(j, from_float<T>(y.value * d));
        g.hidden.set(j, from_float<T>(is_gated ? y.value * up : y.value));
    }
}

template <typename T, int N>
FSDP_DEVICE void activated_group_of(fsdp_activation a, activated_group<T, N> &g, bool is_gated,
                                    float factor)
{
    constexpr bool NARROW = N == vector_of<__nv_bfloat16>::N;
    switch (a) {
    case FSDP_ACTIVATION_NONE:
        activated_each<none<NARROW>>(g, is_gated, factor);
        break;
    case FSDP_ACTIVATION_RELU:
        activated_each<relu<NARROW>>(g, is_gated, factor);
        break;
    case FSDP_ACTIVATION_GELU_TANH:
        activated_each<gelu_tanh<NARROW>>(g, is_gated, factor);
        break;
    case FSDP_ACTIVATION_GELU_ERF:
        activated_each<gelu_erf<NARROW>>(g, is_gated, factor);
        break;
    case FSDP_ACTIVATION_SILU:
        activated_each<silu<NARROW>>(g, is_gated, factor);
        break;
    case FSDP_ACTIVATION_TANH:
        activated_each<hyperbolic_tangent<NARROW>>(g, is_gated, factor);
        break;
    }
}

/* Compute elements [i, i + N) of one row. The row begins at element `at` of x, up, dx and d_up, and
 * at element `at_hidden` of `hidden`. All inputs are loaded before the first output is stored. */
template <typename T, int N>
FSDP_DEVICE void compute_activated(const fsdp_activated_backward_args &args, int64_t at,
                                   int64_t at_hidden, int64_t i, bool vectors)
{
    const int64_t n = args.columns;
    T *hidden = (T *)args.hidden + at_hidden;
    activated_group<T, N> g = {};
    g.x = load_raw<N>((const T *)args.x + at, i, n, vectors);
    if (args.up)
        g.up = load_raw<N>((const T *)args.up + at, i, n, vectors);
    if (args.dx || args.d_up)
        g.hidden = load_raw<N>(hidden, i, n, vectors);
    activated_group_of(args.activation, g, args.up != NULL, args.factor);
    if (args.dx)
        store_raw((T *)args.dx + at, g.dx, i, n, vectors);
    if (args.d_up)
        store_raw((T *)args.d_up + at, g.d_up, i, n, vectors);
    store_raw(hidden, g.hidden, i, n, vectors);
}

template <typename T, int N>
static __global__ void __launch_bounds__(ELEMENTWISE_THREADS)
    activated_backward(fsdp_activated_backward_args args, bool vectors)
{
    const int64_t first = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    const int64_t step = (int64_t)gridDim.x * blockDim.x * N;
    int64_t row = (int64_t)blockIdx.y * blockDim.y + threadIdx.y;
    for (; row < args.rows; row += (int64_t)gridDim.y * blockDim.y)
        for (int64_t i = first; i < args.columns; i += step)
            compute_activated<T, N>(args, row * args.ld, row * args.columns, i, vectors);
}

/* If there are several rows, each block of threads computes eight rows of 32 groups of N elements.
 * If there is only one row, each block computes 256 groups of N elements of this row. */
extern "C" void fsdp_cuda_activated_backward(fsdp_kernel_context *context,
                                             const fsdp_activated_backward_args *given)
{
    enum {
        MOST_ROWS = 65535 /* the largest gridDim.y */
    };
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    fsdp_activated_backward_args args = *given;
    if (args.rows <= 0 || args.columns <= 0)
        return;
    if (args.ld == args.columns || args.rows == 1) {
        args.ld = args.columns *= args.rows;
        args.rows = 1;
    }
    with_type(args.dtype, [&](auto zero) {
        typedef decltype(zero) T;
        constexpr int N = vector_of<T>::N;
        const bool one_row = args.rows == 1;
        const bool vectors = is_vectorizable<T>(one_row ? 0 : args.ld, args.x, args.up, args.dx,
                                                args.d_up, args.hidden) &&
                             (one_row || args.columns % N == 0);
        const dim3 block = one_row ? dim3(ELEMENTWISE_THREADS) : dim3(32, ELEMENTWISE_THREADS / 32);
        const dim3 grid(blocks_for((args.columns + N - 1) / N, (int)block.x),
                        blocks_for(args.rows, (int)block.y, MOST_ROWS));
        CUDA_LAUNCH((activated_backward<T, N>), grid, block, 0, fsdp_cuda_stream(c), args, vectors);
    });
    fsdp_cuda_launched(c, "activated_backward");
}
