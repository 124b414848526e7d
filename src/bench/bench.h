/* `fsdp bench train`: what one rank does. A model of a given shape is built from a seed, sharded,
 * and trained on random tokens as `fsdp train` would (float32 masters, clipping at 1.0, AdamW):
 * first `steps` timed steps, then a few more in which the launching process samples memory, then
 * the rate of single matrix products of the run's shapes, which all ranks measure at the same time.
 *
 * Note [Model FLOP utilisation]. flops counts what the loss needs, nothing recomputed, for one rank
 * and step: three products (forward, data and weight gradient) for each
 * linear layer, 6 x tokens x in x out (the head where there is a label; keys and values of
 * cross-attention on source tokens; what nothing after it reads not at all); six for attention (q
 * k^T, p v; dp, dv, dq, dk), 12 x queries x keys x heads x head width, half of it where causal.
 * Each model counts its own (fsdp_model_type.work). mfu = flops / (step_s x threads x gemm_gflops),
 * where gemm_gflops is the best rate of one thread on the products of the feed-forward and of the
 * projections. */
#pragma once
#include <stdio.h>

#include <fsdp/comm.h>
#include <fsdp/fsdp.h>
#include <fsdp/models.h>

#include "src/base/json.h"
#include "src/profile/profile_report.h"

typedef struct fsdp_bench_config {
    fsdp_model_config shape; /* dropout included */
    const char *shape_name;
    fsdp_dtype dtype; /* of parameters and activations; masters are float32 */
    fsdp_reshard reshard_after_forward;
    fsdp_backward_prefetch backward_prefetch;
    bool activation_checkpointing;                         /* of blocks, */
    fsdp_activation_checkpointing_kind checkpointing_kind; /* of this kind */
    int threads;                                           /* per rank */
    int32_t batch, source;
    int32_t target; /* 0 but for SEQ2SEQ */
    int steps;
    uint64_t seed;
    const char *isa;           /* NULL: the best */
    double start_s;            /* when the job began, on fsdp_clock_s()'s clock */
    const char *profile;       /* trace of a few steps; NULL: none */
    const char *profile_steps; /* "A:B"; NULL: after the warm-up */
    bool breakdown;            /* sums over those steps, also without a trace */
    FILE *profile_out;         /* rank 0's table of time by category; NULL: none */
    const char *save_model;    /* folder for the drawn weights, before the first step; NULL: none */
} fsdp_bench_config;

/* What the launching process is told, by rank 0. */
typedef enum fsdp_bench_stage {
    FSDP_BENCH_BUILT, /* the model has its values; steps begin */
    FSDP_BENCH_MEMORY_BEGIN,
    FSDP_BENCH_MEMORY_END,
} fsdp_bench_stage;
typedef void fsdp_bench_stage_fn(void *arg, fsdp_bench_stage stage);

typedef struct fsdp_bench_result {
    int64_t parameters;
    double step_s;             /* median without the first */
    double first_step_s;       /* the first step alone */
    double first_step_after_s; /* from the job's start to the end of the first step */
    double ready_after_s;      /* from the job's start to its begin */
    /* Rank 0's, means of the steps after the first. */
    double forward_s, backward_s, clip_s, optimizer_s;
    double wait_s; /* for peers; part of the four */
    double cpu_s;  /* processor time; where step_s x threads is much more, others used the cores */
    double page_faults, page_faults_last;        /* the mean, and of the last step */
    double tokens_per_s;                         /* of all ranks, source and target */
    double flops;                                /* of one rank and step */
    double gemm_gflops, mfu;                     /* Note [Model FLOP utilisation] */
    double first_loss, last_loss;                /* of rank 0's rows */
    double grad_norm;                            /* of the last step, before clipping */
    fsdp_profile_row where[FSDP_PROFILE_ROWS];   /* of profiled steps */
    size_t n_where;                              /* 0: none were */
    fsdp_profile_name names[FSDP_PROFILE_NAMES]; /* what was dearest in them on rank 0 */
    size_t n_names;
    fsdp_memory_stats memory; /* peaks of the steps, summed over the ranks */
} fsdp_bench_result;

/* Collective. The result is the same on all ranks but for what is said to be rank 0's. */
FSDP_MUST_CHECK fsdp_status fsdp_bench_train(const fsdp_bench_config *config, fsdp_group *group,
                                             fsdp_bench_stage_fn *tell, void *arg,
                                             fsdp_bench_result *result);
/* The keys of the JSON line, but for peak_host_mib. */
void fsdp_bench_report(const fsdp_bench_config *config, int ranks, const fsdp_bench_result *result,
                       fsdp_json_node object);
