/* AdamW with moments in 8 bits and with stochastic rounding on a CUDA device: parameters, moments
 * and scales have the bits of the CPU. */
#include "src/base/dynamic_map.h"
#include "tests/cuda/parameters.h"

/* A tensor of a step. */
typedef struct tensor {
    parameter p;
    operand_pair state[2], absmax[2], grad;
    fsdp_dtype state_dtype;
    int64_t n, inner, first;
    bool stochastic;
} tensor;

enum {
    MOST_TENSORS = 6
};

static void step(conform *x, const tensor *y, size_t n, bool device)
{
    fsdp_adamw_args args[MOST_TENSORS];
    for (size_t i = 0; i < n; i++)
        args[i] = (fsdp_adamw_args){.n = y[i].n,
                                    .param = on(&y[i].p.param, device),
                                    .halves = halves_on(&y[i].p, device),
                                    .exp_avg = on(&y[i].state[0], device),
                                    .exp_avg_sq = on(&y[i].state[1], device),
                                    .state_dtype = y[i].state_dtype,
                                    .absmax1 = on(&y[i].absmax[0], device),
                                    .absmax2 = on(&y[i].absmax[1], device),
                                    .inner = y[i].inner,
                                    .grad = on(&y[i].grad, device),
                                    .copy = on(&y[i].p.copy, device),
                                    .copy_dtype = y[i].p.copy_dtype,
                                    .lr = 0.01,
                                    .beta1 = 0.9,
                                    .beta2 = 0.95,
                                    .eps = 1e-8,
                                    .weight_decay = 0.1,
                                    .decoupled = true,
                                    .step = 4,
                                    .grad_scale = 0.3f,
                                    .stochastic = y[i].stochastic,
                                    .rounding_key = 77 + i,
                                    .first = y[i].first};
    if (device)
        x->dk->adamw(x->dc, args, n, NULL);
    else
        x->k->adamw(x->c, args, n, NULL);
    memset(args, 0, sizeof args);
}

static void check_tensor(conform *x, const tensor *y)
{
    check_parameter(x, &y->p);
    check_equal(x, &y->state[0], "exp_avg");
    check_equal(x, &y->state[1], "exp_avg_sq");
    check_equal(x, &y->absmax[0], "absmax1");
    check_equal(x, &y->absmax[1], "absmax2");
}

/* Take two steps with the same tensors on the CPU and on the device. The second one reads the codes
 * that the first one has written. */
static void check_steps(conform *x, const tensor *y, size_t n)
{
    for (int k = 0; k < 2; k++) {
        step(x, y, n, false);
        step(x, y, n, true);
    }
    for (size_t i = 0; i < n; i++)
        check_tensor(x, &y[i]);
}

/* --- 8 bits --- */

/* Codes of a moment. Those of exp_avg_sq are of large values, so that no quotient overflows. */
static operand_pair codes_of(conform *x, int64_t n, int64_t skip, bool squares)
{
    const operand_pair p = output(x, FSDP_DTYPE_U8, n, skip);
    for (int64_t i = 0; i < n; i++)
        ((uint8_t *)p.host)[i] = (uint8_t)((5 + i * 37) | (squares ? 128 : 0));
    conform_send(x, p.array);
    return p;
}

/* Rows of `inner` elements. In every third row the gradient is 0, and in the first of these rows
 * the scales are 0, too, so that a block of moments becomes a block of zeros. */
static tensor make_8bit(conform *x, stored_as where, int copy, int64_t rows, int64_t inner,
                        int64_t skip)
{
    const int64_t n = rows * inner, of_row = (inner + FSDP_MAP_BLOCK - 1) / FSDP_MAP_BLOCK;
    tensor y = {.p = make_parameter(x, where, copy, n, skip),
                .state_dtype = FSDP_DTYPE_U8,
                .n = n,
                .inner = inner,
                .first = 3 * inner,
                .stochastic = copy % 2};
    y.grad = input(x, FSDP_DTYPE_F32, n, skip, 4, -2.0);
    for (int k = 0; k < 2; k++) {
        y.state[k] = codes_of(x, n, skip, k);
        y.absmax[k] = input(x, FSDP_DTYPE_F32, rows * of_row, skip, 6 + (uint64_t)k, 0.0);
    }
    for (int64_t r = 1; r < rows; r += 3) {
        memset((float *)y.grad.host + r * inner, 0, (size_t)inner * sizeof(float));
        for (int k = 0; k < 2 && r == 1; k++)
            memset((float *)y.absmax[k].host + of_row, 0, (size_t)of_row * sizeof(float));
    }
    conform_send(x, y.grad.array);
    conform_send(x, y.absmax[0].array);
    conform_send(x, y.absmax[1].array);
    return y;
}

/* One and several blocks in a row, a short last block, and more blocks than one thread block
 * updates. */
static const int64_t shapes[][2] = {{0, 256}, {1, 16}, {3, 272}, {2, 512}, {5, 1040}, {68, 256}};

TEST(adamw_in_8_bits_gives_the_bits_of_the_cpu)
{
    CONFORM_OPEN(x);
    for (int s = 0; s < 6; s++)
        for (int i = 0; i < 2 * N_STORED_AS; i++) {
            const tensor y = make_8bit(&x, (stored_as)(i % N_STORED_AS), (i + s) % 4, shapes[s][0],
                                       shapes[s][1], (s + i) % 3 == 0);
            check_steps(&x, &y, 1);
            conform_free(&x);
            CHECK_HERE();
        }
    conform_close(&x);
}

/* A row of a parameter of float32 may have any number of elements. */
TEST(rows_of_8_bits_may_begin_at_any_element)
{
    CONFORM_OPEN(x);
    const tensor y = make_8bit(&x, STORED_AS_FLOATS, 1, 4, 301, 0);
    check_steps(&x, &y, 1);
    conform_close(&x);
}

/* --- stochastic rounding --- */

static tensor make_rounded(conform *x, stored_as where, int copy, int64_t n, int64_t skip,
                           int64_t first)
{
    tensor y = {.p = make_parameter(x, where, copy, n, skip),
                .state_dtype = copy % 2 ? FSDP_DTYPE_F32 : FSDP_DTYPE_BF16,
                .n = n,
                .first = first,
                .stochastic = true};
    y.grad = input(x, FSDP_DTYPE_F32, n, skip, 4, -2.0);
    for (int k = 0; k < 2; k++)
        y.state[k] = input(x, y.state_dtype, n, skip, 2 + (uint64_t)k, k ? 0.0 : -1.0);
    return y;
}

/* The first element may be at any place of a counter of Philox. */
TEST(stochastic_rounding_has_the_random_numbers_of_the_cpu)
{
    static const int64_t counts[] = {0, 1, 3, 17, 1023, 5001};
    CONFORM_OPEN(x);
    for (int s = 0; s < 6; s++)
        for (int i = 0; i < 2 * N_STORED_AS; i++) {
            const tensor y =
                make_rounded(&x, (stored_as)(i % N_STORED_AS), (i / N_STORED_AS + s) % 3, counts[s],
                             (s + i) % 3 == 0, 8 * s + i + 3);
            check_steps(&x, &y, 1);
            conform_free(&x);
            CHECK_HERE();
        }
    conform_close(&x);
}

/* Tensors of all kinds in one call. */
TEST(narrow_and_wide_states_in_one_step_have_the_bits_of_the_cpu)
{
    CONFORM_OPEN(x);
    tensor many[MOST_TENSORS];
    for (int i = 0; i < MOST_TENSORS; i++) {
        const stored_as where = (stored_as)(i % N_STORED_AS);
        many[i] = i % 2 ? make_8bit(&x, where, i, 2 + i, 272, 0)
                        : make_rounded(&x, where, i / 2, 100 + i, 0, i);
        many[i].stochastic = i != 4;
    }
    check_steps(&x, many, MOST_TENSORS);
    conform_close(&x);
}
