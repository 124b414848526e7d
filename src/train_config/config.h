/* The configuration of `fsdp train`, with one field for each option in config_table.c. Most
 * defaults are those of PyTorch's FSDP tutorials. fsdp_options_parse() fills and checks the
 * configuration:
 *
 *     fsdp_train_config config;
 *     fsdp_options *options;
 *     FSDP_TRY(fsdp_options_parse(fsdp_train_options(), argc, argv, &config, &options));
 *
 * Strings belong to `options` and are valid until it is destroyed. */
#pragma once
#include <stdatomic.h>
#include <stdio.h>

#include <fsdp/data.h>
#include <fsdp/fsdp.h>
#include <fsdp/optim.h>
#include <fsdp/options.h>

#include "src/data/chat_options.h"
#include "src/data/form_options.h"
#include "src/fsdp/named_sharding.h"
#include "src/pretrained/quantize_flags.h"
#include "src/train_config/config_accelerate.h"

/* Measures of a validation that can decide which model is the best. */
typedef enum fsdp_best_metric {
    FSDP_BEST_LOSS,
    FSDP_BEST_ACCURACY,
    FSDP_BEST_F1,
    FSDP_BEST_ROUGE1,
    FSDP_BEST_ROUGE2,
    FSDP_BEST_ROUGEL,
    FSDP_BEST_ROUGELSUM
} fsdp_best_metric;

typedef enum fsdp_train_task {
    FSDP_TRAIN_AUTO, /* the task of the model, according to its config.json */
    FSDP_TRAIN_SEQ2SEQ,
    FSDP_TRAIN_CAUSAL_LM,
    FSDP_TRAIN_CLASSIFICATION,
    FSDP_TRAIN_MASKED_LM,
    FSDP_TRAIN_SPAN_CORRUPTION /* a SEQ2SEQ model, trained on texts without targets */
} fsdp_train_task;

typedef enum fsdp_schedule_unit {
    FSDP_SCHEDULE_EPOCH, /* the schedule's time is the number of finished epochs */
    FSDP_SCHEDULE_STEP   /* the schedule's time is the number of finished optimizer steps */
} fsdp_schedule_unit;

typedef enum fsdp_optimizer_kind {
    FSDP_OPTIMIZER_ADAMW,
    FSDP_OPTIMIZER_SGD,
    FSDP_OPTIMIZER_ADAFACTOR,
    FSDP_OPTIMIZER_ADAM, /* like AdamW, but weight decay is added to the gradient */
    FSDP_OPTIMIZER_ADAMW_8BIT,
    FSDP_OPTIMIZER_MUON, /* matrices of blocks by Muon, all other parameters by AdamW */
    FSDP_OPTIMIZER_SCHEDULE_FREE_ADAMW
} fsdp_optimizer_kind;

typedef enum fsdp_auto_wrap_policy {
    FSDP_AUTO_WRAP_TRANSFORMER_BASED,
    FSDP_AUTO_WRAP_SIZE_BASED,
    FSDP_AUTO_WRAP_NO
} fsdp_auto_wrap_policy;

/* What is communicated in each micro-step of a step, except in the last micro-step. */
typedef enum fsdp_accumulation_mode {
    /* every micro-step reduces its gradients; the bits of the result then do not depend on how the
     * batch is split into micro-steps */
    FSDP_ACCUMULATION_REDUCE,
    /* HYBRID_SHARD: gradients are reduced within each replica, but not between replicas */
    FSDP_ACCUMULATION_REDUCE_SCATTER,
    FSDP_ACCUMULATION_NO_SYNC /* no gradients are reduced: every rank keeps whole gradients */
} fsdp_accumulation_mode;

typedef enum fsdp_print_model {
    FSDP_PRINT_MODEL_NONE,
    FSDP_PRINT_MODEL_FSDP2,
    FSDP_PRINT_MODEL_FSDP1
} fsdp_print_model;

typedef enum fsdp_loss_reduction {
    FSDP_LOSS_TOKEN_MEAN, /* mean over the label tokens of the global batch */
    /* mean of the micro-batches' means, as in PyTorch's scripts and the tutorials */
    FSDP_LOSS_MEAN_OF_MEANS
} fsdp_loss_reduction;

typedef enum fsdp_checkpoint_format {
    FSDP_CHECKPOINT_FSDP,
    FSDP_CHECKPOINT_ACCELERATE,    /* the files of Accelerate's save_state() */
    FSDP_CHECKPOINT_ACCELERATE_024 /* the files of Accelerate up to version 0.24 */
} fsdp_checkpoint_format;

typedef enum fsdp_save_strategy {
    FSDP_SAVE_NO,
    FSDP_SAVE_STEPS, /* save every save_steps steps, and at the end of the run */
    FSDP_SAVE_EPOCH,
    FSDP_SAVE_BEST /* not supported: fsdp_train_config_check() returns an error */
} fsdp_save_strategy;

/* When to validate or to log, as in transformers' Trainer. */
typedef enum fsdp_strategy {
    FSDP_STRATEGY_NO,
    FSDP_STRATEGY_STEPS,
    FSDP_STRATEGY_EPOCH
} fsdp_strategy;

typedef struct fsdp_train_config {
    /* The parsed options that filled this configuration. They own its strings. NULL if it was not
     * filled by parsing. */
    const fsdp_options *options;
    /* Size of the struct that the options were parsed into: a fsdp_train_config, or a struct that
     * begins with one and has further fields after it. */
    size_t parsed_bytes;
    /* model and data */
    int task;          /* fsdp_train_task */
    const char *model; /* folder or hub name; never NULL */
    /* draw the weights at random from `seed` instead of loading them */
    bool from_config;
    int64_t num_labels; /* number of classes; 0: the number in config.json */
    bool do_regression; /* --do-regression, another spelling of --problem-type regression */
    int problem_type;   /* 1 + fsdp_problem_type; 0: the type in config.json, or the type that the
                           labels in the data have */
    fsdp_option_list class_names; /* names of the classes; empty: those of config.json */
    /* draw random values for weights whose shape in the files differs from the model's */
    bool ignore_mismatched_sizes;
    const char *tokenizer; /* a tokenizer's file, or a folder with one; NULL: the model's */
    const char *data;      /* file or folder with the training rows; never NULL */
    double data_weight;    /* weight of `data` relative to the weights in mix_data */
    /* additional sources, each given as TASK:WEIGHT:PATH (config_sources.h); empty: `data` is the
     * only source */
    fsdp_option_list mix_data;
    /* options of span corruption; for masked-lm, noise_density is the fraction of tokens that are
     * predicted */
    double noise_density, mean_noise_span_length;
    const char *validation_data; /* NULL: none. Equal to `data` if splits_data is true */
    /* If there are no other validation rows, the first rows of `data` are used for validation. This
     * is their number as a percentage of all rows of `data`. 0: none */
    int validation_split_percentage;
    /* Not options. splits_data: `data` is split as validation_split_percentage says.
     * found_validation: `data` is a folder, in which validation_data was found. */
    bool splits_data, found_validation;
    const char *task_prefix; /* text that is put before every source text; NULL: the default of the
                              * task */
    const char *text_column, *target_column; /* names of columns; NULL: the defaults of the task */
    fsdp_chat_row_options chat;              /* options for rows that are conversations */
    fsdp_form_options form;                  /* options for the form of the rows in files */
    /* clean pairs of texts as the FSDP tutorial does; true if and only if form.cleaning is
     * FSDP_CLEANING_WIKIHOW */
    bool wikihow_cleaning;
    /* use only the first `max_train_samples` rows; 0: all */
    int64_t max_train_samples;
    int64_t max_validation_samples;
    int max_source_length; /* SEQ2SEQ: maximum number of tokens of a source, including </s> */
    int max_target_length;
    int val_max_target_length; /* maximum for validation rows; 0: max_target_length */
    /* Not options. cut_sources: the user gave --max-source-length. cut_targets: the user gave
     * --max-target-length. Rows of token ids are cut only to a length that the user gave. */
    bool cut_sources, cut_targets;
    /* tasks other than SEQ2SEQ: maximum number of tokens per row; 0: the model's maximum, but at
     * most 1024 for token files, plain text and packed rows */
    int64_t max_seq_length;
    int64_t document_token; /* token files: the token that begins a document; -1: none */
    double dropout;         /* NAN: the value in the model's config.json */
    /* parameters whose names begin with one of these are not trained */
    fsdp_option_list frozen_prefixes;

    /* LoRA: see config_lora.h */
    int64_t lora_r;      /* rank of a new adapter; 0: no new adapter */
    double lora_alpha;   /* 0: 8, PEFT's default */
    double lora_dropout; /* in [0, 1) */
    fsdp_option_list lora_target_modules, lora_exclude_modules, lora_modules_to_save;
    fsdp_option_list lora_layers_to_transform; /* indices */
    int lora_bias;                             /* fsdp_lora_bias */
    int init_lora_weights;                     /* fsdp_lora_init */
    bool use_rslora, use_dora;
    /* Products of 8-bit floats: see config_float8.h */
    int float8_recipe;      /* 1 + fsdp_float8_recipe; 0: no products in float8 */
    bool float8_all_gather; /* gather weights in float8 */
    bool float8_skip_first; /* derived: do not convert the first and the last linear layer, as in
                             * Accelerate */
    fsdp_option_list float8_filter_fqns; /* parts of the names of layers that are not converted */
    int fp8_backend;                     /* index of Accelerate's fp8 backend among the option's
                                          * choices; 0: not given */
    const char *adapter;                 /* folder of an adapter that the run continues to train;
                                            NULL: none */
    fsdp_quantize_flags quantize;

    /* training */
    double epochs; /* passes over the training rows, greater than 0; may be fractional */
    /* maximum number of optimizer steps; <= 0: only `epochs` ends the run. If max_steps is given
     * and --epochs is not, `epochs` is infinite */
    int64_t max_steps;
    int batch_size; /* rows per rank and micro-step */
    int validation_batch_size;
    int gradient_accumulation_steps; /* micro-steps per optimizer step */
    int64_t seed;
    int64_t data_seed; /* seed of the order of rows; -1: the value of `seed` */
    /* 0: random; 1: in the file's order; 2: group_by_length, which is random here. */
    int train_sampling_strategy;
    int sampler;            /* fsdp_sampler_kind */
    bool shuffle;           /* false: rows are read in the order of the file */
    bool drop_last;         /* leave out the last rows of the data if they do not fill a batch */
    int num_workers;        /* loader threads per rank; 0: the training thread loads the rows */
    int loss_reduction;     /* fsdp_loss_reduction */
    double label_smoothing; /* in [0, 1) */

    /* optimizer and schedule */
    int optimizer; /* fsdp_optimizer_kind */
    double lr;     /* learning rate; NAN: the default of the task */
    double weight_decay, momentum, dampening, beta1, beta2, eps;
    bool nesterov;
    /* parameters whose names contain one of these words have no weight decay; empty: all parameters
     * have weight decay */
    fsdp_option_list no_decay;
    double adafactor_eps1, adafactor_eps2, clip_threshold, decay_rate; /* options of Adafactor */
    /* option of Adafactor; NAN: there is no first moment */
    double adafactor_beta1;
    bool scale_parameter, relative_step, warmup_init;
    int adjust_lr_fn;                        /* fsdp_muon_adjust_lr */
    int ns_steps;                            /* fsdp_muon_options.ns_steps */
    fsdp_option_list ns_coefficients;        /* three numbers: fsdp_train_ns_coefficients() */
    double schedule_free_r, weight_lr_power; /* fsdp_schedule_free_options */
    double max_grad_norm;                    /* 0: no clipping */
    bool error_if_nonfinite;                 /* end the run if the gradient norm is not finite */
    /* p of the p-norm of the gradients, which is printed and used for clipping; may be INFINITY */
    double grad_norm_type;
    double clip_value; /* 0: no clipping */
    double init_scale; /* initial loss scale with float16 */
    /* the loss scale is multiplied by growth_factor after growth_interval steps without overflow,
     * and by backoff_factor after an overflow */
    double growth_factor, backoff_factor;
    int growth_interval; /* steps without overflow before the loss scale grows */
    bool lr_decay;       /* true unless lr_schedule is FSDP_LR_CONSTANT */
    bool given_lr_decay; /* not an option: the value given for --lr-decay */
    int lr_schedule;     /* fsdp_lr_schedule_kind */
    /* Not an option. True if the user did not choose a schedule, so that the task determines it. */
    bool schedule_by_task;
    /* fsdp_schedule_unit; default: FSDP_SCHEDULE_EPOCH if lr_schedule is FSDP_LR_STEP, else
     * FSDP_SCHEDULE_STEP */
    int schedule_unit;
    double gamma;
    int step_size;       /* FSDP_LR_STEP: epochs or steps (schedule_unit) between changes of lr */
    double warmup_steps; /* number of optimizer steps; below 1: a fraction of all steps */
    /* fraction of all steps; warmup_steps takes precedence if both are given */
    double warmup_ratio;
    double min_lr, min_lr_rate; /* final rate, and that rate as a fraction of lr; 0: not given */
    double lr_power;            /* polynomial schedule */
    double num_cycles;          /* cosine schedule with restarts */

    /* sharding */
    int sharding_strategy; /* fsdp_sharding_strategy */
    /* sharding and offloading in transformers' words, such as "full_shard"; NULL: not given */
    const char *fsdp;
    /* 0: parameters stay gathered after forward; 1: they are resharded after forward; n > 1: they
     * are resharded, and backward gathers them among only n ranks. After derivation, this value
     * agrees with sharding_strategy */
    int reshard_after_forward;
    int backward_prefetch; /* fsdp_backward_prefetch */
    bool forward_prefetch;
    int forward_prefetch_kind; /* fsdp_forward_prefetch; derived from forward_prefetch */
    bool limit_all_gathers;
    /* Prefetch with the two depths below, and gather the root unit at the beginning of a step. */
    bool explicit_prefetching;
    /* lengths of the explicit prefetch lists, in units; 0: implicit prefetching */
    int forward_prefetch_depth, backward_prefetch_depth;
    fsdp_option_list no_unshard_in_backward; /* names of units that are not gathered in backward */
    /* reshard after the backward of each micro-step, not only of the last one */
    bool reshard_after_backward;
    /* backward waits for its last reduce only in the last micro-step of a step. In the other
     * micro-steps, backward ends without this wait */
    bool set_is_last_backward;
    /* divisor of the summed gradients; 0: the number of label tokens in a step, or with
     * FSDP_LOSS_MEAN_OF_MEANS the number of micro-batches */
    double gradient_divide_factor;
    int accumulation_mode; /* fsdp_accumulation_mode */
    bool sync_each_batch;  /* true if and only if accumulation_mode is FSDP_ACCUMULATION_REDUCE */
    /* HYBRID_SHARD: number of ranks per replica; 0: the number of ranks divided by `replicas`. If
     * both are 0: the number of ranks on a host */
    int shard_size;
    int replicas; /* HYBRID_SHARD: number of replicas; 0: derived from shard_size */
    /* Not an option: the number of ranks that Accelerate's parallelism_config requires; 0: any
     * number. */
    int64_t mesh_ranks;
    fsdp_accelerate_keys file_keys;                 /* not options: values of keys in a
                                                     * configuration file of Accelerate */
    int auto_wrap_policy;                           /* fsdp_auto_wrap_policy */
    fsdp_option_list transformer_layer_cls_to_wrap; /* empty: the default units */
    /* SIZE_BASED: minimum number of parameters in a unit; 0: FSDP1's default */
    int64_t min_num_params;
    /* number of consecutive blocks that form one unit */
    int blocks_per_unit;
    /* sharding options for modules and parameters that the user names */
    fsdp_named_sharding_options named;
    bool activation_checkpointing;      /* recompute the blocks' forward in backward */
    int activation_checkpointing_kind;  /* fsdp_activation_checkpointing_kind */
    int activation_checkpointing_every; /* checkpoint only every n-th block */
    /* keep the inputs of checkpointed blocks in a file until backward */
    bool activation_offload;
    /* offload master weights and optimizer state: to files in offload_dir if it is set, else to
     * memory */
    bool cpu_offload;
    /* folder for offload files; NULL: activations go to $TMPDIR, or to /tmp if that is not set */
    const char *offload_dir;
    fsdp_dtype param_dtype, reduce_dtype, master_dtype, buffer_dtype; /* fields of fsdp_mp_policy */
    fsdp_dtype
        internode_reduce_dtype; /* see the field of the same name in fsdp_fully_shard_options */
    bool set_internode_reduce_dtype;
    fsdp_dtype optimizer_state_dtype;
    bool bf16_stochastic_round; /* fsdp_adamw_options.bf16_stochastic_round */
    fsdp_dtype output_dtype;    /* dtype of the model's loss */
    bool set_output_dtype, cast_forward_inputs, cast_root_forward_inputs;
    /* device: the device's name, as for fsdp_rank_device_create(); NULL: the default. device_id:
     * the card that is used if the run uses a card; NULL: not given (config_device.h) */
    const char *device, *device_id;
    fsdp_option_list gpu_ids; /* cards that the run may use; empty, or "all": all */
    const char *devices;      /* number of ranks that the run must have; "auto": any number */
    int threads_per_rank; /* 0: the cores of this host divided by its number of ranks, at least 1 */
    /* instruction set, for fsdp_kernels_cpu_open(); NULL: the best that the CPU supports */
    const char *isa;

    /* output */
    const char *output; /* folder for the model; never NULL if save_model is true */
    bool overwrite_output, save_model, run_validation;
    /* A value of evaluation_steps or logging_steps that is at least 1 is a number of optimizer
     * steps. A value below 1 is a fraction of all steps of the run. As soon as the trainer knows
     * how many steps the run has, it replaces the fraction by a number of steps. */
    double evaluation_steps; /* steps between validations; 0: validate at the end of each epoch */
    /* like evaluation_steps, but also validate at the end of each epoch, as in Lit-GPT's scripts;
     * 0: not given */
    double eval_step_interval;
    int64_t eval_iters;   /* largest number of batches of a rank in a validation; 0: all */
    int eval_strategy;    /* fsdp_strategy; consistent with evaluation_steps */
    bool eval_on_start;   /* validate before the first step, too */
    int logging_strategy; /* fsdp_strategy; consistent with logging_steps */
    double logging_steps; /* steps between progress lines, if stdout is not a terminal */
    /* bytes for all ranks of a host together, or, if the run uses cards, for the tensors of all
     * ranks that share a card; 0: no limit */
    int64_t memory_limit;
    bool track_memory;   /* report memory by purpose */
    int print_model;     /* fsdp_print_model: how to print the module tree and its units */
    const char *metrics; /* file for metrics, as JSON lines; NULL: none */
    bool rank_metrics;   /* each rank writes a file about itself, next to `metrics` */
    /* dashboard: serve a page about the run while it runs. dashboard_stays: go on serving the page
     * after the run has ended. */
    bool dashboard, dashboard_stays;
    int dashboard_port; /* 0: any free port */
    /* Called by rank 0 as soon as the files that `dashboard` shows exist. `folder` contains the
     * file of metrics; `checkpoints` is the folder of checkpoints, or NULL. The function may print
     * to `out` if `out` is not NULL. If it returns an error, the run ends. The pointer may be
     * NULL. */
    fsdp_status (*reports_open)(void *context, const char *folder, const char *checkpoints,
                                FILE *out);
    void *reports_context;
    /* Names of the trackers that get the metrics; see config_report.h. */
    fsdp_option_list report_to;
    int64_t log_histograms;      /* steps between histograms of weights and gradients; 0: none */
    bool with_tracking;          /* Accelerate's switch: report to all trackers */
    const char *logging_dir;     /* folder for the trackers' files; NULL: a folder in
                                  * <output>/runs */
    const char *tracker_command; /* program that gets the rows of metrics; NULL: none */
    /* Names of the run and of its project, which the program `tracker_command` gets; NULL: none. */
    const char *run_name, *project;
    const char *profile;       /* file for the trace of a few steps; NULL: none */
    const char *profile_steps; /* range "A:B" of steps to trace; NULL: steps after the warm-up */
    const char *plot;          /* file for a picture of the loss curve; NULL: none */
    /* at the end of the run, generate texts for the first `generate_examples` validation rows */
    int generate_examples;
    /* predict_with_generate: in validation, generate a text for each row and score it with ROUGE.
     * rouge_stemmer: ROUGE compares the stems of words. */
    bool predict_with_generate, rouge_stemmer;
    int64_t generation_max_length, generation_num_beams; /* 0: not given */
    int metric_for_best_model;                           /* fsdp_best_metric */
    bool load_best_model_at_end; /* false: save the model of the last step, even with validation */
    /* Redundant, because metric_for_best_model determines the value. A value that contradicts
     * metric_for_best_model is an error. */
    bool greater_is_better;

    /* checkpoints and resuming */
    /* fsdp_save_strategy; default: FSDP_SAVE_STEPS if save_steps is set, else FSDP_SAVE_NO */
    int save_strategy;
    double save_steps;        /* optimizer steps between checkpoints */
    int64_t save_total_limit; /* number of newest checkpoints to keep; 0: all */
    bool async_save;          /* write checkpoints while training continues */
    /* fsdp_state_dict_type: in which files the model and the optimizer are saved */
    int state_dict_type;
    int checkpoint_format; /* fsdp_checkpoint_format: which program's files are written */
    /* folder of the checkpoint-<step> folders; NULL: <output>-checkpoints */
    const char *checkpoint_dir;
    const char *resume; /* "auto", a folder or a file; NULL: start from the beginning */
    /* the checkpoint from which `--resume true` resumes; NULL: the newest one */
    const char *checkpoint;
    /* number of steps that the saved run had taken; -1: read it from the checkpoint */
    int64_t resume_step;

    /* Not options. The paths of the files with the rows for training and validation, if the user
     * gave a folder with these files as `data`. Otherwise empty. */
    char train_file[1024], validation_file[1024];
    /* Not an option. True if an earlier attempt of the same job has begun, so that it may have
     * written files. */
    bool restarted;
    /* Not an option. A flag that the caller sets to end the run early. A run that saves checkpoints
     * then saves a last checkpoint and ends. A run that saves no checkpoints continues until it is
     * about to save the model, and ends then. NULL: the run cannot be interrupted. */
    const atomic_bool *interrupted;

    /* Not options. Some options are only for certain tasks or certain kinds of rows. Each of these
     * options has a field of the same name here. The field is true if the user asked for the option
     * (fsdp_options_asked_for()). If the task or the rows turn out not to be of the right kind,
     * this is an error. */
    struct {
        bool task_prefix, text_column, target_column, max_source_length, max_target_length;
    } asked_for;
    /* Not an option. True if --task-prefix was given, even with an empty text. */
    bool given_task_prefix;

    /* Options in the spelling of other tools. They set fields above. */
    bool bf16, fp16, tutorial_loss, use_cpu;
    int mixed_precision; /* index into fsdp_train_precisions */
} fsdp_train_config;

/* Return the option table with its checks; static storage. */
const fsdp_options_spec *fsdp_train_options(void);

/* Return the name that --task uses, such as "causal-lm"; static. */
const char *fsdp_train_task_name(fsdp_task task);
/* Return the name that --task uses for `task`, an fsdp_train_task other than AUTO; static. */
const char *fsdp_train_given_task_name(int task);
/* Return the task that a model must have for --task `task`, an fsdp_train_task other than AUTO. */
fsdp_task fsdp_train_model_task(int task);
/* Return the default of --task-prefix for a task; static. */
const char *fsdp_train_task_prefix(fsdp_task task);
/* Called when the model's task is known. Set the values that depend on the task and that the user
 * did not give, then check the options that depend on the task. */
FSDP_MUST_CHECK fsdp_status fsdp_train_config_set_task(fsdp_train_config *config, fsdp_task task);

/* Return true for AdamW and Adam, whose moments have a dtype that the user may choose. */
static inline bool fsdp_optimizer_is_adam(int optimizer)
{
    return optimizer == FSDP_OPTIMIZER_ADAMW || optimizer == FSDP_OPTIMIZER_ADAM;
}
/* Return true for the optimizers that have the options beta1, beta2 and eps. */
static inline bool fsdp_optimizer_has_betas(int optimizer)
{
    return fsdp_optimizer_is_adam(optimizer) || optimizer == FSDP_OPTIMIZER_ADAMW_8BIT ||
           optimizer == FSDP_OPTIMIZER_MUON || optimizer == FSDP_OPTIMIZER_SCHEDULE_FREE_ADAMW;
}
/* Set `coefficients` to the three numbers of --ns-coefficients. */
FSDP_MUST_CHECK fsdp_status fsdp_train_ns_coefficients(const fsdp_train_config *config,
                                                       double coefficients[3]);
/* Return the name that --sharding-strategy uses, such as "HYBRID_SHARD"; static. */
const char *fsdp_sharding_strategy_name(fsdp_sharding_strategy strategy);
/* Return true if the strategy can use several replicas of the model. */
static inline bool fsdp_sharding_is_hybrid(int strategy)
{
    return strategy == FSDP_SHARDING_HYBRID_SHARD || strategy == FSDP_SHARDING_HYBRID_SHARD_ZERO2;
}
/* Set all fields of *options from the configuration, except the mesh. */
void fsdp_train_config_shard_options(const fsdp_train_config *config,
                                     fsdp_fully_shard_options *options);
/* HYBRID_SHARD: set *shard_size to the number of ranks over which each replica is sharded. Return
 * FSDP_ERR_INVALID if shard size times number of replicas is not the number of ranks; the message
 * contains these numbers. */
FSDP_MUST_CHECK fsdp_status fsdp_train_config_shard_size(const fsdp_train_config *config,
                                                         int world_size, int ranks_of_host,
                                                         int *shard_size);

/* Called by the option table after parsing. Set values that follow from other values. */
void fsdp_train_config_derive(void *config, const fsdp_options *options);
/* Called by the option table after fsdp_train_config_derive(). Return an error if values contradict
 * each other. */
fsdp_status fsdp_train_config_check(void *config, const fsdp_options *options);
