/* What `fsdp train` was asked to do: every value of its option table (config_table.c), with the
 * tutorials' defaults for seq2seq. Filled and checked by the configuration engine:
 *
 *     fsdp_train_config config;
 *     fsdp_options *options;
 *     FSDP_TRY(fsdp_options_parse(fsdp_train_options(), argc, argv, &config, &options));
 *
 * Strings belong to the fsdp_options and live as long as it does. */
#pragma once
#include <stdatomic.h>

#include <fsdp/data.h>
#include <fsdp/optim.h>

#include "src/base/options.h"

typedef enum fsdp_train_task {
    FSDP_TASK_SEQ2SEQ,
    FSDP_TASK_CAUSAL_LM,     /* known, refused: a later version */
    FSDP_TASK_CLASSIFICATION /* known, refused: a later version */
} fsdp_train_task;

typedef enum fsdp_schedule_unit {
    FSDP_SCHEDULE_EPOCH, /* t counts finished epochs */
    FSDP_SCHEDULE_STEP   /* t counts finished optimizer steps */
} fsdp_schedule_unit;

typedef enum fsdp_optimizer_kind {
    FSDP_OPTIMIZER_ADAMW,
    FSDP_OPTIMIZER_SGD
} fsdp_optimizer_kind;

typedef enum fsdp_sharding_strategy {
    FSDP_SHARDING_FULL_SHARD,
    FSDP_SHARDING_SHARD_GRAD_OP, /* reshard_after_forward is false then */
    FSDP_SHARDING_NO_SHARD,
    FSDP_SHARDING_HYBRID_SHARD /* known, refused: a later version */
} fsdp_sharding_strategy;

typedef enum fsdp_train_device {
    FSDP_TRAIN_CPU,
    FSDP_TRAIN_META /* shapes only: the schedule and the memory of a run, without computing it */
} fsdp_train_device;

typedef enum fsdp_loss_reduction {
    FSDP_LOSS_TOKEN_MEAN,   /* over the label tokens of the global batch */
    FSDP_LOSS_MEAN_OF_MEANS /* of each micro-batch's mean: PyTorch's, the tutorials' */
} fsdp_loss_reduction;

typedef struct fsdp_train_config {
    /* model and data */
    int task;                    /* fsdp_train_task */
    const char *model;           /* folder or hub name; never NULL */
    bool from_config;            /* random weights from the seed instead of the folder's */
    const char *tokenizer;       /* spiece.model or a folder; NULL: the model's */
    const char *data;            /* file or folder; never NULL */
    const char *validation_data; /* NULL: none */
    const char *task_prefix;     /* put before every source text; never NULL, may be "" */
    int64_t max_train_samples;   /* first rows used; 0: all */
    int64_t max_validation_samples;
    int max_source_length; /* tokens, end of sequence included */
    int max_target_length;
    double dropout; /* NAN: what the model's config.json says */

    /* training */
    int epochs;        /* >= 1 */
    int64_t max_steps; /* optimizer steps; <= 0: until the epochs end */
    int batch_size;    /* rows per rank and micro-step */
    int validation_batch_size;
    int gradient_accumulation_steps; /* micro-steps per optimizer step */
    int64_t seed;
    int sampler;        /* fsdp_sampler_kind */
    bool shuffle;       /* false: file order */
    bool drop_last;     /* leave out the rows that do not fill a batch */
    int num_workers;    /* loader threads per rank; 0: the training thread loads */
    int loss_reduction; /* fsdp_loss_reduction */

    /* optimizer and schedule */
    int optimizer; /* fsdp_optimizer_kind */
    double lr, weight_decay, momentum, beta1, beta2, eps;
    double max_grad_norm; /* 0: no clipping */
    int lr_schedule;      /* fsdp_lr_schedule_kind */
    int schedule_unit;    /* fsdp_schedule_unit; without the flag: epoch for step, else step */
    double gamma;
    int step_size;        /* in schedule_unit */
    int64_t warmup_steps; /* optimizer steps */
    double min_lr;

    /* sharding */
    int sharding_strategy;                              /* fsdp_sharding_strategy */
    bool reshard_after_forward;                         /* agrees with sharding_strategy */
    fsdp_dtype param_dtype, reduce_dtype, master_dtype; /* float32 or bfloat16 */
    int device;                                         /* fsdp_train_device */
    int threads_per_rank; /* 0: cores of this host / ranks on it, at least 1 */
    const char *isa;      /* for fsdp_kernels_cpu_open; NULL: the best */

    /* output */
    const char *output; /* folder for the model; NULL only without save_model */
    bool overwrite_output, save_model, run_validation;
    int64_t evaluation_steps; /* optimizer steps between validations; 0: at the end of an epoch */
    int logging_steps;        /* optimizer steps between lines when stdout is no terminal */
    bool track_memory;        /* report memory by purpose */
    const char *metrics;      /* JSON lines; NULL: none */
    const char *plot;         /* picture of the loss curve; NULL: none */
    int generate_examples;    /* texts generated for the first validation rows at the end */

    const atomic_bool *interrupted; /* true: begin no save, end; not an option; NULL: never */

    /* spellings of other tools, folded into the fields above */
    bool bf16, tutorial_loss;
    int mixed_precision; /* 0 no, 1 bf16, 2 fp16 (refused) */
} fsdp_train_config;

/* The option table with its checks; static storage. */
const fsdp_options_spec *fsdp_train_options(void);

/* For the table: values that follow from others, and the checks across fields. */
void fsdp_train_config_derive(void *config, const fsdp_options *options);
fsdp_status fsdp_train_config_check(void *config, const fsdp_options *options);
