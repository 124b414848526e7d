/* Inside of optimizers: what they have in common is optimizer.c (groups, state, write guards,
 * masters that are not float32); an algorithm is a const table (adamw.c, sgd.c). */
#pragma once
#include <fsdp/optim.h>

#include "src/tensor/device.h"

enum {
    FSDP_MAX_OPTIMIZER_STATE = 2
};

/* Consecutive elements of one parameter, all float32. */
typedef struct fsdp_update {
    const fsdp_device *device;
    int64_t n;
    float *param;
    float *state[FSDP_MAX_OPTIMIZER_STATE];
    const float *grad;
    void *copy; /* the result is written here too, rounded to copy_dtype; or NULL */
    fsdp_dtype copy_dtype;
    int64_t step; /* of the parameter, from 1 */
    float grad_scale;
} fsdp_update;

typedef union fsdp_optimizer_options {
    fsdp_adamw_options adamw;
    fsdp_sgd_options sgd;
} fsdp_optimizer_options;

typedef struct fsdp_optimizer_class {
    const char *const *state_names; /* [FSDP_MAX_OPTIMIZER_STATE], NULL after the last */
    const char *(*name)(const fsdp_optimizer_options *options);
    fsdp_status (*check)(const fsdp_optimizer_options *options);
    int (*n_state)(const fsdp_optimizer_options *options);
    double *(*lr)(fsdp_optimizer_options *options);
    void (*update)(const fsdp_optimizer_options *options, const fsdp_update *u);
} fsdp_optimizer_class;

FSDP_MUST_CHECK fsdp_status fsdp_optimizer_create(const fsdp_optimizer_class *class,
                                                  fsdp_module *module,
                                                  const fsdp_optimizer_options *options,
                                                  fsdp_optimizer **optimizer);
FSDP_MUST_CHECK fsdp_status fsdp_optimizer_add_group(const fsdp_optimizer_class *class,
                                                     fsdp_optimizer *optimizer,
                                                     const fsdp_parameter_list *parameters,
                                                     const fsdp_optimizer_options *options);
/* For check: FSDP_ERR_INVALID unless value is finite and >= 0, and below `below`. */
FSDP_MUST_CHECK fsdp_status fsdp_optimizer_check_range(const char *optimizer, const char *name,
                                                       double value, double below);
