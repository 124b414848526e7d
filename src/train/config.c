/* `fsdp train`: values that follow from others, and the checks across fields. */
#include <math.h>

#include "src/train/config.h"

enum {
    PRECISION_NO,
    PRECISION_BF16,
    PRECISION_FP16
};

/* Values that nobody gave and that depend on others; and other tools' spellings. */
void fsdp_train_config_derive(void *config, const fsdp_options *options)
{
    fsdp_train_config *c = config;
    if (!fsdp_options_given(options, "schedule-unit"))
        c->schedule_unit =
            c->lr_schedule == FSDP_LR_STEP ? FSDP_SCHEDULE_EPOCH : FSDP_SCHEDULE_STEP;
    if (c->optimizer == FSDP_OPTIMIZER_SGD && !fsdp_options_given(options, "weight-decay"))
        c->weight_decay = 0;
    if (!c->validation_data && !fsdp_options_given(options, "run-validation"))
        c->run_validation = false;
    if (c->tutorial_loss && !fsdp_options_given(options, "loss-reduction"))
        c->loss_reduction = FSDP_LOSS_MEAN_OF_MEANS;
    if (!fsdp_options_given(options, "param-dtype") &&
        (c->bf16 || c->mixed_precision == PRECISION_BF16))
        c->param_dtype = FSDP_DTYPE_BF16;
    fsdp_option_origin reshard = fsdp_options_origin(options, "reshard-after-forward");
    fsdp_option_origin strategy = fsdp_options_origin(options, "sharding-strategy");
    /* Accelerate exports both variables, the strategy also when only reshard was chosen. */
    bool both_from_env = strategy == FSDP_ORIGIN_ENV && reshard == FSDP_ORIGIN_ENV;
    if (strategy > reshard)
        c->reshard_after_forward = c->sharding_strategy == FSDP_SHARDING_FULL_SHARD;
    else if ((reshard > strategy || both_from_env) &&
             c->sharding_strategy != FSDP_SHARDING_NO_SHARD)
        c->sharding_strategy =
            c->reshard_after_forward ? FSDP_SHARDING_FULL_SHARD : FSDP_SHARDING_SHARD_GRAD_OP;
}

static fsdp_status check_dtype(const char *flag, fsdp_dtype dtype)
{
    if (dtype == FSDP_DTYPE_F32 || dtype == FSDP_DTYPE_BF16)
        return FSDP_OK;
    if (dtype == FSDP_DTYPE_F16)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "%s float16: it needs loss scaling, which comes with a later version; "
                          "use bfloat16",
                          flag);
    return fsdp_error(FSDP_ERR_INVALID, "%s %s: it takes float32 or bfloat16", flag,
                      fsdp_dtype_name(dtype));
}

static fsdp_status check_model(const fsdp_train_config *c)
{
    if (c->task != FSDP_TASK_SEQ2SEQ)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "--task %s comes with a later version; this one trains seq2seq",
                          c->task == FSDP_TASK_CAUSAL_LM ? "causal-lm" : "classification");
    if (!*c->model || !*c->data)
        return fsdp_error(FSDP_ERR_INVALID, "%s is empty", *c->model ? "--data" : "--model");
    return FSDP_OK;
}

static fsdp_status check_numbers(const fsdp_train_config *c, const fsdp_options *options)
{
    static const char *const of_adamw[] = {"beta1", "beta2", "eps"};
    if (c->min_lr > c->lr)
        return fsdp_error(FSDP_ERR_INVALID, "--min-lr %g is above --lr %g", c->min_lr, c->lr);
    if (c->max_steps > 0 && c->warmup_steps > c->max_steps)
        return fsdp_error(FSDP_ERR_INVALID, "--warmup-steps %lld is more than --max-steps %lld",
                          (long long)c->warmup_steps, (long long)c->max_steps);
    if (c->optimizer != FSDP_OPTIMIZER_SGD && c->momentum != 0)
        return fsdp_error(FSDP_ERR_INVALID, "--momentum is for --optimizer sgd; adamw has --beta1");
    for (size_t i = 0; i < sizeof of_adamw / sizeof *of_adamw; i++)
        if (c->optimizer == FSDP_OPTIMIZER_SGD &&
            fsdp_options_origin(options, of_adamw[i]) == FSDP_ORIGIN_FLAG)
            return fsdp_error(FSDP_ERR_INVALID, "--%s is for --optimizer adamw, not sgd",
                              of_adamw[i]);
    if (c->mixed_precision == PRECISION_FP16)
        return check_dtype("--mixed-precision", FSDP_DTYPE_F16);
    FSDP_TRY(check_dtype("--param-dtype", c->param_dtype));
    FSDP_TRY(check_dtype("--reduce-dtype", c->reduce_dtype));
    return check_dtype("--master-dtype", c->master_dtype);
}

static fsdp_status check_sharding(const fsdp_train_config *c)
{
    if (c->sharding_strategy == FSDP_SHARDING_HYBRID_SHARD)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "--sharding-strategy HYBRID_SHARD comes with a later version; on one "
                          "host FULL_SHARD does the same");
    bool full = c->sharding_strategy == FSDP_SHARDING_FULL_SHARD;
    if (full == c->reshard_after_forward)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "--sharding-strategy %s contradicts --reshard-after-forward %s",
                      full                                                  ? "FULL_SHARD"
                      : c->sharding_strategy == FSDP_SHARDING_SHARD_GRAD_OP ? "SHARD_GRAD_OP"
                                                                            : "NO_SHARD",
                      c->reshard_after_forward ? "true" : "false");
}

static fsdp_status check_output(const fsdp_train_config *c)
{
    if (c->save_model && !c->output)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--output is missing: a folder for the model, or --no-save-model");
    if (c->run_validation && !c->validation_data)
        return fsdp_error(FSDP_ERR_INVALID, "--run-validation needs --validation-data");
    if (c->evaluation_steps > 0 && !c->run_validation)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--evaluation-steps needs --validation-data and --run-validation");
    if (c->generate_examples > 0 && !c->run_validation)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--generate-examples needs --validation-data and --run-validation");
    if (c->plot && !c->metrics)
        return fsdp_error(FSDP_ERR_INVALID, "--plot draws what --metrics FILE holds: give both");
#ifndef FSDP_HAVE_CAIRO
    if (c->plot)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "--plot: this program was built without cairo ('make deps' gets it)");
#endif
    return FSDP_OK;
}

fsdp_status fsdp_train_config_check(void *config, const fsdp_options *options)
{
    const fsdp_train_config *c = config;
    FSDP_TRY(check_model(c));
    FSDP_TRY(check_numbers(c, options));
    FSDP_TRY(check_sharding(c));
    return check_output(c);
}
