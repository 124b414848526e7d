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
 * --logging-strategy, and --epochs from --max-steps. Reset the values that
 * fsdp_train_ignored_steps() ignores. */
void fsdp_train_derive_strategies(fsdp_train_config *c, const fsdp_options *options);

/* `name` is save-steps, evaluation-steps, logging-steps or save-total-limit. Return the reason why
 * this option has no effect with the strategy that was given (--save-strategy, --eval-strategy or
 * --logging-strategy). Return NULL if the option has an effect. As in transformers, numbers of
 * steps are ignored unless the strategy is `steps`, because scripts often give transformers'
 * default of 500 steps together with another strategy. There are two exceptions, in which the
 * option contradicts the strategy and NULL is returned. First, the number comes from a source that
 * takes precedence over the source of the strategy. Second, it comes from the same source, under a
 * name that transformers does not have. In both cases, the user must have meant the number. */
const char *fsdp_train_ignored_steps(const fsdp_train_config *c, const fsdp_options *options,
                                     const char *name);

/* Return true if the user has written `option` under the name `spelling`, with dashes or
 * underscores.
 */
bool fsdp_train_is_spelled(const fsdp_options *options, const char *option, const char *spelling);
/* Return true if `name` is an option of Adam that the user gave under its transformers name, such
 * as --adam_beta1, and the optimizer does not have this option. transformers' Trainer then ignores
 * the option. */
bool fsdp_train_is_ignored_adam(const fsdp_train_config *c, const fsdp_options *options,
                                const char *name);
/* Return true if the user chose the schedule `constant` by transformers' option
 * --lr-scheduler-type. This schedule of transformers has no warmup. transformers'
 * constant_with_warmup and this project's --lr-schedule constant may have a warmup. For
 * Schedule-Free AdamW, always return false, because this optimizer has a warmup with any
 * schedule. */
bool fsdp_train_is_without_warmup(const fsdp_train_config *c, const fsdp_options *options);
/* Set shuffle from --train-sampling-strategy, and problem_type from --do-regression. Some options
 * have one meaning under this project's name and another one under transformers' name: apply the
 * meaning of the name that the user wrote. */
void fsdp_train_derive_spellings(fsdp_train_config *c, const fsdp_options *options);

/* Return true if the strategy reshards parameters after forward. */
bool fsdp_train_reshards(int strategy);
/* Set sharding_strategy and cpu_offload from the words of --fsdp. --sharding-strategy and
 * --cpu-offload take precedence if they are given. */
void fsdp_train_derive_fsdp(fsdp_train_config *c, const fsdp_options *options);

/* Return FSDP_ERR_INVALID if an option that gives a number of steps has a value above 1 that is not
 * a whole number. */
FSDP_MUST_CHECK fsdp_status fsdp_train_check_steps(const fsdp_train_config *c);
/* Return FSDP_ERR_INVALID if --do_eval is given without --do_train, because transformers' scripts
 * would then evaluate without training. */
FSDP_MUST_CHECK fsdp_status fsdp_train_check_do_train(const fsdp_train_config *c,
                                                      const fsdp_options *options);

/* Return FSDP_ERR_INVALID if --fsdp has an unknown word, or if --fsdp, --eval-strategy or
 * --logging-strategy contradicts another option. */
FSDP_MUST_CHECK fsdp_status fsdp_train_check_trainer(const fsdp_train_config *c,
                                                     const fsdp_options *options);

/* Return FSDP_ERR_INVALID unless `devices` is "auto", "-1" or the number of ranks. */
FSDP_MUST_CHECK fsdp_status fsdp_train_check_devices(const char *devices, int world_size);
