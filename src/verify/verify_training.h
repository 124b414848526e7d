/* Inside of verify: training as the golden trajectories did it. */
#pragma once
#include <fsdp/optim.h>

#include "src/verify/verify_case.h"

typedef enum fsdp_verify_optimizer_kind {
    FSDP_VERIFY_ADAMW, /* and Adam */
    FSDP_VERIFY_SGD,
    FSDP_VERIFY_ADAFACTOR
} fsdp_verify_optimizer_kind;

/* An optimizer as torch.optim's class of that name, or transformers', and its options say. */
typedef struct fsdp_verify_optimizer {
    fsdp_verify_optimizer_kind kind;
    fsdp_adamw_options adamw;
    fsdp_sgd_options sgd;
    fsdp_adafactor_options adafactor;
} fsdp_verify_optimizer;

/* `options` may lack any of them, and be nothing at all. FSDP_ERR_UNSUPPORTED for other classes. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_optimizer_read(fsdp_json_node options,
                                                       const char *class_name,
                                                       fsdp_verify_optimizer *o);
FSDP_MUST_CHECK fsdp_status fsdp_verify_optimizer_create(const fsdp_verify_optimizer *o,
                                                         fsdp_module *module,
                                                         fsdp_optimizer **optimizer);

/* What a trajectory file says, or a part of expected_bf16.json. Borrows from its document. */
typedef struct fsdp_verify_recipe {
    const char *model;               /* folder, relative to the case's */
    const char *inputs;              /* file, likewise */
    fsdp_verify_optimizer optimizer; /* its rate is the schedule's */
    double max_norm;
    fsdp_lr_schedule schedule;
    fsdp_json_node rates;  /* the rate of each step, in place of a schedule; value NULL: none */
    fsdp_json_node frozen; /* beginnings of the names that do not train; value NULL: none */
    int64_t accumulation, steps;
    bool sync_last_only;    /* set_requires_gradient_sync(false) before the last micro-step */
    bool no_steps;          /* the weights stay: each micro-batch by itself */
    const char *checkpoint; /* folder of model and optimizer after first_step steps, relative to the
                               case's; NULL: from the model's weights on */
    int64_t first_step;
} fsdp_verify_recipe;

/* optimizer, clip_grad_norm, accumulation, frozen_prefixes and model of `root`, with the values
 * that golden folders give where they say nothing: AdamW and a bound of 1. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_recipe_read(fsdp_json_node root, fsdp_verify_recipe *r);
/* A whole trajectory file: also schedule, inputs and steps. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_recipe_read_file(fsdp_json_node root,
                                                         fsdp_verify_recipe *r);

/* What a run gives: [steps] each. */
typedef struct fsdp_verify_curve {
    double *loss, *grad_norm, *lr;
    double *local_loss; /* [steps, world_size] */
} fsdp_verify_curve;
void fsdp_verify_curve_free(fsdp_verify_curve *curve);

typedef struct fsdp_verify_training {
    fsdp_verify_case *c;
    fsdp_checkpoint_reader *inputs;
    fsdp_model *model;
    fsdp_optimizer *optimizer;
    fsdp_parameter_list parameters; /* each once, under its first name */
    fsdp_tape *tape;
} fsdp_verify_training;

/* Leaves the trained model in *t, which the caller closes, and the curve, which it frees: both also
 * after a failure. *t has its case, else zero. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_train(fsdp_verify_training *t, const fsdp_verify_recipe *r,
                                              const fsdp_fully_shard_options *shard,
                                              fsdp_verify_curve *curve);
void fsdp_verify_training_close(fsdp_verify_training *t);

/* Values of the checkpoint `dir`, relative to the case's, into model and optimizer. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_load(const fsdp_verify_training *t, const char *dir);
/* The same as fsdp_verify_train() without the steps. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_training_open(fsdp_verify_training *t,
                                                      const fsdp_verify_recipe *r,
                                                      const fsdp_fully_shard_options *shard);
/* Steps of trajectory_cosine of this world size, from the checkpoint after `step` of them on. It
 * was made by two ranks: other numbers of ranks compare where their curves agree up to there. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_resumed(fsdp_verify_case *c, const char *checkpoint,
                                                int64_t step);

/* Trained parameters against final_params.safetensors, which was made so; and, by params.json,
 * which of them differ from the model's. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_final_params(const fsdp_verify_training *t);
FSDP_MUST_CHECK fsdp_status fsdp_verify_changed_params(const fsdp_verify_training *t);
