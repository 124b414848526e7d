/* The internal interface for training in `fsdp verify`: recipes, which say how to train, and
 * functions that train as a recipe says. */
#pragma once
#include <fsdp/optim.h>
#include <fsdp/state_dict.h>

#include "src/verify/verify_case.h"

typedef enum fsdp_verify_optimizer_kind {
    FSDP_VERIFY_ADAMW, /* AdamW and Adam */
    FSDP_VERIFY_SGD,
    FSDP_VERIFY_ADAFACTOR
} fsdp_verify_optimizer_kind;

/* The options of an optimizer of torch.optim or transformers. Only the member for `kind` is
 * used. */
typedef struct fsdp_verify_optimizer {
    fsdp_verify_optimizer_kind kind;
    fsdp_adamw_options adamw;
    fsdp_sgd_options sgd;
    fsdp_adafactor_options adafactor;
} fsdp_verify_optimizer;

/* Set *o to the options of the optimizer class `class_name`, as the JSON object `options` gives
 * them. Missing keys get the defaults. options.value may be NULL: all keys are missing. Returns
 * FSDP_ERR_UNSUPPORTED if the class is not supported. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_optimizer_read(fsdp_json_node options,
                                                       const char *class_name,
                                                       fsdp_verify_optimizer *o);
FSDP_MUST_CHECK fsdp_status fsdp_verify_optimizer_create(const fsdp_verify_optimizer *o,
                                                         fsdp_module *module,
                                                         fsdp_optimizer **optimizer);

/* How to train. This is the content of a trajectory file or of a part of expected_bf16.json.
 * Pointers are borrowed from the JSON document. */
typedef struct fsdp_verify_recipe {
    const char *model;   /* folder, relative to the case's folder */
    const char *adapter; /* folder of an adapter, relative to the case's folder; NULL: none */
    const char *inputs;  /* file, relative to the case's folder */
    /* in each step, the learning rate in these options is replaced by the one from `schedule` or
     * `rates` */
    fsdp_verify_optimizer optimizer;
    double max_norm;
    fsdp_lr_schedule schedule;
    /* learning rates of the steps, used instead of `schedule`; rates.value NULL: use `schedule` */
    fsdp_json_node rates;
    /* parameters whose names begin with one of these prefixes are frozen; frozen.value NULL:
     * none */
    fsdp_json_node frozen;
    int64_t accumulation, steps;
    /* true: gradients are communicated only in the last micro-step of a step
     * (set_requires_gradient_sync(false) in the other micro-steps) */
    bool sync_last_only;
    /* true: compute gradients, but never update the weights */
    bool no_steps;
    /* Folder of the checkpoint to resume from, relative to the case's folder. It was saved after
     * first_step steps. NULL: begin with the model's weights. */
    const char *checkpoint;
    int64_t first_step;
} fsdp_verify_recipe;

/* Read a part of a recipe from `root`: optimizer, clip_grad_norm, accumulation, frozen_prefixes and
 * model. Missing keys get the defaults of golden folders: AdamW, a gradient norm of at most 1, one
 * micro-step per step, no frozen parameters, model/. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_recipe_read(fsdp_json_node root, fsdp_verify_recipe *r);
/* Read a recipe from a trajectory file: all that fsdp_verify_recipe_read() reads, and also the
 * schedule, the name of the inputs, and the number of steps. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_recipe_read_file(fsdp_json_node root,
                                                         fsdp_verify_recipe *r);

/* The results of training. Arrays have one element per step, except local_loss. */
typedef struct fsdp_verify_curve {
    double *loss, *grad_norm, *lr;
    double *local_loss; /* [steps, world_size]: the loss of each rank */
} fsdp_verify_curve;
void fsdp_verify_curve_free(fsdp_verify_curve *curve);

typedef struct fsdp_verify_training {
    fsdp_verify_case *c;
    fsdp_checkpoint_reader *inputs;
    fsdp_model *model;
    fsdp_optimizer *optimizer;
    /* All parameters. A parameter that several modules share is listed once, under the first of
     * its names. */
    fsdp_parameter_list parameters;
    fsdp_tape *tape;
} fsdp_verify_training;

/* Train as the recipe says. *t must be zero except for t->c. On success, t->model is the trained
 * model. Even after a failure, the caller must call fsdp_verify_training_close() and
 * fsdp_verify_curve_free(). */
FSDP_MUST_CHECK fsdp_status fsdp_verify_train(fsdp_verify_training *t, const fsdp_verify_recipe *r,
                                              const fsdp_fully_shard_options *shard,
                                              fsdp_verify_curve *curve);
void fsdp_verify_training_close(fsdp_verify_training *t);

/* Load the checkpoint in the folder `dir`, relative to the case's folder, into the model and the
 * optimizer. This is done as in PyTorch scripts: get a state dict, read the files into it, and set
 * it on the model and the optimizer. If `all` is not NULL, *all is set to the loaded {"model": ...,
 * "optim": ...}, which the caller owns. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_load(const fsdp_verify_training *t, const char *dir,
                                             fsdp_state_dict **all);
/* Open the inputs and the model, and create the optimizer. fsdp_verify_train() does this first. *t
 * must be zero except for t->c. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_training_open(fsdp_verify_training *t,
                                                      const fsdp_verify_recipe *r,
                                                      const fsdp_fully_shard_options *shard);
/* Resume from `checkpoint`, which a run on two ranks saved after `step` steps. Compare the later
 * steps with the case's cosine trajectory for the number of ranks of this run. PyTorch did not
 * resume to make that trajectory, but ran it from the first step on with this number of ranks. So
 * the later steps are comparable only if the first `step` steps were the same with this number of
 * ranks and with two ranks. This is checked in two ways: each label must have the same weight (Note
 * [Splits] in verify_trajectory.c), and the losses must agree. If the later steps are not
 * comparable, report them as not compared. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_resumed(fsdp_verify_case *c, const char *checkpoint,
                                                int64_t step);

/* Compare the trained parameters with `file`, which is final_params.safetensors or, in a case with
 * an adapter, final_adapter.safetensors. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_final_params(const fsdp_verify_training *t,
                                                     const char *file);
/* Compare each parameter with its value before training. params.json has two lists: the parameters
 * that must differ in some bit, and the parameters that must not differ in any bit. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_changed_params(const fsdp_verify_training *t);

/* --- optimizers without a model: verify_optim.c --- */
/* Set *values to the n elements for one step in the tensor `name`. The tensor is [steps, n], or [n]
 * if there is only one step. The caller owns *values. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_read_part(const fsdp_checkpoint_reader *file,
                                                  const char *name, int64_t step, int64_t n,
                                                  float **values);
/* Set this rank's rows of the parameter from `whole`, which has all rows. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_set_values(fsdp_parameter *p, const float *whole);
/* Set this rank's rows of the parameter's gradient from `whole`, which has all rows. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_set_grad(fsdp_parameter *p, const float *whole);
/* `local` is this rank's shard of a tensor. Gather the whole tensor. Compare it with the values for
 * step `step` in the file's tensor `name`. Divide the largest difference by the largest expected
 * magnitude. If the quotient is larger than *largest, set *largest to the quotient. Return
 * FSDP_ERR_FORMAT if the file's tensor does not have the size of the whole tensor, or has no such
 * step. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_compare_part(fsdp_tensor *local,
                                                     const fsdp_checkpoint_reader *file,
                                                     const char *name, int64_t step,
                                                     double *largest);
/* `local` is this rank's shard of a tensor. Return FSDP_ERR_FORMAT if `entry` does not have the
 * number of elements of the whole tensor. The shapes may differ: torchao stores the scales of
 * blocks as a vector. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_check_numel(const fsdp_tensor *local,
                                                    const fsdp_checkpoint_entry *entry);
/* Like fsdp_verify_compare_part(), but compare with the tensor `want` of the file, which has the
 * values of one step only. Return FSDP_ERR_FORMAT if `want` does not have the size of the whole
 * tensor. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_compare_whole(fsdp_tensor *local,
                                                      const fsdp_checkpoint_reader *file,
                                                      const fsdp_checkpoint_entry *want,
                                                      double *largest);
