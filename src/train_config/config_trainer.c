/* See config_trainer.h. */
#include "src/train_config/config_trainer.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "src/options/options_parse.h"

/* ---- options that are numbers of steps ---- */

int64_t fsdp_train_epochs_steps(double epochs, int64_t steps_per_epoch)
{
    const double limit = 0x1p53; /* a double represents all integers up to this one */
    const double steps = ceil(epochs * (double)steps_per_epoch);
    return steps < limit ? (int64_t)steps : (int64_t)limit;
}

int64_t fsdp_train_warmup_steps(const fsdp_train_config *c, int64_t total)
{
    if (c->warmup_steps >= 1)
        return (int64_t)c->warmup_steps;
    return (int64_t)ceil((double)total * (c->warmup_steps > 0 ? c->warmup_steps : c->warmup_ratio));
}

static void resolve(double *steps, int64_t total)
{
    if (*steps > 0 && *steps < 1)
        *steps = ceil(*steps * (double)total);
}

void fsdp_train_resolve_steps(fsdp_train_config *c, int64_t total)
{
    resolve(&c->evaluation_steps, total);
    resolve(&c->logging_steps, total);
    resolve(&c->save_steps, total);
}

static fsdp_status check_whole(const char *option, double steps)
{
    if (steps < 1 || steps == floor(steps))
        return FSDP_OK;
    return fsdp_error(
        FSDP_ERR_INVALID,
        "--%s %.15g is neither a whole number of steps nor, below 1, a fraction of all steps",
        option, steps);
}

fsdp_status fsdp_train_check_steps(const fsdp_train_config *c)
{
    FSDP_TRY(check_whole("warmup-steps", c->warmup_steps));
    /* evaluation_steps may have been derived from eval_step_interval or logging_steps. */
    FSDP_TRY(check_whole("logging-steps", c->logging_steps));
    FSDP_TRY(check_whole("eval-step-interval", c->eval_step_interval));
    FSDP_TRY(check_whole("evaluation-steps", c->evaluation_steps));
    return check_whole("save-steps", c->save_steps);
}

/* ---- when to validate and when to log ---- */

enum {
    /* default of transformers' Trainer for the number of steps between log lines and between
     * validations */
    TRAINER_LOGGING_STEPS = 500
};

static bool is_ignored(const fsdp_options *options, const char *strategy, const char *steps,
                       const char *spelling)
{
    const fsdp_option_origin of_steps = fsdp_options_origin(options, steps);
    if (!fsdp_options_given(options, strategy) || !fsdp_options_given(options, steps))
        return false;
    if (of_steps != fsdp_options_origin(options, strategy))
        return of_steps < fsdp_options_origin(options, strategy);
    return of_steps == FSDP_ORIGIN_ENV || fsdp_train_is_spelled(options, steps, spelling);
}

const char *fsdp_train_ignored_steps(const fsdp_train_config *c, const fsdp_options *options,
                                     const char *name)
{
    static const char reason[] = "is for the strategy steps, and another one is given";
    if (strcmp(name, "save-steps") == 0 && c->save_strategy != FSDP_SAVE_STEPS &&
        is_ignored(options, "save-strategy", name, "save-steps"))
        return reason;
    if (strcmp(name, "evaluation-steps") == 0 && c->eval_strategy != FSDP_STRATEGY_STEPS &&
        is_ignored(options, "eval-strategy", name, "eval-steps"))
        return reason;
    if (strcmp(name, "logging-steps") == 0 && c->logging_strategy != FSDP_STRATEGY_STEPS &&
        is_ignored(options, "logging-strategy", name, "logging-steps"))
        return reason;
    if (strcmp(name, "save-total-limit") == 0 && c->save_strategy == FSDP_SAVE_NO &&
        is_ignored(options, "save-strategy", name, "save-total-limit"))
        return "--save-strategy no saves no checkpoint";
    return NULL;
}

/* Derive --eval-strategy from --evaluation-steps, or --evaluation-steps from --eval-strategy. With
 * --eval-strategy no, the model is not validated during training. If --do_eval is given as well,
 * the model is still evaluated once after training, as in Trainer's scripts. */
static void derive_eval_strategy(fsdp_train_config *c, const fsdp_options *options)
{
    const bool ignored = fsdp_train_ignored_steps(c, options, "evaluation-steps") != NULL;
    const bool says_steps =
        (fsdp_options_given(options, "evaluation-steps") && !ignored) || c->eval_step_interval > 0;
    if (ignored)
        c->evaluation_steps = 0;
    if ((!fsdp_options_given(options, "evaluation-steps") || ignored) && c->eval_step_interval > 0)
        c->evaluation_steps = c->eval_step_interval;
    if (!fsdp_options_given(options, "eval-strategy")) {
        if (c->evaluation_steps > 0)
            c->eval_strategy = FSDP_STRATEGY_STEPS;
        return;
    }
    if (c->eval_strategy == FSDP_STRATEGY_STEPS && !says_steps)
        c->evaluation_steps =
            fsdp_options_given(options, "logging-steps") ? c->logging_steps : TRAINER_LOGGING_STEPS;
    if (c->eval_strategy != FSDP_STRATEGY_NO)
        return;
    if (!fsdp_options_given(options, "run-validation"))
        c->run_validation = false;
    else if (c->run_validation && !says_steps)
        c->evaluation_steps = 0x1p53; /* no run has so many steps: validate only at the end */
}

void fsdp_train_derive_strategies(fsdp_train_config *c, const fsdp_options *options)
{
    if (c->max_steps > 0 && !fsdp_options_given(options, "epochs"))
        c->epochs = (double)INFINITY; /* --max-steps ends the run */
    derive_eval_strategy(c, options);
    if (c->logging_strategy != FSDP_STRATEGY_STEPS &&
        (!fsdp_options_given(options, "logging-steps") ||
         fsdp_train_ignored_steps(c, options, "logging-steps")))
        c->logging_steps = INT_MAX;
    if (fsdp_train_ignored_steps(c, options, "save-steps"))
        c->save_steps = 0;
    if (fsdp_train_ignored_steps(c, options, "save-total-limit"))
        c->save_total_limit = 0;
}

enum {
    SEQUENTIAL = 1,                          /* value of train_sampling_strategy */
    REGRESSION = 1 + FSDP_PROBLEM_REGRESSION /* value of problem_type */
};

bool fsdp_train_is_spelled(const fsdp_options *options, const char *option, const char *spelling)
{
    const char *key = fsdp_options_key(options, option),
               *name = key ? key : fsdp_options_source(options, option);
    if (!name)
        return false;
    name += strspn(name, "-");
    return fsdp_option_same_name(name, spelling, strlen(spelling));
}

bool fsdp_train_is_ignored_adam(const fsdp_train_config *c, const fsdp_options *options,
                                const char *name)
{
    static const char *const names[][2] = {
        {"beta1", "adam-beta1"}, {"beta2", "adam-beta2"}, {"eps", "adam-epsilon"}};
    for (size_t i = 0; i < sizeof names / sizeof *names && !fsdp_optimizer_has_betas(c->optimizer);
         i++)
        if (strcmp(name, names[i][0]) == 0)
            return fsdp_train_is_spelled(options, name, names[i][1]);
    return false;
}

bool fsdp_train_is_without_warmup(const fsdp_train_config *c, const fsdp_options *options)
{
    const char *text = fsdp_options_text(options, "lr-schedule");
    return text && c->optimizer != FSDP_OPTIMIZER_SCHEDULE_FREE_ADAMW &&
           strcasecmp(text, "constant") == 0 &&
           fsdp_train_is_spelled(options, "lr-schedule", "lr-scheduler-type");
}

void fsdp_train_derive_spellings(fsdp_train_config *c, const fsdp_options *options)
{
    if (c->train_sampling_strategy == SEQUENTIAL && !fsdp_options_given(options, "shuffle"))
        c->shuffle = false;
    if (c->do_regression && !fsdp_options_given(options, "problem-type"))
        c->problem_type = REGRESSION;
    /* In transformers, max_steps replaces num_train_epochs, even if max_steps steps are more than
     * num_train_epochs epochs. */
    if (c->max_steps > 0 && fsdp_train_is_spelled(options, "epochs", "num-train-epochs"))
        c->epochs = (double)INFINITY;
    if (fsdp_train_is_without_warmup(c, options))
        c->warmup_steps = c->warmup_ratio = 0;
}

static fsdp_status check_spellings(const fsdp_train_config *c)
{
    if (c->train_sampling_strategy == SEQUENTIAL && c->shuffle)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--train-sampling-strategy sequential contradicts --shuffle");
    if (isinf(c->epochs) && c->max_steps <= 0)
        return fsdp_error(FSDP_ERR_INVALID, "--epochs inf needs --max-steps, which ends the run");
    if (c->do_regression && c->problem_type != REGRESSION)
        return fsdp_error(FSDP_ERR_INVALID, "--do-regression contradicts --problem-type");
    return FSDP_OK;
}

static fsdp_status check_strategies(const fsdp_train_config *c, const fsdp_options *options)
{
    static const char *const names[] = {"no", "steps", "epoch"};
    if (fsdp_options_given(options, "eval-strategy") && c->eval_strategy != FSDP_STRATEGY_NO &&
        !c->validation_data)
        return fsdp_error(FSDP_ERR_INVALID, "--eval-strategy %s needs --validation-data",
                          names[c->eval_strategy]);
    if (c->eval_on_start && (!c->validation_data || !c->run_validation))
        return fsdp_error(
            FSDP_ERR_INVALID,
            "--eval-on-start needs --validation-data or --validation-split-percentage, "
            "and neither --eval-strategy no nor --no-run-validation");
    if (c->eval_strategy != FSDP_STRATEGY_STEPS && c->eval_step_interval > 0 &&
        fsdp_options_given(options, "eval-strategy"))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--eval-strategy %s contradicts --eval-step-interval %.15g, which "
                          "validates every so many steps and after each epoch: leave one of them "
                          "out",
                          names[c->eval_strategy], c->eval_step_interval);
    if (c->eval_strategy != FSDP_STRATEGY_STEPS && c->evaluation_steps > 0 &&
        fsdp_options_given(options, "evaluation-steps") &&
        !fsdp_train_ignored_steps(c, options, "evaluation-steps"))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--eval-strategy %s contradicts --evaluation-steps %.15g",
                          names[c->eval_strategy], c->evaluation_steps);
    if (c->eval_step_interval > 0 && c->evaluation_steps != c->eval_step_interval)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--eval-step-interval %.15g contradicts --evaluation-steps %.15g",
                          c->eval_step_interval, c->evaluation_steps);
    if (c->eval_strategy == FSDP_STRATEGY_STEPS && c->evaluation_steps == 0)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--eval-strategy steps needs --evaluation-steps above 0");
    if (c->eval_strategy != FSDP_STRATEGY_NO && fsdp_options_given(options, "eval-strategy") &&
        !c->run_validation)
        return fsdp_error(FSDP_ERR_INVALID, "--eval-strategy %s contradicts --no-run-validation",
                          names[c->eval_strategy]);
    if (c->logging_strategy != FSDP_STRATEGY_STEPS &&
        fsdp_options_given(options, "logging-steps") &&
        !fsdp_train_ignored_steps(c, options, "logging-steps"))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--logging-strategy %s contradicts --logging-steps %.15g",
                          names[c->logging_strategy], c->logging_steps);
    return FSDP_OK;
}

/* ---- the words of --fsdp ---- */

typedef struct fsdp_words {
    int strategy; /* -1: no word names a strategy */
    bool offload;
    const char *unknown; /* the first unknown word; NULL: none */
    int unknown_length;
} fsdp_words;

/* Parse the words of --fsdp. They may be in upper or lower case, and are separated by spaces or
 * commas. The word "true" means FSDP's default strategy. */
static fsdp_words read_words(const char *text)
{
    static const struct {
        const char *word;
        int strategy; /* -1: the word is not a strategy */
    } known[] = {{"full_shard", FSDP_SHARDING_FULL_SHARD},
                 {"shard_grad_op", FSDP_SHARDING_SHARD_GRAD_OP},
                 {"no_shard", FSDP_SHARDING_NO_SHARD},
                 {"hybrid_shard", FSDP_SHARDING_HYBRID_SHARD},
                 {"hybrid_shard_zero2", FSDP_SHARDING_HYBRID_SHARD_ZERO2},
                 {"true", FSDP_SHARDING_FULL_SHARD},
                 {"false", -1},
                 {"auto_wrap", -1},
                 {"offload", -1}};
    const size_t count = sizeof known / sizeof *known;
    fsdp_words words = {.strategy = -1};
    for (const char *at = text + strspn(text, " ,"); *at; at += strspn(at, " ,")) {
        const size_t length = strcspn(at, " ,");
        size_t i = 0;
        while (i < count &&
               (strlen(known[i].word) != length || strncasecmp(known[i].word, at, length) != 0))
            i++;
        if (i == count && !words.unknown) {
            words.unknown = at;
            words.unknown_length = (int)length;
        }
        if (i < count && known[i].strategy >= 0)
            words.strategy = known[i].strategy;
        words.offload |= i == count - 1;
        at += length;
    }
    return words;
}

bool fsdp_train_reshards(int strategy)
{
    return strategy == FSDP_SHARDING_FULL_SHARD || strategy == FSDP_SHARDING_HYBRID_SHARD;
}

void fsdp_train_derive_fsdp(fsdp_train_config *c, const fsdp_options *options)
{
    if (!c->fsdp)
        return;
    const fsdp_words words = read_words(c->fsdp);
    if (words.offload &&
        fsdp_options_origin(options, "fsdp") > fsdp_options_origin(options, "cpu-offload"))
        c->cpu_offload = true;
    if (words.strategy < 0 || fsdp_train_set_by_user(options, "sharding-strategy"))
        return;
    c->sharding_strategy = words.strategy;
    if (!fsdp_train_set_by_user(options, "reshard-after-forward"))
        c->reshard_after_forward = fsdp_train_reshards(words.strategy);
}

/* Check that --reshard-after-forward, --shard-size and --replicas have not changed the strategy
 * that a word of --fsdp names. full_shard may be changed: it is also the word that only turns FSDP
 * on. */
static fsdp_status check_fsdp_strategy(const fsdp_train_config *c, const fsdp_options *options,
                                       int strategy)
{
    const bool reshards = fsdp_train_set_by_user(options, "reshard-after-forward") &&
                          fsdp_train_reshards(strategy) != (c->reshard_after_forward != 0);
    if (strategy < 0 || strategy == FSDP_SHARDING_FULL_SHARD ||
        (strategy == c->sharding_strategy && !reshards))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID, "--fsdp %.200s contradicts --%s", c->fsdp,
                      reshards        ? "reshard-after-forward"
                      : c->shard_size ? "shard-size"
                                      : "replicas");
}

static fsdp_status check_fsdp(const fsdp_train_config *c, const fsdp_options *options)
{
    if (!c->fsdp)
        return FSDP_OK;
    const fsdp_words words = read_words(c->fsdp);
    if (words.unknown)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--fsdp %.200s: '%.*s' is none of full_shard, shard_grad_op, "
                          "hybrid_shard, hybrid_shard_zero2, no_shard, offload and auto_wrap",
                          c->fsdp, words.unknown_length, words.unknown);
    if (words.strategy >= 0 && fsdp_train_set_by_user(options, "sharding-strategy") &&
        words.strategy != c->sharding_strategy)
        return fsdp_error(
            FSDP_ERR_INVALID, "--fsdp %.200s contradicts --sharding-strategy %s", c->fsdp,
            fsdp_sharding_strategy_name((fsdp_sharding_strategy)c->sharding_strategy));
    return check_fsdp_strategy(c, options, words.strategy);
}

/* ---- checks ---- */

fsdp_status fsdp_train_check_trainer(const fsdp_train_config *c, const fsdp_options *options)
{
    FSDP_TRY(check_fsdp(c, options));
    FSDP_TRY(check_spellings(c));
    return check_strategies(c, options);
}

fsdp_status fsdp_train_check_devices(const char *devices, int world_size)
{
    char *end;
    if (strcasecmp(devices, "auto") == 0 || strcmp(devices, "-1") == 0)
        return FSDP_OK;
    const long n = strtol(devices, &end, 10);
    if (end == devices || *end || n < 1 || n > INT_MAX)
        return fsdp_error(FSDP_ERR_INVALID, "--devices %.200s: must be a number of ranks, or auto",
                          devices);
    if (n == world_size)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "--devices %ld: %d rank%s started; 'fsdp launch -n %ld train ...' starts %ld",
                      n, world_size, world_size == 1 ? " is" : "s are", n, n);
}

fsdp_status fsdp_train_check_do_train(const fsdp_train_config *c, const fsdp_options *options)
{
    if (!c->run_validation || !fsdp_options_given(options, "run-validation") ||
        !fsdp_train_is_spelled(options, "run-validation", "do-eval") ||
        fsdp_options_given(options, "do-train"))
        return FSDP_OK;
    return fsdp_error(
        FSDP_ERR_INVALID,
        "--do-eval without --do-train: transformers' scripts would only evaluate, and "
        "so does 'fsdp evaluate --model DIR --data FILE'; with --do-train the run "
        "trains, and validates");
}
