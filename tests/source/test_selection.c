/* Which items of a checkpoint a tool selects, and their names without wrappers. */
#include <stdio.h>
#include <string.h>

#include <fsdp/state_dict.h>

#include "src/base/alloc_testing.h"
#include "src/source/selection.h"
#include "tests/test.h"

enum {
    PATH = 300
};

static fsdp_status put(fsdp_state_dict *dict, fsdp_device *device, const fsdp_state_key *keys,
                       int n_keys)
{
    static const float values[2] = {1, 2};
    fsdp_tensor *x;
    FSDP_TRY(fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 1, (int64_t[]){2}, values, FSDP_TAG_DATA,
                                   &x));
    fsdp_status status = fsdp_state_dict_put_tensor(dict, keys, n_keys, x);
    fsdp_tensor_release(x);
    return status;
}

/* A model as torch.compile, FSDP1 and recomputation wrap it, and a step next to it. */
static fsdp_status write_wrapped(fsdp_device *device, const char *path)
{
    static const char *const names[] = {
        "_orig_mod._fsdp_wrapped_module.embed.weight",
        "_orig_mod.layers.0._fsdp_wrapped_module._checkpoint_wrapped_module.w",
        "layers.1._checkpoint_wrapped_module._orig_mod.w", "orig_mod.w"};
    const fsdp_plain step = {.kind = FSDP_PLAIN_INT, .as.integer = 3};
    fsdp_state_dict *dict;
    FSDP_TRY(fsdp_state_dict_create(&dict));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names && status == FSDP_OK; i++)
        status = put(dict, device, (fsdp_state_key[]){{.name = "model"}, {.name = names[i]}}, 2);
    if (status == FSDP_OK)
        status = put(dict, device, (fsdp_state_key[]){{.name = "optim"}, {.name = "exp_avg"}}, 2);
    if (status == FSDP_OK)
        status = fsdp_state_dict_put_value(dict, (fsdp_state_key[]){{.name = "step"}}, 1, &step);
    if (status == FSDP_OK)
        status = fsdp_torch_save(dict, path, NULL);
    fsdp_state_dict_destroy(dict);
    return status;
}

TEST(the_model_loses_the_names_of_its_wrappers)
{
    static const char *const want[] = {"embed.weight", "layers.0.w", "layers.1.w", "orig_mod.w"};
    char path[PATH];
    fsdp_device *device;
    fsdp_source *source;
    fsdp_selection model = {0}, all = {0};
    snprintf(path, sizeof path, "%s/wrapped.pt", fsdp_test_dir(t));
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(write_wrapped(device, path));
    ASSERT_OK(fsdp_source_open(path, &source));
    ASSERT_OK(fsdp_select_model(source, &model));
    fsdp_selection_sort(&model);
    ASSERT_STR(model.prefix, "model");
    ASSERT_INT(model.n, 4);
    for (size_t i = 0; i < model.n; i++)
        ASSERT_STR(model.items[i].name, want[i]);
    ASSERT_OK(fsdp_select_all(source, &all));
    ASSERT_INT(all.n, 6);
    ASSERT(!all.prefix);
    fsdp_selection_fini(&all);
    fsdp_selection_fini(&model);
    fsdp_source_close(source);
    fsdp_device_destroy(device);
}

/* A file of tensors with these keys, and the expected selection. */
typedef struct chosen {
    fsdp_device *device;
    fsdp_source *source;
    fsdp_selection model;
} chosen;

static fsdp_status choose(fsdp_test *t, const fsdp_state_key (*keys)[3], const int *n_keys, int n,
                          chosen *c)
{
    char path[PATH];
    fsdp_state_dict *dict;
    snprintf(path, sizeof path, "%s/chosen.pt", fsdp_test_dir(t));
    FSDP_TRY(fsdp_device_create(NULL, &c->device));
    FSDP_TRY(fsdp_state_dict_create(&dict));
    fsdp_status status = FSDP_OK;
    for (int i = 0; i < n && status == FSDP_OK; i++)
        status = put(dict, c->device, keys[i], n_keys[i]);
    if (status == FSDP_OK)
        status = fsdp_torch_save(dict, path, NULL);
    fsdp_state_dict_destroy(dict);
    FSDP_TRY(status);
    FSDP_TRY(fsdp_source_open(path, &c->source));
    return fsdp_select_model(c->source, &c->model);
}

static void end_choice(chosen *c)
{
    fsdp_selection_fini(&c->model);
    fsdp_source_close(c->source);
    fsdp_device_destroy(c->device);
}

TEST(a_list_is_no_model)
{
    static const fsdp_state_key keys[][3] = {{{.name = "model"}, {.index = 0}},
                                             {{.name = "model"}, {.index = 1}}};
    chosen c = {0};
    ASSERT_ERROR(choose(t, keys, (int[]){2, 2}, 2, &c), FSDP_ERR_NOT_FOUND, "no model in it");
    end_choice(&c);
}

/* Items are sorted by name, as in DCP, so the moving average comes before the model. */
TEST(a_model_at_the_top_comes_before_one_below)
{
    static const fsdp_state_key keys[][3] = {{{.name = "ema"}, {.name = "model"}, {.name = "w"}},
                                             {{.name = "state_dict"}, {.name = "w"}}};
    chosen c = {0};
    ASSERT_OK(choose(t, keys, (int[]){3, 2}, 2, &c));
    ASSERT_INT(c.model.n, 1);
    ASSERT_STR(c.model.prefix, "state_dict");
    ASSERT_STR(c.model.items[0].item->fqn, "state_dict.w");
    end_choice(&c);
    ASSERT_OK(choose(t, keys, (int[]){3}, 1, &c));
    ASSERT_STR(c.model.prefix, "ema.model");
    end_choice(&c);
}

/* DeepSpeed's key, and a model as deep as a script puts it. */
TEST(a_model_is_found_below_module_and_at_any_depth)
{
    static const fsdp_state_key keys[][3] = {{{.name = "module"}, {.name = "w"}},
                                             {{.name = "optimizer"}, {.name = "x"}, {.index = 0}}};
    const fsdp_state_key deep[] = {
        {.name = "job"}, {.name = "run"}, {.name = "trainer"}, {.name = "model"}, {.name = "w"}};
    char path[PATH];
    fsdp_state_dict *dict;
    chosen c = {0};
    ASSERT_OK(choose(t, keys, (int[]){2, 3}, 2, &c));
    ASSERT_STR(c.model.prefix, "module");
    ASSERT_INT(c.model.n, 1);
    end_choice(&c);
    ASSERT_ERROR(choose(t, keys + 1, (int[]){3}, 1, &c), FSDP_ERR_NOT_FOUND,
                 "the keys at the top are 'optimizer'");
    end_choice(&c);
    c = (chosen){0};
    snprintf(path, sizeof path, "%s/deep.pt", fsdp_test_dir(t));
    ASSERT_OK(fsdp_device_create(NULL, &c.device));
    ASSERT_OK(fsdp_state_dict_create(&dict));
    ASSERT_OK(put(dict, c.device, deep, sizeof deep / sizeof *deep));
    ASSERT_OK(fsdp_torch_save(dict, path, NULL));
    fsdp_state_dict_destroy(dict);
    ASSERT_OK(fsdp_source_open(path, &c.source));
    ASSERT_OK(fsdp_select_model(c.source, &c.model));
    ASSERT_STR(c.model.prefix, "job.run.trainer.model");
    end_choice(&c);
}

TEST(two_models_are_both_named)
{
    static const fsdp_state_key keys[][3] = {
        {{.name = "gen"}, {.name = "model"}, {.name = "w"}},
        {{.name = "gen"}, {.name = "model"}, {.name = "b"}},
        {{.name = "dis"}, {.name = "state_dict"}, {.name = "w"}},
        {{.name = "model"}, {.name = "w"}},
        {{.name = "state_dict"}, {.name = "w"}}};
    chosen c = {0};
    ASSERT_ERROR(choose(t, keys, (int[]){3, 3, 3}, 3, &c), FSDP_ERR_INVALID,
                 "more than one model in it, 'gen.model' and 'dis.state_dict'");
    end_choice(&c);
    ASSERT_OK(choose(t, keys, (int[]){3, 3, 3, 2}, 4, &c));
    ASSERT_STR(c.model.prefix, "model");
    end_choice(&c);
    ASSERT_ERROR(choose(t, keys, (int[]){3, 3, 3, 2, 2}, 5, &c), FSDP_ERR_INVALID,
                 "more than one model in it, 'model' and 'state_dict'");
    end_choice(&c);
}

/* All names of the model, and the keys of its optimizer, have DistributedDataParallel's prefix. */
TEST(a_prefix_of_all_names_of_the_model_is_taken_off)
{
    static const fsdp_state_key keys[][3] = {
        {{.name = "model"}, {.name = "module.w"}},
        {{.name = "model"}, {.name = "module.b"}},
        {{.name = "optim"}, {.name = "module.w"}, {.name = "exp_avg"}}};
    static const fsdp_state_key mixed[][3] = {{{.name = "model"}, {.name = "module.w"}},
                                              {{.name = "model"}, {.name = "head.w"}}};
    chosen c = {0};
    fsdp_selection all = {0};
    ASSERT_OK(choose(t, keys, (int[]){2, 2, 3}, 3, &c));
    ASSERT_STR(c.model.items[0].name, "w");
    ASSERT_STR(c.model.items[0].keys[0].name, "w");
    ASSERT_STR(c.model.items[1].name, "b");
    ASSERT_OK(fsdp_select_all(c.source, &all));
    ASSERT_INT(all.n, 3);
    ASSERT_STR(all.items[0].name, "model.w");
    ASSERT_STR(all.items[2].name, "optim.w.exp_avg");
    fsdp_selection_fini(&all);
    end_choice(&c);
    ASSERT_OK(choose(t, mixed, (int[]){2, 2}, 2, &c));
    ASSERT_STR(c.model.items[0].name, "module.w");
    end_choice(&c);
}

/* The name is longer than a block of an arena, so each copy of it is an allocation. */
TEST(a_change_of_names_that_runs_out_of_memory_is_an_error)
{
    enum {
        LENGTH = 100000
    };
    static char name[LENGTH + 1];
    const fsdp_state_key keys[][3] = {{{.name = "model"}, {.name = name}}};
    const fsdp_name_change change = {.every_module = true};
    memset(name, 'x', LENGTH);
    memcpy(name, "encoder.module.", 15);
    chosen c = {0};
    ASSERT_OK(choose(t, keys, (int[]){2}, 1, &c));
    fsdp_status status = FSDP_ERR_NOMEM;
    for (long n = 1; status != FSDP_OK; n++) {
        ASSERT_INT(status, FSDP_ERR_NOMEM);
        fsdp_alloc_fail_at(n);
        status = fsdp_selection_change(&c.model, &change);
        fsdp_alloc_fail_at(0);
    }
    ASSERT_INT(strlen(c.model.items[0].name), LENGTH - 7);
    ASSERT_STR(c.model.items[0].keys[0].name, c.model.items[0].name);
    end_choice(&c);
}
