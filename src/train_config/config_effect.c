/* See config_effect.h. Three kinds of options that may have no effect are not checked in this file.
 * config_optimizer.c checks the options that are for one optimizer only. config.c checks the
 * options that are refused in a flag or a file, but not in the environment
 * (fsdp_train_set_by_user()). Options that depend on the rows are checked when the rows are opened
 * (src/train/sources.h). */
#include "src/train_config/config_effect.h"

#include <ctype.h>
#include <string.h>

#include "src/base/assert.h"
#include "src/train_config/config_report.h"
#include "src/train_config/config_sources.h"
#include "src/train_config/config_trainer.h"
#include "src/train_config/precision.h"

/* ---- the functions that `rules` uses: each returns true if an option has an effect ---- */

typedef bool acts_fn(const fsdp_train_config *c);

static bool has_step_schedule(const fsdp_train_config *c)
{
    return c->lr_schedule == FSDP_LR_STEP;
}

static bool has_polynomial_schedule(const fsdp_train_config *c)
{
    return c->lr_schedule == FSDP_LR_POLYNOMIAL;
}

static bool has_restarts(const fsdp_train_config *c)
{
    /* A cosine schedule without restarts is half a cycle, so --num-cycles 0.5 is allowed with it,
     * as in transformers. */
    return c->lr_schedule == FSDP_LR_COSINE_RESTARTS ||
           (c->lr_schedule == FSDP_LR_COSINE && c->num_cycles == 0.5);
}

static bool has_changing_rate(const fsdp_train_config *c)
{
    return c->lr_schedule != FSDP_LR_CONSTANT;
}

static bool has_dampened_momentum(const fsdp_train_config *c)
{
    return c->optimizer != FSDP_OPTIMIZER_SGD || c->momentum != 0;
}

static bool scales_parameters(const fsdp_train_config *c)
{
    return c->optimizer != FSDP_OPTIMIZER_ADAFACTOR || c->scale_parameter;
}

static bool has_validation_data(const fsdp_train_config *c)
{
    return c->validation_data != NULL;
}

static bool splits_data(const fsdp_train_config *c)
{
    return c->splits_data || c->validation_split_percentage == 0;
}

static bool has_pairs(const fsdp_train_config *c)
{
    return fsdp_train_sources_have_pairs(c);
}

static bool has_targets_of_a_length(const fsdp_train_config *c)
{
    return has_pairs(c) || c->generate_examples > 0 || c->predict_with_generate;
}

static bool has_units_by_policy(const fsdp_train_config *c)
{
    return c->auto_wrap_policy != FSDP_AUTO_WRAP_NO;
}

static bool decays_weights(const fsdp_train_config *c)
{
    return c->weight_decay > 0;
}

static bool stores_bfloat16(const fsdp_train_config *c)
{
    return c->master_dtype == FSDP_DTYPE_BF16 || c->optimizer_state_dtype == FSDP_DTYPE_BF16;
}

static bool accumulates(const fsdp_train_config *c)
{
    return c->gradient_accumulation_steps > 1;
}

static bool gathers(const fsdp_train_config *c)
{
    return c->sharding_strategy != FSDP_SHARDING_NO_SHARD;
}

static bool has_checkpoints(const fsdp_train_config *c)
{
    return c->save_strategy != FSDP_SAVE_NO || c->resume;
}

static bool casts(const fsdp_train_config *c)
{
    return c->param_dtype != FSDP_DTYPE_F32 || c->named.unit_mp_policy.count > 0;
}

static bool saves_model(const fsdp_train_config *c)
{
    return c->save_model;
}

static bool may_use_cards(const fsdp_train_config *c)
{
    return !c->use_cpu && !(c->device && strcmp(c->device, "cpu") == 0);
}

static bool has_program(const fsdp_train_config *c)
{
    return c->tracker_command != NULL;
}

static bool has_event_files(const fsdp_train_config *c)
{
    return fsdp_train_reports_to(c, FSDP_REPORT_TENSORBOARD);
}

static bool has_dashboard(const fsdp_train_config *c)
{
    return c->dashboard;
}

static bool has_metrics(const fsdp_train_config *c)
{
    return c->metrics || fsdp_train_reports_to(c, FSDP_REPORT_JSON);
}

#define STEP_SCHEDULE "is for --lr-schedule step"
#define SCALER "is for float16: --fp16, or --param-dtype float16"
#define ACCUMULATION "needs --gradient-accumulation-steps above 1: a step has one micro-step"
#define GATHERS "with --sharding-strategy NO_SHARD nothing is gathered"
#define CASTS "with --param-dtype float32 nothing is cast"
#define CHECKPOINTS "without --save-steps or --save-strategy no checkpoint is saved"

static const struct {
    const char *option;
    acts_fn *acts;
    const char *reason;
    bool refused;
} rules[] = {
    {"bf16-stochastic-round", stores_bfloat16,
     "rounds what is stored in bfloat16, and nothing is: give --master-dtype bfloat16 or "
     "--optimizer-state-dtype bfloat16, too",
     true},
    {"gamma", has_step_schedule, STEP_SCHEDULE, true},
    {"step-size", has_step_schedule, STEP_SCHEDULE, true},
    {"lr-power", has_polynomial_schedule, "is for --lr-schedule polynomial", true},
    {"num-cycles", has_restarts, "is for --lr-schedule cosine-with-restarts", true},
    {"schedule-unit", has_changing_rate, "needs another --lr-schedule than constant", true},
    {"dampening", has_dampened_momentum, "needs --momentum", true},
    {"adafactor-eps2", scales_parameters, "needs --scale-parameter", true},
    {"init-scale", fsdp_train_needs_grad_scaler, SCALER, true},
    {"growth-interval", fsdp_train_needs_grad_scaler, SCALER, true},
    {"growth-factor", fsdp_train_needs_grad_scaler, SCALER, true},
    {"backoff-factor", fsdp_train_needs_grad_scaler, SCALER, true},
    {"validation-split-percentage", splits_data,
     "is for training rows without rows for validation: --validation-data, or the folder of "
     "--data, "
     "has some",
     true},
    {"eval-iters", has_validation_data, "needs --validation-data", true},
    {"max-validation-samples", has_validation_data, "needs --validation-data", true},
    {"max-target-length", has_targets_of_a_length,
     "is for pairs: the targets of span corruption have the length that --max-source-length gives",
     true},
    {"task-prefix", has_pairs, "is for pairs and prompts: span corruption takes texts as they are",
     true},
    {"target-column", has_pairs, "is for pairs and prompts: span corruption has one text a row",
     true},
    {"wikihow-cleaning", has_pairs, "is for pairs of texts", true},
    {"cleaning", has_pairs, "is for pairs of texts", true},
    {"blocks-per-unit", has_units_by_policy, "needs units: --auto-wrap-policy NO_WRAP makes none",
     true},
    {"log-histograms", has_event_files, "needs --report-to tensorboard", true},
    {"load-best-model-at-end", has_validation_data,
     "needs --validation-data: the last model is saved", false},
    {"validation-batch-size", has_validation_data, "needs --validation-data", false},
    {"no-decay", decays_weights, "needs --weight-decay above 0", false},
    {"gradient-accumulation-mode", accumulates, ACCUMULATION, false},
    {"sync-each-batch", accumulates, ACCUMULATION, false},
    {"reshard-after-backward", accumulates, ACCUMULATION, false},
    {"set-is-last-backward", accumulates, ACCUMULATION, false},
    {"backward-prefetch", gathers, GATHERS, false},
    {"forward-prefetch", gathers, GATHERS, false},
    {"limit-all-gathers", gathers, GATHERS, false},
    {"explicit-prefetching", gathers, GATHERS, false},
    {"forward-prefetch-depth", gathers, GATHERS, false},
    {"backward-prefetch-depth", gathers, GATHERS, false},
    {"cast-forward-inputs", casts, CASTS, false},
    {"cast-root-forward-inputs", casts, CASTS, false},
    {"state-dict-type", has_checkpoints, CHECKPOINTS, false},
    {"checkpoint-format", has_checkpoints, CHECKPOINTS, false},
    {"logging-dir", fsdp_train_has_logging_dir,
     "needs --report-to tensorboard, csv or all, or json without --metrics", false},
    {"run-name", has_program, "is for --tracker-command", false},
    {"project", has_program, "is for --tracker-command", false},
    {"rank-metrics", has_metrics, "needs --metrics, --report-to json or --dashboard", false},
    {"dashboard-port", has_dashboard, "needs --dashboard", false},
    {"dashboard-stays", has_dashboard, "needs --dashboard", false},
    {"gpu-ids", may_use_cards, "with --use-cpu no card is used", false},
    {"overwrite-output", saves_model, "with --no-save-model nothing is written there", false},
};

static fsdp_status refuse_option(const fsdp_options *options, const char *option,
                                 const char *reason)
{
    const bool file = fsdp_options_origin(options, option) == FSDP_ORIGIN_FILE;
    fsdp_status status = fsdp_error(FSDP_ERR_INVALID, "--%s %s", option, reason);
    if (file)
        fsdp_error_context(status, "%s", fsdp_options_source(options, option));
    return status;
}

/* Check that --lr-decay, if it is given, agrees with the schedule. */
static fsdp_status check_lr_decay(const fsdp_train_config *c, const fsdp_options *options)
{
    const bool decays = c->lr_schedule != FSDP_LR_CONSTANT;
    if (!fsdp_train_set_by_user(options, "lr-decay") || c->given_lr_decay == decays)
        return FSDP_OK;
    return refuse_option(options, "lr-decay",
                         decays ? "false contradicts an --lr-schedule whose rate decays"
                                : "contradicts --lr-schedule constant");
}

fsdp_status fsdp_train_effect_check(const fsdp_train_config *c, const fsdp_options *options)
{
    for (size_t i = 0; i < FSDP_LENGTH(rules); i++)
        if (rules[i].refused && fsdp_options_asked_for(options, rules[i].option) &&
            !rules[i].acts(c))
            return refuse_option(options, rules[i].option, rules[i].reason);
    if (fsdp_options_asked_for(options, "tutorial-loss") &&
        c->loss_reduction != FSDP_LOSS_MEAN_OF_MEANS)
        return refuse_option(options, "tutorial-loss", "contradicts --loss-reduction token-mean");
    return check_lr_decay(c, options);
}

const char *fsdp_train_option_without_effect(const void *config, const fsdp_options *options,
                                             const char *name)
{
    const char *text = fsdp_options_text(options, name);
    const char *ignored = fsdp_train_ignored_steps(config, options, name);
    if (ignored)
        return ignored;
    if (fsdp_train_is_ignored_adam(config, options, name))
        return "is for adamw and its relatives, and another optimizer is given";
    if ((strcmp(name, "warmup-steps") == 0 || strcmp(name, "warmup-ratio") == 0) &&
        fsdp_train_is_without_warmup(config, options))
        return "transformers' schedule constant has no warmup; constant_with_warmup has";
    if (strcmp(name, "epochs") == 0 && ((const fsdp_train_config *)config)->max_steps > 0 &&
        fsdp_train_is_spelled(options, "epochs", "num-train-epochs"))
        return "--max-steps takes its place, as in transformers; --epochs N ends the run, too";
    if (strcmp(name, "train-sampling-strategy") == 0 && text &&
        tolower((unsigned char)*text) == 'g')
        return "sequences are packed without padding, so grouping rows of similar length would "
               "save nothing";
    for (size_t i = 0; i < FSDP_LENGTH(rules); i++)
        if (!rules[i].refused && strcmp(rules[i].option, name) == 0)
            return rules[i].acts(config) ? NULL : rules[i].reason;
    return NULL;
}
