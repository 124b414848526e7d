/* Schedule-Free AdamW on a CUDA device: steps and switches between training and evaluation have the
 * bits of the CPU. */
#include "tests/cuda/parameters.h"

typedef struct tensor {
    parameter p;
    operand_pair z, exp_avg_sq, grad, kept;
    int64_t n;
} tensor;

/* What a call does. */
typedef enum action {
    FIRST_STEP,
    STEP,
    SWITCH, /* without a copy of the old values */
    SWITCH_AND_KEEP,
    RESTORE,
    N_ACTIONS
} action;

enum {
    MOST_TENSORS = 18 /* more than one launch has sets of scalars for */
};

static tensor make_tensor(conform *x, stored_as where, int copy, int64_t n, int64_t skip,
                          action what)
{
    tensor y = {.p = make_parameter(x, where, copy, n, skip), .n = n};
    /* In the first step z has undefined values: NaN. */
    y.z = what == FIRST_STEP ? output(x, FSDP_DTYPE_F32, n, skip)
                             : input(x, FSDP_DTYPE_F32, n, skip, 2, -1.0);
    y.exp_avg_sq = input(x, FSDP_DTYPE_F32, n, skip, 3, 0.0);
    if (what <= STEP)
        y.grad = input(x, FSDP_DTYPE_F32, n, skip, 4, -2.0);
    if (what == RESTORE)
        y.kept = input(x, FSDP_DTYPE_F32, n, skip, 5, -1.0);
    else if (what == SWITCH_AND_KEEP)
        y.kept = output(x, FSDP_DTYPE_F32, n, skip);
    return y;
}

static void call(conform *x, const tensor *y, size_t n, action what, double average, bool device)
{
    fsdp_schedule_free_args args[MOST_TENSORS];
    for (size_t i = 0; i < n; i++)
        args[i] = (fsdp_schedule_free_args){.n = y[i].n,
                                            .param = on(&y[i].p.param, device),
                                            .halves = halves_on(&y[i].p, device),
                                            .copy = on(&y[i].p.copy, device),
                                            .copy_dtype = y[i].p.copy_dtype,
                                            .z = on(&y[i].z, device),
                                            .exp_avg_sq = on(&y[i].exp_avg_sq, device),
                                            .grad = on(&y[i].grad, device),
                                            .kept = on(&y[i].kept, device),
                                            .lr = 0.01 + 0.001 * (double)i,
                                            .beta1 = 0.9,
                                            .beta2 = 0.99,
                                            .eps = 1e-8,
                                            .weight_decay = 0.1,
                                            .average = average,
                                            .step = 3,
                                            .first = what == FIRST_STEP,
                                            .restores = what == RESTORE,
                                            .grad_scale = 0.3f};
    if (device)
        x->dk->schedule_free(x->dc, args, n, NULL);
    else
        x->k->schedule_free(x->c, args, n, NULL);
    memset(args, 0, sizeof args);
}

static void check_tensor(conform *x, const tensor *y)
{
    check_parameter(x, &y->p);
    check_equal(x, &y->z, "z");
    check_equal(x, &y->exp_avg_sq, "exp_avg_sq");
    check_equal(x, &y->kept, "kept");
}

TEST(schedule_free_gives_the_bits_of_the_cpu)
{
    static const int64_t counts[] = {0, 1, 3, 17, 1023, 9001};
    /* The averages of 0.3 and -0.11 take the other branch of torch.lerp. */
    static const double averages[] = {1.0, 0.3, -0.11, 0.8};
    CONFORM_OPEN(x);
    for (int what = 0; what < N_ACTIONS; what++)
        for (int s = 0; s < 6; s++)
            for (int i = 0; i < N_STORED_AS; i++) {
                const tensor y = make_tensor(&x, (stored_as)i, (i + s + what) % 4, counts[s],
                                             (s + i + what) % 3 == 0, (action)what);
                const double average = averages[(what + s + i) % 4];
                call(&x, &y, 1, (action)what, average, false);
                call(&x, &y, 1, (action)what, average, true);
                check_tensor(&x, &y);
                conform_free(&x);
                CHECK_HERE();
            }
    conform_close(&x);
}

TEST(many_tensors_have_the_bits_of_the_cpu)
{
    CONFORM_OPEN(x);
    tensor many[MOST_TENSORS];
    for (int i = 0; i < MOST_TENSORS; i++)
        many[i] = make_tensor(&x, STORED_AS_FLOATS, 3, 100 + i, 0, STEP);
    call(&x, many, MOST_TENSORS, STEP, 0.3, false);
    call(&x, many, MOST_TENSORS, STEP, 0.3, true);
    for (int i = 0; i < MOST_TENSORS; i++)
        check_tensor(&x, &many[i]);
    conform_close(&x);
}
