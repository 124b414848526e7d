/* Activations and their derivatives on a CUDA device, compared with the CPU's. */
#include "tests/cuda/shifted.h"

static const fsdp_activation activations[] = {
    FSDP_ACTIVATION_NONE,     FSDP_ACTIVATION_RELU, FSDP_ACTIVATION_GELU_TANH,
    FSDP_ACTIVATION_GELU_ERF, FSDP_ACTIVATION_SILU, FSDP_ACTIVATION_TANH,
};
enum {
    N_ACTIVATIONS = sizeof activations / sizeof *activations
};

typedef enum operation {
    ACTIVATION,
    ACTIVATION_BACKWARD,
    GATED,
    GATED_BACKWARD,
    OPERATIONS
} operation;

static const char *const names[OPERATIONS] = {"activation", "activation_backward", "gated",
                                              "gated_backward"};

/* The operands in the order dy, x or gate, up; two results. */
static void run(const fsdp_kernels *k, fsdp_kernel_context *c, operation op, fsdp_activation a,
                void *const out[2], const void *const in[3], fsdp_dtype dtype, int64_t n)
{
    if (op == ACTIVATION)
        k->activation(c, a, out[0], in[1], dtype, n);
    else if (op == ACTIVATION_BACKWARD)
        k->activation_backward(c, a, out[0], in[0], in[1], dtype, n);
    else if (op == GATED)
        k->gated(c, a, out[0], in[1], in[2], dtype, n);
    else
        k->gated_backward(c, a, out[0], out[1], in[0], in[1], in[2], dtype, n);
}

/* None and relu use one or two products per result in the CPU's order, so the bits are equal. The
 * functions of the other activations differ by a few units in the last place of float32, and their
 * terms can cancel: the errors relative to the largest terms, which are up to 4 for the inputs of
 * these tests, are up to 2^-21, and up to 2^-18 for bfloat16 and float16 (Note [Narrow activations]
 * in activation.cu). The products multiply them by up to 16. A value near the middle of two
 * bfloat16 or float16 values may be rounded to either. */
static void compare(conform *x, conform_array *a, fsdp_activation activation, const char *name)
{
    if (activation == FSDP_ACTIVATION_NONE || activation == FSDP_ACTIVATION_RELU)
        conform_near(x, a, 0.0, 0.0, name);
    else if (a->dtype == FSDP_DTYPE_F32)
        conform_near(x, a, 0x1p-21, 0x1p-19 + 2.0 * floor_of(a->dtype), name);
    else
        conform_near(x, a, 2.0 * rounding_of(a->dtype), 0x1p-16 + 2.0 * floor_of(a->dtype), name);
}

/* Where the results are: apart, the first one over dy or gate, or both over other inputs. */
typedef enum place {
    APART,
    OVER_INPUT,
    OVER_OTHERS,
    PLACES
} place;

static void check(conform *x, operation op, fsdp_activation a, fsdp_dtype dtype, int64_t n,
                  int64_t shift, place where)
{
    shifted in[3], out[2];
    void *host_out[2], *device_out[2];
    const void *host_in[3], *device_in[3];
    for (int i = 0; i < 3; i++) {
        in[i] = shifted_input(x, dtype, n, shift, (uint64_t)i, -4.0, 4.0);
        host_in[i] = in[i].host;
        device_in[i] = in[i].device;
    }
    for (int i = 0; i < 2; i++) {
        out[i] = where == OVER_INPUT && i == 0 ? in[op == ACTIVATION_BACKWARD ? 0 : 1]
                 : where == OVER_OTHERS        ? in[op == GATED_BACKWARD ? 2 * i : 2 - 2 * i]
                                               : shifted_output(x, dtype, n, shift);
        host_out[i] = out[i].host;
        device_out[i] = out[i].device;
    }
    run(x->k, x->c, op, a, host_out, host_in, dtype, n);
    run(x->dk, x->dc, op, a, device_out, device_in, dtype, n);
    for (int i = 0; i < (op == GATED_BACKWARD ? 2 : 1); i++)
        compare(x, out[i].array, a, names[op]);
    conform_free(x);
}

/* Sizes around the groups of 16 bytes and the blocks of 256 threads. */
TEST(activations_are_those_of_the_cpu)
{
    static const int64_t counts[] = {0, 1, 7, 8, 9, 2049};
    CONFORM_OPEN(x);
    for (operation op = ACTIVATION; op < OPERATIONS; op++)
        for (int a = 0; a < N_ACTIVATIONS; a++)
            for (int d = 0; d < 3; d++)
                for (int n = 0; n < 6; n++) {
                    check(&x, op, activations[a], float_dtypes[d], counts[n], (a + n) % 2,
                          (place)((a + n + d) % PLACES));
                    CHECK_HERE();
                }
    conform_close(&x);
}

/* Large numbers, infinity and NaN: the slopes are 0 and 1 far from 0, and NaN stays NaN. */
TEST(activations_of_extreme_values_are_those_of_the_cpu)
{
    static const double values[] = {(double)NAN,
                                    (double)INFINITY,
                                    -(double)INFINITY,
                                    3e38,
                                    -3e38,
                                    90.0,
                                    -90.0,
                                    20.0,
                                    -20.0,
                                    0.0,
                                    -0.0,
                                    1e-39,
                                    -1e-39};
    enum {
        N = sizeof values / sizeof *values
    };
    CONFORM_OPEN(x);
    for (operation op = ACTIVATION; op < OPERATIONS; op++)
        for (int a = 0; a < N_ACTIVATIONS; a++) {
            conform_array *in = conform_output(&x, FSDP_DTYPE_F32, N);
            conform_array *ones = conform_output(&x, FSDP_DTYPE_F32, N);
            conform_array *out[2] = {conform_output(&x, FSDP_DTYPE_F32, N),
                                     conform_output(&x, FSDP_DTYPE_F32, N)};
            for (int i = 0; i < N; i++) {
                set_value(in->host, FSDP_DTYPE_F32, i, values[i]);
                set_value(ones->host, FSDP_DTYPE_F32, i, 1.0);
            }
            conform_send(&x, in);
            conform_send(&x, ones);
            run(x.k, x.c, op, activations[a], (void *[]){out[0]->host, out[1]->host},
                (const void *[]){ones->host, in->host, ones->host}, FSDP_DTYPE_F32, N);
            run(x.dk, x.dc, op, activations[a], (void *[]){out[0]->device, out[1]->device},
                (const void *[]){ones->device, in->device, ones->device}, FSDP_DTYPE_F32, N);
            compare(&x, out[0], activations[a], names[op]);
            compare(&x, out[1], activations[a], names[op]);
            conform_free(&x);
            CHECK_HERE();
        }
    conform_close(&x);
}

/* --- activated_backward --- */

typedef struct shape {
    int64_t rows, columns, ld;
    int64_t shift; /* elements before the first one of each array */
} shape;

enum {
    HAS_UP = 1,
    HAS_DX = 2,
    HAS_D_UP = 4, /* only with HAS_UP */
    IN_PLACE = 8, /* dx is x, and d_up is up */
    CHOICES = 16
};

static void check_activated(conform *x, fsdp_activation a, fsdp_dtype dtype, const shape *s,
                            int choice)
{
    const int64_t n = s->rows ? (s->rows - 1) * s->ld + s->columns : 0;
    shifted in = shifted_input(x, dtype, n, s->shift, 1, -4.0, 4.0);
    shifted up = shifted_input(x, dtype, n, s->shift, 2, -4.0, 4.0);
    shifted hidden = shifted_input(x, dtype, s->rows * s->columns, s->shift, 3, -4.0, 4.0);
    shifted dx = choice & IN_PLACE ? in : shifted_output(x, dtype, n, s->shift);
    shifted d_up = choice & IN_PLACE ? up : shifted_output(x, dtype, n, s->shift);
    const fsdp_activated_backward_args args = {.activation = a,
                                               .factor = 1.25f,
                                               .dtype = dtype,
                                               .rows = s->rows,
                                               .columns = s->columns,
                                               .ld = s->ld};
    fsdp_activated_backward_args host = args, device = args;
    host.x = in.host, device.x = in.device;
    host.hidden = hidden.host, device.hidden = hidden.device;
    if (choice & HAS_UP)
        host.up = up.host, device.up = up.device;
    if (choice & HAS_DX)
        host.dx = dx.host, device.dx = dx.device;
    if (choice & HAS_D_UP)
        host.d_up = d_up.host, device.d_up = d_up.device;
    x->k->activated_backward(x->c, &host);
    x->dk->activated_backward(x->dc, &device);
    compare(x, hidden.array, a, "activated_backward, hidden");
    compare(x, dx.array, a, "activated_backward, dx");
    compare(x, d_up.array, a, "activated_backward, d_up");
    conform_free(x);
}

/* Rows next to each other and with gaps, which must not be written; all choices of outputs. */
TEST(activated_backward_is_that_of_the_cpu)
{
    static const shape shapes[] = {{0, 5, 5, 0},     {3, 0, 8, 0},     {1, 1, 1, 0},
                                   {9, 16, 16, 0},   {9, 24, 40, 0},   {17, 7, 9, 0},
                                   {5, 520, 528, 0}, {4, 520, 528, 1}, {3, 700, 700, 1}};
    CONFORM_OPEN(x);
    int turn = 0;
    for (int choice = 0; choice < CHOICES; choice++)
        for (int s = 0; s < 9; s++) {
            if ((choice & HAS_D_UP) && !(choice & HAS_UP))
                continue;
            check_activated(&x, activations[turn % N_ACTIVATIONS], float_dtypes[turn / 6 % 3],
                            &shapes[s], choice);
            CHECK_HERE();
            turn++;
        }
    conform_close(&x);
}
