/* The object that all optimizers share, for the files that implement it. From the top:
 * optimizer_mode.c (training and evaluation), optimizer_step.c (a step), optimizer.c (groups,
 * getters, setters), optimizer_state.c (state tensors). Each file calls only those after it. */
#pragma once
#include "src/optim/optimizer.h"

/* What the optimizer has for one parameter. */
typedef struct fsdp_optimizer_entry {
    int group;
    int64_t steps; /* steps taken so far */
    fsdp_tensor *state[FSDP_MAX_OPTIMIZER_STATE];
    fsdp_tensor *kept; /* during evaluation: the values of training, float32; or NULL */
} fsdp_optimizer_entry;

struct fsdp_optimizer {
    const fsdp_optimizer_class *class;
    fsdp_optimizer_options *groups;
    fsdp_optimizer_options *before; /* [n_groups] options of the groups before the latest step */
    size_t n_groups, cap_groups, cap_before;
    fsdp_parameter_list list; /* the names are owned, the parameters borrowed */
    size_t cap_list;
    fsdp_optimizer_entry *entries; /* [list.n] */
    size_t cap_entries;
    fsdp_step_item *items; /* the parameters that the current step changes */
    size_t n_items, cap_items;
    /* maps[k] is state k if that is constant (FSDP_STATE_MAP). NULL: state k is not constant, or it
     * is not created yet. */
    fsdp_tensor *maps[FSDP_MAX_OPTIMIZER_STATE];
};

/* Fail if `class` needs whole rows, and p is a trainable parameter that is sharded along a
 * dimension other than 0. */
FSDP_MUST_CHECK fsdp_status fsdp_optimizer_check_placement(const fsdp_optimizer_class *class,
                                                           const fsdp_optimizer_options *options,
                                                           const fsdp_named_parameter *p);

/* --- optimizer_state.c --- */

/* Fail if the storage of parameter i has no memory. */
FSDP_MUST_CHECK fsdp_status fsdp_optimizer_check_memory(const fsdp_optimizer *o, size_t i);
/* Create the states of parameter i that do not exist yet, and check the shapes of the others.
 * `local` has the rows of the parameter on this rank. */
FSDP_MUST_CHECK fsdp_status fsdp_optimizer_prepare_state(fsdp_optimizer *o, size_t i,
                                                         const fsdp_tensor *local);
/* Set the elements of `state` to zero or, if its kind is FSDP_STATE_COPY, to those of `local`. */
FSDP_MUST_CHECK fsdp_status fsdp_optimizer_fill_state(const fsdp_tensor *local,
                                                      fsdp_state_shape kind, fsdp_tensor *state);
/* Release the values of training of parameter i, if they were kept for an evaluation. */
void fsdp_optimizer_release_kept(fsdp_optimizer *o, size_t i);

/* --- optimizer_step.c --- */

/* Check parameter i, whose gradient is `grad`, create its states if it has none, and add it to the
 * items of the step. */
FSDP_MUST_CHECK fsdp_status fsdp_optimizer_prepare_parameter(fsdp_optimizer *o, size_t i,
                                                             fsdp_tensor *grad);
/* Update the items. If `clip` is not NULL, the kernels read the gradients' factor from it,
 * otherwise they use grad_scale. If is_step is true, this call may also change the groups' options.
 */
FSDP_MUST_CHECK fsdp_status fsdp_optimizer_update_items(fsdp_optimizer *o, float grad_scale,
                                                        const fsdp_clip_result *clip, bool is_step);
