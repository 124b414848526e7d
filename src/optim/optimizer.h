/* The internals of optimizers. What all optimizers share is in optimizer.c (groups, getters and
 * setters), optimizer_state.c (state tensors), optimizer_step.c (a step, the writing of parameters,
 * master weights that are not float32) and optimizer_mode.c (training and evaluation). Each
 * algorithm is a const table of functions (adamw.c, schedule_free.c, sgd.c, adafactor.c, muon.c).
 *
 * A new optimizer needs:
 *     - a file in this folder with its table;
 *     - its options, below and in <fsdp/optim.h>;
 *     - its kernel, if it needs one, in src/kernels: kernels.h, cpu/isa/optim.c and
 *       fake/table_testing.c; in src/kernels/cuda: NAME.cu, slots.h, table.c, tables.h if one
 *       launch updates many parameters, and the list for -fmad=false in the Makefile;
 *     - its keys in state dicts, in src/state_dict: groups.c, and optimizer.c if it counts steps in
 *       another way;
 *     - for `fsdp train`, its flags in src/train_config: config.h, config_table.c,
 *       config_optimizer.c, and config_effect.c for flags that need another flag;
 *     - for `fsdp train`, in src/train: optimizer.c, the flags that a resumed run must not change
 *       in checkpoint_state.c, and checkpoint_foreign.c;
 *     - for `fsdp verify`, its steps in tools/golden_states.py and src/verify/verify_states.c;
 *     - tests: tests/optim, tests/kernels/test_optim.c and tests/state_dict/state_case.c. */
#pragma once
#include <fsdp/optim.h>

#include "src/tensor/device.h"

enum {
    FSDP_MAX_OPTIMIZER_STATE = 6
};

/* An element-wise update of this rank's rows of one parameter: n elements. All arrays except `copy`
 * and `state` are float32. */
typedef struct fsdp_update {
    int64_t n;
    /* The parameter. NULL: its values are in `halves`. If halves.hi is NULL, too, the parameter is
     * not float32, and `copy` is the parameter. */
    float *param;
    fsdp_halves halves;
    void *state[FSDP_MAX_OPTIMIZER_STATE];
    fsdp_dtype state_dtype;
    /* NULL: the step only switches between training and evaluation: see train_mode in
     * fsdp_optimizer_class */
    const float *grad;
    float *kept; /* [n] values of training during evaluation; NULL: they are not kept */
    void *copy;  /* if not NULL, the new values are also stored here, rounded to copy_dtype */
    fsdp_dtype copy_dtype;
    int64_t step; /* steps that the parameter has taken, including this one */
    float grad_scale;
    int64_t inner; /* elements in an entry of dimension 0 */
    size_t index;  /* index of the parameter in the optimizer's list */
    int64_t first; /* if sharded by rows: index of this rank's element 0 in the whole parameter */
} fsdp_update;

typedef union fsdp_optimizer_options {
    fsdp_adamw_options adamw;
    fsdp_sgd_options sgd;
    fsdp_adafactor_options adafactor;
    fsdp_muon_options muon;
    fsdp_schedule_free_options schedule_free;
} fsdp_optimizer_options;

/* A parameter that the current step changes. All pointers are borrowed. optimizer_step.c has
 * checked that `local`, `grad` and `state` have matching shapes. state[k] is NULL if the parameter
 * has no state number k. */
typedef struct fsdp_step_item {
    size_t index; /* index in the optimizer's list of parameters */
    fsdp_parameter *parameter;
    const fsdp_optimizer_options *options; /* options of its group */
    fsdp_tensor *local;
    fsdp_tensor *grad;         /* NULL: the step only switches between training and evaluation */
    fsdp_tensor *kept;         /* see fsdp_update; NULL: none */
    fsdp_tensor *const *state; /* [FSDP_MAX_OPTIMIZER_STATE] */
    unsigned constants;        /* mask of the states that are constants, which no step writes */
    int64_t step;              /* steps that the parameter has taken, including this one */
} fsdp_step_item;

/* The shape of a state tensor, derived from the shape of its parameter. A state that also has the
 * parameter's dimension 0 is sharded like the parameter. A state without the parameter's dimension
 * 0 is stored completely on every rank. */
typedef enum fsdp_state_shape {
    FSDP_STATE_NONE, /* the parameter has no such state */
    FSDP_STATE_SAME, /* the parameter's shape */
    FSDP_STATE_COPY, /* the parameter's shape, and at first its values instead of zeros */
    FSDP_STATE_ROWS, /* the parameter's shape without the last dimension */
    /* The parameter's shape without the second-to-last dimension. In a parameter with two
     * dimensions, that is dimension 0, so every rank has the whole state. */
    FSDP_STATE_COLUMNS,
    FSDP_STATE_SCALAR, /* no dimensions; every rank has the same number */
    /* [rows, blocks]: each row of the parameter (entry of dimension 0) is divided into blocks of
     * FSDP_MAP_BLOCK elements, and has one number for each block. Sharded like the parameter. */
    FSDP_STATE_BLOCKS,
    FSDP_STATE_MAP /* [FSDP_MAP_VALUES]: a constant, one tensor for all parameters */
} fsdp_state_shape;

/* The table of an optimizer algorithm. There are two kinds of algorithms. If the new value of each
 * element depends only on the gradient and the state of this element, the step is element-wise.
 * Algorithms that need statistics of whole tensors set `whole`. */
typedef struct fsdp_optimizer_class {
    const char *const *state_names; /* [FSDP_MAX_OPTIMIZER_STATE], NULL after the last */
    const char *(*name)(const fsdp_optimizer_options *options);
    fsdp_status (*check)(const fsdp_optimizer_options *options);
    /* Fails if the parameter cannot be in a group with these options. NULL: every parameter can be
     * in every group. */
    fsdp_status (*check_parameter)(const fsdp_optimizer_options *options,
                                   const fsdp_named_parameter *parameter);
    /* Returns the shape of state k of the parameter whose rows on this rank are `local`. */
    fsdp_state_shape (*state_shape)(const fsdp_optimizer_options *options, const fsdp_tensor *local,
                                    int k);
    /* Returns the values of state k, which has the shape FSDP_STATE_MAP. NULL: no state has this
     * shape. */
    const float *(*map)(int k);
    /* Returns true if each rank must have whole rows of a parameter, so that parameters may be
     * sharded only along dimension 0. NULL: only algorithms with `whole` need this. */
    bool (*needs_rows)(const fsdp_optimizer_options *options);
    /* Returns the dtype in which state k is created; NULL: float32. */
    fsdp_dtype (*state_dtype)(const fsdp_optimizer_options *options, const fsdp_tensor *local,
                              int k);
    /* Returns the address of the learning rate in `options`, or NULL if the optimizer computes its
     * own rate. */
    double *(*lr)(fsdp_optimizer_options *options);
    /* For an optimizer that computes the learning rate itself: returns the rate that it computed in
     * a parameter's latest step, which was step number `step`. Called only if lr() returns NULL or
     * begin_group is set. */
    double (*own_lr)(const fsdp_optimizer_options *options, int64_t step,
                     fsdp_tensor *const *state);
    /* Makes the changes that a step makes to the options of a group. Called for each group before
     * its parameters are updated. NULL: a step does not change the options. */
    void (*begin_group)(fsdp_optimizer_options *options);
    /* Returns the address of a flag in `options`. While the flag is false, the parameters have
     * their values for evaluation, and no step is allowed. NULL: training and evaluation use the
     * same values. */
    bool *(*train_mode)(fsdp_optimizer_options *options);
    /* The functions of an element-wise step. describe_update() writes the arguments that the kernel
     * needs for one parameter to `args` [update_bytes]. start_updates() starts the kernel for n
     * parameters, whose arguments are contiguous in memory. For `clip`, see
     * fsdp_optimizer_step_scaled(). */
    size_t update_bytes;
    void (*describe_update)(const fsdp_optimizer_options *options, const fsdp_update *u,
                            void *args);
    void (*start_updates)(const fsdp_device *device, const void *args, size_t n,
                          const fsdp_clip_result *clip);
    const struct fsdp_whole_step *whole; /* NULL: the steps are element-wise */
} fsdp_optimizer_class;

/* The functions of a step that needs statistics of whole tensors.
 *
 * begin() is called once for all items. It is collective. It does not change parameters. It may
 * change states, but must then open and close them for writing itself. begin() must allocate all
 * memory before its first change, so that it changes nothing if there is not enough memory.
 *
 * apply() is called for each item in turn, while the storage and the states of the item are open
 * for writing.
 *
 * end() destroys `work`. It is called even if begin() has failed. */
typedef struct fsdp_whole_step {
    fsdp_status (*begin)(const fsdp_step_item *items, size_t n, float grad_scale, void **work);
    fsdp_status (*apply)(void *work, size_t i);
    void (*end)(void *work);
} fsdp_whole_step;

/* A mask of all states, for the next two functions. */
static const unsigned FSDP_ALL_STATES = (1u << FSDP_MAX_OPTIMIZER_STATE) - 1;
/* Begin writing those states of an item whose bits are set in `which`; state k has bit 1 << k. */
FSDP_MUST_CHECK fsdp_status fsdp_step_item_begin_state(const fsdp_step_item *item, unsigned which);
/* End the write that fsdp_step_item_begin_state() began with the same `which`. */
void fsdp_step_item_end_state(const fsdp_step_item *item, unsigned which);

FSDP_MUST_CHECK fsdp_status fsdp_optimizer_create(const fsdp_optimizer_class *class,
                                                  fsdp_module *module,
                                                  const fsdp_optimizer_options *options,
                                                  fsdp_optimizer **optimizer);
FSDP_MUST_CHECK fsdp_status fsdp_optimizer_add_group(const fsdp_optimizer_class *class,
                                                     fsdp_optimizer *optimizer,
                                                     const fsdp_parameter_list *parameters,
                                                     const fsdp_optimizer_options *options);
/* Fail with FSDP_ERR_INVALID unless `value` is finite, at least 0 and below `below`. This is a
 * helper for fsdp_optimizer_class.check(). */
FSDP_MUST_CHECK fsdp_status fsdp_optimizer_check_range(const char *optimizer, const char *name,
                                                       double value, double below);
/* Do a step, as fsdp_optimizer_step() does. But if `clip` is not NULL, ignore grad_scale: the
 * kernels multiply the gradients by clip->scale, which they read in the device's memory
 * (fsdp_clip_result in kernels.h). The optimizer's steps must then be element-wise. */
FSDP_MUST_CHECK fsdp_status fsdp_optimizer_step_scaled(fsdp_optimizer *optimizer, float grad_scale,
                                                       const fsdp_clip_result *clip);
/* Return true if the optimizer was unscaled or has stepped since the last update. */
bool fsdp_grad_scaler_was_used(const fsdp_grad_scaler *scaler, const fsdp_optimizer *optimizer);
/* Forget which optimizers were unscaled or have stepped since the last update. The scale stays as
 * it is. */
void fsdp_grad_scaler_forget(fsdp_grad_scaler *scaler);
/* If state k is a constant (FSDP_STATE_MAP), return its FSDP_MAP_VALUES values, otherwise NULL. */
const float *fsdp_optimizer_constant_state(const fsdp_optimizer *optimizer, int k);
/* Set the states of a parameter to what they are before its first step. The states must exist. */
FSDP_MUST_CHECK fsdp_status fsdp_optimizer_clear_state(const fsdp_optimizer *optimizer,
                                                       const fsdp_parameter *parameter);
/* Return true if the optimizer's steps are element-wise. */
bool fsdp_optimizer_is_elementwise(const fsdp_optimizer *optimizer);
/* A step that was already counted has been refused. Subtract it from the step counts of all
 * parameters, and undo what it has changed in the options of groups. */
void fsdp_optimizer_uncount_step(fsdp_optimizer *optimizer);
/* Return the gradient that optimizer steps and clipping use. It is NULL if the parameter is frozen
 * or has no gradient. */
fsdp_tensor *fsdp_optimizer_gradient(const fsdp_parameter *parameter);
/* Return the index of the group that contains the parameter, or -1 if no group contains it. */
int fsdp_optimizer_group_of(const fsdp_optimizer *optimizer, const fsdp_parameter *parameter);
/* Return the options of a group, or NULL if there is no such group. Borrowed. */
fsdp_optimizer_options *fsdp_optimizer_group_options(fsdp_optimizer *optimizer, int group);
/* Fail with FSDP_ERR_INVALID if an option is outside the algorithm's bounds. */
FSDP_MUST_CHECK fsdp_status fsdp_optimizer_check_options(const fsdp_optimizer *optimizer,
                                                         const fsdp_optimizer_options *options);
