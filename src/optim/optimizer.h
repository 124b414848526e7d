/* The internals of optimizers. optimizer.c has what optimizers share: groups, state, write guards,
 * and master weights that are not float32. Each algorithm is a const table (adamw.c, sgd.c,
 * adafactor.c).
 *
 * A new optimizer needs a file here with its table; its options below and in <fsdp/optim.h>; its
 * kernel in src/kernels/kernels.h, cpu/isa/optim.c and fake/table_testing.c; its keys in
 * src/state_dict/groups.c (and optimizer.c if steps are counted in another way); for `fsdp train`
 * src/train_config/config.h, config_table.c, config.c, config_effect.c (flags that need another
 * flag), optimizer.c, checkpoint_state.c and checkpoint_foreign.c; for `fsdp verify`
 * src/verify/verify_training.h and .c; tests in tests/optim, tests/kernels/test_optim.c and
 * tests/state_dict/state_case.c. */
#pragma once
#include <fsdp/optim.h>

#include "src/tensor/device.h"

enum {
    FSDP_MAX_OPTIMIZER_STATE = 5
};

/* Consecutive elements of one parameter, all float32. */
typedef struct fsdp_update {
    const fsdp_device *device;
    int64_t n;
    float *param; /* NULL: the parameter is in `halves` */
    fsdp_halves halves;
    float *state[FSDP_MAX_OPTIMIZER_STATE];
    const float *grad;
    void *copy; /* where the result is also stored, rounded to copy_dtype; NULL: nowhere */
    fsdp_dtype copy_dtype;
    int64_t step; /* number of steps of the parameter, including this one */
    float grad_scale;
} fsdp_update;

typedef union fsdp_optimizer_options {
    fsdp_adamw_options adamw;
    fsdp_sgd_options sgd;
    fsdp_adafactor_options adafactor;
} fsdp_optimizer_options;

/* A parameter that has a gradient in a step. All pointers are borrowed. `local`, `grad` and `state`
 * have been checked to match. An element of `state` is NULL if the parameter has no such state. */
typedef struct fsdp_step_item {
    size_t index; /* in the optimizer's list */
    fsdp_parameter *parameter;
    const fsdp_optimizer_options *options; /* of its group */
    fsdp_tensor *local, *grad;
    fsdp_tensor *const *state; /* [FSDP_MAX_OPTIMIZER_STATE] */
    int64_t step;              /* steps of the parameter including this one */
} fsdp_step_item;

/* The shape of a float32 state tensor, relative to the shape of its parameter. A state that has the
 * parameter's dimension 0 is sharded like the parameter. */
typedef enum fsdp_state_shape {
    FSDP_STATE_NONE, /* there is no such state */
    FSDP_STATE_SAME, /* the parameter's shape */
    FSDP_STATE_ROWS, /* the parameter's shape without the last dimension */
    /* The parameter's shape without the second-to-last dimension. For a matrix, every rank has the
     * whole state. */
    FSDP_STATE_COLUMNS,
    FSDP_STATE_SCALAR /* no dimensions; every rank has the same number */
} fsdp_state_shape;

/* There are two kinds of step. `update` computes each element from that element's gradient and
 * state, so optimizer.c may pass it any part of this rank's rows. `whole` needs statistics of whole
 * tensors. */
typedef struct fsdp_optimizer_class {
    const char *const *state_names; /* [FSDP_MAX_OPTIMIZER_STATE], NULL after the last */
    const char *(*name)(const fsdp_optimizer_options *options);
    fsdp_status (*check)(const fsdp_optimizer_options *options);
    /* The shape of state k for a parameter of ndim dimensions. */
    fsdp_state_shape (*state_shape)(const fsdp_optimizer_options *options, int ndim, int k);
    /* Returns the address of the learning rate, or NULL if the optimizer computes its own. */
    double *(*lr)(fsdp_optimizer_options *options);
    /* Returns the rate that the optimizer computed in the latest step of a parameter. Not called if
     * lr() never returns NULL. */
    double (*own_lr)(const fsdp_optimizer_options *options, int64_t step,
                     fsdp_tensor *const *state);
    void (*update)(const fsdp_optimizer_options *options, const fsdp_update *u);
    const struct fsdp_whole_step *whole; /* NULL: `update` is used */
} fsdp_optimizer_class;

/* begin is called once for all items and is collective. It may change states but not parameters; it
 * begins and ends the writing of states itself. It allocates memory before it changes anything, so
 * nothing has changed if it fails for lack of memory. apply is called for each item in turn, while
 * the item's storage is open for writing. end destroys `work`, also after a failed begin. */
typedef struct fsdp_whole_step {
    fsdp_status (*begin)(const fsdp_step_item *items, size_t n, float grad_scale, void **work);
    fsdp_status (*apply)(void *work, size_t i);
    void (*end)(void *work);
} fsdp_whole_step;

/* The next two functions begin and end the writing of an item's states. State k is included if bit
 * 1 << k of `which` is set. */
static const unsigned FSDP_ALL_STATES = (1u << FSDP_MAX_OPTIMIZER_STATE) - 1;
FSDP_MUST_CHECK fsdp_status fsdp_step_item_begin_state(const fsdp_step_item *item, unsigned which);
void fsdp_step_item_end_state(const fsdp_step_item *item, unsigned which);

FSDP_MUST_CHECK fsdp_status fsdp_optimizer_create(const fsdp_optimizer_class *class,
                                                  fsdp_module *module,
                                                  const fsdp_optimizer_options *options,
                                                  fsdp_optimizer **optimizer);
FSDP_MUST_CHECK fsdp_status fsdp_optimizer_add_group(const fsdp_optimizer_class *class,
                                                     fsdp_optimizer *optimizer,
                                                     const fsdp_parameter_list *parameters,
                                                     const fsdp_optimizer_options *options);
/* A helper for `check` of an fsdp_optimizer_class. Fails with FSDP_ERR_INVALID unless `value` is
 * finite, at least 0 and below `below`. */
FSDP_MUST_CHECK fsdp_status fsdp_optimizer_check_range(const char *optimizer, const char *name,
                                                       double value, double below);
/* Return the gradient that a step or clipping uses; NULL for a parameter that is frozen or has no
 * gradient. */
fsdp_tensor *fsdp_optimizer_gradient(const fsdp_parameter *parameter);
/* fsdp_optimizer_group_of() returns the group of a parameter, or -1 if it has none.
 * fsdp_optimizer_group_options() returns the options of a group, or NULL if there is no such
 * group. */
int fsdp_optimizer_group_of(const fsdp_optimizer *optimizer, const fsdp_parameter *parameter);
fsdp_optimizer_options *fsdp_optimizer_group_options(fsdp_optimizer *optimizer, int group);
/* Fail unless the options are within the algorithm's bounds. */
FSDP_MUST_CHECK fsdp_status fsdp_optimizer_check_options(const fsdp_optimizer *optimizer,
                                                         const fsdp_optimizer_options *options);
