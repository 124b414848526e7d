/* Names of weights that wrappers have lengthened: the names of models here are changed as by each
 * wrapper, and must become the model's again or be named in the error. */
#include <stdio.h>
#include <string.h>

#include <fsdp/fsdp.h>
#include <fsdp/train.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/hf/wrapped_names.h"
#include "src/pretrained/weights_names.h"
#include "tests/test.h"

enum {
    MAX_NAMES = 200,
    NAME_BYTES = 160,
    PATH = 600
};

/* Names of a model's weights, changed as a test needs. */
typedef struct weights {
    fsdp_checkpoint_reader *reader;
    fsdp_model_config config;
    char text[MAX_NAMES][NAME_BYTES];
    const char *names[MAX_NAMES];
    size_t n;
    fsdp_arena arena;
} weights;

static void open_model(fsdp_test *t, const char *model, weights *w)
{
    char path[PATH];
    snprintf(path, sizeof path, "golden/%s/model", model);
    *w = (weights){0};
    ASSERT_OK(fsdp_checkpoint_open(fsdp_test_path(path), &w->reader));
    ASSERT_OK(fsdp_model_config_read(fsdp_test_path(path), &w->config));
    w->n = fsdp_checkpoint_count(w->reader);
    ASSERT(w->n <= MAX_NAMES);
}

/* How a name is changed: the text put before it, and after each "layer" with its number. */
typedef struct wrapping {
    const char *front, *inside;
} wrapping;

static void wrap_names(weights *w, const wrapping *by)
{
    for (size_t i = 0; i < w->n; i++) {
        const char *name = fsdp_checkpoint_at(w->reader, i)->name;
        const char *at = strpbrk(name, "0123456789");
        const size_t head = at && at[1] == '.' ? (size_t)(at - name) + 2 : 0;
        snprintf(w->text[i], NAME_BYTES, "%s%.*s%s%s", by->front, (int)head, name,
                 head ? by->inside : "", name + head);
        w->names[i] = w->text[i];
    }
}

static fsdp_status fit(weights *w, fsdp_name_change *change)
{
    FSDP_TRY(fsdp_names_unwrap("weights", NULL, &w->arena, w->names, w->n));
    FSDP_TRY(fsdp_weights_names_fit(&w->config, "weights", w->names, w->n, change));
    return fsdp_names_unwrap("weights", change, &w->arena, w->names, w->n);
}

static void close_model(weights *w)
{
    fsdp_arena_fini(&w->arena);
    fsdp_checkpoint_close(w->reader);
}

static const char *const models[] = {"t5_v1_1", "llama3", "gpt2_tiny", "bert_tiny"};

TEST(names_lose_what_wrappers_put_in)
{
    static const struct {
        wrapping by;
        const char *prefix; /* that the note names */
    } cases[] = {
        {{"", ""}, ""},
        {{"module.", ""}, ""},
        {{"_orig_mod.", ""}, ""},
        {{"module._orig_mod.", ""}, ""},
        {{"_orig_mod.module.", ""}, ""},
        {{"module.module.", ""}, ""},
        {{"_fsdp_wrapped_module.", "_fsdp_wrapped_module._checkpoint_wrapped_module."}, ""},
        {{"", "_checkpoint_wrapped_module._orig_mod."}, ""},
        {{"_forward_module.", ""}, ""},
        {{"base_model.model.", ""}, ""},
        {{"module.base_model.model.", ""}, ""},
        {{"", "module."}, ""},
        {{"model.", ""}, "model."},
        {{"model._orig_mod.", ""}, "model."},
        {{"net.", "module."}, "net."},
        {{"policy.backbone.", ""}, "policy.backbone."},
    };
    for (size_t m = 0; m < FSDP_LENGTH(models); m++) {
        weights *w = fsdp_calloc(1, sizeof *w);
        ASSERT(w != NULL);
        open_model(t, models[m], w);
        CHECK_HERE();
        for (size_t c = 0; c < FSDP_LENGTH(cases); c++) {
            fsdp_name_change change;
            wrap_names(w, &cases[c].by);
            if (fit(w, &change) != FSDP_OK)
                FAIL("%s, case %zu: %s", models[m], c, fsdp_last_error());
            ASSERT_STR(change.prefix, cases[c].prefix);
            for (size_t i = 0; i < w->n; i++)
                ASSERT_STR(w->names[i], fsdp_checkpoint_at(w->reader, i)->name);
        }
        close_model(w);
        fsdp_free(w);
    }
}

/* Replace name i. */
static void set_name(weights *w, size_t i, const char *name)
{
    snprintf(w->text[i], NAME_BYTES, "%s", name);
    w->names[i] = w->text[i];
}

TEST(what_does_not_fit_is_named_with_its_prefix)
{
    weights *w = fsdp_calloc(1, sizeof *w);
    fsdp_name_change change;
    ASSERT(w != NULL);
    open_model(t, "llama3", w);
    CHECK_HERE();
    /* Two models in one file: neither prefix is common to all names. */
    wrap_names(w, &(wrapping){"actor.", ""});
    set_name(w, 0, "critic.weight");
    ASSERT_ERROR(fit(w, &change), FSDP_ERR_INVALID, "names begin with 'actor.'");
    /* All names have the prefix, but one is missing: another error. */
    wrap_names(w, &(wrapping){"model.", ""});
    w->n--;
    ASSERT_ERROR(fit(w, &change), FSDP_ERR_INVALID,
                 "all names begin with 'model.', and without it they are not all that a "
                 "LlamaForCausalLM has");
    w->n++;
    wrap_names(w, &(wrapping){"base_model.model.", ""});
    set_name(w, 3, "base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight");
    ASSERT_ERROR(fit(w, &change), FSDP_ERR_INVALID, "merge_and_unload()");
    wrap_names(w, &(wrapping){"_fsdp_wrapped_module.", ""});
    for (size_t i = 0; i < w->n; i++)
        set_name(w, i,
                 i ? "_fsdp_wrapped_module.model.layers.0.flat_param"
                   : "_fsdp_wrapped_module._flat_param");
    w->n = 2;
    ASSERT_ERROR(fit(w, &change), FSDP_ERR_INVALID, "StateDictType.FULL_STATE_DICT");
    close_model(w);
    fsdp_free(w);
}

TEST(two_names_that_become_one_are_both_named)
{
    const char *names[] = {"_orig_mod.w", "w", "b"};
    fsdp_arena arena = {0};
    ASSERT_ERROR(fsdp_names_unwrap("f", NULL, &arena, names, 3), FSDP_ERR_INVALID, "'w'");
    ASSERT(strstr(fsdp_last_error(), "'_orig_mod.w'"));
    fsdp_arena_fini(&arena);
    /* A module called "module" with siblings keeps its name. */
    const char *kept[] = {"module.w", "head.w", "data.module.w"};
    ASSERT_OK(fsdp_names_unwrap("f", NULL, &arena, kept, 3));
    ASSERT_STR(kept[0], "module.w");
    ASSERT_STR(kept[2], "data.module.w");
    fsdp_arena_fini(&arena);
    const char *average[] = {"module.w", "n_averaged"};
    ASSERT_OK(fsdp_names_unwrap("f", NULL, &arena, average, 2));
    ASSERT_STR(average[0], "w");
    ASSERT_STR(average[1], "n_averaged");
    fsdp_arena_fini(&arena);
}

/* Writes a folder with the same tensors under longer names. */
static fsdp_status write_folder(const char *dir, const char *from, const char *prefix)
{
    fsdp_checkpoint_reader *reader;
    fsdp_safetensors_writer *writer;
    fsdp_safetensors_spec specs[MAX_NAMES];
    char path[PATH], name[NAME_BYTES];
    FSDP_TRY(fsdp_checkpoint_open(from, &reader));
    const size_t n = fsdp_checkpoint_count(reader);
    for (size_t i = 0; i < n; i++) {
        const fsdp_checkpoint_entry *e = fsdp_checkpoint_at(reader, i);
        specs[i] = (fsdp_safetensors_spec){.name = fsdp_strdup_printf("%s%s", prefix, e->name),
                                           .dtype_name = e->dtype_name,
                                           .shape = e->shape,
                                           .ndim = e->ndim};
    }
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    FSDP_TRY(fsdp_safetensors_writer_create(path, specs, n, &writer));
    for (size_t i = 0; i < n; i++) {
        const fsdp_checkpoint_entry *e = fsdp_checkpoint_at(reader, i);
        snprintf(name, sizeof name, "%s", specs[i].name);
        FSDP_TRY(fsdp_safetensors_writer_write(writer, name, 0, e->data, e->bytes));
        fsdp_free((char *)(uintptr_t)specs[i].name);
    }
    FSDP_TRY(fsdp_safetensors_writer_finish(writer));
    fsdp_checkpoint_close(reader);
    char *config = fsdp_path_join(from, "config.json");
    snprintf(path, sizeof path, "%s/config.json", dir);
    fsdp_status status = fsdp_file_copy(config, path);
    fsdp_free(config);
    return status;
}

TEST(a_wrapped_model_is_opened_and_loaded)
{
    static const char *const prefixes[] = {"module._orig_mod.", "model."};
    for (size_t i = 0; i < FSDP_LENGTH(prefixes); i++) {
        fsdp_pretrained p = {0};
        fsdp_device *device;
        fsdp_module *model;
        fsdp_load_report report;
        ASSERT_OK(
            write_folder(fsdp_test_dir(t), fsdp_test_path("golden/llama3/model"), prefixes[i]));
        ASSERT_OK(fsdp_pretrained_open(fsdp_test_dir(t), false, &p));
        ASSERT(i == 1 ? p.name_prefix && strcmp(p.name_prefix, "model.") == 0 : !p.name_prefix);
        ASSERT(i == 0 ? p.wrapped_name && strncmp(p.wrapped_name, "module._orig_mod.", 17) == 0
                      : !p.wrapped_name);
        ASSERT_OK(fsdp_device_create(NULL, &device));
        ASSERT_OK(fsdp_model_create(&p.config, &model));
        ASSERT_OK(fsdp_fully_shard(model, NULL, device, NULL));
        ASSERT_OK(fsdp_pretrained_load(&p, model, NULL, 3, &report));
        ASSERT_INT(report.n_unexpected + report.n_fresh, 0);
        fsdp_load_report_free(&report);
        fsdp_pretrained_close(&p);
        fsdp_module_destroy(model);
        fsdp_device_destroy(device);
    }
}
