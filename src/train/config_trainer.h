/* Options of `fsdp train` that say in the words of transformers' Trainer what other options say, or
 * whose values have its forms: fractions of all steps, fractions of epochs. */
#pragma once
#include "src/train/config.h"

/* Given by a flag or a file. `accelerate launch` exports variables for options that the user did
 * not give. */
static inline bool fsdp_train_given_by_hand(const fsdp_options *options, const char *name)
{
    return fsdp_options_origin(options, name) > FSDP_ORIGIN_ENV;
}

/* Optimizer steps of `epochs` epochs; a fraction of a step counts as one. */
int64_t fsdp_train_epochs_steps(double epochs, int64_t steps_per_epoch);

/* Replace numbers of steps that are fractions by their share of `total`. */
void fsdp_train_resolve_steps(fsdp_train_config *c, int64_t total);

/* Optimizer steps of the warmup in a run of `total` steps. */
int64_t fsdp_train_warmup_steps(const fsdp_train_config *c, int64_t total);

/* Derive --eval-strategy and --evaluation-steps from each other, and --logging-strategy and
 * --logging-steps. */
void fsdp_train_derive_strategies(fsdp_train_config *c, const fsdp_options *options);

/* Set the strategy and offload that --fsdp names, unless their own options are given. */
void fsdp_train_derive_fsdp(fsdp_train_config *c, const fsdp_options *options);

/* FSDP_ERR_INVALID for a number of steps from 1 that is not whole. */
FSDP_MUST_CHECK fsdp_status fsdp_train_check_steps(const fsdp_train_config *c);

/* FSDP_ERR_INVALID for unknown words of --fsdp, and for contradictions. */
FSDP_MUST_CHECK fsdp_status fsdp_train_check_trainer(const fsdp_train_config *c,
                                                     const fsdp_options *options);

/* FSDP_ERR_INVALID unless `devices` is "auto", "-1" or the number of ranks. */
FSDP_MUST_CHECK fsdp_status fsdp_train_check_devices(const char *devices, int world_size);
