/* Options of `fsdp train` that have the same form as in transformers' Trainer. Some express options
 * of this project in Trainer's words (--fsdp, --eval-strategy). Others are numbers of steps or
 * epochs that may be fractional. */
#pragma once
#include "src/train_config/config.h"

/* Return true if the option was given by a flag or in a file. Environment variables do not count,
 * since `accelerate launch` exports variables even for options that the user did not give. */
static inline bool fsdp_train_set_by_user(const fsdp_options *options, const char *name)
{
    return fsdp_options_origin(options, name) > FSDP_ORIGIN_ENV;
}

/* Return the number of optimizer steps in `epochs` epochs, rounded up. */
int64_t fsdp_train_epochs_steps(double epochs, int64_t steps_per_epoch);

/* If evaluation_steps, logging_steps or save_steps is below 1, it is a fraction of all steps.
 * Replace it by this fraction of `total`, rounded up. */
void fsdp_train_resolve_steps(fsdp_train_config *c, int64_t total);

/* Return the number of warmup steps in a run of `total` optimizer steps. */
int64_t fsdp_train_warmup_steps(const fsdp_train_config *c, int64_t total);

/* Derive --eval-strategy and --evaluation-steps from each other, --logging-steps from
 * --logging-strategy, and --epochs from --max-steps. */
void fsdp_train_derive_strategies(fsdp_train_config *c, const fsdp_options *options);

/* Return why the number of steps `name` (save-steps, evaluation-steps, logging-steps), or
 * save-total-limit, has no effect with the strategy that was given. Return NULL if it has an effect
 * or contradicts the strategy. As in transformers, the steps are ignored unless the strategy is
 * `steps`; scripts repeat transformers' default of 500 beside another strategy. But steps under a
 * name that transformers does not have, and steps of a source that takes precedence over that of
 * the strategy, must have been meant: they contradict it. */
const char *fsdp_train_ignored_steps(const fsdp_train_config *c, const fsdp_options *options,
                                     const char *name);

/* Return true if the user has written `option` under the name `spelling`, with dashes or
 * underscores.
 */
bool fsdp_train_is_spelled(const fsdp_options *options, const char *option, const char *spelling);
/* Return true if `name` is an option of Adam that the user gave under its transformers name, such
 * as --adam_beta1, and the optimizer is not Adam. transformers' Trainer then ignores the option. */
bool fsdp_train_is_ignored_adam(const fsdp_train_config *c, const fsdp_options *options,
                                const char *name);
/* Return true if the user chose transformers' schedule `constant`, which has no warmup.
 * transformers' constant_with_warmup and this project's --lr-schedule constant have one. */
bool fsdp_train_is_without_warmup(const fsdp_options *options);
/* Set shuffle from --train-sampling-strategy, and problem_type from --do-regression. If this
 * project's and transformers' names of an option have different meanings, apply the meaning of the
 * name that the user gave. */
void fsdp_train_derive_spellings(fsdp_train_config *c, const fsdp_options *options);

/* Set sharding_strategy and cpu_offload from the words of --fsdp. --sharding-strategy and
 * --cpu-offload take precedence if they are given. */
void fsdp_train_derive_fsdp(fsdp_train_config *c, const fsdp_options *options);

/* Return FSDP_ERR_INVALID if the value of an option that is a number of steps is above 1 but not
 * whole. */
FSDP_MUST_CHECK fsdp_status fsdp_train_check_steps(const fsdp_train_config *c);
/* Return FSDP_ERR_INVALID for --do_eval without --do_train: transformers' scripts would not
 * train. */
FSDP_MUST_CHECK fsdp_status fsdp_train_check_do_train(const fsdp_train_config *c,
                                                      const fsdp_options *options);

/* Return FSDP_ERR_INVALID if --fsdp has an unknown word, or if --fsdp, --eval-strategy or
 * --logging-strategy contradicts another option. */
FSDP_MUST_CHECK fsdp_status fsdp_train_check_trainer(const fsdp_train_config *c,
                                                     const fsdp_options *options);

/* Return FSDP_ERR_INVALID unless `devices` is "auto", "-1" or the number of ranks. */
FSDP_MUST_CHECK fsdp_status fsdp_train_check_devices(const char *devices, int world_size);
