/* Note [Halves] in src/base/halves.h: every float32 is restored exactly from its halves, and the
 * upper half is what a cast gives. AdamW and SGD give the same bits through halves as in
 * float32. */
#include "src/base/assert.h"
#include "src/base/halves.h"
#include "tests/kernels/operands.h"

enum {
    /* All values with one upper half are tested at a time. Sanitizers test only some of the upper
     * halves, including the last one. */
    PART = 1 << 16,
    PARTS = 1 << 16,
    STRIDE = UNDER_SANITIZER ? 4369 : 1 /* divides PARTS - 1 */
};

static fsdp_halves halves_operand(operands *o, int64_t n)
{
    return (fsdp_halves){operand(o, FSDP_DTYPE_BF16, n), operand(o, FSDP_DTYPE_BF16, n),
                         operand(o, FSDP_DTYPE_BF16, fsdp_halves_words(n))};
}

static bool halves_are_equal(fsdp_halves a, fsdp_halves b, int64_t n)
{
    const size_t bytes = (size_t)n * sizeof *a.hi;
    return memcmp(a.hi, b.hi, bytes) == 0 && memcmp(a.lo, b.lo, bytes) == 0 &&
           memcmp(a.marks, b.marks, (size_t)fsdp_halves_words(n) * sizeof *a.marks) == 0;
}

/* Splits and joins value by value. Returns whether all were restored and all upper halves equal a
 * cast. */
static bool scalar_is_exact(const float *x, fsdp_halves h, int64_t n)
{
    bool exact = true;
    for (int64_t i = 0; i < n; i++) {
        bool mark;
        if (i % FSDP_HALVES_WORD == 0)
            h.marks[i / FSDP_HALVES_WORD] = 0;
        fsdp_split_half(x[i], &h.hi[i], &h.lo[i], &mark);
        h.marks[i / FSDP_HALVES_WORD] |= (uint16_t)((unsigned)mark << i % FSDP_HALVES_WORD);
        exact &= h.hi[i] == fsdp_bf16_from_f32(x[i]);
        exact &=
            fsdp_bits_from_f32(fsdp_join_half(h.hi[i], h.lo[i], mark)) == fsdp_bits_from_f32(x[i]);
    }
    return exact;
}

/* With the first variant, the widest ISA. */
TEST(every_float32_comes_back)
{
    variants v = variants_open(t);
    operands o = {.n = 0};
    CHECK_HERE();
    const variant *at = &v.at[0];
    float *x = operand(&o, FSDP_DTYPE_F32, PART), *back = operand(&o, FSDP_DTYPE_F32, PART);
    const fsdp_halves halves = halves_operand(&o, PART);
    uint16_t *cast = operand(&o, FSDP_DTYPE_BF16, PART);
    for (uint32_t part = 0; part < PARTS; part += STRIDE) {
        for (uint32_t i = 0; i < PART; i++)
            x[i] = fsdp_f32_from_bits(part << 16 | i);
        at->k->split(at->c, halves, x, PART);
        at->k->join(at->c, back, halves, PART);
        ASSERT(memcmp(back, x, PART * sizeof *x) == 0);
        at->k->cast(at->c, cast, FSDP_DTYPE_BF16, x, FSDP_DTYPE_F32, PART);
        ASSERT(memcmp(cast, halves.hi, PART * sizeof *cast) == 0);
    }
    ASSERT(operands_close(&o));
    variants_close(&v);
}

/* Every upper half, with lower halves on both sides of every bound that they are compared with. */
TEST(every_isa_is_the_scalar_form)
{
    static const uint16_t lows[FSDP_HALVES_WORD] = {0,      1,      2,      0x3fff, 0x4000, 0x5555,
                                                    0x7ffe, 0x7fff, 0x8000, 0x8001, 0x8002, 0xaaaa,
                                                    0xbfff, 0xc000, 0xfffe, 0xffff};
    const int64_t n = (int64_t)PARTS * FSDP_HALVES_WORD;
    variants v = variants_open(t);
    operands o = {.n = 0};
    CHECK_HERE();
    float *x = operand(&o, FSDP_DTYPE_F32, n), *back = operand(&o, FSDP_DTYPE_F32, n);
    const fsdp_halves want = halves_operand(&o, n), got = halves_operand(&o, n);
    for (int64_t i = 0; i < n; i++)
        x[i] =
            fsdp_f32_from_bits((uint32_t)(i / FSDP_HALVES_WORD) << 16 | lows[i % FSDP_HALVES_WORD]);
    ASSERT(scalar_is_exact(x, want, n));
    for (int j = 0; j < v.n; j++) {
        v.at[j].k->split(v.at[j].c, got, x, n);
        ASSERT(halves_are_equal(got, want, n));
        v.at[j].k->join(v.at[j].c, back, got, n);
        ASSERT(memcmp(back, x, (size_t)n * sizeof *x) == 0);
    }
    ASSERT(operands_close(&o));
    variants_close(&v);
}

/* Values for which marks and rounding differ, in an order that differs from word to word. */
static void fill_hard(float *x, int64_t n)
{
    static const uint32_t hard[] = {0x00018000, 0x00008000, 0x7f7f8000, 0xff7f8000, 0x7f800001,
                                    0x7fc00001, 0xffbfffff, 0x3f818000, 0x3f808000, 0x3f808001,
                                    0x80000000, 0x80007fff, 0x7f800000};
    for (int64_t i = 0; i < n; i++)
        x[i] = fsdp_f32_from_bits(hard[(size_t)(i + i / 7) % FSDP_LENGTH(hard)]);
}

TEST(lengths_that_end_within_a_word)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (size_t s = 0; s < FSDP_LENGTH(sizes); s++) {
        const int64_t n = sizes[s];
        operands o = {.n = 0};
        float *x = operand(&o, FSDP_DTYPE_F32, n), *back = operand(&o, FSDP_DTYPE_F32, n);
        const fsdp_halves want = halves_operand(&o, n), got = halves_operand(&o, n);
        fill_hard(x, n);
        ASSERT(scalar_is_exact(x, want, n));
        for (int j = 0; j < v.n; j++) {
            v.at[j].k->split(v.at[j].c, got, x, n);
            ASSERT(halves_are_equal(got, want, n));
            v.at[j].k->join(v.at[j].c, back, got, n);
            ASSERT(memcmp(back, x, (size_t)n * sizeof *x) == 0);
        }
        ASSERT(operands_close(&o));
    }
    variants_close(&v);
}

/* --- optimizers --- */

typedef struct shard {
    float *param, *state[2];
    const float *grad;
    fsdp_halves halves;
} shard;

typedef void take_step(const variant *v, const shard *s, bool in_halves, int64_t n);

static void take_adamw(const variant *v, const shard *s, bool in_halves, int64_t n)
{
    v->k->adamw(v->c,
                &(fsdp_adamw_args){.n = n,
                                   .param = in_halves ? NULL : s->param,
                                   .halves = s->halves,
                                   .exp_avg = s->state[0],
                                   .exp_avg_sq = s->state[1],
                                   .grad = s->grad,
                                   .lr = 0.01,
                                   .beta1 = 0.9,
                                   .beta2 = 0.999,
                                   .eps = 1e-8,
                                   .weight_decay = 0.01,
                                   .decoupled = true,
                                   .step = 3,
                                   .grad_scale = 0.5f},
                1, NULL);
}

static void take_sgd(const variant *v, const shard *s, bool in_halves, int64_t n)
{
    v->k->sgd(v->c,
              &(fsdp_sgd_args){.n = n,
                               .param = in_halves ? NULL : s->param,
                               .halves = s->halves,
                               .momentum_buffer = s->state[0],
                               .grad = s->grad,
                               .lr = 0.01,
                               .momentum = 0.9,
                               .grad_scale = 0.5f},
              1, NULL);
}

static void check_step(fsdp_test *t, const variants *v, take_step *take, int64_t n)
{
    operands o = {.n = 0};
    const size_t bytes = (size_t)n * sizeof(float);
    float *start = operand(&o, FSDP_DTYPE_F32, n), *back = operand(&o, FSDP_DTYPE_F32, n);
    float *grad = operand(&o, FSDP_DTYPE_F32, n);
    shard of[2];
    fill_uniform(start, FSDP_DTYPE_F32, n, 1, -1.0, 1.0);
    fill_uniform(grad, FSDP_DTYPE_F32, n, 2, -2.0, 2.0);
    for (int h = 0; h < 2; h++)
        of[h] = (shard){.param = operand(&o, FSDP_DTYPE_F32, n),
                        .state = {operand(&o, FSDP_DTYPE_F32, n), operand(&o, FSDP_DTYPE_F32, n)},
                        .grad = grad,
                        .halves = halves_operand(&o, n)};
    for (int j = 0; j < v->n; j++) {
        const variant *at = &v->at[j];
        for (int h = 0; h < 2; h++) {
            memset(of[h].state[0], 0, bytes);
            memset(of[h].state[1], 0, bytes);
        }
        memcpy(of[0].param, start, bytes);
        at->k->split(at->c, of[1].halves, start, n);
        take(at, &of[0], false, n);
        take(at, &of[1], true, n);
        at->k->join(at->c, back, of[1].halves, n);
        ASSERT(memcmp(back, of[0].param, bytes) == 0);
        for (int k = 0; k < 2; k++)
            ASSERT(memcmp(of[0].state[k], of[1].state[k], bytes) == 0);
    }
    ASSERT(operands_close(&o));
}

TEST(a_step_in_halves_is_the_step_in_float32)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (size_t s = 0; s < FSDP_LENGTH(sizes); s++) {
        check_step(t, &v, take_adamw, sizes[s]);
        check_step(t, &v, take_sgd, sizes[s]);
        CHECK_HERE();
    }
    variants_close(&v);
}
