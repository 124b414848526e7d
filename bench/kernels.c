/* usage: kernels [--isa NAME] [--threads N] [--seconds S]
 *
 * Measures GFLOP/s of matrix products and of attention with the shapes of T5-small: the products of
 * its layers for 512 and 2048 tokens, and attention for long and short sequences. Each figure is
 * the best of the runs within S seconds (by default 0.2), on N threads (by default one). The
 * floating-point operations of attention are counted as 4 (forward) or 10 (backward) times queries
 * x keys x head width, and as half of that if attention is causal. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/bf16.h"
#include "src/base/clock.h"
#include "src/base/philox.h"
#include "src/kernels/kernels.h"

typedef struct bench {
    fsdp_kernel_context *context;
    const fsdp_kernels *kernels;
    double seconds;
} bench;

static void *random_floats(size_t n, fsdp_dtype dtype)
{
    void *x = fsdp_calloc(n, fsdp_dtype_size(dtype));
    for (size_t i = 0; x && i < n; i++) {
        float f = fsdp_uniform_from_bits((uint32_t)fsdp_mix64(i)) - 0.5f;
        if (dtype == FSDP_DTYPE_F32)
            ((float *)x)[i] = f;
        else
            ((uint16_t *)x)[i] = fsdp_bf16_from_f32(f);
    }
    if (!x) {
        fprintf(stderr, "%s\n", fsdp_last_error());
        exit(1);
    }
    return x;
}

static void exit_on_failure(fsdp_status status)
{
    if (status == FSDP_OK)
        return;
    fprintf(stderr, "%s\n", fsdp_last_error());
    exit(1);
}

/* A function that best_of() measures. best_of() returns the shortest duration of a call after the
 * first, in seconds, and sets *first to the duration of the first call. */
typedef fsdp_status run_fn(const bench *b, const void *args);

static double best_of(const bench *b, run_fn *run, const void *args, double *first)
{
    double start = fsdp_clock_s(), best = 0;
    for (int i = 0; i < 3 || fsdp_clock_s() - start < b->seconds; i++) {
        double begin = fsdp_clock_s();
        exit_on_failure(run(b, args));
        double took = fsdp_clock_s() - begin;
        if (i == 0)
            *first = took;
        else if (best == 0 || took < best)
            best = took;
    }
    return best;
}

/* --- products --- */

static fsdp_status run_gemm(const bench *b, const void *args)
{
    return b->kernels->gemm(b->context, args);
}

static void bench_gemm(const bench *b, const char *what, fsdp_gemm_args g)
{
    double first = 0;
    void *a = random_floats((size_t)(g.m * g.k), g.ab_dtype), *c = NULL;
    void *w = random_floats((size_t)(g.n * g.k), g.ab_dtype);
    g.a = a;
    g.b = w;
    g.c = c = random_floats((size_t)(g.m * g.n), g.c_dtype);
    g.lda = g.trans_a ? g.m : g.k;
    g.ldb = g.trans_b ? g.k : g.n;
    g.ldc = g.n;
    double best = best_of(b, run_gemm, &g, &first);
    printf("%-9s %6lld x %5lld x %5lld  %-8s  %8.3f ms  %7.1f GFLOP/s  first call %.2f ms\n", what,
           (long long)g.m, (long long)g.n, (long long)g.k, fsdp_dtype_name(g.ab_dtype), best * 1e3,
           2e-9 * (double)g.m * (double)g.n * (double)g.k / best, first * 1e3);
    fsdp_free(a);
    fsdp_free(w);
    fsdp_free(c);
}

static void bench_layer(const bench *b, int64_t tokens, int64_t in, int64_t out, fsdp_dtype dtype)
{
    bench_gemm(
        b, "forward",
        (fsdp_gemm_args){
            .m = tokens, .n = out, .k = in, .trans_b = true, .ab_dtype = dtype, .c_dtype = dtype});
    bench_gemm(
        b, "d input",
        (fsdp_gemm_args){.m = tokens, .n = in, .k = out, .ab_dtype = dtype, .c_dtype = dtype});
    for (int beta = 0; beta < 2; beta++)
        bench_gemm(b, beta ? "d weight+" : "d weight",
                   (fsdp_gemm_args){.m = out,
                                    .n = in,
                                    .k = tokens,
                                    .trans_a = true,
                                    .ab_dtype = dtype,
                                    .c_dtype = FSDP_DTYPE_F32,
                                    .beta = (float)beta});
}

/* --- attention --- */

static fsdp_status run_forward(const bench *b, const void *args)
{
    return b->kernels->attention(b->context, args);
}

static fsdp_status run_backward(const bench *b, const void *args)
{
    return b->kernels->attention_backward(b->context, args);
}

typedef struct attention_case {
    const char *name;
    int64_t sequences, queries, keys;
    bool causal;
    float dropout_p;
} attention_case;

enum {
    HEADS = 8,
    HEAD_DIM = 64,
    WIDTH = HEADS * HEAD_DIM,
    MAX_SEQUENCES = 64
};

static void bench_attention(const bench *b, const attention_case *shape, fsdp_dtype dtype)
{
    static int32_t q_offsets[MAX_SEQUENCES + 1], k_offsets[MAX_SEQUENCES + 1];
    for (int64_t s = 1; s <= shape->sequences; s++) {
        q_offsets[s] = (int32_t)(s * shape->queries);
        k_offsets[s] = (int32_t)(s * shape->keys);
    }
    size_t nq = (size_t)(shape->sequences * shape->queries) * WIDTH;
    size_t nk = (size_t)(shape->sequences * shape->keys) * WIDTH;
    int64_t span = shape->queries > shape->keys ? shape->queries : shape->keys;
    size_t biases = (size_t)(HEADS * (2 * span - 1));
    fsdp_dtype f32 = FSDP_DTYPE_F32;
    void *x[] = {
        random_floats(nq, dtype),   random_floats(nk, dtype),         random_floats(nk, dtype),
        random_floats(nq, dtype),   random_floats(nq, dtype),         random_floats(nq, dtype),
        random_floats(nk, dtype),   random_floats(nk, dtype),         random_floats(biases, f32),
        random_floats(biases, f32), random_floats(nq / HEAD_DIM, f32)};
    fsdp_attention_args args = {.dtype = dtype,
                                .n_sequences = shape->sequences,
                                .heads = HEADS,
                                .kv_heads = HEADS,
                                .head_dim = HEAD_DIM,
                                .q_offsets = q_offsets,
                                .k_offsets = k_offsets,
                                .q = x[0],
                                .k = x[1],
                                .v = x[2],
                                .q_ld = WIDTH,
                                .k_ld = WIDTH,
                                .v_ld = WIDTH,
                                .scale = 1.0f,
                                .causal = shape->causal,
                                .position_bias = x[8],
                                .bias_span = span,
                                .dropout_p = shape->dropout_p,
                                .out = x[3],
                                .lse = x[10],
                                .d_out = x[4],
                                .d_q = x[5],
                                .d_k = x[6],
                                .d_v = x[7],
                                .d_position_bias = x[9]};
    double first[2], best[2];
    best[0] = best_of(b, run_forward, &args, &first[0]);
    best[1] = best_of(b, run_backward, &args, &first[1]);
    double flop = (double)(shape->sequences * shape->queries * shape->keys) * WIDTH * 1e-9;
    flop *= shape->causal ? 0.5 : 1.0;
    printf(
        "%-9s %4lld x %4lld x %4lld  %-8s dropout %.1f  forward %8.3f ms %6.1f GFLOP/s  backward "
        "%8.3f ms %6.1f GFLOP/s\n",
        shape->name, (long long)shape->sequences, (long long)shape->queries, (long long)shape->keys,
        fsdp_dtype_name(dtype), (double)shape->dropout_p, best[0] * 1e3, 4 * flop / best[0],
        best[1] * 1e3, 10 * flop / best[1]);
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        fsdp_free(x[i]);
}

int main(int argc, char **argv)
{
    static const int64_t layers[][2] = {{512, 512}, {512, 2048}, {2048, 512}, {512, 32128}};
    static const attention_case cases[] = {
        {"full", 4, 512, 512, false, 0.0f},  {"dropout", 4, 512, 512, false, 0.1f},
        {"causal", 4, 512, 512, true, 0.0f}, {"decoder", 4, 128, 128, true, 0.0f},
        {"cross", 4, 128, 512, false, 0.0f}, {"short", 16, 64, 64, false, 0.0f},
        {"short", 64, 20, 20, false, 0.0f},  {"short", 64, 10, 10, true, 0.0f},
        {"long", 1, 2048, 2048, true, 0.0f},
    };
    bench b = {.seconds = 0.2};
    const char *isa = NULL;
    int threads = 1;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--isa") == 0)
            isa = argv[i + 1];
        else if (strcmp(argv[i], "--threads") == 0)
            threads = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--seconds") == 0)
            b.seconds = atof(argv[i + 1]);
    }
    double start = fsdp_clock_s();
    exit_on_failure(fsdp_kernels_cpu_open(isa, threads, &b.context, &b.kernels));
    static float square[3][64 * 64];
    const fsdp_gemm_args product = {.m = 64,
                                    .n = 64,
                                    .k = 64,
                                    .a = square[0],
                                    .b = square[1],
                                    .c = square[2],
                                    .lda = 64,
                                    .ldb = 64,
                                    .ldc = 64,
                                    .ab_dtype = FSDP_DTYPE_F32,
                                    .c_dtype = FSDP_DTYPE_F32};
    exit_on_failure(b.kernels->gemm(b.context, &product));
    printf("%s, %d threads; open and first product %.2f ms\n", b.kernels->name, threads,
           (fsdp_clock_s() - start) * 1e3);
    for (int d = 0; d < 2; d++) {
        fsdp_dtype dtype = d ? FSDP_DTYPE_F32 : FSDP_DTYPE_BF16;
        for (int64_t tokens = 2048; tokens >= 512; tokens /= 4)
            for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
                bench_layer(&b, tokens, layers[i][0], layers[i][1], dtype);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            bench_attention(&b, &cases[i], dtype);
    }
    fsdp_kernels_cpu_close(b.context);
    return 0;
}
