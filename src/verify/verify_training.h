/* Internals of verify: training in the same way as the golden trajectories were made. */
#pragma once
#include <fsdp/optim.h>
#include <fsdp/state_dict.h>

#include "src/verify/verify_case.h"

typedef enum fsdp_verify_optimizer_kind {
    FSDP_VERIFY_ADAMW, /* also for Adam */
    FSDP_VERIFY_SGD,
    FSDP_VERIFY_ADAFACTOR
} fsdp_verify_optimizer_kind;

/* An optimizer of torch.optim or transformers, and its options. */
typedef struct fsdp_verify_optimizer {
    fsdp_verify_optimizer_kind kind;
    fsdp_adamw_options adamw;
    fsdp_sgd_options sgd;
    fsdp_adafactor_options adafactor;
} fsdp_verify_optimizer;

/* Read the options of the optimizer class `class_name`. Any key of `options` may be missing, and
 * `options` may be absent. Returns FSDP_ERR_UNSUPPORTED for a class that is not supported. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_optimizer_read(fsdp_json_node options,
                                                       const char *class_name,
                                                       fsdp_verify_optimizer *o);
FSDP_MUST_CHECK fsdp_status fsdp_verify_optimizer_create(const fsdp_verify_optimizer *o,
                                                         fsdp_module *module,
                                                         fsdp_optimizer **optimizer);

/* The content of a trajectory file, or of a part of expected_bf16.json. Pointers are borrowed from
 * the JSON document. */
typedef struct fsdp_verify_recipe {
    const char *model;               /* folder, relative to the case's folder */
    const char *inputs;              /* file, relative to the case's folder */
    fsdp_verify_optimizer optimizer; /* its learning rate comes from `schedule` or `rates` */
    double max_norm;
    fsdp_lr_schedule schedule;
    fsdp_json_node rates;  /* learning rate of each step, instead of a schedule; value NULL: none */
    fsdp_json_node frozen; /* prefixes of the names of frozen parameters; value NULL: none */
    int64_t accumulation, steps;
    bool sync_last_only;    /* set_requires_gradient_sync(false) in all micro-steps but the last */
    bool no_steps;          /* the weights do not change between micro-batches */
    const char *checkpoint; /* folder of the checkpoint that was saved after first_step steps,
                               relative to the case's folder; NULL: begin with the model's
                               weights */
    int64_t first_step;
} fsdp_verify_recipe;

/* Read optimizer, clip_grad_norm, accumulation, frozen_prefixes and model from `root`. Missing keys
 * get the values that golden folders use: for example, AdamW, and a bound of 1 for the gradient
 * norm. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_recipe_read(fsdp_json_node root, fsdp_verify_recipe *r);
/* Read a whole trajectory file: the keys above, and also schedule, inputs and the number of
 * steps. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_recipe_read_file(fsdp_json_node root,
                                                         fsdp_verify_recipe *r);

/* The results of a run. Arrays are [steps] unless noted. */
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

/* Train as the recipe says. *t must be zero except for its case. On success and on failure, *t has
 * the trained model, and the caller must call fsdp_verify_training_close() and
 * fsdp_verify_curve_free(). */
FSDP_MUST_CHECK fsdp_status fsdp_verify_train(fsdp_verify_training *t, const fsdp_verify_recipe *r,
                                              const fsdp_fully_shard_options *shard,
                                              fsdp_verify_curve *curve);
void fsdp_verify_training_close(fsdp_verify_training *t);

/* Load the checkpoint `dir`, relative to the case's folder, into model and optimizer, in the way
 * that PyTorch scripts load: get a state dict, read into it, and set it. If `all` is not NULL, *all
 * is the loaded {"model": ..., "optim": ...}, owned by the caller. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_load(const fsdp_verify_training *t, const char *dir,
                                             fsdp_state_dict **all);
/* Prepare *t like fsdp_verify_train(), without loading a checkpoint or running steps. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_training_open(fsdp_verify_training *t,
                                                      const fsdp_verify_recipe *r,
                                                      const fsdp_fully_shard_options *shard);
/* Resume from `checkpoint`, which was saved after `step` steps, and compare the following steps
 * with the trajectory_cosine of this world size. The checkpoint was saved by two ranks. On another
 * number of ranks, steps are compared only if the trajectory of this world size agrees with that of
 * two ranks up to `step`. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_resumed(fsdp_verify_case *c, const char *checkpoint,
                                                int64_t step);

/* Compare trained parameters with final_params.safetensors, which was made in the same way, or
 * check which parameters training has changed, as params.json says. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_final_params(const fsdp_verify_training *t);
FSDP_MUST_CHECK fsdp_status fsdp_verify_changed_params(const fsdp_verify_training *t);
