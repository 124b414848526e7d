/* See config_json.h. */
#include "src/models/config_json.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"

fsdp_status fsdp_config_open(const char *path, fsdp_json **doc)
{
    char *file =
        fsdp_path_is_directory(path) ? fsdp_path_join(path, "config.json") : fsdp_strdup(path);
    fsdp_status status = file ? fsdp_json_read(file, doc) : FSDP_ERR_NOMEM;
    fsdp_free(file);
    return status;
}

fsdp_status fsdp_config_unsupported(fsdp_json_node root, const char *key, const char *supported)
{
    /* fsdp_json_mismatch() is called only because it sets the error message. The error code that it
     * returns means that the value is malformed, which is not the case here, so it is ignored. */
    (void)fsdp_json_mismatch(root, key, "%s (nothing else is supported)", supported);
    return FSDP_ERR_UNSUPPORTED;
}

/* --- reading --- */

fsdp_status fsdp_config_dim(fsdp_json_node root, const char *key, const char *alias, int64_t *value)
{
    const bool has_alias = alias && fsdp_json_has(root, alias);
    int64_t other = 0;
    if (has_alias)
        FSDP_TRY(fsdp_json_get_i64(root, alias, 1, FSDP_CONFIG_MAX_DIM, &other));
    if (!has_alias || fsdp_json_has(root, key))
        FSDP_TRY(fsdp_json_get_i64(root, key, 1, FSDP_CONFIG_MAX_DIM, value));
    else
        *value = other;
    if (has_alias && *value != other)
        return fsdp_json_mismatch(root, key, "the same as %s, another name of it (%lld)", alias,
                                  (long long)other);
    return FSDP_OK;
}

fsdp_status fsdp_config_read_dims(fsdp_json_node root, const fsdp_config_field *fields, size_t n,
                                  void *config)
{
    for (size_t i = 0; i < n; i++) {
        int64_t *value = (int64_t *)(void *)((char *)config + fields[i].offset);
        FSDP_TRY(fsdp_config_dim(root, fields[i].key, fields[i].alias, value));
    }
    return FSDP_OK;
}

fsdp_status fsdp_config_opt_dim(fsdp_json_node root, const char *key, int64_t absent,
                                int64_t *value)
{
    return fsdp_json_opt_i64(root, key, 1, FSDP_CONFIG_MAX_DIM, absent, value);
}

fsdp_status fsdp_config_probability(fsdp_json_node root, const char *key, double absent,
                                    double *value)
{
    FSDP_TRY(fsdp_json_opt_f64(root, key, absent, value));
    if (*value < 0 || *value >= 1)
        return fsdp_json_mismatch(root, key, "a number from 0 to below 1");
    return FSDP_OK;
}

fsdp_status fsdp_config_positive(fsdp_json_node root, const char *key, double absent, double *value)
{
    FSDP_TRY(fsdp_json_opt_f64(root, key, absent, value));
    return *value > 0 ? FSDP_OK : fsdp_json_mismatch(root, key, "a positive number");
}

fsdp_status fsdp_config_not_negative(fsdp_json_node root, const char *key, double absent,
                                     double *value)
{
    FSDP_TRY(fsdp_json_opt_f64(root, key, absent, value));
    return *value >= 0 ? FSDP_OK : fsdp_json_mismatch(root, key, "a number, 0 or more");
}

fsdp_status fsdp_config_token(fsdp_json_node root, const char *key, int64_t vocab_size,
                              int64_t absent, int64_t *value)
{
    fsdp_json_node node = fsdp_json_find(root, key);
    if (fsdp_json_kind_of(node) == FSDP_JSON_ARRAY && fsdp_json_len(node) > 0)
        return fsdp_json_get_i64(fsdp_json_at(node, 0), NULL, 0, vocab_size - 1, value);
    return fsdp_json_opt_i64(root, key, 0, vocab_size - 1, absent, value);
}

fsdp_status fsdp_config_nullable_token(fsdp_json_node root, const char *key, int64_t vocab_size,
                                       int64_t absent, int64_t *value)
{
    const fsdp_json_node node = fsdp_json_find(root, key);
    bool null = fsdp_json_kind_of(node) == FSDP_JSON_NULL;
    /* Old configurations say -1 where newer ones say null. */
    if (fsdp_json_kind_of(node) == FSDP_JSON_INT) {
        int64_t number;
        FSDP_TRY(fsdp_json_get_i64(node, NULL, INT64_MIN, INT64_MAX, &number));
        if (number == -1) {
            *value = -1;
            return FSDP_OK;
        }
    }
    return fsdp_config_token(root, key, vocab_size, null || absent >= vocab_size ? -1 : absent,
                             value);
}

fsdp_status fsdp_config_end_token(fsdp_json_node root, const char *key, int64_t vocab_size,
                                  int64_t absent, int64_t *value)
{
    static const int64_t any = (int64_t)INT32_MAX + 1;
    fsdp_json_node node = fsdp_json_find(root, key);
    if (fsdp_json_kind_of(node) == FSDP_JSON_ARRAY && fsdp_json_len(node) == 0) {
        *value = -1;
        return FSDP_OK;
    }
    return fsdp_config_nullable_token(root, key, any, absent >= vocab_size ? -1 : absent, value);
}

fsdp_status fsdp_config_must_be(fsdp_json_node root, const char *key, bool value)
{
    bool found;
    FSDP_TRY(fsdp_json_opt_bool(root, key, value, &found));
    return found == value ? FSDP_OK : fsdp_config_unsupported(root, key, value ? "true" : "false");
}

fsdp_status fsdp_config_dtype(fsdp_json_node root, fsdp_dtype *dtype)
{
    const char *key = fsdp_json_has(root, "dtype") ? "dtype" : "torch_dtype", *name;
    FSDP_TRY(fsdp_json_opt_str(root, key, "float32", &name));
    if (fsdp_dtype_from_name(name, dtype) != FSDP_OK || !fsdp_dtype_is_floating(*dtype))
        return fsdp_json_mismatch(root, key, "float32, bfloat16 or float16");
    return FSDP_OK;
}

/* Return FSDP_ERR_UNSUPPORTED unless the key quantization_config describes NF4 by bitsandbytes. */
static fsdp_status check_quantization(fsdp_json_node root)
{
    fsdp_json_node q;
    const char *method, *type;
    bool in_4bit;
    FSDP_TRY(fsdp_json_get_object(root, "quantization_config", &q));
    FSDP_TRY(fsdp_json_opt_bool(q, "load_in_4bit", false, &in_4bit));
    FSDP_TRY(fsdp_json_opt_str(q, "quant_method", "bitsandbytes", &method));
    if (strcmp(method, "bitsandbytes") != 0)
        return fsdp_config_unsupported(q, "quant_method", "\"bitsandbytes\"");
    if (!in_4bit)
        return fsdp_config_unsupported(q, "load_in_4bit", "true");
    FSDP_TRY(fsdp_json_opt_str(q, "bnb_4bit_quant_type", "fp4", &type));
    return strcmp(type, "nf4") == 0 ? FSDP_OK
                                    : fsdp_config_unsupported(q, "bnb_4bit_quant_type", "\"nf4\"");
}

fsdp_status fsdp_config_refuse_unsupported(fsdp_json_node root)
{
    if (fsdp_json_has(root, "quantization_config"))
        FSDP_TRY(check_quantization(root));
    if (fsdp_json_len(fsdp_json_find(root, "pruned_heads")) > 0)
        return fsdp_config_unsupported(root, "pruned_heads", "{}");
    return FSDP_OK;
}

const char *fsdp_config_bare_name(const char *name, const char *organization)
{
    size_t n = strlen(organization);
    return strncmp(name, organization, n) == 0 && name[n] == '/' ? name + n + 1 : name;
}

/* --- writing --- */

void fsdp_config_set_dims(fsdp_json_node root, const fsdp_config_field *fields, size_t n,
                          const void *config)
{
    for (size_t i = 0; i < n; i++) {
        const fsdp_config_field *f = &fields[i];
        bool by_alias = f->alias && !fsdp_json_has(root, f->key) && fsdp_json_has(root, f->alias);
        const int64_t *value = (const int64_t *)(const void *)((const char *)config + f->offset);
        fsdp_json_set_i64(root, by_alias ? f->alias : f->key, *value);
    }
}

void fsdp_config_set_dtype(fsdp_json_node root, fsdp_dtype dtype)
{
    bool old = fsdp_json_has(root, "torch_dtype");
    if (old)
        fsdp_json_set_str(root, "torch_dtype", fsdp_dtype_name(dtype));
    if (!old || fsdp_json_has(root, "dtype"))
        fsdp_json_set_str(root, "dtype", fsdp_dtype_name(dtype));
}

void fsdp_config_set_token(fsdp_json_node root, const char *key, int64_t value)
{
    int64_t negative;
    fsdp_json_node node = fsdp_json_find(root, key);
    if (fsdp_json_kind_of(node) == FSDP_JSON_ARRAY)
        return;
    if (fsdp_json_kind_of(node) == FSDP_JSON_INT &&
        fsdp_json_get_i64(node, NULL, INT64_MIN, -1, &negative) == FSDP_OK)
        return;
    if (value < 0)
        fsdp_json_set_str(root, key, NULL);
    else
        fsdp_json_set_i64(root, key, value);
}
