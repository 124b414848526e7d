/* `fsdp bench train`: the work of one rank. A model of a given shape is built from a seed, sharded,
 * and trained on random tokens as `fsdp train` would train it (float32 master weights, clipping at
 * 1.0, AdamW). First come `steps` timed steps, then a few more steps during which the launching
 * process samples memory. Finally, all ranks at the same time measure the speed of single matrix
 * products with the shapes of this run.
 *
 * Note [Model FLOP utilisation]. `flops` counts the operations that a step of one rank needs to
 * compute the loss and its gradients, without recomputation. Each linear layer has three products
 * (forward, data gradient and weight gradient): 6 x tokens x in x out. The head counts only tokens
 * with a label, the keys and values of cross-attention count source tokens, and results that are
 * never used do not count. Attention has six products (q k^T, p v; dp, dv, dq, dk): 12 x queries x
 * keys x heads x head width, and half as many operations if attention is causal. Each model type
 * counts its own operations (fsdp_model_type.work). mfu = flops / (step_s x threads x gemm_gflops),
 * where gemm_gflops is the best rate of one thread on the products of feed-forward and projection
 * layers. */
#pragma once
#include <stdio.h>

#include <fsdp/comm.h>
#include <fsdp/fsdp.h>
#include <fsdp/models.h>

#include "src/base/json.h"
#include "src/profile/profile_report.h"

typedef struct fsdp_bench_config {
    fsdp_model_config shape; /* configuration of the model, with its dropout rates */
    const char *shape_name;
    fsdp_dtype dtype; /* dtype of parameters and activations; master weights are float32 */
    fsdp_reshard reshard_after_forward;
    fsdp_backward_prefetch backward_prefetch;
    bool activation_checkpointing;                         /* each block is checkpointed */
    fsdp_activation_checkpointing_kind checkpointing_kind; /* used only if activation_checkpointing
                                                              is true */
    int threads;                                           /* per rank */
    int32_t batch, source;
    int32_t target; /* target tokens; 0 except for SEQ2SEQ */
    int steps;
    uint64_t seed;
    const char *isa;           /* NULL: the best instruction set */
    double start_s;            /* when the job started, on fsdp_clock_s()'s clock */
    const char *profile;       /* file for a trace of a few steps; NULL: none */
    const char *profile_steps; /* "A:B"; NULL: after the warm-up */
    bool breakdown;            /* also sum the time of the profiled steps by category; does not need
                                  a trace file */
    FILE *profile_out;         /* where rank 0 prints the table of time by category; NULL: no
                                  table */
    const char *save_model;    /* folder in which the initial weights are saved; NULL: not saved */
} fsdp_bench_config;

/* The stages that rank 0 reports to the launching process. */
typedef enum fsdp_bench_stage {
    FSDP_BENCH_BUILT, /* the parameters have their initial values, and the steps begin */
    FSDP_BENCH_MEMORY_BEGIN,
    FSDP_BENCH_MEMORY_END,
} fsdp_bench_stage;
typedef void fsdp_bench_stage_fn(void *arg, fsdp_bench_stage stage);

typedef struct fsdp_bench_result {
    int64_t parameters;
    double step_s;             /* median of all steps but the first */
    double first_step_s;       /* the first step alone */
    double first_step_after_s; /* from the job's start to the end of the first step */
    double ready_after_s;      /* from the job's start to the start of the first step */
    /* means over the steps after the first */
    double forward_s, backward_s, clip_s, optimizer_s;
    double wait_s; /* time spent waiting for peers, which is part of the four times above */
    double cpu_s;  /* processor time; if it is much less than step_s x threads, other processes used
                      the cores */
    double page_faults, page_faults_last;        /* page_faults: mean per step after the first;
                                                    page_faults_last: in the last step */
    double tokens_per_s;                         /* source and target tokens of all ranks */
    double flops;                                /* operations of one rank in one step */
    double gemm_gflops, mfu;                     /* Note [Model FLOP utilisation] */
    double first_loss, last_loss;                /* losses of this rank's rows */
    double grad_norm;                            /* norm in the last step, before clipping */
    fsdp_profile_row where[FSDP_PROFILE_ROWS];   /* time by category in the profiled steps */
    size_t n_where;                              /* 0: no steps were profiled */
    fsdp_profile_name names[FSDP_PROFILE_NAMES]; /* the most expensive operations of the profiled
                                                    steps on this rank */
    size_t n_names;
    fsdp_memory_stats memory; /* peaks during the steps, summed over the ranks */
} fsdp_bench_result;

/* Run the benchmark. Collective. Each rank gets its own times and the figures that are computed
 * from them. */
FSDP_MUST_CHECK fsdp_status fsdp_bench_train(const fsdp_bench_config *config, fsdp_group *group,
                                             fsdp_bench_stage_fn *report_stage, void *arg,
                                             fsdp_bench_result *result);
/* Set all keys of the JSON line except peak_host_mib. */
void fsdp_bench_report(const fsdp_bench_config *config, int ranks, const fsdp_bench_result *result,
                       fsdp_json_node object);
