/* Options of `fsdp train` that say in the words of transformers' Trainer what other options say, or
 * that have values of its forms: shares of all steps, fractions of epochs. */
#pragma once
#include "src/train/config.h"

/* Optimizer steps of so many epochs: a fraction of a step counts as one. */
int64_t fsdp_train_epochs_steps(double epochs, int64_t steps_per_epoch);

/* Numbers of steps that are shares of all `total`. */
void fsdp_train_resolve_steps(fsdp_train_config *c, int64_t total);

/* Optimizer steps of the warmup in a run of `total` steps. */
int64_t fsdp_train_warmup_steps(const fsdp_train_config *c, int64_t total);

/* --eval-strategy and --logging-strategy, and --evaluation-steps and --logging-steps. */
void fsdp_train_derive_strategies(fsdp_train_config *c, const fsdp_options *options);

/* The strategy and offload that --fsdp names, unless their own options are given. */
void fsdp_train_derive_fsdp(fsdp_train_config *c, const fsdp_options *options);

/* FSDP_ERR_INVALID for steps that are no whole number, or an option of another schedule. */
FSDP_MUST_CHECK fsdp_status fsdp_train_check_schedule(const fsdp_train_config *c,
                                                      const fsdp_options *options);

/* FSDP_ERR_INVALID for unknown words of --fsdp, and for contradictions. */
FSDP_MUST_CHECK fsdp_status fsdp_train_check_trainer(const fsdp_train_config *c,
                                                     const fsdp_options *options);

/* FSDP_ERR_INVALID unless `devices` is "auto", "-1" or the number of ranks. */
FSDP_MUST_CHECK fsdp_status fsdp_train_check_devices(const char *devices, int world_size);
