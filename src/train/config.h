/* What `fsdp train` was asked to do: every value of its option table (config_table.c), with the
 * tutorials' defaults. Filled and checked by the configuration engine:
 *
 *     fsdp_train_config config;
 *     fsdp_options *options;
 *     FSDP_TRY(fsdp_options_parse(fsdp_train_options(), argc, argv, &config, &options));
 *
 * Strings belong to the fsdp_options and live as long as it does. */
#pragma once
#include <stdatomic.h>

#include <fsdp/data.h>
#include <fsdp/fsdp.h>
#include <fsdp/optim.h>
#include <fsdp/options.h>

#include "src/fsdp/named_sharding.h"

typedef enum fsdp_train_task {
    FSDP_TRAIN_AUTO, /* what the model is for */
    FSDP_TRAIN_SEQ2SEQ,
    FSDP_TRAIN_CAUSAL_LM,
    FSDP_TRAIN_CLASSIFICATION,
    FSDP_TRAIN_SPAN_CORRUPTION /* of a SEQ2SEQ model, on texts without targets */
} fsdp_train_task;

typedef enum fsdp_schedule_unit {
    FSDP_SCHEDULE_EPOCH, /* t counts finished epochs */
    FSDP_SCHEDULE_STEP   /* t counts finished optimizer steps */
} fsdp_schedule_unit;

typedef enum fsdp_optimizer_kind {
    FSDP_OPTIMIZER_ADAMW,
    FSDP_OPTIMIZER_SGD,
    FSDP_OPTIMIZER_ADAFACTOR,
    FSDP_OPTIMIZER_ADAM /* AdamW whose decay is added to the gradient */
} fsdp_optimizer_kind;

typedef enum fsdp_auto_wrap_policy {
    FSDP_AUTO_WRAP_TRANSFORMER_BASED,
    FSDP_AUTO_WRAP_SIZE_BASED,
    FSDP_AUTO_WRAP_NO
} fsdp_auto_wrap_policy;

/* What micro-steps before the last of a step communicate. */
typedef enum fsdp_accumulation_mode {
    FSDP_ACCUMULATION_REDUCE,         /* everything: the same bits at any split */
    FSDP_ACCUMULATION_REDUCE_SCATTER, /* HYBRID: nothing between replicas */
    FSDP_ACCUMULATION_NO_SYNC         /* nothing: whole gradients stay on every rank */
} fsdp_accumulation_mode;

typedef enum fsdp_print_model {
    FSDP_PRINT_MODEL_NONE,
    FSDP_PRINT_MODEL_FSDP2,
    FSDP_PRINT_MODEL_FSDP1
} fsdp_print_model;

/* An index of fsdp_device_names. */
typedef enum fsdp_train_device {
    FSDP_TRAIN_CPU,
    FSDP_TRAIN_META, /* shapes only: the schedule and the memory of a run, without computing it */
    FSDP_TRAIN_CUDA
} fsdp_train_device;

typedef enum fsdp_loss_reduction {
    FSDP_LOSS_TOKEN_MEAN,   /* over the label tokens of the global batch */
    FSDP_LOSS_MEAN_OF_MEANS /* of each micro-batch's mean: PyTorch's, the tutorials' */
} fsdp_loss_reduction;

typedef enum fsdp_checkpoint_format {
    FSDP_CHECKPOINT_FSDP,
    FSDP_CHECKPOINT_ACCELERATE,    /* as Accelerate's save_state() */
    FSDP_CHECKPOINT_ACCELERATE_024 /* as it did up to version 0.24 */
} fsdp_checkpoint_format;

typedef enum fsdp_save_strategy {
    FSDP_SAVE_NO,
    FSDP_SAVE_STEPS, /* every save_steps, and at the end */
    FSDP_SAVE_EPOCH
} fsdp_save_strategy;

/* When transformers' Trainer validates or logs. */
typedef enum fsdp_strategy {
    FSDP_STRATEGY_NO,
    FSDP_STRATEGY_STEPS,
    FSDP_STRATEGY_EPOCH
} fsdp_strategy;

typedef struct fsdp_train_config {
    /* model and data */
    int task;                     /* fsdp_train_task */
    const char *model;            /* folder or hub name; never NULL */
    bool from_config;             /* random weights from the seed instead of the folder's */
    int64_t num_labels;           /* classes; 0: what config.json says */
    fsdp_option_list class_names; /* of the classes; empty: those of config.json */
    bool ignore_mismatched_sizes; /* draw weights of another shape than the model's */
    const char *tokenizer;        /* SentencePiece file or a folder; NULL: the model's */
    const char *data;             /* file or folder; never NULL */
    double data_weight;           /* its share, with mix_data */
    fsdp_option_list mix_data;    /* TASK:WEIGHT:PATH each (sources.h); empty: data is all */
    double noise_density, mean_noise_span_length; /* of span corruption */
    const char *validation_data;                  /* NULL: none */
    const char *task_prefix;                      /* put before every source text; NULL: by task */
    const char *text_column, *target_column;      /* NULL: by task */
    bool wikihow_cleaning;                        /* of texts of pairs, as the tutorial does it */
    int64_t max_train_samples;                    /* first rows used; 0: all */
    int64_t max_validation_samples;
    int max_source_length; /* SEQ2SEQ: tokens, end of sequence included */
    int max_target_length;
    int val_max_target_length;     /* of validation rows; 0: max_target_length */
    bool cut_sources, cut_targets; /* rows of ids too, since the length was given; not options */
    int64_t max_seq_length; /* other tasks: tokens of a row; 0: the model's, 1024 in token files */
    int64_t document_token; /* of token files: a document begins there; -1: none does */
    double dropout;         /* NAN: what the model's config.json says */
    fsdp_option_list frozen_prefixes; /* parameters whose names begin so are not trained */

    /* training */
    double epochs;     /* above 0; a fraction ends in the middle of one */
    int64_t max_steps; /* optimizer steps; <= 0: until the epochs end. Without the flag --epochs
                          these have no end then */
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
    double lr;     /* NAN: by task */
    double weight_decay, momentum, dampening, beta1, beta2, eps;
    bool nesterov;
    fsdp_option_list no_decay; /* words of parameters without weight decay; empty: all have it */
    double adafactor_eps1, adafactor_eps2, clip_threshold, decay_rate; /* of Adafactor, */
    double adafactor_beta1;                                            /* as these; NAN: none */
    bool scale_parameter, relative_step, warmup_init;
    double max_grad_norm;    /* 0: no clipping */
    bool error_if_nonfinite; /* a norm that is not finite ends the run */
    double grad_norm_type;   /* p of the norm that is printed and clipped by; or INFINITY */
    double clip_value;       /* 0: no clipping */
    double init_scale;       /* of the loss, with float16 */
    double growth_factor, backoff_factor; /* by which it grows, or shrinks where it overflows */
    int growth_interval;                  /* steps without overflow after which that grows */
    bool lr_decay;                        /* another word for it, */
    bool given_lr_decay;                  /* as it was given; not an option */
    int lr_schedule;                      /* fsdp_lr_schedule_kind */
    int schedule_unit; /* fsdp_schedule_unit; without the flag: epoch for step, else step */
    double gamma;
    int step_size;       /* in schedule_unit */
    double warmup_steps; /* optimizer steps; below 1: a share of all */
    double warmup_ratio; /* of all steps; warmup_steps takes precedence */
    double min_lr;
    double lr_power;   /* of the polynomial schedule */
    double num_cycles; /* of cosine with restarts */

    /* sharding */
    int sharding_strategy;     /* fsdp_sharding_strategy */
    const char *fsdp;          /* transformers' words for it and for cpu_offload; NULL: none */
    int reshard_after_forward; /* 0, 1, or ranks to gather among; agrees with sharding_strategy */
    int backward_prefetch;     /* fsdp_backward_prefetch */
    bool forward_prefetch;
    int forward_prefetch_kind; /* fsdp_forward_prefetch; follows from forward_prefetch */
    bool limit_all_gathers;
    bool
        explicit_prefetching; /* depths below, and the root is gathered before the batch is there */
    int forward_prefetch_depth,
        backward_prefetch_depth;             /* units of an explicit list; 0: implicit */
    fsdp_option_list no_unshard_in_backward; /* units */
    bool reshard_after_backward;             /* also before the last micro-step */
    bool set_is_last_backward;     /* only the last micro-step waits for its last reduce */
    double gradient_divide_factor; /* 0: label tokens, or micro-batches, of a step */
    int accumulation_mode;         /* fsdp_accumulation_mode */
    bool sync_each_batch;          /* agrees with accumulation_mode */
    int shard_size;       /* HYBRID: ranks of a replica; 0: those of a host, or by `replicas` */
    int replicas;         /* HYBRID: of the model; 0: by shard_size */
    int auto_wrap_policy; /* fsdp_auto_wrap_policy */
    fsdp_option_list transformer_layer_cls_to_wrap; /* empty: the default units */
    int64_t min_num_params;                         /* SIZE_BASED; 0: FSDP1's default */
    int blocks_per_unit;                            /* neighbours that are one unit */
    fsdp_named_sharding_options named;              /* what is said of parts by name */
    bool activation_checkpointing;                  /* of blocks: */
    int activation_checkpointing_kind;              /* fsdp_activation_checkpointing_kind */
    int activation_checkpointing_every;             /* of every so many */
    bool activation_offload;                        /* what they keep goes to a file */
    bool cpu_offload;        /* masters and optimizer state, into offload_dir if there is one */
    const char *offload_dir; /* also that of activations; NULL: theirs is $TMPDIR, else /tmp */
    fsdp_dtype param_dtype, reduce_dtype, master_dtype, buffer_dtype; /* of fsdp_mp_policy */
    fsdp_dtype output_dtype;                                          /* of the model's loss */
    bool set_output_dtype, cast_forward_inputs, cast_root_forward_inputs;
    int device;           /* fsdp_train_device */
    const char *devices;  /* how many ranks there have to be, "auto": any number */
    int threads_per_rank; /* 0: cores of this host / ranks on it, at least 1 */
    const char *isa;      /* for fsdp_kernels_cpu_open; NULL: the best */

    /* output */
    const char *output; /* folder for the model; NULL only without save_model */
    bool overwrite_output, save_model, run_validation;
    /* Optimizer steps; below 1: a share of all, until the trainer knows how many these are. */
    double evaluation_steps;   /* between validations; 0: at the end of an epoch */
    int eval_strategy;         /* fsdp_strategy; agrees with evaluation_steps */
    int logging_strategy;      /* fsdp_strategy; agrees with logging_steps */
    double logging_steps;      /* between lines when stdout is no terminal */
    int64_t memory_limit;      /* bytes, of all ranks of a host together; 0: none */
    bool track_memory;         /* report memory by purpose */
    int print_model;           /* fsdp_print_model: the module tree with its units */
    const char *metrics;       /* JSON lines; NULL: none */
    const char *profile;       /* trace of a few steps; NULL: none */
    const char *profile_steps; /* "A:B"; NULL: after the warm-up */
    const char *plot;          /* picture of the loss curve; NULL: none */
    int generate_examples;     /* texts generated for the first validation rows at the end */

    /* checkpoints: what a run is continued from */
    int save_strategy;          /* fsdp_save_strategy; without the flag: STEPS with save_steps */
    double save_steps;          /* between checkpoints */
    int64_t save_total_limit;   /* as many newest ones are kept; 0: all */
    bool async_save;            /* write them beside training */
    int state_dict_type;        /* fsdp_state_dict_type: what a checkpoint holds */
    int checkpoint_format;      /* fsdp_checkpoint_format: how its files are called */
    const char *checkpoint_dir; /* folder of checkpoint-<step>; NULL: <output>-checkpoints */
    const char *resume;         /* "auto", a folder; NULL: from the beginning */
    const char *checkpoint;     /* what "auto" stands for, or NULL */
    int64_t resume_step;        /* steps before that folder was saved; -1: it says so itself */

    /* Not an option: an earlier attempt of the same job, which was not refused, may have saved. */
    bool restarted;
    const atomic_bool *interrupted; /* true: begin no save, end; not an option; NULL: never */

    /* Which options of some tasks or rows alone are asked for (fsdp_options_says), so that they are
     * refused where they change nothing. Not an option. */
    struct {
        bool task_prefix, text_column, target_column, max_source_length, max_target_length;
    } says;

    /* spellings of other tools, folded into the fields above */
    bool bf16, fp16, tutorial_loss;
    int mixed_precision; /* index into fsdp_train_precisions */
} fsdp_train_config;

/* The option table with its checks; static storage. */
const fsdp_options_spec *fsdp_train_options(void);

/* "causal-lm": what --task calls it; static. */
const char *fsdp_train_task_name(fsdp_task task);
/* The same of a fsdp_train_task other than AUTO. */
const char *fsdp_train_given_task_name(int task);
/* What a model is for that learns a fsdp_train_task other than AUTO. */
fsdp_task fsdp_train_model_task(int task);
/* --task-prefix unless it is given; static. */
const char *fsdp_train_task_prefix(fsdp_task task);
/* Once the task is known: values that nobody gave and that depend on it; then the checks that do.
 */
FSDP_MUST_CHECK fsdp_status fsdp_train_config_set_task(fsdp_train_config *config, fsdp_task task);

/* Has it the first and second moments? */
static inline bool fsdp_optimizer_is_adam(int optimizer)
{
    return optimizer == FSDP_OPTIMIZER_ADAMW || optimizer == FSDP_OPTIMIZER_ADAM;
}
/* "HYBRID_SHARD": what --sharding-strategy calls it; static. */
const char *fsdp_sharding_strategy_name(fsdp_sharding_strategy strategy);
/* Is the model there several times? */
static inline bool fsdp_sharding_is_hybrid(int strategy)
{
    return strategy == FSDP_SHARDING_HYBRID_SHARD || strategy == FSDP_SHARDING_HYBRID_SHARD_ZERO2;
}
/* Everything of them but the mesh. */
void fsdp_train_config_shard_options(const fsdp_train_config *config,
                                     fsdp_fully_shard_options *options);
/* HYBRID: how many ranks each replica is sharded over. FSDP_ERR_INVALID naming both numbers if the
 * ranks do not divide so. */
FSDP_MUST_CHECK fsdp_status fsdp_train_config_shard_size(const fsdp_train_config *config,
                                                         int world_size, int ranks_of_host,
                                                         int *shard_size);

/* For the table: values that follow from others, and the checks across fields. */
void fsdp_train_config_derive(void *config, const fsdp_options *options);
fsdp_status fsdp_train_config_check(void *config, const fsdp_options *options);
