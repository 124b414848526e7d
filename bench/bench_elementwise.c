/* Measures the rates of the memory-bound CPU kernels at the sizes of T5-small, and compares them
 * with memcpy on the same machine. For GB/s, each byte that an operation must read or write is
 * counted once.
 *
 *     bench_elementwise [threads] [isa] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/kernels/kernels.h"

enum {
    ROWS = 2048,
    WIDTH = 512,
    FEED_FORWARD = 2048,
    VOCAB = 32128,
    LOSS_ROWS = 512,
    PARAMS = 16 << 20,
    OPERANDS = 5
};

typedef struct bench {
    const fsdp_kernels *k;
    fsdp_kernel_context *c;
    char *x[OPERANDS]; /* each has 4 * LOSS_ROWS * VOCAB bytes + 4 MiB */
    int32_t *ids;
    double memcpy_rate;
} bench;

typedef void bench_fn(bench *b);

/* Return the duration of one call in seconds: the best of several runs, each of at least 20 ms. */
static double seconds_of(bench *b, bench_fn *fn)
{
    double best = 1e9;
    fn(b);
    for (int run = 0; run < 5; run++) {
        double start = fsdp_clock_s(), elapsed;
        int calls = 0;
        do {
            fn(b);
            calls++;
        } while ((elapsed = fsdp_clock_s() - start) < 0.02);
        best = elapsed / calls < best ? elapsed / calls : best;
    }
    return best;
}

static void report(bench *b, const char *name, bench_fn *fn, double bytes)
{
    double s = seconds_of(b, fn);
    printf("%-44s %9.3f ms %8.1f GB/s  %5.2f of memcpy\n", name, s * 1e3, bytes / s * 1e-9,
           bytes / s / b->memcpy_rate);
}

/* --- the operations --- */

static void copy_large(bench *b)
{
    b->k->copy(b->c, b->x[0], b->x[1], (size_t)PARAMS * 4);
}

static void copy_small(bench *b)
{
    b->k->copy(b->c, b->x[0], b->x[1], (size_t)ROWS * WIDTH * 2);
}

static void zero(bench *b)
{
    b->k->fill(b->c, b->x[0], FSDP_DTYPE_F32, 0.0, PARAMS);
}

static void cast_to_bf16(bench *b)
{
    b->k->cast(b->c, b->x[0], FSDP_DTYPE_BF16, b->x[1], FSDP_DTYPE_F32, PARAMS);
}

static void cast_to_f32(bench *b)
{
    b->k->cast(b->c, b->x[0], FSDP_DTYPE_F32, b->x[1], FSDP_DTYPE_BF16, PARAMS);
}

static void normal(bench *b)
{
    b->k->normal(b->c, b->x[0], FSDP_DTYPE_F32, 1, 0, PARAMS, 0.0f, 1.0f);
}

static void add_bf16(bench *b)
{
    b->k->add(b->c, b->x[0], b->x[1], b->x[2], FSDP_DTYPE_BF16, ROWS * WIDTH);
}

static void add_f32(bench *b)
{
    b->k->add(b->c, b->x[0], b->x[1], b->x[2], FSDP_DTYPE_F32, ROWS * WIDTH);
}

static void scale_bf16(bench *b)
{
    b->k->scale(b->c, b->x[0], b->x[1], 0.5f, FSDP_DTYPE_BF16, ROWS * WIDTH);
}

static void dropout_bf16(bench *b)
{
    b->k->dropout(b->c, &(fsdp_dropout_args){.out = b->x[0],
                                             .x = b->x[1],
                                             .dtype = FSDP_DTYPE_BF16,
                                             .n = ROWS * WIDTH,
                                             .p = 0.1f,
                                             .key = 1});
}

static void relu(bench *b)
{
    b->k->activation(b->c, FSDP_ACTIVATION_RELU, b->x[0], b->x[1], FSDP_DTYPE_BF16,
                     ROWS * FEED_FORWARD);
}

static void relu_backward(bench *b)
{
    b->k->activation_backward(b->c, FSDP_ACTIVATION_RELU, b->x[0], b->x[1], b->x[2],
                              FSDP_DTYPE_BF16, ROWS * FEED_FORWARD);
}

static void gelu_erf(bench *b)
{
    b->k->activation(b->c, FSDP_ACTIVATION_GELU_ERF, b->x[0], b->x[1], FSDP_DTYPE_BF16,
                     ROWS * FEED_FORWARD);
}

static void gelu_erf_backward(bench *b)
{
    b->k->activation_backward(b->c, FSDP_ACTIVATION_GELU_ERF, b->x[0], b->x[1], b->x[2],
                              FSDP_DTYPE_BF16, ROWS * FEED_FORWARD);
}

static void geglu(bench *b)
{
    b->k->gated(b->c, FSDP_ACTIVATION_GELU_TANH, b->x[0], b->x[1], b->x[2], FSDP_DTYPE_BF16,
                ROWS * FEED_FORWARD);
}

static void geglu_backward(bench *b)
{
    b->k->gated_backward(b->c, FSDP_ACTIVATION_GELU_TANH, b->x[0], b->x[1], b->x[2], b->x[3],
                         b->x[4], FSDP_DTYPE_BF16, ROWS * FEED_FORWARD);
}

static void rms_norm(bench *b)
{
    b->k->rms_norm(b->c, b->x[0], (float *)(void *)b->x[3], b->x[1], b->x[2], FSDP_DTYPE_BF16,
                   FSDP_DTYPE_BF16, ROWS, WIDTH, 1e-6f);
}

static void rms_norm_f32(bench *b)
{
    b->k->rms_norm(b->c, b->x[0], (float *)(void *)b->x[3], b->x[1], b->x[2], FSDP_DTYPE_F32,
                   FSDP_DTYPE_F32, ROWS, WIDTH, 1e-6f);
}

static void rms_norm_backward(bench *b)
{
    char *dw = b->x[4] + (1 << 20);
    b->k->rms_norm_backward(b->c, b->x[0], dw, FSDP_DTYPE_F32, 0.0f, b->x[1], b->x[2],
                            (float *)(void *)b->x[3], b->x[4], FSDP_DTYPE_BF16, FSDP_DTYPE_BF16,
                            ROWS, WIDTH);
}

static void column_sum(bench *b)
{
    b->k->column_sum(b->c, b->x[0], FSDP_DTYPE_F32, 0.0f, b->x[1], FSDP_DTYPE_BF16, ROWS, WIDTH);
}

static void embedding(bench *b)
{
    b->k->embedding(b->c, b->x[0], FSDP_DTYPE_BF16, b->x[1], FSDP_DTYPE_BF16, b->ids, ROWS, WIDTH);
}

static void embedding_backward(bench *b)
{
    b->k->embedding_backward(b->c, b->x[0], FSDP_DTYPE_BF16, 0.0f, b->x[1], FSDP_DTYPE_BF16, b->ids,
                             ROWS, WIDTH, VOCAB, -1);
}

static void cross_entropy_bf16(bench *b)
{
    b->k->cross_entropy(b->c, (float *)(void *)b->x[1], b->x[0], FSDP_DTYPE_BF16, b->ids, LOSS_ROWS,
                        VOCAB, VOCAB, true, 1.0f);
}

static void cross_entropy_f32(bench *b)
{
    b->k->cross_entropy(b->c, (float *)(void *)b->x[1], b->x[0], FSDP_DTYPE_F32, b->ids, LOSS_ROWS,
                        VOCAB, VOCAB, true, 1.0f);
}

static void argmax(bench *b)
{
    b->k->argmax(b->c, (int32_t *)(void *)b->x[1], b->x[0], FSDP_DTYPE_BF16, LOSS_ROWS, VOCAB);
}

static void tree_sum_2(bench *b)
{
    b->k->tree_sum(b->c, (float *)(void *)b->x[0], (const void *[]){b->x[1], b->x[2]}, 2,
                   FSDP_DTYPE_F32, PARAMS, 0.5f);
}

static void tree_sum_2_bf16(bench *b)
{
    b->k->tree_sum(b->c, (float *)(void *)b->x[0], (const void *[]){b->x[1], b->x[2]}, 2,
                   FSDP_DTYPE_BF16, PARAMS, 0.5f);
}

static void row_power_sums(bench *b)
{
    const fsdp_row_powers tensor = {.x = b->x[1],
                                    .dtype = FSDP_DTYPE_F32,
                                    .rows = PARAMS / WIDTH,
                                    .width = WIDTH,
                                    .sums = (double *)(void *)b->x[0]};
    b->k->row_power_sums(b->c, &tensor, 1, 2);
}

static void adamw(bench *b)
{
    b->k->adamw(b->c,
                &(fsdp_adamw_args){.n = PARAMS,
                                   .param = (float *)(void *)b->x[0],
                                   .exp_avg = (float *)(void *)b->x[1],
                                   .exp_avg_sq = (float *)(void *)b->x[2],
                                   .grad = (float *)(void *)b->x[3],
                                   .copy = b->x[4],
                                   .copy_dtype = FSDP_DTYPE_BF16,
                                   .lr = 1e-4,
                                   .beta1 = 0.9,
                                   .beta2 = 0.999,
                                   .eps = 1e-8,
                                   .weight_decay = 0.01,
                                   .decoupled = true,
                                   .step = 10,
                                   .grad_scale = 1.0f},
                1, NULL);
}

static void sgd(bench *b)
{
    b->k->sgd(b->c,
              &(fsdp_sgd_args){.n = PARAMS,
                               .param = (float *)(void *)b->x[0],
                               .momentum_buffer = (float *)(void *)b->x[1],
                               .grad = (float *)(void *)b->x[2],
                               .copy = b->x[3],
                               .copy_dtype = FSDP_DTYPE_BF16,
                               .lr = 1e-4,
                               .momentum = 0.9,
                               .grad_scale = 1.0f},
              1, NULL);
}

/* --- measurements --- */

/* Fill the operands with 16-bit patterns that are small numbers in every dtype. */
static bool prepare(bench *b)
{
    size_t bytes = (size_t)4 * LOSS_ROWS * VOCAB + (1 << 22);
    if (!(b->ids = fsdp_calloc(ROWS, sizeof *b->ids)))
        return false;
    for (int i = 0; i < ROWS; i++)
        b->ids[i] = (int32_t)((int64_t)i * 7919 % VOCAB);
    for (int k = 0; k < OPERANDS; k++) {
        if (!(b->x[k] = fsdp_calloc(bytes, 1)))
            return false;
        for (size_t i = 0; i < bytes / 2; i++)
            ((uint16_t *)(void *)b->x[k])[i] = (uint16_t)(0x3e00 + i * 37 % 512);
    }
    return true;
}

static void run_all(bench *b)
{
    double block = (double)ROWS * WIDTH, wide = (double)ROWS * FEED_FORWARD;
    double loss = (double)LOSS_ROWS * VOCAB, params = PARAMS;
    b->memcpy_rate = 2.0 * 4.0 * params / seconds_of(b, copy_large);
    report(b, "copy 64 MiB (the yardstick)", copy_large, 8.0 * params);
    report(b, "copy [2048, 512] bf16", copy_small, 4.0 * block);
    report(b, "fill 0, 16 Mi f32", zero, 4.0 * params);
    report(b, "cast 16 Mi f32 -> bf16", cast_to_bf16, 6.0 * params);
    report(b, "cast 16 Mi bf16 -> f32", cast_to_f32, 6.0 * params);
    report(b, "normal 16 Mi f32", normal, 4.0 * params);
    report(b, "add [2048, 512] bf16", add_bf16, 6.0 * block);
    report(b, "add [2048, 512] f32", add_f32, 12.0 * block);
    report(b, "scale [2048, 512] bf16", scale_bf16, 4.0 * block);
    report(b, "dropout [2048, 512] bf16", dropout_bf16, 4.0 * block);
    report(b, "relu [2048, 2048] bf16", relu, 4.0 * wide);
    report(b, "relu backward [2048, 2048] bf16", relu_backward, 6.0 * wide);
    report(b, "gelu_erf [2048, 2048] bf16", gelu_erf, 4.0 * wide);
    report(b, "gelu_erf backward [2048, 2048] bf16", gelu_erf_backward, 6.0 * wide);
    report(b, "geglu [2048, 2048] bf16", geglu, 6.0 * wide);
    report(b, "geglu backward [2048, 2048] bf16", geglu_backward, 10.0 * wide);
    report(b, "rms_norm [2048, 512] bf16", rms_norm, 4.0 * block);
    report(b, "rms_norm [2048, 512] f32", rms_norm_f32, 8.0 * block);
    report(b, "rms_norm backward [2048, 512] bf16", rms_norm_backward, 6.0 * block);
    report(b, "column_sum [2048, 512] bf16", column_sum, 2.0 * block);
    report(b, "embedding [2048, 512] bf16", embedding, 4.0 * block);
    report(b, "embedding backward [32128, 512] bf16", embedding_backward,
           2.0 * VOCAB * WIDTH + 2.0 * block);
    report(b, "cross_entropy [512, 32128] bf16", cross_entropy_bf16, 4.0 * loss);
    report(b, "cross_entropy [512, 32128] f32", cross_entropy_f32, 8.0 * loss);
    report(b, "argmax [512, 32128] bf16", argmax, 2.0 * loss);
    report(b, "tree_sum of 2, 16 Mi f32", tree_sum_2, 12.0 * params);
    report(b, "tree_sum of 2, 16 Mi bf16", tree_sum_2_bf16, 8.0 * params);
    report(b, "row_power_sums 16 Mi f32", row_power_sums, 4.0 * params);
    report(b, "adamw with bf16 copy, 16 Mi", adamw, 30.0 * params);
    report(b, "sgd with momentum and bf16 copy, 16 Mi", sgd, 22.0 * params);
}

int main(int argc, char **argv)
{
    bench b = {0};
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    if (fsdp_kernels_cpu_open(argc > 2 ? argv[2] : NULL, threads, &b.c, &b.k) != FSDP_OK ||
        !prepare(&b)) {
        fprintf(stderr, "bench_elementwise: %s\n", fsdp_last_error());
        return 1;
    }
    printf("%s, %d threads\n", b.k->name, threads);
    run_all(&b);
    for (int k = 0; k < OPERANDS; k++)
        fsdp_free(b.x[k]);
    fsdp_free(b.ids);
    fsdp_kernels_cpu_close(b.c);
    return 0;
}
