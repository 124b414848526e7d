/* Checkpoints with the keys of other programs are found, compared, or refused with an error that
 * names the key. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <fsdp.h>
#include <fsdp/dtensor.h>

#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/foreign/foreign.h"
#include "src/state_dict/state_dict.h"
#include "src/tensor/tensor.h"
#include "tests/state_dict/state_case.h"
#include "tests/test.h"

enum {
    MAX_VALUES = 256
};

/* The keys under which a script saves. */
typedef struct layout {
    const char *model, *optim; /* with their final dots */
    const char *wrapper;       /* before each parameter's name */
    bool by_number;            /* parameters by number, as in optimizer.state_dict() */
    bool flat;                 /* options by parameter */
    /* With by_number, the list param_names of the group. WRAPPED: activation checkpointing has put
     * its part before the last part of each name. UNKNOWN: no name is one of the model. */
    enum {
        NO_NAMES,
        WRAPPED,
        UNKNOWN
    } param_names;
} layout;

static void test_path(fsdp_test *t, const char *ending, char path[64])
{
    snprintf(path, 64, "/tmp/fsdp_test_foreign_%d%s", (int)getpid(), ending);
    ASSERT_OK(fsdp_broadcast(t->group, path, 64, 0));
}

static void remove_path(fsdp_test *t, const char *path)
{
    ASSERT_OK(fsdp_barrier(t->group));
    if (t->rank == 0 && fsdp_path_is_directory(path))
        ASSERT_OK(fsdp_tree_remove(path));
    else if (t->rank == 0)
        remove(path);
    ASSERT_OK(fsdp_barrier(t->group));
}

/* ---- other keys for the same values ---------------------------------------------------------- */

/* The parameter whose name begins `text`, before a dot. */
static size_t parameter_of(const state_case *c, const char *text)
{
    for (size_t i = 0; i < c->list.n; i++) {
        const size_t n = strlen(c->list.items[i].name);
        if (strncmp(text, c->list.items[i].name, n) == 0 && text[n] == '.')
            return i;
    }
    return c->list.n;
}

static fsdp_status put(fsdp_state_dict *to, const fsdp_state_key *keys, int n,
                       const fsdp_state_entry *e)
{
    return e->tensor ? fsdp_state_dict_put_tensor(to, keys, n, e->tensor)
                     : fsdp_state_dict_put_value(to, keys, n, e->value);
}

static fsdp_status put_under(fsdp_state_dict *to, const char *name, const fsdp_state_entry *e)
{
    return put(to, &(fsdp_state_key){.name = name}, 1, e);
}

static fsdp_status put_state(const state_case *c, const layout *l, const char *rest,
                             const fsdp_state_entry *e, fsdp_state_dict *to)
{
    char name[128], number[32];
    const size_t i = parameter_of(c, rest);
    const char *key = rest + strlen(c->list.items[i].name) + 1;
    snprintf(number, sizeof number, "%zu", i);
    if (l->by_number)
        return put(to,
                   (fsdp_state_key[]){{.name = "optimizer"},
                                      {.name = "state"},
                                      {.name = number, .is_int = true},
                                      {.name = key}},
                   4, e);
    snprintf(name, sizeof name, "%sstate.%s%s", l->optim, l->wrapper, rest);
    return put_under(to, name, e);
}

static fsdp_status put_param_names(const state_case *c, const layout *l, fsdp_state_dict *to)
{
    fsdp_plain items[MAX_VALUES];
    char names[16][96];
    for (size_t i = 0; i < c->list.n; i++) {
        const char *name = c->list.items[i].name, *dot = strrchr(name, '.');
        const int before = dot ? (int)(dot + 1 - name) : 0;
        if (l->param_names == WRAPPED)
            snprintf(names[i], sizeof names[i], "%.*s_checkpoint_wrapped_module.%s", before, name,
                     name + before);
        else
            snprintf(names[i], sizeof names[i], "unknown_%zu", i);
        items[i] = (fsdp_plain){.kind = FSDP_PLAIN_STR, .as.text = names[i]};
    }
    const fsdp_plain list = {.kind = FSDP_PLAIN_LIST, .as.list = {items, c->list.n}};
    return put(
        to,
        (fsdp_state_key[]){
            {.name = "optimizer"}, {.name = "param_groups"}, {.index = 0}, {.name = "param_names"}},
        4, &(fsdp_state_entry){.value = &list});
}

static fsdp_status put_params(const state_case *c, const layout *l, fsdp_state_dict *to)
{
    fsdp_plain items[MAX_VALUES];
    char names[16][64], name[128];
    for (size_t i = 0; i < c->list.n; i++) {
        snprintf(names[i], sizeof names[i], "%s%s", l->wrapper, c->list.items[i].name);
        items[i] = l->by_number ? (fsdp_plain){.kind = FSDP_PLAIN_INT, .as.integer = (int64_t)i}
                                : (fsdp_plain){.kind = FSDP_PLAIN_STR, .as.text = names[i]};
    }
    const fsdp_plain list = {.kind = FSDP_PLAIN_LIST, .as.list = {items, c->list.n}};
    const fsdp_state_entry e = {.value = &list};
    snprintf(name, sizeof name, "%sparam_groups.0.params", l->optim);
    if (l->param_names != NO_NAMES)
        FSDP_TRY(put_param_names(c, l, to));
    if (l->by_number)
        return put(
            to,
            (fsdp_state_key[]){
                {.name = "optimizer"}, {.name = "param_groups"}, {.index = 0}, {.name = "params"}},
            4, &e);
    return put_under(to, name, &e);
}

static fsdp_status put_option(const state_case *c, const layout *l, const char *key,
                              const fsdp_state_entry *e, fsdp_state_dict *to)
{
    char name[128];
    if (strcmp(key, "params") == 0)
        return l->flat ? FSDP_OK : put_params(c, l, to);
    if (l->by_number)
        return put(
            to,
            (fsdp_state_key[]){
                {.name = "optimizer"}, {.name = "param_groups"}, {.index = 0}, {.name = key}},
            4, e);
    for (size_t i = 0; l->flat && i < c->list.n; i++) {
        snprintf(name, sizeof name, "%sparam_groups.%s%s.%s", l->optim, l->wrapper,
                 c->list.items[i].name, key);
        FSDP_TRY(put_under(to, name, e));
    }
    snprintf(name, sizeof name, "%sparam_groups.0.%s", l->optim, key);
    return l->flat ? FSDP_OK : put_under(to, name, e);
}

static fsdp_status put_entry(const state_case *c, const layout *l, const fsdp_state_entry *e,
                             fsdp_state_dict *to)
{
    static const char state[] = "optim.state.", groups[] = "optim.param_groups.0.";
    char name[128];
    if (strncmp(e->fqn, state, sizeof state - 1) == 0)
        return put_state(c, l, e->fqn + sizeof state - 1, e, to);
    if (strncmp(e->fqn, groups, sizeof groups - 1) == 0)
        return put_option(c, l, e->fqn + sizeof groups - 1, e, to);
    if (l->by_number)
        return put(to,
                   (fsdp_state_key[]){{.name = "state_dict"}, {.name = strchr(e->fqn, '.') + 1}}, 2,
                   e);
    snprintf(name, sizeof name, "%s%s%s", l->model, l->wrapper, strchr(e->fqn, '.') + 1);
    return put_under(to, name, e);
}

static fsdp_status relayout(state_case *c, const layout *l, fsdp_state_dict **out)
{
    fsdp_state_dict *all;
    FSDP_TRY(state_case_get(c, NULL, &all));
    fsdp_status status = fsdp_state_dict_create(out);
    for (size_t i = 0; i < fsdp_state_dict_count(all) && status == FSDP_OK; i++)
        status = put_entry(c, l, fsdp_state_dict_at(all, i), *out);
    fsdp_state_dict_destroy(all);
    return status;
}

static fsdp_status load(state_case *c, const char *path, fsdp_foreign_report *report)
{
    const fsdp_foreign_paths paths = {path, path};
    return fsdp_foreign_load(c->model, c->optimizer, &paths, c->group, report);
}

/* Both have the same values, and take the same step. */
static void assert_same(fsdp_test *t, state_case *a, state_case *b)
{
    float x[MAX_VALUES], y[MAX_VALUES];
    ASSERT_OK(state_case_train(a, 1));
    ASSERT_OK(state_case_train(b, 1));
    for (size_t i = 0; i < a->list.n; i++) {
        const fsdp_tensor *local = fsdp_parameter_local(a->list.items[i].parameter);
        if (!fsdp_tensor_numel(local))
            continue;
        ASSERT_OK(fsdp_tensor_to_floats(local, x));
        ASSERT_OK(fsdp_tensor_to_floats(fsdp_parameter_local(b->list.items[i].parameter), y));
        ASSERT(memcmp(x, y, (size_t)fsdp_tensor_numel(local) * sizeof *x) == 0);
        if (fsdp_state_counts_steps(a->optimizer))
            ASSERT_INT(fsdp_optimizer_steps(a->optimizer, a->list.items[i].parameter),
                       fsdp_optimizer_steps(b->optimizer, b->list.items[i].parameter));
    }
}

/* ---- what is found --------------------------------------------------------------------------- */

/* A run saves with these keys, and another run resumes from them. */
static void check_layout(fsdp_test *t, const layout *l, state_case_optimizer kind)
{
    state_case saved, resumed;
    fsdp_state_dict *dict;
    fsdp_foreign_report report;
    char path[64];
    test_path(t, l->by_number ? ".pt" : "", path);
    ASSERT_OK(state_case_open(&saved, t->group, kind, 1));
    ASSERT_OK(state_case_train(&saved, 2));
    ASSERT_OK(relayout(&saved, l, &dict));
    if (l->by_number)
        ASSERT_OK(fsdp_torch_save(dict, path, t->group));
    else
        ASSERT_OK(fsdp_dcp_save(dict, path, t->group, NULL));
    fsdp_state_dict_destroy(dict);
    ASSERT_OK(state_case_open(&resumed, t->group, kind, 2));
    ASSERT_OK(load(&resumed, path, &report));
    ASSERT_INT(report.n, resumed.list.n);
    ASSERT_INT(report.n_notes, 0);
    fsdp_foreign_report_free(&report);
    assert_same(t, &saved, &resumed);
    CHECK_HERE();
    state_case_close(&resumed);
    state_case_close(&saved);
    remove_path(t, path);
}

TEST_RANKS(keys_are_found_under_any_prefix, 2)
{
    static const layout layouts[] = {
        {"model.", "optim.", "", false, false, NO_NAMES},
        {"app.model.", "app.optim.", "", false, false, NO_NAMES},
        {"model.", "optimizer.", "module.", false, false, NO_NAMES},
        {"a.b.state_dict.", "a.c.", "_orig_mod.", false, false, NO_NAMES},
        {"", "", "", false, true, NO_NAMES},
        {"model.", "optim.", "module.", false, true, NO_NAMES}};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        check_layout(t, &layouts[i], STATE_CASE_ADAMW);
        CHECK_HERE();
    }
    check_layout(t, &layouts[1], STATE_CASE_SGD);
    CHECK_HERE();
    check_layout(t, &layouts[2], STATE_CASE_ADAFACTOR);
}

TEST_RANKS(state_by_number_is_given_to_parameters_in_their_order, 2)
{
    static const layout numbers = {"", "optimizer.", "", true, false, NO_NAMES},
                        wrapped = {"", "optimizer.", "", true, false, WRAPPED},
                        unknown = {"", "optimizer.", "", true, false, UNKNOWN};
    check_layout(t, &numbers, STATE_CASE_ADAMW);
    CHECK_HERE();
    check_layout(t, &wrapped, STATE_CASE_ADAMW);
    CHECK_HERE();
    check_layout(t, &unknown, STATE_CASE_ADAMW);
    CHECK_HERE();
    check_layout(t, &numbers, STATE_CASE_SGD);
}

/* Buffers that other versions of transformers saved are not tensors of a larger model. */
TEST_RANKS(buffers_of_old_versions_are_not_unexpected, 2)
{
    static const layout l = {"model.", "optim.", "", false, false, NO_NAMES};
    static const char *const buffers[] = {"model.norm.rotary_emb.inv_freq", "model.norm.attn.bias",
                                          "model.norm.embeddings.token_type_ids"};
    state_case saved, resumed;
    fsdp_state_dict *dict;
    fsdp_foreign_report report;
    char path[64];
    test_path(t, "", path);
    ASSERT_OK(state_case_open(&saved, t->group, STATE_CASE_ADAMW, 1));
    ASSERT_OK(state_case_train(&saved, 1));
    ASSERT_OK(relayout(&saved, &l, &dict));
    for (size_t i = 0; i < FSDP_LENGTH(buffers); i++)
        ASSERT_OK(put_under(dict, buffers[i], fsdp_state_dict_find(dict, "model.norm")));
    ASSERT_OK(fsdp_dcp_save(dict, path, t->group, NULL));
    fsdp_state_dict_destroy(dict);
    ASSERT_OK(state_case_open(&resumed, t->group, STATE_CASE_ADAMW, 2));
    ASSERT_OK(load(&resumed, path, &report));
    fsdp_foreign_report_free(&report);
    assert_same(t, &saved, &resumed);
    CHECK_HERE();
    state_case_close(&resumed);
    state_case_close(&saved);
    remove_path(t, path);
}

/* A dict with further items is saved; reading it in another run fails with `status` and `text`. */
static void check_refused(fsdp_test *t, const char *name, const fsdp_plain *value,
                          const char *tensor_of, fsdp_status status, const char *text)
{
    static const layout l = {"model.", "optim.", "", false, false, NO_NAMES};
    state_case saved, resumed;
    fsdp_state_dict *dict;
    fsdp_foreign_report report;
    float before[MAX_VALUES], after[MAX_VALUES];
    char path[64];
    test_path(t, "", path);
    ASSERT_OK(state_case_open(&saved, t->group, STATE_CASE_ADAMW, 1));
    ASSERT_OK(state_case_train(&saved, 1));
    ASSERT_OK(relayout(&saved, &l, &dict));
    const fsdp_state_entry *other = tensor_of ? fsdp_state_dict_find(dict, tensor_of) : NULL;
    const fsdp_state_entry item = {.tensor = other ? other->tensor : NULL, .value = value};
    ASSERT(other || value);
    ASSERT_OK(put_under(dict, name, &item));
    ASSERT_OK(fsdp_dcp_save(dict, path, t->group, NULL));
    fsdp_state_dict_destroy(dict);
    ASSERT_OK(state_case_open(&resumed, t->group, STATE_CASE_ADAMW, 2));
    const fsdp_tensor *local = fsdp_parameter_local(resumed.list.items[0].parameter);
    ASSERT_OK(fsdp_tensor_to_floats(local, before));
    ASSERT_ERROR(load(&resumed, path, &report), status, text);
    ASSERT_OK(fsdp_tensor_to_floats(local, after));
    ASSERT(memcmp(before, after, (size_t)fsdp_tensor_numel(local) * sizeof *after) == 0);
    state_case_close(&resumed);
    state_case_close(&saved);
    remove_path(t, path);
}

TEST_RANKS(state_and_options_of_another_optimizer_are_refused_and_other_models, 2)
{
    static const fsdp_plain yes = {.kind = FSDP_PLAIN_BOOL, .as.boolean = true};
    check_refused(t, "optim.state.embedding.max_exp_avg_sq", NULL,
                  "optim.state.embedding.exp_avg_sq", FSDP_ERR_INVALID, "keeps 'max_exp_avg_sq'");
    CHECK_HERE();
    check_refused(t, "optim.state.norm.momentum_buffer", NULL, "optim.state.norm.exp_avg",
                  FSDP_ERR_INVALID, "keeps 'momentum_buffer'");
    CHECK_HERE();
    check_refused(t, "optim.param_groups.0.amsgrad", &yes, NULL, FSDP_ERR_INVALID,
                  "'optim.param_groups.0.amsgrad' is True");
    CHECK_HERE();
    check_refused(t, "optim.param_groups.0.maximize", &yes, NULL, FSDP_ERR_INVALID,
                  "'optim.param_groups.0.maximize' is True");
    CHECK_HERE();
    check_refused(t, "model.blocks.7.norm", NULL, "model.norm", FSDP_ERR_INVALID,
                  "the model of this run has no use for 1 tensor of the model there, "
                  "'model.blocks.7.norm'");
}

TEST_RANKS(what_is_not_there_is_said_with_the_keys_that_are, 2)
{
    static const layout l = {"model.", "optim.", "", false, false, NO_NAMES};
    static const fsdp_state_key lr_keys[] = {
        {.name = "optim"}, {.name = "param_groups"}, {.index = 0}, {.name = "lr"}};
    static const fsdp_plain lr = {.kind = FSDP_PLAIN_FLOAT, .as.number = 0.5};
    state_case saved, resumed;
    fsdp_state_dict *dict, *part;
    fsdp_foreign_report report;
    char path[64];
    test_path(t, "", path);
    ASSERT_OK(state_case_open(&saved, t->group, STATE_CASE_ADAMW, 1));
    ASSERT_OK(state_case_open(&resumed, t->group, STATE_CASE_ADAMW, 2));
    ASSERT_OK(relayout(&saved, &l, &dict));
    fsdp_state_dict_destroy(dict);
    ASSERT_OK(fsdp_get_model_state_dict(saved.model, NULL, &part));
    ASSERT_OK(fsdp_state_dict_create(&dict));
    ASSERT_OK(fsdp_state_dict_add(dict, "weights", part));
    ASSERT_OK(fsdp_dcp_save(dict, path, t->group, NULL));
    ASSERT_ERROR(load(&resumed, path, &report), FSDP_ERR_NOT_FOUND,
                 "no optimizer's state in it: its keys are 'weights'");
    remove_path(t, path);
    ASSERT_OK(fsdp_state_dict_put_value(dict, lr_keys, 4, &lr));
    ASSERT_OK(fsdp_dcp_save(dict, path, t->group, NULL));
    ASSERT_ERROR(load(&resumed, path, &report), FSDP_ERR_NOT_FOUND,
                 "the optimizer that was saved keeps nothing for its parameters");
    remove_path(t, path);
    fsdp_state_dict_destroy(dict);
    ASSERT_OK(fsdp_state_dict_create(&dict));
    ASSERT_OK(put_under(dict, "left.embedding", fsdp_state_dict_find(part, "embedding")));
    ASSERT_OK(put_under(dict, "right.embedding", fsdp_state_dict_find(part, "embedding")));
    ASSERT_OK(fsdp_dcp_save(dict, path, t->group, NULL));
    ASSERT_ERROR(load(&resumed, path, &report), FSDP_ERR_INVALID,
                 "more than one model in it, below 'left.' and 'right.'");
    remove_path(t, path);
    fsdp_state_dict_destroy(dict);
    ASSERT_OK(fsdp_state_dict_create(&dict));
    ASSERT_OK(put_under(dict, "model.embedding", fsdp_state_dict_find(part, "embedding")));
    ASSERT_OK(fsdp_dcp_save(dict, path, t->group, NULL));
    ASSERT_ERROR(load(&resumed, path, &report), FSDP_ERR_NOT_FOUND, "which has 1 of this model's");
    remove_path(t, path);
    fsdp_state_dict_destroy(dict);
    fsdp_state_dict_destroy(part);
    state_case_close(&resumed);
    state_case_close(&saved);
}

/* ---- options --------------------------------------------------------------------------------- */

/* Two groups with other weight decays; the learning rate is that before the scheduler's first
 * step. */
TEST_RANKS(options_are_reported_for_each_parameter, 2)
{
    static const layout l = {"model.", "optim.", "", false, true, NO_NAMES};
    static const fsdp_plain decay = {.kind = FSDP_PLAIN_FLOAT, .as.number = 0.5},
                            rate = {.kind = FSDP_PLAIN_FLOAT, .as.number = 0.125},
                            other = {.kind = FSDP_PLAIN_STR, .as.text = "x"};
    const fsdp_state_entry decays = {.value = &decay}, rates = {.value = &rate},
                           others = {.value = &other};
    state_case saved, resumed;
    fsdp_state_dict *dict;
    fsdp_foreign_report report;
    char path[64];
    test_path(t, "", path);
    ASSERT_OK(state_case_open(&saved, t->group, STATE_CASE_ADAMW, 1));
    ASSERT_OK(state_case_train(&saved, 1));
    ASSERT_OK(relayout(&saved, &l, &dict));
    ASSERT_OK(put_under(dict, "optim.param_groups.embedding.weight_decay", &decays));
    ASSERT_OK(put_under(dict, "optim.param_groups.norm.initial_lr", &rates));
    ASSERT_OK(put_under(dict, "optim.param_groups.norm.my_option", &others));
    ASSERT_OK(fsdp_dcp_save(dict, path, t->group, NULL));
    fsdp_state_dict_destroy(dict);
    ASSERT_OK(state_case_open(&resumed, t->group, STATE_CASE_ADAMW, 2));
    ASSERT_OK(load(&resumed, path, &report));
    ASSERT_INT(report.n, resumed.list.n);
    for (size_t i = 0; i < report.n; i++) {
        const fsdp_foreign_parameter *p = &report.parameters[i];
        const bool embedding = strcmp(p->name, "embedding") == 0;
        ASSERT(p->ours.adamw.weight_decay == 0.25 && p->ours.adamw.lr == 1e-3);
        ASSERT(p->theirs.adamw.weight_decay == (embedding ? 0.5 : 0.25));
        ASSERT(p->theirs.adamw.lr == (strcmp(p->name, "norm") == 0 ? 0.125 : 1e-3));
    }
    ASSERT_INT(report.n_notes, 1);
    ASSERT(strstr(report.notes[0], "my_option"));
    ASSERT(fsdp_optimizer_lr(resumed.optimizer, 0) == 1e-3); /* options of this run are used */
    fsdp_foreign_report_free(&report);
    state_case_close(&resumed);
    state_case_close(&saved);
    remove_path(t, path);
}

/* A float32 counts every step up to 2^24, with more digits than a learning rate has. */
TEST_RANKS(large_counts_of_steps_are_read_exactly, 2)
{
    static const layout l = {"model.", "optim.", "", false, false, NO_NAMES};
    static const float steps = 12345679.0f;
    state_case saved, resumed;
    fsdp_state_dict *dict;
    fsdp_foreign_report report;
    fsdp_tensor *tensor;
    char path[64], name[128];
    test_path(t, "", path);
    ASSERT_OK(state_case_open(&saved, t->group, STATE_CASE_ADAMW, 1));
    ASSERT_OK(state_case_train(&saved, 1));
    ASSERT_OK(relayout(&saved, &l, &dict));
    ASSERT_OK(fsdp_tensor_from_data(saved.device, FSDP_DTYPE_F32, 0, NULL, &steps, FSDP_TAG_DATA,
                                    &tensor));
    const fsdp_state_entry e = {.tensor = tensor};
    for (size_t i = 0; i < saved.list.n; i++) {
        snprintf(name, sizeof name, "optim.state.%s.step", saved.list.items[i].name);
        ASSERT_OK(put_under(dict, name, &e));
    }
    fsdp_tensor_release(tensor);
    ASSERT_OK(fsdp_dcp_save(dict, path, t->group, NULL));
    fsdp_state_dict_destroy(dict);
    ASSERT_OK(state_case_open(&resumed, t->group, STATE_CASE_ADAMW, 2));
    ASSERT_OK(load(&resumed, path, &report));
    for (size_t i = 0; i < resumed.list.n; i++)
        ASSERT_INT(fsdp_optimizer_steps(resumed.optimizer, resumed.list.items[i].parameter),
                   12345679);
    fsdp_foreign_report_free(&report);
    state_case_close(&resumed);
    state_case_close(&saved);
    remove_path(t, path);
}

/* ---- scales of bitsandbytes ------------------------------------------------------------------ */

/* Replace absmax1 of a parameter by scales i + 1 of the blocks of the flat parameter. */
static fsdp_status put_flat_scales(const state_case *c, const fsdp_named_parameter *p,
                                   fsdp_state_dict *to)
{
    enum {
        BLOCK = 256
    };
    const int64_t n = (fsdp_parameter_numel(p->parameter) + BLOCK - 1) / BLOCK;
    float scales[MAX_VALUES];
    char name[128];
    fsdp_tensor *tensor;
    for (int64_t i = 0; i < n; i++)
        scales[i] = (float)(i + 1);
    FSDP_TRY(
        fsdp_tensor_from_data(c->device, FSDP_DTYPE_F32, 1, &n, scales, FSDP_TAG_DATA, &tensor));
    snprintf(name, sizeof name, "optim.state.%s.absmax1", p->name);
    const fsdp_status status = put_under(to, name, &(fsdp_state_entry){.tensor = tensor});
    fsdp_tensor_release(tensor);
    return status;
}

/* Check that each row of absmax1 has the scale of the block of 256 elements that contains it. */
static void check_scales(fsdp_test *t, const state_case *c, const fsdp_named_parameter *p,
                         int64_t inner)
{
    fsdp_tensor *full;
    ASSERT_OK(fsdp_full_tensor(fsdp_optimizer_state(c->optimizer, p->parameter, "absmax1"), &full));
    const float *have = fsdp_tensor_data(full);
    const int64_t rows = fsdp_tensor_numel(full);
    ASSERT_INT(rows, fsdp_parameter_shape(p->parameter)[0]);
    for (int64_t r = 0; r < rows; r++)
        ASSERT_F32(have[r], (float)(r * inner / 256 + 1));
    fsdp_tensor_release(full);
}

/* bitsandbytes counts blocks in the flat parameter. Rows that divide a block share its scale. Rows
 * of 272 elements are crossed by blocks. */
TEST_RANKS(scales_of_flat_blocks_are_given_to_rows, 3)
{
    static const layout l = {"model.", "optim.", "", false, false, NO_NAMES};
    state_case saved, resumed;
    fsdp_state_dict *dict;
    fsdp_foreign_report report;
    const fsdp_named_parameter *crossed = NULL;
    char path[64];
    int n = 0;
    test_path(t, "", path);
    ASSERT_OK(state_case_open(&saved, t->group, STATE_CASE_ADAMW_8BIT, 1));
    ASSERT_OK(state_case_train(&saved, 2));
    ASSERT_OK(relayout(&saved, &l, &dict));
    for (size_t i = 0; i < saved.list.n; i++) {
        const fsdp_named_parameter *p = &saved.list.items[i];
        if (!fsdp_optimizer_state(saved.optimizer, p->parameter, "absmax1"))
            continue;
        if (fsdp_parameter_shape(p->parameter)[1] == 16)
            ASSERT_OK(put_flat_scales(&saved, p, dict));
        else
            crossed = p;
    }
    ASSERT(crossed);
    ASSERT_OK(fsdp_dcp_save(dict, path, t->group, NULL));
    ASSERT_OK(state_case_open(&resumed, t->group, STATE_CASE_ADAMW_8BIT, 2));
    ASSERT_OK(load(&resumed, path, &report));
    fsdp_foreign_report_free(&report);
    for (size_t i = 0; i < resumed.list.n; i++) {
        const fsdp_named_parameter *p = &resumed.list.items[i];
        if (!fsdp_optimizer_state(resumed.optimizer, p->parameter, "absmax1") ||
            fsdp_parameter_shape(p->parameter)[1] != 16)
            continue;
        check_scales(t, &resumed, p, 16);
        CHECK_HERE();
        n++;
    }
    ASSERT(n > 1);
    remove_path(t, path);
    ASSERT_OK(put_flat_scales(&saved, crossed, dict));
    ASSERT_OK(fsdp_dcp_save(dict, path, t->group, NULL));
    ASSERT_ERROR(load(&resumed, path, &report), FSDP_ERR_UNSUPPORTED,
                 "blocks of 256 elements cross the rows of 272 elements");
    fsdp_state_dict_destroy(dict);
    state_case_close(&resumed);
    state_case_close(&saved);
    remove_path(t, path);
}

/* ---- tied parameters ------------------------------------------------------------------------- */

/* a.weight [3, 2] is also tied.weight. */
typedef struct tied_case {
    fsdp_device *device;
    fsdp_module *root;
    fsdp_optimizer *optimizer; /* which keeps no state */
    fsdp_parameter *a;
} tied_case;

static void open_tied(fsdp_test *t, tied_case *c)
{
    fsdp_module *a, *tied;
    ASSERT_OK(fsdp_device_create(NULL, &c->device));
    ASSERT_OK(fsdp_module_create("Root", &c->root));
    ASSERT_OK(fsdp_embedding_create(3, 2, (fsdp_init){0}, &a));
    ASSERT_OK(fsdp_module_add_child(c->root, "a", a));
    ASSERT_OK(fsdp_module_create("Linear", &tied));
    ASSERT_OK(fsdp_module_add_child(c->root, "tied", tied));
    c->a = fsdp_module_parameter(a, "weight");
    ASSERT_OK(fsdp_module_share_parameter(tied, "weight", c->a));
    ASSERT_OK(fsdp_fully_shard(c->root, t->group, c->device, NULL));
    ASSERT_OK(fsdp_module_init(c->root, 1));
    ASSERT_OK(fsdp_sgd_create(c->root, NULL, &c->optimizer));
}

static void put_values(fsdp_test *t, const tied_case *c, fsdp_state_dict *dict, const char *name,
                       float last)
{
    const float values[6] = {1, 2, 3, 4, 5, last};
    fsdp_tensor *tensor;
    ASSERT_OK(fsdp_tensor_from_data(c->device, FSDP_DTYPE_F32, 2, (int64_t[]){3, 2}, values,
                                    FSDP_TAG_DATA, &tensor));
    const fsdp_state_entry e = {.tensor = tensor};
    ASSERT_OK(put_under(dict, name, &e));
    fsdp_tensor_release(tensor);
}

/* The last row differs; one rank compares it. */
static void check_tied(fsdp_test *t, float last, fsdp_status status)
{
    tied_case c;
    fsdp_state_dict *dict;
    fsdp_foreign_report report;
    float values[6];
    char path[64];
    test_path(t, "", path);
    open_tied(t, &c);
    CHECK_HERE();
    ASSERT_OK(fsdp_state_dict_create(&dict));
    put_values(t, &c, dict, "model.a.weight", 6);
    CHECK_HERE();
    put_values(t, &c, dict, "model.tied.weight", last);
    CHECK_HERE();
    ASSERT_OK(fsdp_dcp_save(dict, path, t->group, NULL));
    const fsdp_foreign_paths paths = {path, path};
    const fsdp_status got = fsdp_foreign_load(c.root, c.optimizer, &paths, t->group, &report);
    ASSERT_INT(got, status);
    const fsdp_tensor *local = fsdp_parameter_local(c.a);
    ASSERT_OK(fsdp_tensor_to_floats(local, values));
    if (got != FSDP_OK)
        ASSERT(strstr(fsdp_last_error(), "'model.a.weight' and 'model.tied.weight' are tied in "
                                         "this model, but differ"));
    else
        ASSERT(values[0] == (t->rank == 0 ? 1.0f : 5.0f));
    if (got == FSDP_OK)
        fsdp_foreign_report_free(&report);
    fsdp_state_dict_destroy(dict);
    fsdp_optimizer_destroy(c.optimizer);
    fsdp_module_destroy(c.root);
    fsdp_device_destroy(c.device);
    remove_path(t, path);
}

TEST_RANKS(tied_parameters_that_differ_in_one_row_are_refused_on_all_ranks, 2)
{
    check_tied(t, 6, FSDP_OK);
    CHECK_HERE();
    check_tied(t, 7, FSDP_ERR_INVALID);
}

/* Six numbers of four bits are three bytes, so an element has less than one byte. */
TEST_RANKS(tied_parameters_of_a_dtype_below_one_byte_are_compared, 2)
{
    static const char *const bytes[] = {"abcabc", "abcabd"};
    static const char *const errors[] = {"F4", "'a.weight' and 'tied.weight' are tied"};
    static const char header[] =
        "{\"a.weight\":{\"dtype\":\"F4\",\"shape\":[3,2],\"data_offsets\":[0,3]},"
        "\"tied.weight\":{\"dtype\":\"F4\",\"shape\":[3,2],\"data_offsets\":[3,6]}}";
    const uint64_t n = sizeof header - 1;
    tied_case c;
    fsdp_foreign_report report;
    char path[64];
    test_path(t, ".safetensors", path);
    open_tied(t, &c);
    CHECK_HERE();
    for (int differs = 0; differs < 2; differs++) {
        FILE *file = t->rank == 0 ? fopen(path, "wb") : NULL;
        if (file) {
            ASSERT(fwrite(&n, sizeof n, 1, file) == 1 && fwrite(header, n, 1, file) == 1 &&
                   fwrite(bytes[differs], 6, 1, file) == 1);
            ASSERT(fclose(file) == 0);
        }
        ASSERT_OK(fsdp_barrier(t->group));
        const fsdp_foreign_paths paths = {path, path};
        ASSERT(fsdp_foreign_load(c.root, c.optimizer, &paths, t->group, &report) != FSDP_OK);
        ASSERT(strstr(fsdp_last_error(), errors[differs]));
        remove_path(t, path);
    }
    fsdp_optimizer_destroy(c.optimizer);
    fsdp_module_destroy(c.root);
    fsdp_device_destroy(c.device);
}
