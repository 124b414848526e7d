/* `fsdp bench train`: the work of one rank. It creates a model of a given shape from a seed, shards
 * it, and trains it on random tokens, in the same way as `fsdp train`: with float32 master weights,
 * clipping at 1.0 and AdamW. First, it runs `steps` timed steps. Then it runs a few more steps, in
 * which the launching process samples memory. Finally, all ranks measure the speed of single matrix
 * products in the shapes of this run, at the same time.
 *
 * Note [Model FLOP utilization]. `flops` is the number of operations that one rank needs in a step
 * to compute the loss and its gradients. Operations that recompute a result are not counted, and
 * neither are operations whose results are never used. Each model type counts its own operations
 * (fsdp_model_type.work).
 *
 * A linear layer computes three matrix products: forward, data gradient and weight gradient.
 * Together they have 6 x tokens x in x out operations, where `in` and `out` are the widths of the
 * layer's input and output, and `tokens` is the number of tokens to which the layer is applied. For
 * T5's head, these are the target tokens. For the keys and values of cross-attention, they are the
 * source tokens. Attention computes six products: q k^T and p v in forward, and dp, dv, dq and dk
 * in backward. Together they have 12 x queries x keys x heads x head width operations. Causal
 * attention needs only half of these.
 *
 * mfu = flops / (step_s x threads x gemm_gflops x 1e9). gemm_gflops is the rate of one thread in
 * matrix products. Each rank takes its highest rate in the products of feed-forward and projection
 * layers, and gemm_gflops is the mean of these rates over the ranks. */
#pragma once
#include <stdio.h>

#include <fsdp/comm.h>
#include <fsdp/fsdp.h>
#include <fsdp/models.h>

#include "src/base/json.h"
#include "src/models/model_type.h"
#include "src/profile/profile_report.h"

typedef struct fsdp_bench_config {
    fsdp_model_config shape; /* configuration of the model, with its dropout rates */
    const char *shape_name;
    /* The dtype of activations and of the parameters that operations read. Master weights are
     * float32. */
    fsdp_dtype dtype;
    int float8_recipe; /* 0: no float8; else 1 + an fsdp_float8_recipe */
    fsdp_reshard reshard_after_forward;
    fsdp_backward_prefetch backward_prefetch;
    bool activation_checkpointing; /* true: each block is checkpointed */
    /* used if activation_checkpointing is true */
    fsdp_activation_checkpointing_kind checkpointing_kind;
    int threads; /* threads per rank */
    int32_t batch, source;
    int32_t target; /* target tokens of a row; 0 for all models except SEQ2SEQ */
    int steps;
    uint64_t seed;
    const char *device; /* name of the device, for fsdp_rank_device_create(); NULL: the default
                           device */
    const char *isa;    /* NULL: the best instruction set */
    /* the time at which the job was started, as fsdp_clock_s() counts it */
    double start_s;
    const char *profile; /* file for the trace of the profiled steps; NULL: no trace file */
    /* the profiled steps as "A:B"; NULL: a few steps after the warm-up */
    const char *profile_steps;
    /* Also sum the time of the profiled steps by category. This needs no trace file. */
    bool breakdown;
    /* Rank 0 prints the table of time by category to this file; NULL: no table. */
    FILE *profile_out;
    /* Folder in which the initial weights are saved; NULL: they are not saved. */
    const char *save_model;
} fsdp_bench_config;

/* The stages that rank 0 reports to the launching process. */
typedef enum fsdp_bench_stage {
    FSDP_BENCH_BUILT, /* the model has its initial values; the timed steps begin now */
    FSDP_BENCH_MEMORY_BEGIN,
    FSDP_BENCH_MEMORY_END,
} fsdp_bench_stage;
typedef void fsdp_bench_stage_fn(void *arg, fsdp_bench_stage stage);

typedef struct fsdp_bench_result {
    int64_t parameters;
    double step_s;             /* median duration of a step, without the first one */
    double first_step_s;       /* duration of the first step */
    double first_step_after_s; /* time from the start of the job to the end of the first step */
    double ready_after_s;      /* time from the start of the job to the start of the first step */
    /* The next fields are means over the steps after the first. */
    double forward_s, backward_s, clip_s, optimizer_s;
    /* the time that this rank waits for peers; it is included in the four times above */
    double wait_s;
    /* Processor time of this rank. If it is much less than step_s x threads, other processes used
     * the cores. */
    double cpu_s;
    /* page_faults: mean number per step, without the first step. page_faults_last: number in the
     * last step. */
    double page_faults, page_faults_last;
    double tokens_per_s; /* source and target tokens of all ranks per second */
    double flops;        /* operations of one rank in one step */
    /* See Note [Model FLOP utilization]. NAN if the device has no threads whose rate can be
     * measured. */
    double gemm_gflops, mfu;
    char device[256]; /* the device of this rank, by fsdp_device_describe() */
    /* losses of this rank's rows, in the first and in the last timed step */
    double first_loss, last_loss;
    double grad_norm; /* gradient norm in the last timed step, before clipping */
    /* [n_where]: the time of the profiled steps by category */
    fsdp_profile_row where[FSDP_PROFILE_ROWS];
    size_t n_where; /* 0 if no steps were profiled */
    /* [n_names]: the operations that took most time on this rank in the profiled steps */
    fsdp_profile_name names[FSDP_PROFILE_NAMES];
    size_t n_names;
    fsdp_memory_stats memory; /* measured after the last step, summed over the ranks */
} fsdp_bench_result;

/* Run the benchmark. Collective. On each rank, *result has the times of this rank and the figures
 * that are computed from these times. */
FSDP_MUST_CHECK fsdp_status fsdp_bench_train(const fsdp_bench_config *config, fsdp_group *group,
                                             fsdp_bench_stage_fn *report_stage, void *arg,
                                             fsdp_bench_result *result);
/* Measure the matrix products of `work` with `tokens` rows, one after the other, on one thread of
 * the device. Set *gflops to the highest rate. */
FSDP_MUST_CHECK fsdp_status fsdp_bench_product_rate(fsdp_device *device, fsdp_dtype dtype,
                                                    int64_t tokens, const fsdp_model_work *work,
                                                    double *gflops);
/* Set all keys of the JSON line that reports `result`, except peak_host_mib. */
void fsdp_bench_report(const fsdp_bench_config *config, int ranks, const fsdp_bench_result *result,
                       fsdp_json_node object);
