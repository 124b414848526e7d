/* The part of `fsdp verify` that compares AdamW with states in 8 bits, Muon and Schedule-Free AdamW
 * with the values in states.json and states.safetensors, which tools/golden_states.py writes. The
 * name of a case in states.json begins with the name of its optimizer. Its inputs are the tensors
 * "<parameter>.start" and "<parameter>.grads". If there is a tensor "<case>.<parameter>.grads",
 * this tensor is used in place of "<parameter>.grads". All other tensors
 * "<case>.<parameter>.<quantity>" are the results of the case. Each tensor of the file is an input,
 * or is compared, or is reported. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/dynamic_map.h"
#include "src/comm/agree.h"
#include "src/verify/verify_training.h"

enum {
    NAME = 192 /* bytes of the name of a tensor */
};

typedef fsdp_status create_fn(fsdp_json_node options, fsdp_module *module,
                              fsdp_optimizer **optimizer);

/* An optimizer, and the tolerances for its parameters and its states: the largest differences that
 * rounding explains, divided by the largest magnitude in the tensor. */
typedef struct optimizer_kind {
    const char *name;
    create_fn *create;
    double params, state;
} optimizer_kind;

typedef struct states_case {
    fsdp_verify_case *c;
    const fsdp_checkpoint_reader *file;
    const char *name; /* a key of "cases" in states.json */
    const optimizer_kind *kind;
    fsdp_module *module;
    fsdp_parameter_list list;
    fsdp_optimizer *optimizer;
} states_case;

/* --- options --- */

static fsdp_status read_betas(fsdp_json_node options, double *beta1, double *beta2)
{
    fsdp_json_node betas;
    FSDP_TRY(fsdp_json_opt_array(options, "betas", &betas));
    if (!betas.value)
        return FSDP_OK;
    FSDP_TRY(fsdp_json_get_f64(fsdp_json_at(betas, 0), NULL, beta1));
    return fsdp_json_get_f64(fsdp_json_at(betas, 1), NULL, beta2);
}

static fsdp_status create_adamw_8bit(fsdp_json_node options, fsdp_module *module,
                                     fsdp_optimizer **optimizer)
{
    fsdp_verify_optimizer o;
    FSDP_TRY(fsdp_verify_optimizer_read(options, "AdamW", &o));
    return fsdp_adamw_8bit_create(module, &o.adamw, optimizer);
}

static fsdp_status create_muon(fsdp_json_node options, fsdp_module *module,
                               fsdp_optimizer **optimizer)
{
    fsdp_muon_options o = fsdp_muon_defaults();
    const char *adjust;
    FSDP_TRY(fsdp_json_opt_f64(options, "lr", o.lr, &o.lr));
    FSDP_TRY(fsdp_json_opt_f64(options, "weight_decay", o.weight_decay, &o.weight_decay));
    FSDP_TRY(fsdp_json_opt_f64(options, "momentum", o.momentum, &o.momentum));
    FSDP_TRY(fsdp_json_opt_bool(options, "nesterov", o.nesterov, &o.nesterov));
    FSDP_TRY(fsdp_json_opt_str(options, "adjust_lr_fn", "original", &adjust));
    if (strcmp(adjust, "match_rms_adamw") == 0)
        o.adjust_lr_fn = FSDP_MUON_MATCH_RMS_ADAMW;
    else if (strcmp(adjust, "original") != 0)
        return fsdp_json_mismatch(options, "adjust_lr_fn", "\"original\" or \"match_rms_adamw\"");
    return fsdp_muon_create(module, &o, optimizer);
}

static fsdp_status create_schedule_free(fsdp_json_node options, fsdp_module *module,
                                        fsdp_optimizer **optimizer)
{
    fsdp_schedule_free_options o = fsdp_schedule_free_adamw_defaults();
    FSDP_TRY(fsdp_json_opt_f64(options, "lr", o.lr, &o.lr));
    FSDP_TRY(read_betas(options, &o.beta1, &o.beta2));
    FSDP_TRY(fsdp_json_opt_f64(options, "eps", o.eps, &o.eps));
    FSDP_TRY(fsdp_json_opt_f64(options, "weight_decay", o.weight_decay, &o.weight_decay));
    FSDP_TRY(fsdp_json_opt_f64(options, "r", o.r, &o.r));
    FSDP_TRY(fsdp_json_opt_f64(options, "weight_lr_power", o.weight_lr_power, &o.weight_lr_power));
    FSDP_TRY(fsdp_json_opt_i64(options, "warmup_steps", 0, INT64_MAX, 0, &o.warmup_steps));
    return fsdp_schedule_free_adamw_create(module, &o, optimizer);
}

static const optimizer_kind *kind_of(const char *name)
{
    static const optimizer_kind kinds[] = {
        /* A code that differs by one moves the next update of its element by up to 2 %. */
        {"adamw_8bit", create_adamw_8bit, 1e-4, 1e-4},
        /* The tolerance is larger, because Muon's iteration is computed in bfloat16. */
        {"muon", create_muon, 1e-3, 2e-6},
        {"schedule_free", create_schedule_free, 2e-6, 2e-6}};
    for (size_t i = 0; i < FSDP_LENGTH(kinds); i++)
        if (strncmp(name, kinds[i].name, strlen(kinds[i].name)) == 0)
            return &kinds[i];
    return NULL;
}

/* --- one case --- */

/* Return what follows "<case>.<parameter>." in `name`, or NULL if the name begins differently. */
static const char *result_of(const states_case *s, const fsdp_named_parameter *p, const char *name)
{
    const size_t n = strlen(s->name), k = strlen(p->name);
    if (strncmp(name, s->name, n) != 0 || name[n] != '.')
        return NULL;
    name += n + 1;
    return strncmp(name, p->name, k) == 0 && name[k] == '.' ? name + k + 1 : NULL;
}

/* Create a sharded module with the parameters of the case. */
static fsdp_status make_module(states_case *s)
{
    fsdp_parameter *ignored;
    FSDP_TRY(fsdp_module_create("Tensors", &s->module));
    for (size_t i = 0; i < fsdp_checkpoint_count(s->file); i++) {
        const char *name = fsdp_checkpoint_at(s->file, i)->name, *end = strstr(name, ".params");
        const size_t n = strlen(s->name);
        const fsdp_checkpoint_entry *start;
        char part[NAME], from[NAME];
        if (strncmp(name, s->name, n) != 0 || name[n] != '.' || !end || end[7])
            continue;
        snprintf(part, sizeof part, "%.*s", (int)(end - name - (ptrdiff_t)n - 1), name + n + 1);
        snprintf(from, sizeof from, "%.*s.start", NAME - 8, part);
        FSDP_TRY(fsdp_checkpoint_get(s->file, from, &start));
        FSDP_TRY(fsdp_module_add_parameter(s->module, part, start->ndim, start->shape,
                                           (fsdp_init){.mean = 0.0f}, &ignored));
    }
    FSDP_TRY(fsdp_fully_shard(s->module, s->c->group, s->c->device, NULL));
    return fsdp_module_parameters(s->module, false, &s->list);
}

static fsdp_status set(const states_case *s, const fsdp_named_parameter *p, const char *tensor,
                       int64_t step, fsdp_status (*to)(fsdp_parameter *, const float *))
{
    float *values;
    FSDP_TRY(
        fsdp_verify_read_part(s->file, tensor, step, fsdp_parameter_numel(p->parameter), &values));
    const fsdp_status status = to(p->parameter, values);
    fsdp_free(values);
    return status;
}

/* Set the gradient of a parameter. A case may have gradients of its own. */
static fsdp_status set_gradient(const states_case *s, const fsdp_named_parameter *p, int64_t step)
{
    char own[NAME], shared[NAME];
    snprintf(own, sizeof own, "%s.%s.grads", s->name, p->name);
    snprintf(shared, sizeof shared, "%s.grads", p->name);
    return set(s, p, fsdp_checkpoint_find(s->file, own) ? own : shared, step, fsdp_verify_set_grad);
}

static fsdp_status run_step(const states_case *s, int64_t step, double *largest)
{
    for (size_t i = 0; i < s->list.n; i++)
        FSDP_TRY(set_gradient(s, &s->list.items[i], step));
    FSDP_TRY(fsdp_optimizer_step(s->optimizer, 1.0f));
    for (size_t i = 0; i < s->list.n; i++) {
        const fsdp_parameter *p = s->list.items[i].parameter;
        char name[NAME];
        snprintf(name, sizeof name, "%s.%s.params", s->name, s->list.items[i].name);
        FSDP_TRY(fsdp_verify_compare_part(fsdp_parameter_local(p), s->file, name, step, largest));
    }
    return FSDP_OK;
}

/* Run all steps, as many as the first parameter has results for. */
static fsdp_status run_steps(const states_case *s)
{
    const fsdp_checkpoint_entry *entry;
    char name[NAME];
    double largest = 0.0;
    if (!s->list.n)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: no tensor '%s.<name>.params'",
                          fsdp_checkpoint_path(s->file), s->name);
    for (size_t i = 0; i < s->list.n; i++) {
        snprintf(name, sizeof name, "%s.start", s->list.items[i].name);
        FSDP_TRY(set(s, &s->list.items[i], name, 0, fsdp_verify_set_values));
    }
    snprintf(name, sizeof name, "%s.%s.params", s->name, s->list.items[0].name);
    FSDP_TRY(fsdp_checkpoint_get(s->file, name, &entry));
    const int64_t steps = entry->ndim ? entry->shape[0] : 0;
    for (int64_t step = 0; step < steps; step++)
        FSDP_TRY(run_step(s, step, &largest));
    fsdp_verify_compared(s->c, largest, s->kind->params, "of the largest",
                         "states.json: %s: params", s->name);
    return FSDP_OK;
}

/* --- states --- */

/* Compare the codes of a state in 8 bits. A moment halfway between two codes may get either code,
 * so at most 1/200 of the codes may differ, and only by one. */
static fsdp_status compare_codes(const states_case *s, const char *name, fsdp_tensor *state,
                                 const fsdp_checkpoint_entry *want)
{
    float *have;
    FSDP_TRY(fsdp_verify_check_numel(state, want));
    FSDP_TRY(fsdp_verify_full(state, &have));
    const uint8_t *codes = want->data;
    double differ = 0.0;
    for (int64_t i = 0; i < want->numel; i++) {
        const double distance = fabs((double)have[i] - (double)codes[i]);
        differ += distance > 1.0 ? (double)INFINITY : distance;
    }
    fsdp_free(have);
    fsdp_verify_compared(s->c, differ / (double)want->numel, 1.0 / 200.0, "of the codes",
                         "states.json: %s", name);
    return FSDP_OK;
}

static fsdp_dtype dtype_of(const fsdp_checkpoint_entry *entry)
{
    return strcmp(entry->dtype_name, "U8") == 0 ? FSDP_DTYPE_U8 : FSDP_DTYPE_F32;
}

static fsdp_status compare_state(const states_case *s, const fsdp_named_parameter *p,
                                 const char *key, const fsdp_checkpoint_entry *want)
{
    fsdp_tensor *state = fsdp_optimizer_state(s->optimizer, p->parameter, key);
    double largest = 0.0;
    /* torchao calls the float32 moments of a small parameter exp_avg and exp_avg_sq. */
    if (!state)
        state = fsdp_optimizer_state(s->optimizer, p->parameter,
                                     strcmp(key, "exp_avg") == 0 ? "state1" : "state2");
    if (!state || fsdp_tensor_dtype(state) != dtype_of(want)) {
        fsdp_verify_compared(s->c, (double)INFINITY, 0.0, "(no such state)", "states.json: %s",
                             want->name);
        return FSDP_OK;
    }
    if (dtype_of(want) == FSDP_DTYPE_U8)
        return compare_codes(s, want->name, state, want);
    FSDP_TRY(fsdp_verify_compare_whole(state, s->file, want, &largest));
    fsdp_verify_compared(s->c, largest, s->kind->state, "of the largest", "states.json: %s",
                         want->name);
    return FSDP_OK;
}

/* Compare a result of the case other than params. The optimizer is in evaluation mode. */
static fsdp_status compare_result(const states_case *s, const fsdp_named_parameter *p,
                                  const char *what, const fsdp_checkpoint_entry *want)
{
    double largest = 0.0;
    if (strcmp(what, "params") == 0 || strcmp(what, "grads") == 0)
        return FSDP_OK;
    if (strncmp(what, "state.", 6) == 0)
        return compare_state(s, p, what + 6, want);
    if (strcmp(what, "averaged") != 0) {
        fsdp_verify_skipped(s->c, want->name, "this version does not know what it is");
        return FSDP_OK;
    }
    FSDP_TRY(
        fsdp_verify_compare_whole(fsdp_parameter_local(p->parameter), s->file, want, &largest));
    fsdp_verify_compared(s->c, largest, s->kind->params, "of the largest", "states.json: %s",
                         want->name);
    return FSDP_OK;
}

static fsdp_status compare_results(const states_case *s)
{
    FSDP_TRY(fsdp_optimizer_eval(s->optimizer));
    for (size_t i = 0; i < s->list.n; i++)
        for (size_t k = 0; k < fsdp_checkpoint_count(s->file); k++) {
            const fsdp_checkpoint_entry *entry = fsdp_checkpoint_at(s->file, k);
            const char *what = result_of(s, &s->list.items[i], entry->name);
            if (what)
                FSDP_TRY(compare_result(s, &s->list.items[i], what, entry));
        }
    return FSDP_OK;
}

static fsdp_status verify_case(fsdp_verify_case *c, const fsdp_checkpoint_reader *file,
                               fsdp_json_node options)
{
    states_case s = {.c = c, .file = file, .name = options.key, .kind = kind_of(options.key)};
    if (!s.kind)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "no optimizer here has a name that it begins with");
    fsdp_status status = make_module(&s);
    if (status == FSDP_OK)
        status = s.kind->create(options, s.module, &s.optimizer);
    if (status == FSDP_OK)
        status = run_steps(&s);
    if (status == FSDP_OK)
        status = compare_results(&s);
    fsdp_optimizer_destroy(s.optimizer);
    fsdp_parameter_list_free(&s.list);
    fsdp_module_destroy(s.module);
    return status;
}

/* --- the whole file --- */

static bool is_of_a_case(fsdp_json_node cases, const char *name)
{
    for (fsdp_json_node one = fsdp_json_first(cases); one.value; one = fsdp_json_next(one)) {
        const size_t n = strlen(one.key);
        if (strncmp(name, one.key, n) == 0 && name[n] == '.')
            return true;
    }
    return false;
}

/* Compare the maps of 8-bit states, and report the tensors that no case has. */
static void compare_others(fsdp_verify_case *c, const fsdp_checkpoint_reader *file,
                           fsdp_json_node cases)
{
    for (size_t i = 0; i < fsdp_checkpoint_count(file); i++) {
        const fsdp_checkpoint_entry *entry = fsdp_checkpoint_at(file, i);
        const bool is_signed = strcmp(entry->name, "qmap1") == 0;
        const char *dot = strrchr(entry->name, '.');
        if (is_of_a_case(cases, entry->name) ||
            (dot && (strcmp(dot, ".start") == 0 || strcmp(dot, ".grads") == 0)))
            continue;
        if ((!is_signed && strcmp(entry->name, "qmap2") != 0) ||
            strcmp(entry->dtype_name, "F32") != 0 || entry->numel != FSDP_MAP_VALUES) {
            fsdp_verify_skipped(c, entry->name, "no case of states.json has this tensor");
            continue;
        }
        const float *have =
            (is_signed ? fsdp_dynamic_map_signed() : fsdp_dynamic_map_unsigned())->value;
        fsdp_verify_compared(c, fsdp_verify_largest(have, entry->data, entry->numel), 1e-7,
                             "absolute", "states.safetensors: %s", entry->name);
    }
}

fsdp_status fsdp_verify_states(fsdp_verify_case *c)
{
    fsdp_checkpoint_reader *file;
    fsdp_json *doc = NULL;
    fsdp_json_node cases = {0};
    FSDP_TRY(fsdp_agree(c->group, fsdp_verify_open_tensors(c, "states.safetensors", &file)));
    fsdp_status status = fsdp_agree(c->group, fsdp_verify_read_json(c, "states.json", &doc));
    if (status == FSDP_OK)
        status = fsdp_json_get_object(fsdp_json_root(doc), "cases", &cases);
    if (status == FSDP_OK)
        compare_others(c, file, cases);
    fsdp_json_node one = status == FSDP_OK ? fsdp_json_first(cases) : cases;
    for (; status == FSDP_OK && one.value; one = fsdp_json_next(one)) {
        char quantity[NAME];
        status = verify_case(c, file, one);
        if (status != FSDP_ERR_UNSUPPORTED)
            continue;
        snprintf(quantity, sizeof quantity, "states.json: %s", one.key);
        fsdp_verify_skipped(c, quantity, "%s", fsdp_last_error());
        status = FSDP_OK;
    }
    fsdp_json_destroy(doc);
    fsdp_checkpoint_close(file);
    return status;
}
