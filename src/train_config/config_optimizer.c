/* Checks the options of the optimizers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/train_config/config_optimizer.h"
#include "src/train_config/config_device.h"
#include "src/train_config/config_trainer.h"

static const char *optimizer_name(int optimizer)
{
    static const char *const names[] = {[FSDP_OPTIMIZER_ADAMW] = "adamw",
                                        [FSDP_OPTIMIZER_SGD] = "sgd",
                                        [FSDP_OPTIMIZER_ADAFACTOR] = "adafactor",
                                        [FSDP_OPTIMIZER_ADAM] = "adam",
                                        [FSDP_OPTIMIZER_ADAMW_8BIT] = "adamw_8bit",
                                        [FSDP_OPTIMIZER_MUON] = "muon",
                                        [FSDP_OPTIMIZER_SCHEDULE_FREE_ADAMW] =
                                            "schedule_free_adamw"};
    return names[optimizer];
}

/* Options of AdamW that some other optimizers have, too; see takes_adam_option(). */
static const char STATE_DTYPE[] = "optimizer-state-dtype", STOCHASTIC[] = "bf16-stochastic-round";

static bool is_moment_option(const char *option)
{
    return strcmp(option, "beta1") == 0 || strcmp(option, "beta2") == 0 ||
           strcmp(option, "eps") == 0;
}

static bool takes_adam_option(int optimizer, const char *option)
{
    if (is_moment_option(option))
        return fsdp_optimizer_has_betas(optimizer);
    if (strcmp(option, STOCHASTIC) == 0)
        return fsdp_optimizer_is_adam(optimizer) || optimizer == FSDP_OPTIMIZER_ADAMW_8BIT;
    return strcmp(option, STATE_DTYPE) == 0 && fsdp_optimizer_is_adam(optimizer);
}

static const char *adam_names(const char *option)
{
    return is_moment_option(option)          ? "adamw, adam, adamw_8bit, muon and "
                                               "schedule_free_adamw"
           : strcmp(option, STOCHASTIC) == 0 ? "adamw, adam and adamw_8bit"
                                             : "adamw and adam";
}

static fsdp_status check_of_optimizer(const fsdp_train_config *c, const fsdp_options *options)
{
    static const struct {
        const char *option;
        int optimizer;
    } rows[] = {{"beta1", FSDP_OPTIMIZER_ADAMW},
                {"beta2", FSDP_OPTIMIZER_ADAMW},
                {"eps", FSDP_OPTIMIZER_ADAMW},
                {STATE_DTYPE, FSDP_OPTIMIZER_ADAMW},
                {STOCHASTIC, FSDP_OPTIMIZER_ADAMW},
                {"adjust-lr-fn", FSDP_OPTIMIZER_MUON},
                {"ns-steps", FSDP_OPTIMIZER_MUON},
                {"ns-coefficients", FSDP_OPTIMIZER_MUON},
                {"weight-lr-power", FSDP_OPTIMIZER_SCHEDULE_FREE_ADAMW},
                {"schedule-free-r", FSDP_OPTIMIZER_SCHEDULE_FREE_ADAMW},
                {"scale-parameter", FSDP_OPTIMIZER_ADAFACTOR},
                {"relative-step", FSDP_OPTIMIZER_ADAFACTOR},
                {"warmup-init", FSDP_OPTIMIZER_ADAFACTOR},
                {"clip-threshold", FSDP_OPTIMIZER_ADAFACTOR},
                {"decay-rate", FSDP_OPTIMIZER_ADAFACTOR},
                {"adafactor-eps1", FSDP_OPTIMIZER_ADAFACTOR},
                {"adafactor-eps2", FSDP_OPTIMIZER_ADAFACTOR},
                {"adafactor-beta1", FSDP_OPTIMIZER_ADAFACTOR}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int wants = rows[i].optimizer;
        if (wants == c->optimizer || takes_adam_option(c->optimizer, rows[i].option))
            continue;
        if (fsdp_options_asked_for(options, rows[i].option) &&
            !fsdp_train_is_ignored_adam(c, options, rows[i].option))
            return fsdp_error(
                FSDP_ERR_INVALID, "--%s is for --optimizer %s, not %s", rows[i].option,
                fsdp_optimizer_is_adam(wants) ? adam_names(rows[i].option) : optimizer_name(wants),
                optimizer_name(c->optimizer));
    }
    return FSDP_OK;
}

static fsdp_status check_sgd(const fsdp_train_config *c, const fsdp_options *options)
{
    const bool sgd = c->optimizer == FSDP_OPTIMIZER_SGD;
    const bool muon = c->optimizer == FSDP_OPTIMIZER_MUON; /* fsdp_muon_add_group() checks more */
    if (!sgd && !muon && fsdp_options_asked_for(options, "momentum"))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--momentum is for --optimizer sgd and muon; adamw and adam have "
                          "--beta1");
    if (!sgd && !muon && c->nesterov && fsdp_options_asked_for(options, "nesterov"))
        return fsdp_error(FSDP_ERR_INVALID, "--nesterov is for --optimizer sgd and muon");
    if (!sgd && fsdp_options_asked_for(options, "dampening"))
        return fsdp_error(FSDP_ERR_INVALID, "--dampening is for --optimizer sgd");
    if (sgd && c->nesterov && (c->momentum == 0 || c->dampening != 0))
        return fsdp_error(FSDP_ERR_INVALID, "--nesterov needs --momentum and no --dampening");
    return FSDP_OK;
}

static fsdp_status check_adafactor(const fsdp_train_config *c, const fsdp_options *options)
{
    static const char *const rates[] = {"lr",           "lr-schedule", "lr-decay",  "min-lr",
                                        "min-lr-rate",  "gamma",       "step-size", "schedule-unit",
                                        "warmup-steps", "warmup-ratio"};
    if (c->optimizer != FSDP_OPTIMIZER_ADAFACTOR)
        return FSDP_OK;
    if (c->warmup_init && !c->relative_step)
        return fsdp_error(FSDP_ERR_INVALID, "--warmup-init needs --relative-step");
    for (size_t i = 0; c->relative_step && i < sizeof rates / sizeof *rates; i++)
        if (fsdp_options_asked_for(options, rates[i]) ||
            /* Refuse --lr and --lr-schedule even if they have their default values: the user has
             * given them. */
            (i < 2 && fsdp_train_set_by_user(options, rates[i])))
            return fsdp_error(FSDP_ERR_INVALID,
                              "--%s contradicts --relative-step, with which Adafactor chooses the "
                              "rate itself",
                              rates[i]);
    return FSDP_OK;
}

static fsdp_status check_schedule_free(const fsdp_train_config *c)
{
    if (c->optimizer != FSDP_OPTIMIZER_SCHEDULE_FREE_ADAMW || c->lr_schedule == FSDP_LR_CONSTANT)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "--optimizer schedule_free_adamw has a constant rate after --warmup-steps: "
                      "leave --lr-schedule, --min-lr and what belongs to a schedule out, or give "
                      "--lr-schedule constant");
}

fsdp_status fsdp_train_ns_coefficients(const fsdp_train_config *c, double coefficients[3])
{
    const fsdp_option_list *list = &c->ns_coefficients;
    bool good = list->count == 3;
    for (size_t i = 0; good && i < 3; i++) {
        char *end;
        coefficients[i] = strtod(list->items[i], &end);
        good = *list->items[i] && !*end && isfinite(coefficients[i]);
    }
    if (good && coefficients[2] != 0.0)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "--ns-coefficients: three numbers are needed, of which the last is not 0: "
                      "3.4445,-4.775,2.0315");
}

fsdp_status fsdp_train_check_optimizer(const fsdp_train_config *c, const fsdp_options *options)
{
    double coefficients[3];
    FSDP_TRY(check_sgd(c, options));
    FSDP_TRY(check_adafactor(c, options));
    FSDP_TRY(check_schedule_free(c));
    FSDP_TRY(fsdp_train_ns_coefficients(c, coefficients));
    return check_of_optimizer(c, options);
}
