/* Writes and reads trainer_state.json. */
#include <math.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/crc32.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/base/shown_text.h"
#include "src/comm/comm.h"
#include "src/report/metrics.h"
#include "src/state_dict/state_dict.h"
#include "src/train/checkpoint_state.h"
#include "src/train/checkpoint_tie.h"
#include "src/train/predict.h"

static const int64_t FORMAT = 1;
static const char CHECKSUM[] = "crc32";
/* The name of the field with the number of steps that the optimizer has counted. The field is
 * absent if the optimizer does not count steps. A resumed run compares this number with the
 * optimizer's state. */
static const char COUNTED[] = "optimizer_steps";
/* The name of the field that lists the hosts and their ranks. It is written only if hosts have
 * disks of their own. */
static const char HOSTS[] = "hosts";

/* Compute the checksum of the text of `doc`, which must not contain the field CHECKSUM. */
static fsdp_status checksum_of(const fsdp_json *doc, int64_t *sum)
{
    fsdp_crc32_table table;
    char *text;
    size_t bytes;
    FSDP_TRY(fsdp_json_print(doc, FSDP_JSON_PRETTY, &text, &bytes));
    fsdp_crc32_init(&table);
    *sum = fsdp_crc32(&table, 0, text, bytes);
    fsdp_free(text);
    return FSDP_OK;
}

/* --- writing --- */

static void put_measures(fsdp_json_node to, const fsdp_measures *m)
{
    fsdp_metrics_set_number(to, "accuracy", m->accuracy);
    fsdp_metrics_set_number(to, "f1", m->f1);
    fsdp_metrics_set_number(to, "f1_macro", m->f1_macro);
    fsdp_metrics_set_number(to, "mse", m->mse);
    fsdp_metrics_set_number(to, "pearson", m->pearson);
    fsdp_metrics_set_number(to, "spearmanr", m->spearmanr);
}

static void put_record(fsdp_json_node to, const fsdp_epoch_record *r)
{
    fsdp_metrics_set_number(to, "train_loss", r->train_loss);
    fsdp_metrics_set_number(to, "validation_loss", r->validation_loss);
    fsdp_metrics_set_number(to, "seconds", r->seconds);
    fsdp_metrics_set_number(to, "tokens_per_s", r->tokens_per_s);
    put_measures(to, &r->measures);
    fsdp_json_set_bool(to, "saved", r->saved);
}

/* Write the best value of the measure --metric-for-best-model so far, and the name of the
 * measure. */
static void put_best(fsdp_json_node to, const fsdp_trainer *t)
{
    fsdp_json_set_str(to, "metric", fsdp_best_measure_name(t));
    fsdp_metrics_set_number(to, "value", t->best);
}

static void put_sum(fsdp_json_node to, const fsdp_epoch_sum *sum)
{
    fsdp_metrics_set_number(to, "loss", sum->loss);
    fsdp_json_set_i64(to, "finite", sum->finite);
    fsdp_json_set_i64(to, "labels", sum->labels);
    fsdp_json_set_i64(to, "tokens", sum->tokens);
    fsdp_metrics_set_number(to, "seconds", sum->seconds);
}

static void put_result(fsdp_json_node to, const fsdp_train_result *r)
{
    fsdp_metrics_set_number(to, "first_loss", r->first_loss);
    fsdp_metrics_set_number(to, "train_loss", r->train_loss);
    fsdp_metrics_set_number(to, "validation_loss", r->validation_loss);
    fsdp_metrics_set_number(to, "best_validation_loss", r->best_validation_loss);
    put_measures(to, &r->measures);
    fsdp_json_set_i64(to, "skipped_steps", r->skipped_steps);
    fsdp_json_set_i64(to, "overflowed_forwards", r->overflowed_forwards);
    fsdp_json_set_bool(to, "saved", r->saved);
}

/* Write the scaler's state with the keys of torch.amp.GradScaler.state_dict(). */
static void put_scaler(fsdp_json_node to, const fsdp_grad_scaler *scaler)
{
    const fsdp_grad_scaler_state state = fsdp_grad_scaler_get_state(scaler);
    fsdp_json_set_f64(to, "scale", state.scale);
    fsdp_json_set_f64(to, "growth_factor", state.growth_factor);
    fsdp_json_set_f64(to, "backoff_factor", state.backoff_factor);
    fsdp_json_set_i64(to, "growth_interval", state.growth_interval);
    fsdp_json_set_i64(to, "_growth_tracker", state.growth_tracker);
}

static fsdp_status put_checksum(fsdp_json *doc)
{
    int64_t sum;
    FSDP_TRY(checksum_of(doc, &sum));
    fsdp_json_set_i64(fsdp_json_root(doc), CHECKSUM, sum);
    return FSDP_OK;
}

static int64_t rows_of_a_step(const fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    return (int64_t)c->batch_size * c->gradient_accumulation_steps *
           fsdp_group_world_size(t->group);
}

/* Write the position in the data. Also write the counts that determine which rows each step reads,
 * such as the number of ranks. */
static void put_position(fsdp_json_node to, const fsdp_trainer *t)
{
    fsdp_json_set_i64(to, "epoch", t->step / t->steps_per_epoch);
    fsdp_json_set_i64(to, "step_in_epoch", t->step % t->steps_per_epoch);
    fsdp_json_set_i64(to, "steps_per_epoch", t->steps_per_epoch);
    fsdp_json_set_i64(to, "rows", fsdp_dataset_len(t->train_set));
    fsdp_json_set_i64(to, "rows_of_a_step", rows_of_a_step(t));
    fsdp_json_set_i64(to, "world_size", fsdp_group_world_size(t->group));
}

fsdp_status fsdp_trainer_put_configuration(fsdp_json_node to, const fsdp_train_config *config)
{
    const fsdp_options_spec *spec = fsdp_train_options();
    for (size_t i = 0; i < spec->count; i++) {
        if (spec->table[i].offset == FSDP_OPTION_NOWHERE)
            continue;
        char *text = fsdp_option_text(&spec->table[i], config);
        if (!text)
            return FSDP_ERR_NOMEM;
        fsdp_json_set_any_str(to, spec->table[i].name, text);
        fsdp_free(text);
    }
    return FSDP_OK;
}

fsdp_status fsdp_trainer_state_json(const fsdp_trainer *t, fsdp_json **out)
{
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_create(FSDP_TRAINER_STATE, &doc));
    fsdp_json_node root = fsdp_json_root(doc);
    fsdp_json_set_i64(root, "format", FORMAT);
    fsdp_json_set_i64(root, "global_step", t->step);
    fsdp_json_set_i64(root, "total_steps", t->total_steps);
    if (fsdp_state_counts_steps(t->loop.optimizer))
        fsdp_json_set_i64(root, COUNTED, fsdp_trainer_counted_steps(t));
    put_position(fsdp_json_set_object(root, "position"), t);
    put_result(fsdp_json_set_object(root, "result"), t->result);
    put_best(fsdp_json_set_object(root, "best"), t);
    if (t->loop.scaler)
        put_scaler(fsdp_json_set_object(root, "scaler"), t->loop.scaler);
    put_sum(fsdp_json_set_object(root, "epoch_sum"), &t->sum);
    put_record(fsdp_json_set_object(root, "epoch_record"), &t->record);
    fsdp_json_node epochs = fsdp_json_set_array(root, "epochs");
    for (size_t i = 0; i < t->n_epochs; i++)
        put_record(fsdp_json_append_object(epochs), &t->epochs[i]);
    fsdp_status status =
        fsdp_trainer_put_configuration(fsdp_json_set_object(root, "configuration"), t->config);
    if (status != FSDP_OK) {
        fsdp_json_destroy(doc);
        return status;
    }
    *out = doc;
    return FSDP_OK;
}

static fsdp_status write_state(fsdp_json *state, const char *dir)
{
    FSDP_TRY(put_checksum(state));
    char *path = fsdp_path_join(dir, FSDP_TRAINER_STATE);
    fsdp_status status = path ? fsdp_json_write(state, FSDP_JSON_PRETTY, path) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    return status;
}

fsdp_status fsdp_trainer_state_write(fsdp_json *state, const char *dir)
{
    FSDP_TRY(fsdp_checkpoint_tie_put(fsdp_json_root(state), dir));
    return write_state(state, dir);
}

/* Write for each host its name, the number of the disk that has its files, and its ranks. */
static void put_hosts(fsdp_json_node root, const fsdp_disks *disks, const fsdp_group *group)
{
    fsdp_json_node list = fsdp_json_set_array(root, HOSTS), ranks = {0};
    for (int r = 0; r < fsdp_group_world_size(group); r++) {
        if (fsdp_group_leads_host(group, r)) {
            fsdp_json_node host = fsdp_json_append_object(list);
            fsdp_json_set_str(host, "name", fsdp_group_host_name(group, r));
            fsdp_json_set_i64(host, "disk", disks->of_rank[r]);
            ranks = fsdp_json_set_array(host, "ranks");
        }
        fsdp_json_append_i64(ranks, r);
    }
}

fsdp_status fsdp_trainer_state_write_on_disks(fsdp_json *state, const char *dir,
                                              const fsdp_disks *disks, fsdp_group *group)
{
    const bool is_first = fsdp_group_rank(group) == 0;
    if (is_first)
        put_hosts(fsdp_json_root(state), disks, group);
    FSDP_TRY(fsdp_checkpoint_tie_put_on_disks(
        is_first ? fsdp_json_root(state) : (fsdp_json_node){0}, dir, group));
    return is_first ? write_state(state, dir) : FSDP_OK;
}

const char *fsdp_trainer_state_host_of(fsdp_json_node root, int64_t rank)
{
    fsdp_json_node list, ranks;
    const char *name;
    if (!fsdp_json_has(root, HOSTS) || fsdp_json_get_array(root, HOSTS, &list) != FSDP_OK)
        return "";
    for (size_t h = 0; h < fsdp_json_len(list); h++) {
        fsdp_json_node host = fsdp_json_at(list, h);
        int64_t first;
        if (fsdp_json_get_array(host, "ranks", &ranks) != FSDP_OK || fsdp_json_len(ranks) == 0 ||
            fsdp_json_get_str(host, "name", &name) != FSDP_OK ||
            fsdp_json_get_i64(fsdp_json_at(ranks, 0), NULL, 0, INT64_MAX, &first) != FSDP_OK)
            return "";
        /* The ranks of a host are consecutive. */
        if (rank >= first && rank - first < (int64_t)fsdp_json_len(ranks))
            return name;
    }
    return "";
}

int64_t fsdp_trainer_counted_steps(const fsdp_trainer *t)
{
    int64_t most = 0;
    for (size_t i = 0; i < t->loop.parameters.n; i++) {
        int64_t steps =
            fsdp_optimizer_steps(t->loop.optimizer, t->loop.parameters.items[i].parameter);
        most = steps > most ? steps : most;
    }
    return most;
}

/* --- reading --- */

/* Check the text of `doc` against the checksum in `doc`, and remove the checksum. Also return
 * FSDP_OK if `doc` has no checksum, because earlier versions wrote none. */
static fsdp_status compare_checksum(fsdp_json *doc)
{
    fsdp_json_node root = fsdp_json_root(doc);
    int64_t then, now;
    if (!fsdp_json_has(root, CHECKSUM))
        return FSDP_OK;
    FSDP_TRY(fsdp_json_get_i64(root, CHECKSUM, 0, UINT32_MAX, &then));
    fsdp_json_remove(root, CHECKSUM);
    FSDP_TRY(checksum_of(doc, &now));
    if (then == now)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_FORMAT,
                      "%s is damaged: the checksum of its content is %lld, not %lld",
                      fsdp_json_name(doc), (long long)now, (long long)then);
}

fsdp_status fsdp_trainer_state_open(const char *dir, fsdp_json **out)
{
    fsdp_json *doc = NULL;
    char *path = fsdp_path_join(dir, FSDP_TRAINER_STATE);
    fsdp_status status = path ? fsdp_json_read(path, &doc) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    if (status == FSDP_OK)
        status = compare_checksum(doc);
    if (status == FSDP_OK)
        *out = doc;
    else
        fsdp_json_destroy(doc);
    return status;
}

/* --- recognizing the program that wrote the file --- */

static fsdp_status recognize(fsdp_json *doc, fsdp_trainer_state_owner *owner)
{
    fsdp_json_node root = fsdp_json_root(doc);
    owner->step = -1;
    owner->epoch = 0.0;
    owner->kind = FSDP_TRAINER_STATE_OWN;
    if (fsdp_json_has(root, "format"))
        return FSDP_OK;
    if (!fsdp_json_has(root, "global_step"))
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: it has neither \"format\", which fsdp train writes, nor "
                          "\"global_step\", which transformers' Trainer writes",
                          fsdp_json_name(doc));
    owner->kind = FSDP_TRAINER_STATE_TRANSFORMERS;
    FSDP_TRY(fsdp_json_get_i64(root, "global_step", 0, INT64_MAX, &owner->step));
    return fsdp_json_opt_f64(root, "epoch", 0.0, &owner->epoch);
}

fsdp_status fsdp_trainer_state_find(const char *dir, fsdp_trainer_state_owner *owner)
{
    fsdp_json *doc;
    *owner = (fsdp_trainer_state_owner){.step = -1};
    char *path = fsdp_path_join(dir, FSDP_TRAINER_STATE);
    fsdp_status status = path ? FSDP_OK : FSDP_ERR_NOMEM;
    if (path && fsdp_path_is_file(path)) {
        status = fsdp_json_read(path, &doc);
        if (status == FSDP_OK) {
            status = recognize(doc, owner);
            fsdp_json_destroy(doc);
        }
    }
    fsdp_free(path);
    return status;
}

typedef struct number {
    const char *key;
    double *to;
} number;

static fsdp_status get_numbers(fsdp_json_node from, const number *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        FSDP_TRY(fsdp_metrics_get_number(from, numbers[i].key, numbers[i].to));
    return FSDP_OK;
}

/* Read the measures. Older checkpoints have only the first two measures, accuracy and f1. */
static fsdp_status get_measures(fsdp_json_node from, fsdp_measures *m)
{
    const number numbers[] = {{"accuracy", &m->accuracy}, {"f1", &m->f1},
                              {"f1_macro", &m->f1_macro}, {"mse", &m->mse},
                              {"pearson", &m->pearson},   {"spearmanr", &m->spearmanr}};
    const size_t n =
        fsdp_json_kind_of(fsdp_json_find(from, "mse")) == FSDP_JSON_NONE ? 2 : FSDP_LENGTH(numbers);
    return get_numbers(from, numbers, n);
}

static fsdp_status get_record(fsdp_json_node from, fsdp_epoch_record *r)
{
    const number numbers[] = {{"train_loss", &r->train_loss},
                              {"validation_loss", &r->validation_loss},
                              {"seconds", &r->seconds},
                              {"tokens_per_s", &r->tokens_per_s}};
    FSDP_TRY(get_numbers(from, numbers, FSDP_LENGTH(numbers)));
    FSDP_TRY(get_measures(from, &r->measures));
    return fsdp_json_get_bool(from, "saved", &r->saved);
}

static fsdp_status get_sum(fsdp_json_node from, fsdp_epoch_sum *sum)
{
    const number numbers[] = {{"loss", &sum->loss}, {"seconds", &sum->seconds}};
    FSDP_TRY(get_numbers(from, numbers, FSDP_LENGTH(numbers)));
    FSDP_TRY(fsdp_json_get_i64(from, "finite", 0, INT64_MAX, &sum->finite));
    FSDP_TRY(fsdp_json_get_i64(from, "labels", 0, INT64_MAX, &sum->labels));
    return fsdp_json_get_i64(from, "tokens", 0, INT64_MAX, &sum->tokens);
}

static fsdp_status get_result(fsdp_json_node from, fsdp_train_result *r)
{
    const number numbers[] = {{"first_loss", &r->first_loss},
                              {"train_loss", &r->train_loss},
                              {"validation_loss", &r->validation_loss},
                              {"best_validation_loss", &r->best_validation_loss}};
    FSDP_TRY(get_numbers(from, numbers, FSDP_LENGTH(numbers)));
    FSDP_TRY(get_measures(from, &r->measures));
    FSDP_TRY(fsdp_json_get_i64(from, "skipped_steps", 0, INT64_MAX, &r->skipped_steps));
    if (fsdp_json_has(from, "overflowed_forwards")) /* older checkpoints do not have it */
        FSDP_TRY(
            fsdp_json_get_i64(from, "overflowed_forwards", 0, INT64_MAX, &r->overflowed_forwards));
    return fsdp_json_get_bool(from, "saved", &r->saved);
}

/* Set t->best to the saved best value of the measure --metric-for-best-model. Every checkpoint has
 * the best loss, but only the checkpoint of a run with the same --metric-for-best-model has the
 * best value of another measure. If the checkpoint does not have the value, do not change
 * t->best. */
static fsdp_status get_best(fsdp_trainer *t, fsdp_json_node root)
{
    fsdp_json_node from;
    const char *name;
    const number value = {"value", &t->best};
    if (t->config->metric_for_best_model == FSDP_BEST_LOSS) {
        t->best = t->result->best_validation_loss;
        return FSDP_OK;
    }
    FSDP_TRY(fsdp_json_opt_object(root, "best", &from));
    if (!from.value)
        return FSDP_OK;
    FSDP_TRY(fsdp_json_get_str(from, "metric", &name));
    return strcmp(name, fsdp_best_measure_name(t)) == 0 ? get_numbers(from, &value, 1) : FSDP_OK;
}

/* Read the scaler's state. If the saved run did not scale its losses, the state is missing, and
 * this run's scaler keeps its initial state. */
static fsdp_status get_scaler(fsdp_json_node root, fsdp_grad_scaler *scaler)
{
    fsdp_json_node from;
    FSDP_TRY(fsdp_json_opt_object(root, "scaler", &from));
    if (!from.value || !scaler)
        return FSDP_OK;
    /* this run's growth options stay in effect */
    fsdp_grad_scaler_state s = fsdp_grad_scaler_get_state(scaler);
    FSDP_TRY(fsdp_json_get_f64(from, "scale", &s.scale));
    FSDP_TRY(fsdp_json_get_i64(from, "_growth_tracker", 0, INT64_MAX, &s.growth_tracker));
    return fsdp_grad_scaler_set_state(scaler, &s);
}

static fsdp_status get_epochs(fsdp_trainer *t, fsdp_json_node root)
{
    fsdp_json_node epochs;
    FSDP_TRY(fsdp_json_get_array(root, "epochs", &epochs));
    size_t n = fsdp_json_len(epochs);
    if (!FSDP_GROW(t->epochs, t->cap_epochs, n))
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        FSDP_TRY(get_record(fsdp_json_at(epochs, i), &t->epochs[i]));
    t->n_epochs = n;
    return FSDP_OK;
}

/* --- comparing the state with this run --- */

static fsdp_status check_number(fsdp_json_node position, const char *key, const char *what,
                                int64_t now, const char *advice)
{
    int64_t then;
    FSDP_TRY(fsdp_json_get_i64(position, key, 0, INT64_MAX, &then));
    if (then == now)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID, "the run had %lld %s, this one %lld%s", (long long)then,
                      what, (long long)now, advice);
}

static fsdp_status check_position(const fsdp_trainer *t, fsdp_json_node root)
{
    fsdp_json_node position;
    FSDP_TRY(fsdp_json_get_object(root, "position", &position));
    FSDP_TRY(check_number(position, "rows", "rows", fsdp_dataset_len(t->train_set),
                          ": --data has changed"));
    FSDP_TRY(
        check_number(position, "rows_of_a_step", "rows in a step", rows_of_a_step(t),
                     ": --batch-size * --gradient-accumulation-steps * ranks must not change"));
    if (t->config->sampler == FSDP_SAMPLER_DISTRIBUTED)
        FSDP_TRY(check_number(position, "world_size", "ranks", fsdp_group_world_size(t->group),
                              ", on which the order of --sampler distributed depends"));
    return check_number(position, "steps_per_epoch", "steps in an epoch", t->steps_per_epoch, "");
}

static bool is_listed(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(name, *names) == 0)
            return true;
    return false;
}

static const char *or_none(const char *value)
{
    return *value ? value : "none";
}

/* `fixed` and `printed` list options that affect the results of a run. A resumed run must have the
 * saved value of each option in `fixed`. If the value of an option in `printed` has changed, both
 * values are printed. */
static const char *const fixed[] = {"seed",      "data-seed", "sampler", "shuffle",
                                    "drop-last", "optimizer", NULL};
static const char *const printed[] = {"lr",
                                      "weight-decay",
                                      "no-decay",
                                      "momentum",
                                      "dampening",
                                      "nesterov",
                                      "beta1",
                                      "beta2",
                                      "eps",
                                      "adjust-lr-fn",
                                      "ns-steps",
                                      "ns-coefficients",
                                      "weight-lr-power",
                                      "schedule-free-r",
                                      "scale-parameter",
                                      "relative-step",
                                      "warmup-init",
                                      "clip-threshold",
                                      "decay-rate",
                                      "adafactor-eps1",
                                      "adafactor-eps2",
                                      "adafactor-beta1",
                                      "max-grad-norm",
                                      "grad-norm-type",
                                      "clip-value",
                                      "gradient-divide-factor",
                                      "lr-schedule",
                                      "schedule-unit",
                                      "gamma",
                                      "step-size",
                                      "warmup-steps",
                                      "warmup-ratio",
                                      "lr-power",
                                      "num-cycles",
                                      "min-lr",
                                      "min-lr-rate",
                                      "epochs",
                                      "max-steps",
                                      "dropout",
                                      "loss-reduction",
                                      "label-smoothing",
                                      "param-dtype",
                                      "reduce-dtype",
                                      "internode-reduce-dtype",
                                      "output-dtype",
                                      "buffer-dtype",
                                      "growth-factor",
                                      "backoff-factor",
                                      "growth-interval",
                                      "master-dtype",
                                      "optimizer-state-dtype",
                                      "bf16-stochastic-round",
                                      "unit-mp-policy",
                                      "frozen-prefixes",
                                      "lora-r",
                                      "lora-alpha",
                                      "lora-dropout",
                                      "lora-target-modules",
                                      "lora-exclude-modules",
                                      "lora-layers-to-transform",
                                      "lora-modules-to-save",
                                      "lora-bias",
                                      "use-rslora",
                                      "use-dora",
                                      "float8-recipe",
                                      "float8-enable-fsdp-all-gather",
                                      "float8-filter-fqns",
                                      "task-prefix",
                                      "text-column",
                                      "target-column",
                                      "chat-template",
                                      "chat-template-kwargs",
                                      "assistant-only-loss",
                                      "completion-only-loss",
                                      "wikihow-cleaning",
                                      "cleaning",
                                      "source-lang",
                                      "target-lang",
                                      "json-field",
                                      "text-pair-column",
                                      "label-column",
                                      "delimiter",
                                      "csv-quotes",
                                      "document-separator",
                                      "token-dtype",
                                      "packing",
                                      "document-token",
                                      "max-source-length",
                                      "max-target-length",
                                      "max-seq-length",
                                      "task",
                                      "mix-data",
                                      "data-weight",
                                      "noise-density",
                                      "mean-noise-span-length",
                                      NULL};

static fsdp_status compare_option(const fsdp_trainer *t, const char *name, const char *then,
                                  const char *now)
{
    if (strcmp(then, now) == 0)
        return FSDP_OK;
    if (is_listed(name, fixed))
        return fsdp_error(FSDP_ERR_INVALID, "the run had --%s %s, this one %s", name, then, now);
    if (t->out && is_listed(name, printed))
        fprintf(t->out, "resuming with --%s %s, which was %s\n", name,
                fsdp_show_text(or_none(now)).text, fsdp_show_text(or_none(then)).text);
    return FSDP_OK;
}

static fsdp_status compare_configuration(const fsdp_trainer *t, fsdp_json_node root)
{
    const fsdp_options_spec *spec = fsdp_train_options();
    fsdp_json_node then;
    FSDP_TRY(fsdp_json_get_object(root, "configuration", &then));
    for (size_t i = 0; i < spec->count; i++) {
        const char *before;
        if (spec->table[i].offset == FSDP_OPTION_NOWHERE)
            continue;
        FSDP_TRY(fsdp_json_opt_str(then, spec->table[i].name, NULL, &before));
        char *now = before ? fsdp_option_text(&spec->table[i], t->config) : NULL;
        if (before && !now)
            return FSDP_ERR_NOMEM;
        fsdp_status status = before ? compare_option(t, spec->table[i].name, before, now) : FSDP_OK;
        fsdp_free(now);
        FSDP_TRY(status);
    }
    return FSDP_OK;
}

static bool begins_with_any(const char *name, const char *prefixes)
{
    size_t n;
    for (; *prefixes; prefixes += n + (prefixes[n] == ',')) {
        n = strcspn(prefixes, ",");
        if (n && strncmp(name, prefixes, n) == 0)
            return true;
    }
    return false;
}

/* Set t->was_frozen to the name of a parameter that was frozen in the saved run and is trained now,
 * if there is one. The checkpoint has no optimizer state for such a parameter. */
static fsdp_status find_unfrozen(fsdp_trainer *t, fsdp_json_node root)
{
    fsdp_json_node then;
    const char *prefixes;
    FSDP_TRY(fsdp_json_get_object(root, "configuration", &then));
    FSDP_TRY(fsdp_json_opt_str(then, "frozen-prefixes", "", &prefixes));
    for (size_t i = 0; i < t->loop.parameters.n && !t->was_frozen; i++) {
        const fsdp_named_parameter *p = &t->loop.parameters.items[i];
        if (fsdp_parameter_requires_grad(p->parameter) && begins_with_any(p->name, prefixes))
            t->was_frozen = p->name;
    }
    return FSDP_OK;
}

static fsdp_status read_all(fsdp_trainer *t, fsdp_json_node root, int64_t *counted)
{
    int64_t format;
    fsdp_json_node node;
    FSDP_TRY(fsdp_json_get_i64(root, "format", 1, INT64_MAX, &format));
    if (format > FORMAT)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "format %lld, the newest known is %lld",
                          (long long)format, (long long)FORMAT);
    FSDP_TRY(check_position(t, root));
    FSDP_TRY(compare_configuration(t, root));
    FSDP_TRY(find_unfrozen(t, root));
    FSDP_TRY(fsdp_json_get_i64(root, "global_step", 0, INT64_MAX, &t->step));
    FSDP_TRY(fsdp_json_opt_i64(root, COUNTED, 0, INT64_MAX, -1, counted));
    FSDP_TRY(fsdp_json_get_object(root, "result", &node));
    FSDP_TRY(get_result(node, t->result));
    FSDP_TRY(get_best(t, root));
    FSDP_TRY(get_scaler(root, t->loop.scaler));
    FSDP_TRY(fsdp_json_get_object(root, "epoch_sum", &node));
    FSDP_TRY(get_sum(node, &t->sum));
    FSDP_TRY(fsdp_json_get_object(root, "epoch_record", &node));
    FSDP_TRY(get_record(node, &t->record));
    return get_epochs(t, root);
}

fsdp_status fsdp_trainer_state_read(fsdp_trainer *t, const char *dir, int64_t *counted)
{
    fsdp_json *doc;
    FSDP_TRY(fsdp_trainer_state_open(dir, &doc));
    fsdp_status status = read_all(t, fsdp_json_root(doc), counted);
    if (status == FSDP_ERR_INVALID)
        fsdp_error_context(status, "%s", fsdp_json_name(doc));
    fsdp_json_destroy(doc);
    return status;
}
