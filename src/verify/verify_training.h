/* Internals of verify: training as the golden trajectories were made. */
#pragma once
#include <fsdp/optim.h>

#include "src/verify/verify_case.h"

typedef enum fsdp_verify_optimizer_kind {
    FSDP_VERIFY_ADAMW, /* also for Adam */
    FSDP_VERIFY_SGD,
    FSDP_VERIFY_ADAFACTOR
} fsdp_verify_optimizer_kind;

/* An optimizer: the class of that name in torch.optim or transformers, and its options. */
typedef struct fsdp_verify_optimizer {
    fsdp_verify_optimizer_kind kind;
    fsdp_adamw_options adamw;
    fsdp_sgd_options sgd;
    fsdp_adafactor_options adafactor;
} fsdp_verify_optimizer;

/* Each of the `options` may be missing, and so may `options` itself. FSDP_ERR_UNSUPPORTED for other
 * classes. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_optimizer_read(fsdp_json_node options,
                                                       const char *class_name,
                                                       fsdp_verify_optimizer *o);
FSDP_MUST_CHECK fsdp_status fsdp_verify_optimizer_create(const fsdp_verify_optimizer *o,
                                                         fsdp_module *module,
                                                         fsdp_optimizer **optimizer);

/* The content of a trajectory file, or of a part of expected_bf16.json. Borrows from its
 * document. */
typedef struct fsdp_verify_recipe {
    const char *model;               /* folder, relative to the case's folder */
    const char *inputs;              /* file, relative to the case's folder */
    fsdp_verify_optimizer optimizer; /* its rate comes from the schedule */
    double max_norm;
    fsdp_lr_schedule schedule;
    fsdp_json_node rates;  /* the rate of each step, in place of a schedule; value NULL: none */
    fsdp_json_node frozen; /* prefixes of the names that do not train; value NULL: none */
    int64_t accumulation, steps;
    bool sync_last_only;    /* set_requires_gradient_sync(false) before the last micro-step */
    bool no_steps;          /* the weights do not change: each micro-batch runs by itself */
    const char *checkpoint; /* folder of the model and optimizer after first_step steps, relative to
                               the case's folder; NULL: begin with the model's weights */
    int64_t first_step;
} fsdp_verify_recipe;

/* Read optimizer, clip_grad_norm, accumulation, frozen_prefixes and model of `root`. Missing keys
 * get the values that golden folders use: AdamW and a bound of 1. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_recipe_read(fsdp_json_node root, fsdp_verify_recipe *r);
/* Read a whole trajectory file: also schedule, inputs and steps. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_recipe_read_file(fsdp_json_node root,
                                                         fsdp_verify_recipe *r);

/* The results of a run, [steps] each. */
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
    fsdp_parameter_list parameters; /* each parameter once, under its first name */
    fsdp_tape *tape;
} fsdp_verify_training;

/* Trains as the recipe says. On success and on failure the trained model is left in *t, which the
 * caller closes, and the curve must be freed by the caller. *t must be zero except for its case. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_train(fsdp_verify_training *t, const fsdp_verify_recipe *r,
                                              const fsdp_fully_shard_options *shard,
                                              fsdp_verify_curve *curve);
void fsdp_verify_training_close(fsdp_verify_training *t);

/* Load the checkpoint `dir`, relative to the case's folder, into model and optimizer.
 * Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_load(const fsdp_verify_training *t, const char *dir);
/* The same as fsdp_verify_train(), without the steps. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_training_open(fsdp_verify_training *t,
                                                      const fsdp_verify_recipe *r,
                                                      const fsdp_fully_shard_options *shard);
/* Compare the steps of trajectory_cosine for this world size that follow the checkpoint after
 * `step` steps. The checkpoint was made by two ranks. Another number of ranks is compared if its
 * curve agrees up to that step. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_resumed(fsdp_verify_case *c, const char *checkpoint,
                                                int64_t step);

/* Compare trained parameters with final_params.safetensors, which was made in the same way, and
 * check with params.json which of them differ from the model's. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_final_params(const fsdp_verify_training *t);
FSDP_MUST_CHECK fsdp_status fsdp_verify_changed_params(const fsdp_verify_training *t);
