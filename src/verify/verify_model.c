/* The part of `fsdp verify` that compares the model in model/ with copies of it. A copy has the
 * same weights in other files, or the same configuration in another notation. This part also
 * compares T5's relative position buckets. */
#include <stdio.h>
#include <string.h>

#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/comm/agree.h"
#include "src/models/config_json.h"
#include "src/models/model_type.h"
#include "src/verify/verify_case.h"

/* --- configurations --- */

/* Set *text to the config.json that this library would write for the configuration in `path`.
 * Two configurations with the same meaning give the same text. In some model types, the weights
 * decide whether the head is tied, so the configuration's own setting has no effect (Note [Tied
 * heads] in registry.c). For these types, the text always says that the head is tied. So two
 * configurations that differ only in this setting also give the same text. */
static fsdp_status meaning_of(const char *path, char **text)
{
    fsdp_model_config config;
    fsdp_json *doc;
    FSDP_TRY(fsdp_model_config_read(path, &config));
    if (config.type->tied_by_weights)
        config.type->set_tied(&config, true);
    FSDP_TRY(fsdp_json_create(path, &doc));
    fsdp_json_node root = fsdp_json_root(doc);
    fsdp_json_set_str(root, "model_type", config.type->name);
    config.type->write(root, &config, false);
    fsdp_config_set_dtype(root, fsdp_model_config_info(&config).dtype);
    fsdp_status status = fsdp_json_print(doc, FSDP_JSON_LINE, text, NULL);
    fsdp_json_destroy(doc);
    return status;
}

/* Compare the configuration in model/ with the one in `other`, a folder or file of the case. They
 * must have the same meaning, but may be written differently. */
static fsdp_status compare_config(fsdp_verify_case *c, const char *other, const char *quantity)
{
    char *a = fsdp_verify_path(c, "model"), *b = fsdp_verify_path(c, other);
    char *meaning_a = NULL, *meaning_b = NULL;
    fsdp_status status = a && b ? meaning_of(a, &meaning_a) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = meaning_of(b, &meaning_b);
    status = fsdp_agree(c->group, status);
    if (status == FSDP_OK)
        fsdp_verify_compared(c, strcmp(meaning_a, meaning_b) != 0, 0, "differing", "%s", quantity);
    fsdp_free(meaning_a);
    fsdp_free(meaning_b);
    fsdp_free(a);
    fsdp_free(b);
    return status;
}

fsdp_status fsdp_verify_config_form(fsdp_verify_case *c)
{
    return compare_config(c, "config_other_form.json", "config_other_form.json");
}

/* --- weights in other files --- */

/* Set *same to true if parameters of two models have the same name, and values with the same
 * bits. */
static fsdp_status compare_parameter(const fsdp_named_parameter *a, const fsdp_named_parameter *b,
                                     bool *same)
{
    const int64_t numel = fsdp_parameter_numel(a->parameter);
    *same = strcmp(a->name, b->name) == 0 && numel == fsdp_parameter_numel(b->parameter);
    if (!*same)
        return FSDP_OK;
    float *x = NULL, *y = NULL;
    fsdp_status status = fsdp_verify_full(fsdp_parameter_local(a->parameter), &x);
    if (status == FSDP_OK)
        status = fsdp_verify_full(fsdp_parameter_local(b->parameter), &y);
    *same = status == FSDP_OK && memcmp(x, y, (size_t)numel * sizeof *x) == 0;
    fsdp_free(x);
    fsdp_free(y);
    return status;
}

static fsdp_status compare_weights(fsdp_verify_case *c, const char *folder, const fsdp_model *model,
                                   const fsdp_model *copy)
{
    fsdp_parameter_list a = {0}, b = {0};
    int64_t differing = 0;
    fsdp_status status = fsdp_module_parameters(model->module, false, &a);
    if (status == FSDP_OK)
        status = fsdp_module_parameters(copy->module, false, &b);
    /* The two models can have different numbers of parameters only if one of them has a separate
     * head and the other has a tied head. This counts as one differing parameter. */
    if (a.n != b.n)
        differing = 1;
    for (size_t i = 0; i < a.n && i < b.n && status == FSDP_OK; i++) {
        bool same;
        status = compare_parameter(&a.items[i], &b.items[i], &same);
        differing += status == FSDP_OK && !same;
    }
    if (status == FSDP_OK)
        fsdp_verify_compared(c, (double)differing, 0, "differing", "%s: weights", folder);
    fsdp_parameter_list_free(&a);
    fsdp_parameter_list_free(&b);
    return status;
}

fsdp_status fsdp_verify_copy(fsdp_verify_case *c, const char *folder)
{
    fsdp_model *model, *copy;
    FSDP_TRY(fsdp_verify_open_model(c, folder, NULL, &copy));
    fsdp_status status = fsdp_verify_open_model(c, "model", NULL, &model);
    if (status == FSDP_OK) {
        char quantity[256];
        snprintf(quantity, sizeof quantity, "%s: config.json", folder);
        status = compare_config(c, folder, quantity);
        if (status == FSDP_OK)
            status = compare_weights(c, folder, model, copy);
        fsdp_model_close(model);
    }
    fsdp_model_close(copy);
    return status;
}

/* --- relative positions --- */

/* Compare the list `key` of `table` with the buckets that this build computes. `key` is "encoder"
 * or "decoder". Element i of the list is the bucket of the distance first + i. */
static fsdp_status compare_buckets(fsdp_verify_case *c, fsdp_json_node table,
                                   const char *table_name, const char *key, int64_t first)
{
    int64_t buckets, max_distance, *want;
    size_t n;
    FSDP_TRY(fsdp_json_get_i64(table, "num_buckets", 4, INT32_MAX, &buckets));
    FSDP_TRY(fsdp_json_get_i64(table, "max_distance", 1, INT32_MAX, &max_distance));
    FSDP_TRY(fsdp_json_get_i64s(table, key, 0, INT32_MAX, &want, &n));
    int64_t differing = 0;
    for (size_t i = 0; i < n; i++)
        differing += fsdp_relative_position_bucket(first + (int64_t)i, strcmp(key, "encoder") == 0,
                                                   buckets, max_distance) != want[i];
    fsdp_free(want);
    fsdp_verify_compared(c, (double)differing, 0, "differing", "relative_buckets.json: %s %s",
                         table_name, key);
    return FSDP_OK;
}

fsdp_status fsdp_verify_buckets(fsdp_verify_case *c)
{
    static const char *const tables[] = {"model", "default"};
    fsdp_json *doc = NULL;
    int64_t first = 0;
    fsdp_status status = fsdp_verify_read_json(c, "relative_buckets.json", &doc);
    if (status == FSDP_OK)
        status =
            fsdp_json_get_i64(fsdp_json_root(doc), "first_distance", INT32_MIN, INT32_MAX, &first);
    for (int i = 0; i < 2 && status == FSDP_OK; i++) {
        fsdp_json_node table;
        status = fsdp_json_opt_object(fsdp_json_root(doc), tables[i], &table);
        if (status == FSDP_OK && table.value)
            status = compare_buckets(c, table, tables[i], "encoder", first);
        if (status == FSDP_OK && table.value)
            status = compare_buckets(c, table, tables[i], "decoder", first);
    }
    fsdp_json_destroy(doc);
    return status;
}
