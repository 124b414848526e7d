/* Internals of verify: training in the same way as PyTorch when it made the golden trajectories. */
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
 * options.value may be NULL. Returns FSDP_ERR_UNSUPPORTED for a class that is not supported. */
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
    fsdp_json_node rates; /* learning rate of each step, used instead of `schedule`; value NULL: use
                             `schedule` */
    fsdp_json_node frozen; /* prefixes of the names of frozen parameters; value NULL: none */
    int64_t accumulation, steps;
    bool sync_last_only;    /* set_requires_gradient_sync(false) in all micro-steps but the last */
    bool no_steps;          /* skip optimizer steps, so that the weights stay the same */
    const char *checkpoint; /* checkpoint folder to resume from, relative to the case's folder. The
                               checkpoint was saved after first_step steps. NULL: begin with the
                               model's weights */
    int64_t first_step;
} fsdp_verify_recipe;

/* Read optimizer, clip_grad_norm, accumulation, frozen_prefixes and model from `root`. Missing keys
 * get the defaults of golden folders, such as AdamW and a gradient norm of at most 1. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_recipe_read(fsdp_json_node root, fsdp_verify_recipe *r);
/* Read a whole trajectory file: everything that fsdp_verify_recipe_read() reads, and also schedule,
 * inputs and the number of steps. */
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
    fsdp_parameter_list parameters; /* a shared parameter is listed once, by its first name */
    fsdp_tape *tape;
} fsdp_verify_training;

/* Train as the recipe says. *t must be zero except for t->c. On success, t->model is the trained
 * model. The caller must call fsdp_verify_training_close() and fsdp_verify_curve_free(), even after
 * a failure. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_train(fsdp_verify_training *t, const fsdp_verify_recipe *r,
                                              const fsdp_fully_shard_options *shard,
                                              fsdp_verify_curve *curve);
void fsdp_verify_training_close(fsdp_verify_training *t);

/* Load the checkpoint `dir`, relative to the case's folder, into model and optimizer. As PyTorch
 * scripts do, get a state dict, read the files into it, and then set it on model and optimizer. If
 * `all` is not NULL, *all is the loaded {"model": ..., "optim": ...}, owned by the caller.
 * Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_load(const fsdp_verify_training *t, const char *dir,
                                             fsdp_state_dict **all);
/* Open the inputs and the model and create the optimizer, as fsdp_verify_train() does before it
 * loads a checkpoint and trains. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_training_open(fsdp_verify_training *t,
                                                      const fsdp_verify_recipe *r,
                                                      const fsdp_fully_shard_options *shard);
/* Resume from `checkpoint`, which two ranks saved after `step` steps, and compare the steps that
 * follow with the folder's trajectory_cosine for this world size. If this run does not have two
 * ranks, its first `step` steps must have been equivalent to those on two ranks: each label had the
 * same weight (Note [Splits] in verify_trajectory.c), and the losses agree. Otherwise report the
 * steps as not compared. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_resumed(fsdp_verify_case *c, const char *checkpoint,
                                                int64_t step);

/* Compare the trained parameters with final_params.safetensors. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_final_params(const fsdp_verify_training *t);
/* Check that training has changed the parameters that params.json lists as changed, and no
 * others. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_changed_params(const fsdp_verify_training *t);
