/* AdamW and SGD on a CUDA device: parameters, moments and copies have the bits of the CPU. */
#include "tests/cuda/conform.h"

static const int64_t counts[] = {0, 1, 3, 17, 127, 1023, 4096, 9001};

enum {
    N_COUNTS = 8
};

/* An array that is used from element `skip` on, so that its address need not be a multiple of 16.
 * Both pointers are NULL if there is no array. */
typedef struct operand_pair {
    conform_array *array;
    void *host, *device;
} operand_pair;

static operand_pair pair_of(conform_array *a, int64_t skip)
{
    const size_t bytes = (size_t)skip * fsdp_dtype_size(a->dtype);
    return (operand_pair){a, (char *)a->host + bytes, (char *)a->device + bytes};
}

static operand_pair input(conform *x, int64_t n, int64_t skip, uint64_t seed, double low)
{
    return pair_of(conform_input(x, FSDP_DTYPE_F32, n + skip, seed, low, 1.0), skip);
}

static operand_pair output(conform *x, fsdp_dtype dtype, int64_t n, int64_t skip)
{
    return pair_of(conform_output(x, dtype, n + skip), skip);
}

/* A parameter, in an array or in halves, and its copy. */
typedef struct parameter {
    operand_pair param, hi, lo, marks, copy;
} parameter;

/* The values are random. Every third one is special: its rounding to bfloat16 is a tie, or almost
 * one, or it is denormal, or it rounds to infinity. */
static void fill_parameter(float *p, int64_t n)
{
    static const uint32_t special[] = {0x3f808000, 0x3f818000, 0x3f808001, 0x3f817fff,
                                       0x00008000, 0x80018000, 0x7f7fffff, 0x00000001};
    for (int64_t i = 0; i < n; i++)
        p[i] =
            i % 3 ? (float)(2.0 * uniform_of(9, i) - 1.0) : fsdp_f32_from_bits(special[i / 3 % 8]);
}

static parameter make_parameter(conform *x, bool in_halves, int has_copy, fsdp_dtype copy_dtype,
                                int64_t n, int64_t skip)
{
    parameter p = {.param = {NULL, NULL, NULL}};
    float *values = malloc((size_t)n * sizeof *values + 1);
    fill_parameter(values, n);
    if (in_halves) {
        p.hi = output(x, FSDP_DTYPE_BF16, n, skip);
        p.lo = output(x, FSDP_DTYPE_BF16, n, skip);
        p.marks = output(x, FSDP_DTYPE_BF16, fsdp_halves_words(n), skip);
        x->k->split(x->c, (fsdp_halves){p.hi.host, p.lo.host, p.marks.host}, values, n);
        conform_send(x, p.hi.array);
        conform_send(x, p.lo.array);
        conform_send(x, p.marks.array);
    } else {
        p.param = output(x, FSDP_DTYPE_F32, n, skip);
        memcpy(p.param.host, values, (size_t)n * sizeof *values);
        conform_send(x, p.param.array);
    }
    if (has_copy)
        p.copy = output(x, copy_dtype, n, skip);
    free(values);
    return p;
}

static fsdp_halves halves_on(const parameter *p, bool device)
{
    return device ? (fsdp_halves){p->hi.device, p->lo.device, p->marks.device}
                  : (fsdp_halves){p->hi.host, p->lo.host, p->marks.host};
}

static void check_equal(conform *x, const operand_pair *p, const char *what)
{
    fsdp_test *t = x->t;
    if (p->array)
        conform_equal(x, p->array, what);
    CHECK_HERE();
}

static void check_parameter(conform *x, const parameter *p)
{
    check_equal(x, &p->param, "param");
    check_equal(x, &p->hi, "hi");
    check_equal(x, &p->lo, "lo");
    check_equal(x, &p->marks, "marks");
    check_equal(x, &p->copy, "copy");
}

static void *on(const operand_pair *p, bool device)
{
    return device ? p->device : p->host;
}

/* --- adamw --- */

typedef struct adam_case {
    double lr, beta1, beta2, weight_decay;
    bool decoupled;
    int64_t step;
} adam_case;

/* beta1 of 0.3 takes the other branch of torch.lerp. With lr 0, special values stay. */
static const adam_case adam_cases[] = {
    {0.01, 0.9, 0.999, 0.01, true, 1},
    {0.01, 0.9, 0.999, 0.01, true, 1000000},
    {0.01, 0.3, 0.95, 0.1, false, 7},
    {0.0, 0.9, 0.999, 0.0, true, 3},
};

static void check_adam(conform *x, const adam_case *a, bool in_halves, int copy, int64_t n,
                       int64_t skip)
{
    const fsdp_dtype copy_dtype = float_dtypes[copy % 3];
    const parameter p = make_parameter(x, in_halves, copy < 3, copy_dtype, n, skip);
    const operand_pair m = input(x, n, skip, 2, -1.0), v = input(x, n, skip, 3, 0.0);
    const operand_pair grad = input(x, n, skip, 4, -2.0);
    for (int device = 0; device < 2; device++) {
        const fsdp_adamw_args args = {.n = n,
                                      .param = on(&p.param, device),
                                      .halves = halves_on(&p, device),
                                      .exp_avg = on(&m, device),
                                      .exp_avg_sq = on(&v, device),
                                      .grad = on(&grad, device),
                                      .copy = on(&p.copy, device),
                                      .copy_dtype = copy_dtype,
                                      .lr = a->lr,
                                      .beta1 = a->beta1,
                                      .beta2 = a->beta2,
                                      .eps = 1e-8,
                                      .weight_decay = a->weight_decay,
                                      .decoupled = a->decoupled,
                                      .step = a->step,
                                      .grad_scale = 0.3f};
        if (device)
            x->dk->adamw(x->dc, &args, 1, NULL);
        else
            x->k->adamw(x->c, &args, 1, NULL);
    }
    check_parameter(x, &p);
    check_equal(x, &m, "exp_avg");
    check_equal(x, &v, "exp_avg_sq");
    conform_free(x);
}

TEST(adamw_gives_the_bits_of_the_cpu)
{
    CONFORM_OPEN(x);
    for (int a = 0; a < 4; a++)
        for (int s = 0; s < N_COUNTS; s++)
            for (int i = 0; i < 8; i++) {
                const bool in_halves = i & 1;
                if ((i / 2 + s + a) % 3 == 1) /* some of the combinations */
                    continue;
                check_adam(&x, &adam_cases[a], in_halves, i / 2, counts[s], (s + i + a) % 3 == 0);
                CHECK_HERE();
            }
    conform_close(&x);
}

/* --- sgd --- */

static void check_sgd(conform *x, int kind, bool is_first, bool in_halves, int copy, int64_t n,
                      int64_t skip)
{
    const bool nesterov = kind == 2;
    const double momentum = kind ? 0.9 : 0.0;
    const fsdp_dtype copy_dtype = float_dtypes[copy % 3];
    const parameter p = make_parameter(x, in_halves, copy < 3, copy_dtype, n, skip);
    const operand_pair grad = input(x, n, skip, 4, -2.0);
    operand_pair buffer = {NULL, NULL, NULL};
    if (kind)
        buffer = is_first ? output(x, FSDP_DTYPE_F32, n, skip) : input(x, n, skip, 5, -1.0);
    for (int device = 0; device < 2; device++) {
        const fsdp_sgd_args args = {.n = n,
                                    .param = on(&p.param, device),
                                    .halves = halves_on(&p, device),
                                    .momentum_buffer = on(&buffer, device),
                                    .grad = on(&grad, device),
                                    .copy = on(&p.copy, device),
                                    .copy_dtype = copy_dtype,
                                    .lr = 0.1,
                                    .momentum = momentum,
                                    .dampening = kind == 1 ? 0.25 : 0.0,
                                    .weight_decay = 0.05,
                                    .nesterov = nesterov,
                                    .first = is_first,
                                    .grad_scale = 0.3f};
        if (device)
            x->dk->sgd(x->dc, &args, 1, NULL);
        else
            x->k->sgd(x->c, &args, 1, NULL);
    }
    check_parameter(x, &p);
    check_equal(x, &buffer, "momentum_buffer");
    conform_free(x);
}

/* Without momentum, with dampening, and Nesterov's. */
TEST(sgd_gives_the_bits_of_the_cpu)
{
    CONFORM_OPEN(x);
    for (int kind = 0; kind < 3; kind++)
        for (int s = 0; s < N_COUNTS; s++)
            for (int i = 0; i < 8; i++) {
                const bool is_first = i & 2, in_halves = i & 1;
                if ((i / 2 + s + kind) % 3 == 1) /* some of the combinations */
                    continue;
                check_sgd(&x, kind, is_first, in_halves, (i + s) % 4, counts[s],
                          (s + i / 2) % 3 == 0);
                CHECK_HERE();
            }
    conform_close(&x);
}
