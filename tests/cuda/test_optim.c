/* AdamW and SGD on a CUDA device: parameters, moments and copies have the bits of the CPU. */
#include "tests/cuda/parameters.h"

static const int64_t counts[] = {0, 1, 3, 17, 127, 1023, 4096, 9001};

enum {
    N_COUNTS = 8
};

/* --- tensors --- */

enum {
    MOST_TENSORS = 20,
    MOST_ELEMENTS = 120 /* enough for a large table */
};

/* A tensor of a step, in the fields of both optimizers. */
typedef struct tensor {
    parameter p;
    operand_pair state[2], grad;
    fsdp_dtype state_dtype; /* AdamW's */
    int64_t n;
    double lr;
} tensor;

/* SGD: `states` is 0 or 1. With 2 states, some tensors have them in bfloat16. */
static tensor make_tensor(conform *x, stored_as where, int copy, int states, int64_t n,
                          int64_t skip)
{
    tensor y = {.p = make_parameter(x, where, copy, n, skip), .n = n, .lr = 0.01};
    y.state_dtype = states > 1 && (n + copy) % 2 ? FSDP_DTYPE_BF16 : FSDP_DTYPE_F32;
    y.grad = input(x, FSDP_DTYPE_F32, n, skip, 4, -2.0);
    if (states > 0)
        y.state[0] = input(x, y.state_dtype, n, skip, 2, -1.0);
    if (states > 1)
        y.state[1] = input(x, y.state_dtype, n, skip, 3, 0.0);
    return y;
}

static void check_tensor(conform *x, const tensor *y)
{
    check_parameter(x, &y->p);
    check_equal(x, &y->state[0], "first state");
    check_equal(x, &y->state[1], "second state");
}

typedef struct adam_case {
    double lr, beta1, beta2, weight_decay;
    bool decoupled;
    int64_t step;
} adam_case;

typedef struct sgd_case {
    double momentum, dampening;
    bool nesterov, is_first;
} sgd_case;

/* Steps of n tensors on the CPU or on the device. The factor of `clip`, in memory of the host,
 * replaces that of the arguments. @{ */
static void adam_step(conform *x, const adam_case *a, const tensor *y, size_t n, bool device,
                      const fsdp_clip_result *clip)
{
    fsdp_adamw_args args[MOST_TENSORS];
    for (size_t i = 0; i < n; i++)
        args[i] = (fsdp_adamw_args){.n = y[i].n,
                                    .param = on(&y[i].p.param, device),
                                    .halves = halves_on(&y[i].p, device),
                                    .exp_avg = on(&y[i].state[0], device),
                                    .exp_avg_sq = on(&y[i].state[1], device),
                                    .state_dtype = y[i].state_dtype,
                                    .grad = on(&y[i].grad, device),
                                    .copy = on(&y[i].p.copy, device),
                                    .copy_dtype = y[i].p.copy_dtype,
                                    .lr = a->lr * y[i].lr,
                                    .beta1 = a->beta1,
                                    .beta2 = a->beta2,
                                    .eps = 1e-8,
                                    .weight_decay = a->weight_decay,
                                    .decoupled = a->decoupled,
                                    .step = a->step,
                                    .grad_scale = 0.3f};
    if (device)
        x->dk->adamw(x->dc, args, n, clip);
    else
        x->k->adamw(x->c, args, n, clip);
    memset(args, 0, sizeof args); /* the call has copied them */
}

static void sgd_step(conform *x, const sgd_case *s, const tensor *y, size_t n, bool device,
                     const fsdp_clip_result *clip)
{
    fsdp_sgd_args args[MOST_TENSORS];
    for (size_t i = 0; i < n; i++)
        args[i] = (fsdp_sgd_args){.n = y[i].n,
                                  .param = on(&y[i].p.param, device),
                                  .halves = halves_on(&y[i].p, device),
                                  .momentum_buffer = on(&y[i].state[0], device),
                                  .grad = on(&y[i].grad, device),
                                  .copy = on(&y[i].p.copy, device),
                                  .copy_dtype = y[i].p.copy_dtype,
                                  .lr = 10.0 * y[i].lr,
                                  .momentum = s->momentum,
                                  .dampening = s->dampening,
                                  .weight_decay = 0.05,
                                  .nesterov = s->nesterov,
                                  .first = s->is_first,
                                  .grad_scale = 0.3f};
    if (device)
        x->dk->sgd(x->dc, args, n, clip);
    else
        x->k->sgd(x->c, args, n, clip);
    memset(args, 0, sizeof args);
}
/* @} */

/* --- one tensor --- */

/* beta1 of 0.3 takes the other branch of torch.lerp. With lr 0, special values stay. */
static const adam_case adam_cases[] = {
    {1.0, 0.9, 0.999, 0.01, true, 1},
    {1.0, 0.9, 0.999, 0.01, true, 1000000},
    {1.0, 0.3, 0.95, 0.1, false, 7},
    {0.0, 0.9, 0.999, 0.0, true, 3},
};

TEST(adamw_gives_the_bits_of_the_cpu)
{
    CONFORM_OPEN(x);
    for (int a = 0; a < 4; a++)
        for (int s = 0; s < N_COUNTS; s++)
            for (int i = 0; i < 4 * N_STORED_AS; i++) {
                if ((i / N_STORED_AS + s + a) % 3 == 1) /* some of the combinations */
                    continue;
                const tensor y = make_tensor(&x, (stored_as)(i % N_STORED_AS), i / N_STORED_AS, 2,
                                             counts[s], (s + i + a) % 3 == 0);
                adam_step(&x, &adam_cases[a], &y, 1, false, NULL);
                adam_step(&x, &adam_cases[a], &y, 1, true, NULL);
                check_tensor(&x, &y);
                conform_free(&x);
                CHECK_HERE();
            }
    conform_close(&x);
}

/* Without momentum, with dampening, and Nesterov's. */
static const sgd_case sgd_cases[] = {
    {0.0, 0.0, false, false}, {0.0, 0.0, false, true}, {0.9, 0.25, false, false},
    {0.9, 0.25, false, true}, {0.9, 0.0, true, false}, {0.9, 0.0, true, true},
};

TEST(sgd_gives_the_bits_of_the_cpu)
{
    CONFORM_OPEN(x);
    for (int c = 0; c < 6; c++)
        for (int s = 0; s < N_COUNTS; s++)
            for (int i = 0; i < N_STORED_AS; i++) {
                const bool has_momentum = sgd_cases[c].momentum != 0.0;
                tensor y = make_tensor(&x, (stored_as)i, (i + s) % 4, has_momentum, counts[s],
                                       (s + i + c) % 3 == 0);
                if (has_momentum && sgd_cases[c].is_first) /* undefined: NaN */
                    y.state[0] = output(&x, FSDP_DTYPE_F32, counts[s], 0);
                sgd_step(&x, &sgd_cases[c], &y, 1, false, NULL);
                sgd_step(&x, &sgd_cases[c], &y, 1, true, NULL);
                check_tensor(&x, &y);
                conform_free(&x);
                CHECK_HERE();
            }
    conform_close(&x);
}

/* --- many tensors --- */

static void make_many(conform *x, tensor *many, int n, int states, int shift)
{
    for (int i = 0; i < n; i++) {
        const int64_t count = counts[(i + shift) % N_COUNTS];
        many[i] = make_tensor(x, (stored_as)((i / 2 + shift) % N_STORED_AS), i % 4, states, count,
                              (i + shift) % 5 == 0);
        many[i].lr = 0.01 * (i % 3 + 1);
    }
}

/* Tensors of all kinds in one call. */
TEST(many_tensors_of_all_kinds_have_the_bits_of_the_cpu)
{
    enum {
        N = 18
    };
    CONFORM_OPEN(x);
    for (int shift = 0; shift < 4; shift++) {
        tensor many[N];
        make_many(&x, many, N, shift % 2 ? 2 : 1, shift);
        for (int device = 0; device < 2; device++)
            if (shift % 2)
                adam_step(&x, &adam_cases[0], many, N, device, NULL);
            else
                sgd_step(&x, &sgd_cases[2], many, N, device, NULL);
        for (int i = 0; i < N; i++)
            check_tensor(&x, &many[i]);
        conform_free(&x);
        CHECK_HERE();
    }
    conform_close(&x);
}

/* More learning rates than one launch has room for. */
TEST(each_tensor_may_have_other_scalars)
{
    CONFORM_OPEN(x);
    tensor many[MOST_TENSORS];
    for (int i = 0; i < MOST_TENSORS; i++) {
        many[i] = make_tensor(&x, STORED_AS_FLOATS, 3, 2, 100 + i, 0);
        many[i].lr = 0.001 * (i + 1);
    }
    adam_step(&x, &adam_cases[0], many, MOST_TENSORS, false, NULL);
    adam_step(&x, &adam_cases[0], many, MOST_TENSORS, true, NULL);
    for (int i = 0; i < MOST_TENSORS; i++)
        check_tensor(&x, &many[i]);
    conform_close(&x);
}

/* Puts a result where kernels can read it. */
static const fsdp_clip_result *send_clip(conform *x, float scale, bool refused)
{
    const fsdp_clip_result result = {.norm = 1.0, .scale = scale, .refused = refused};
    conform_array *a = conform_output(x, FSDP_DTYPE_F64, sizeof result / sizeof(double));
    memcpy(a->host, &result, sizeof result);
    conform_send(x, a);
    return a->device;
}

TEST(the_factor_is_read_on_the_device)
{
    const fsdp_clip_result clip = {.scale = 0.7f};
    CONFORM_OPEN(x);
    for (int adam = 0; adam < 2; adam++) {
        tensor many[6];
        make_many(&x, many, 6, adam ? 2 : 1, 3);
        const fsdp_clip_result *refused = send_clip(&x, 0.7f, true);
        const fsdp_clip_result *accepted = send_clip(&x, 0.7f, false);
        if (adam) {
            adam_step(&x, &adam_cases[0], many, 6, true, refused);
            for (int i = 0; i < 6; i++)
                check_tensor(&x, &many[i]); /* nothing has changed yet */
            adam_step(&x, &adam_cases[0], many, 6, false, &clip);
            adam_step(&x, &adam_cases[0], many, 6, true, accepted);
        } else {
            sgd_step(&x, &sgd_cases[2], many, 6, true, refused);
            for (int i = 0; i < 6; i++)
                check_tensor(&x, &many[i]);
            sgd_step(&x, &sgd_cases[2], many, 6, false, &clip);
            sgd_step(&x, &sgd_cases[2], many, 6, true, accepted);
        }
        for (int i = 0; i < 6; i++)
            check_tensor(&x, &many[i]);
        conform_free(&x);
        CHECK_HERE();
    }
    conform_close(&x);
}

/* Declared in src/kernels/cuda/tables.h, which a build without CUDA cannot include. It is NULL in
 * such a build. */
__attribute__((weak)) int64_t fsdp_cuda_table_copies(fsdp_kernel_context *context);

/* The table is copied only if it has changed, although the scalars change in each step. */
TEST(tables_stay_on_the_device)
{
    CONFORM_OPEN(x);
    tensor many[MOST_TENSORS];
    int64_t copies = fsdp_cuda_table_copies(x.dc);
    for (int i = 0; i < MOST_TENSORS; i++)
        many[i] = make_tensor(&x, STORED_AS_FLOATS, 3, 1, counts[1 + i % (N_COUNTS - 1)], 0);
    for (int step = 0; step < 6; step++) {
        for (int i = 0; i < MOST_TENSORS; i++)
            many[i].lr = 0.01 * (step + 1);
        if (step == 3) { /* other addresses */
            const tensor other = many[1];
            many[1] = many[2];
            many[2] = other;
        }
        const size_t n = step < 5 ? MOST_TENSORS : MOST_TENSORS - 1;
        sgd_step(&x, &sgd_cases[2], many, n, false, NULL);
        sgd_step(&x, &sgd_cases[2], many, n, true, NULL);
        copies += step == 0 || step == 3 || step == 5;
        ASSERT_INT(fsdp_cuda_table_copies(x.dc), copies);
    }
    for (int i = 0; i < MOST_TENSORS; i++)
        check_tensor(&x, &many[i]);
    conform_close(&x);
}

/* A step needs a table for each layout of tensors, and for each of two calls. All of them stay. */
TEST(tables_of_several_layouts_and_calls_stay_on_the_device)
{
    enum {
        N = 12,
        HALF = N / 2
    };
    CONFORM_OPEN(x);
    tensor many[N];
    int64_t before = 0;
    for (int i = 0; i < N; i++)
        many[i] =
            make_tensor(&x, (stored_as)(i % N_STORED_AS), 1 + i % 3, 1, counts[3 + i % 5], i % 2);
    for (int step = 0; step < 5; step++) {
        if (step == 1)
            before = fsdp_cuda_table_copies(x.dc);
        for (int half = 0; half < 2; half++) {
            sgd_step(&x, &sgd_cases[2], many + half * HALF, HALF, false, NULL);
            sgd_step(&x, &sgd_cases[2], many + half * HALF, HALF, true, NULL);
        }
    }
    ASSERT(before > 4); /* two tables for each call at the least */
    ASSERT_INT(fsdp_cuda_table_copies(x.dc), before);
    for (int i = 0; i < N; i++)
        check_tensor(&x, &many[i]);
    conform_close(&x);
}

/* SGD of `n` elements of *one from element `first` on, as tensors of one element each, in one call
 * on the CPU and in one on the device. */
static void step_elements(conform *x, const tensor *one, int64_t first, size_t n)
{
    fsdp_sgd_args args[MOST_ELEMENTS];
    for (int device = 0; device < 2; device++) {
        for (size_t i = 0; i < n; i++) {
            const int64_t at = (first + (int64_t)i) % one->n;
            args[i] = (fsdp_sgd_args){.n = 1,
                                      .param = (float *)on(&one->p.param, device) + at,
                                      .grad = (float *)on(&one->grad, device) + at,
                                      .lr = 0.1,
                                      .grad_scale = 1.0f};
        }
        if (device)
            x->dk->sgd(x->dc, args, n, NULL);
        else
            x->k->sgd(x->c, args, n, NULL);
    }
}

/* An optimizer that calls the kernel for each of its parameters: almost all of the tables stay. */
TEST(tables_of_many_calls_stay_on_the_device)
{
    enum {
        N = 300
    };
    CONFORM_OPEN(x);
    const tensor one = make_tensor(&x, STORED_AS_FLOATS, 3, 0, N, 0);
    const int64_t before = fsdp_cuda_table_copies(x.dc);
    for (int step = 0; step < 3; step++)
        for (int i = 0; i < N; i++)
            step_elements(&x, &one, i, 1);
    const int64_t copies = fsdp_cuda_table_copies(x.dc) - before;
    ASSERT(copies >= N && copies < N + N / 4);
    check_tensor(&x, &one);
    conform_close(&x);
}

/* More large tables in turn than the device keeps: each is copied again, and has the right tensors.
 * The elements have two layouts, since every fourth is aligned. */
TEST(large_tables_replace_each_other)
{
    enum {
        TABLES = 20,
        STEPS = 3
    };
    CONFORM_OPEN(x);
    const tensor one = make_tensor(&x, STORED_AS_FLOATS, 3, 0, MOST_ELEMENTS, 0);
    const int64_t before = fsdp_cuda_table_copies(x.dc);
    for (int step = 0; step < STEPS; step++)
        for (int i = 0; i < TABLES; i++)
            step_elements(&x, &one, i, MOST_ELEMENTS);
    ASSERT_INT(fsdp_cuda_table_copies(x.dc) - before, STEPS * TABLES * 2);
    check_tensor(&x, &one);
    conform_close(&x);
}

/* A table of more than one piece, and of more memory than it has at first. */
TEST(a_table_grows)
{
    enum {
        N = 3000
    };
    CONFORM_OPEN(x);
    tensor one = make_tensor(&x, STORED_AS_FLOATS, 3, 0, N, 0);
    fsdp_sgd_args *args = calloc(N, sizeof *args);
    for (int device = 0; device < 2; device++) {
        for (int i = 0; i < N; i++)
            args[i] = (fsdp_sgd_args){.n = 1,
                                      .param = (float *)on(&one.p.param, device) + i,
                                      .grad = (float *)on(&one.grad, device) + i,
                                      .lr = 0.1,
                                      .grad_scale = 0.5f};
        if (device)
            x.dk->sgd(x.dc, args, N, NULL);
        else
            x.k->sgd(x.c, args, N, NULL);
    }
    free(args);
    check_tensor(&x, &one);
    conform_close(&x);
}
