/* See checkpoint_foreign.h. */
#include "src/train/checkpoint_foreign.h"

#include <math.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/comm/agree.h"
#include "src/foreign/foreign.h"
#include "src/hf/folder_kind.h"
#include "src/source/source.h"
#include "src/state_dict/accelerate.h"

/* ---- finding the model and the optimizer ----------------------------------------------------- */

/* Files that are looked for, in this order, to find the model and the optimizer. If the file that
 * is found is named .metadata, the model or the optimizer is in the folder of this file, which is a
 * checkpoint of torch.distributed.checkpoint. Otherwise the model or the optimizer is in the file
 * itself. */
static const char *const models[] = {"pytorch_model_fsdp_0/.metadata", "pytorch_model_fsdp.bin",
                                     "pytorch_model_0/.metadata", "model_state_dict.pt", NULL};
static const char *const optimizers[] = {"optimizer_0/.metadata", "optimizer.bin", "optimizer.pt",
                                         "optim_state_dict.pt", NULL};

static bool find_first(const char *dir, const char *const *names, char path[PATH_MAX])
{
    for (; *names; names++) {
        snprintf(path, PATH_MAX, "%s/%s", dir, *names);
        if (!fsdp_path_is_file(path))
            continue;
        char *slash = strrchr(path, '/');
        if (strcmp(slash, "/.metadata") == 0)
            *slash = '\0'; /* keep only the path of the folder */
        return true;
    }
    *path = '\0';
    return false;
}

bool fsdp_checkpoint_foreign_find(const char *path, fsdp_checkpoint_parts *parts,
                                  const char **lacks)
{
    *lacks = NULL;
    if (fsdp_path_is_file(path)) {
        snprintf(parts->model, PATH_MAX, "%s", path);
        snprintf(parts->optimizer, PATH_MAX, "%s", path);
        return true;
    }
    snprintf(parts->model, PATH_MAX, "%s/.metadata", path);
    if (fsdp_path_is_file(parts->model)) {
        snprintf(parts->model, PATH_MAX, "%s", path);
        snprintf(parts->optimizer, PATH_MAX, "%s", path);
        return true;
    }
    const bool model = find_first(path, models, parts->model) ||
                       find_first(path, fsdp_folder_weights, parts->model);
    const bool optimizer = find_first(path, optimizers, parts->optimizer);
    if (model && !optimizer)
        *lacks = "a model, but no optimizer (optimizer_0, optimizer.bin, optimizer.pt)";
    if (optimizer && !model)
        *lacks = "an optimizer, but no model (pytorch_model_fsdp_0, pytorch_model_fsdp.bin, "
                 "model.safetensors, pytorch_model.bin)";
    return model && optimizer;
}

bool fsdp_checkpoint_needs_state(const char *dir)
{
    fsdp_source *source;
    if (!fsdp_directory_has_file(dir, ".metadata"))
        return fsdp_directory_has_file(dir, "model_state_dict.pt") ||
               fsdp_directory_has_file(dir, "local_state_dict_rank0.pt");
    if (fsdp_source_open(dir, &source) != FSDP_OK)
        return true; /* .metadata is damaged; this program may have written it */
    const char *writer = fsdp_source_writer(source);
    const bool own = !writer || strcmp(writer, "fsdp.c") == 0;
    fsdp_source_close(source);
    return own;
}

fsdp_status fsdp_checkpoint_foreign_check_file(const char *path)
{
    fsdp_source *source = NULL;
    fsdp_status status = fsdp_source_open(path, &source);
    fsdp_source_close(source);
    if (status == FSDP_OK || status == FSDP_ERR_INVALID || fsdp_ends_with(path, ".pt") ||
        fsdp_ends_with(path, ".pth") || fsdp_ends_with(path, ".bin"))
        return status;
    return fsdp_error(FSDP_ERR_INVALID,
                      "--resume %s: not a checkpoint: give a folder with model and optimizer, or a "
                      "file of torch.save (.pt, .pth, .bin) with both",
                      path);
}

/* ---- options --------------------------------------------------------------------------------- */

#define ADAMW(member) offsetof(fsdp_optimizer_options, adamw.member)
#define SGD(member) offsetof(fsdp_optimizer_options, sgd.member)
#define ADAFACTOR(member) offsetof(fsdp_optimizer_options, adafactor.member)
#define MUON(member) offsetof(fsdp_optimizer_options, muon.member)
#define SCHEDULE_FREE(member) offsetof(fsdp_optimizer_options, schedule_free.member)
#define TO(member) offsetof(fsdp_train_config, member)

/* A field of an optimizer's options, and the flag that sets it. */
typedef struct flag_field {
    const char *flag;
    size_t from; /* offset in fsdp_optimizer_options */
    size_t to;   /* offset in fsdp_train_config */
    bool is_bool;
} flag_field;

static const flag_field adamw[] = {{"lr", ADAMW(lr), TO(lr), false},
                                   {"beta1", ADAMW(beta1), TO(beta1), false},
                                   {"beta2", ADAMW(beta2), TO(beta2), false},
                                   {"eps", ADAMW(eps), TO(eps), false},
                                   {"weight-decay", ADAMW(weight_decay), TO(weight_decay), false},
                                   {NULL, 0, 0, false}};
static const flag_field sgd[] = {{"lr", SGD(lr), TO(lr), false},
                                 {"momentum", SGD(momentum), TO(momentum), false},
                                 {"dampening", SGD(dampening), TO(dampening), false},
                                 {"nesterov", SGD(nesterov), TO(nesterov), true},
                                 {"weight-decay", SGD(weight_decay), TO(weight_decay), false},
                                 {NULL, 0, 0, false}};
static const flag_field adafactor[] = {
    {"lr", ADAFACTOR(lr), TO(lr), false},
    {"adafactor-eps1", ADAFACTOR(eps1), TO(adafactor_eps1), false},
    {"adafactor-eps2", ADAFACTOR(eps2), TO(adafactor_eps2), false},
    {"clip-threshold", ADAFACTOR(clip_threshold), TO(clip_threshold), false},
    {"decay-rate", ADAFACTOR(decay_rate), TO(decay_rate), false},
    {"adafactor-beta1", ADAFACTOR(beta1), TO(adafactor_beta1), false},
    {"weight-decay", ADAFACTOR(weight_decay), TO(weight_decay), false},
    {"scale-parameter", ADAFACTOR(scale_parameter), TO(scale_parameter), true},
    {"relative-step", ADAFACTOR(relative_step), TO(relative_step), true},
    {"warmup-init", ADAFACTOR(warmup_init), TO(warmup_init), true},
    {NULL, 0, 0, false}};

static const flag_field muon[] = {{"lr", MUON(lr), TO(lr), false},
                                  {"weight-decay", MUON(weight_decay), TO(weight_decay), false},
                                  {"momentum", MUON(momentum), TO(momentum), false},
                                  {"nesterov", MUON(nesterov), TO(nesterov), true},
                                  {"beta1", MUON(beta1), TO(beta1), false},
                                  {"beta2", MUON(beta2), TO(beta2), false},
                                  {NULL, 0, 0, false}};

static const flag_field schedule_free[] = {
    {"lr", SCHEDULE_FREE(lr), TO(lr), false},
    {"beta1", SCHEDULE_FREE(beta1), TO(beta1), false},
    {"beta2", SCHEDULE_FREE(beta2), TO(beta2), false},
    {"eps", SCHEDULE_FREE(eps), TO(eps), false},
    {"weight-decay", SCHEDULE_FREE(weight_decay), TO(weight_decay), false},
    {"schedule-free-r", SCHEDULE_FREE(r), TO(schedule_free_r), false},
    {"weight-lr-power", SCHEDULE_FREE(weight_lr_power), TO(weight_lr_power), false},
    {NULL, 0, 0, false}};

static const flag_field *fields_of(const fsdp_train_config *c)
{
    return c->optimizer == FSDP_OPTIMIZER_SGD                   ? sgd
           : c->optimizer == FSDP_OPTIMIZER_ADAFACTOR           ? adafactor
           : c->optimizer == FSDP_OPTIMIZER_MUON                ? muon
           : c->optimizer == FSDP_OPTIMIZER_SCHEDULE_FREE_ADAMW ? schedule_free
                                                                : adamw;
}

static bool same_value(const flag_field *f, const fsdp_optimizer_options *a,
                       const fsdp_optimizer_options *b)
{
    double x, y;
    const char *at = (const char *)a + f->from, *other = (const char *)b + f->from;
    if (f->is_bool)
        return *(const bool *)at == *(const bool *)other;
    memcpy(&x, at, sizeof x);
    memcpy(&y, other, sizeof y);
    return x == y;
}

/* Return the value of field f in `options` as the user would write it after the flag. The caller
 * owns the text. */
static char *text_of(const fsdp_train_config *config, const flag_field *f,
                     const fsdp_optimizer_options *options)
{
    const fsdp_options_spec *spec = fsdp_train_options();
    fsdp_train_config copy = *config;
    double number;
    if (f->is_bool) {
        memcpy((char *)&copy + f->to, (const char *)options + f->from, sizeof(bool));
    } else {
        memcpy(&number, (const char *)options + f->from, sizeof number);
        if (strcmp(f->flag, "adafactor-beta1") == 0 && number < 0.0)
            /* In the optimizer's options, a negative value means that there is no first moment. In
             * the configuration, NAN means that there is none. */
            number = (double)NAN;
        memcpy((char *)&copy + f->to, &number, sizeof number);
    }
    for (size_t i = 0; i < spec->count; i++)
        if (strcmp(spec->table[i].name, f->flag) == 0)
            return fsdp_option_text(&spec->table[i], &copy);
    fsdp_assert_failed("the flag of an optimizer's option exists", __FILE__, __LINE__);
    return NULL;
}

/* Return how many parameters have the same value of field f as parameter i, both in this run and in
 * the checkpoint. Parameter i itself is counted. But return 0 if one of these parameters comes
 * before parameter i, because the caller has already printed the difference for that parameter. */
static size_t count_alike(const fsdp_foreign_report *r, const flag_field *f, size_t i)
{
    const fsdp_foreign_parameter *p = &r->parameters[i];
    size_t n = 0;
    for (size_t k = 0; k < r->n; k++) {
        const bool alike = same_value(f, &r->parameters[k].ours, &p->ours) &&
                           same_value(f, &r->parameters[k].theirs, &p->theirs);
        if (alike && k < i)
            return 0;
        n += alike;
    }
    return n;
}

static fsdp_status print_difference(const fsdp_trainer *t, const fsdp_foreign_report *r,
                                    const flag_field *f, size_t i)
{
    const fsdp_foreign_parameter *p = &r->parameters[i];
    if (same_value(f, &p->ours, &p->theirs))
        return FSDP_OK;
    const size_t n = count_alike(r, f, i);
    if (!n)
        return FSDP_OK;
    char *now = text_of(t->config, f, &p->ours), *then = text_of(t->config, f, &p->theirs);
    if (now && then && t->out) {
        fprintf(t->out, "resuming with --%s %s, which was %s", f->flag, *now ? now : "none",
                *then ? then : "none");
        if (n < r->n)
            fprintf(t->out, " for %zu of %zu parameters, first %s", n, r->n, p->name);
        fputc('\n', t->out);
    }
    fsdp_status status = now && then ? FSDP_OK : FSDP_ERR_NOMEM;
    fsdp_free(then);
    fsdp_free(now);
    return status;
}

/* Return an error if the checkpoint has Adam's state and this run uses AdamW, or vice versa. Both
 * optimizers save the same entries, but the options in param_groups show which of the two saved
 * them. */
static fsdp_status check_class(const fsdp_trainer *t, const fsdp_foreign_report *r)
{
    if (!fsdp_optimizer_is_adam(t->config->optimizer) || !r->n ||
        r->parameters[0].ours.adamw.l2 == r->parameters[0].theirs.adamw.l2)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID, "the run had --optimizer %s, this one %s",
                      r->parameters[0].theirs.adamw.l2 ? "adam" : "adamw",
                      r->parameters[0].ours.adamw.l2 ? "adam" : "adamw");
}

/* Print how the Newton-Schulz iteration of this run differs from the saved one. */
static void print_iteration(const fsdp_trainer *t, const fsdp_foreign_report *r)
{
    for (size_t i = 0; t->config->optimizer == FSDP_OPTIMIZER_MUON && t->out && i < r->n; i++) {
        const fsdp_muon_options *now = &r->parameters[i].ours.muon;
        const fsdp_muon_options *then = &r->parameters[i].theirs.muon;
        const double *a = now->ns_coefficients, *b = then->ns_coefficients;
        if (now->use_adamw)
            continue;
        if (now->ns_steps != then->ns_steps)
            fprintf(t->out, "resuming with --ns-steps %d, which was %d\n", now->ns_steps,
                    then->ns_steps);
        if (a[0] != b[0] || a[1] != b[1] || a[2] != b[2])
            fprintf(t->out, "resuming with --ns-coefficients %g,%g,%g, which was %g,%g,%g\n", a[0],
                    a[1], a[2], b[0], b[1], b[2]);
        return;
    }
}

/* Compare the saved options with this run's, and print the differences on rank 0. All ranks have
 * the same report, so all return the same status. */
static fsdp_status compare_options(const fsdp_trainer *t, const fsdp_foreign_report *r)
{
    for (size_t i = 0; i < r->n_notes && t->out; i++)
        fprintf(t->out, "resuming: %s\n", r->notes[i]);
    FSDP_TRY(check_class(t, r));
    print_iteration(t, r);
    for (const flag_field *f = fields_of(t->config); f->flag; f++)
        for (size_t i = 0; i < r->n; i++)
            FSDP_TRY(print_difference(t, r, f, i));
    return FSDP_OK;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* Read the state of the loss scaler, if it was saved. Accelerate and Trainer save it as scaler.pt,
 * next to the optimizer's file. */
static fsdp_status read_scaler(const fsdp_trainer *t, const char *dir)
{
    if (!t->loop.scaler || !fsdp_grad_scaler_is_enabled(t->loop.scaler))
        return FSDP_OK;
    char *path = fsdp_path_join(dir, "scaler.pt");
    if (!path)
        return FSDP_ERR_NOMEM;
    fsdp_status status =
        fsdp_path_is_file(path) ? fsdp_accelerate_scaler_read(path, t->loop.scaler) : FSDP_OK;
    fsdp_free(path);
    return status;
}

/* Find the model and the optimizer on rank 0, and send their paths to all ranks. Collective. */
static fsdp_status find_parts(const fsdp_trainer *t, const char *path, fsdp_checkpoint_parts *parts)
{
    const char *lacks = NULL;
    fsdp_status status = FSDP_OK;
    if (fsdp_trainer_is_first(t) && !fsdp_checkpoint_foreign_find(path, parts, &lacks))
        status = fsdp_error(FSDP_ERR_NOT_FOUND, "--resume %s: there is %s%s", path,
                            lacks ? lacks
                                  : "no checkpoint in it: neither .metadata of "
                                    "torch.distributed.checkpoint nor files of Accelerate or "
                                    "Trainer",
                            lacks ? "; --model starts from the weights only" : "");
    FSDP_TRY(fsdp_agree(t->group, status));
    return fsdp_broadcast(t->group, parts, sizeof *parts, 0);
}

fsdp_status fsdp_checkpoint_foreign_read(fsdp_trainer *t, const char *path)
{
    fsdp_checkpoint_parts parts = {0};
    fsdp_foreign_report report = {0};
    FSDP_TRY(find_parts(t, path, &parts));
    const fsdp_foreign_paths paths = {parts.model, parts.optimizer};
    FSDP_TRY(fsdp_foreign_load(t->loop.module, t->loop.optimizer, &paths, t->group, &report));
    fsdp_status status = compare_options(t, &report);
    fsdp_error_context(status, "%s", path);
    fsdp_foreign_report_free(&report);
    return fsdp_agree(t->group, status == FSDP_OK ? read_scaler(t, path) : status);
}
