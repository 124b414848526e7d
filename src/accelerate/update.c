/* See update.h. */
#include "src/accelerate/update.h"

#include <string.h>
#include <strings.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/nearest.h"
#include "src/options/options_parse.h"
#include "src/train_config/config_accelerate.h"

/* The keys that files of Accelerate 1.15 may have at the top level. `value` is the default of a
 * key, or NULL. Accelerate always writes the keys that have a default here. */
static const struct {
    const char *key, *value;
    bool is_string;
} keys[] = {
    {"compute_environment", "LOCAL_MACHINE", true},
    {"debug", "false", false},
    {"distributed_type", NULL, true},
    {"downcast_bf16", "false", false},
    {"enable_cpu_affinity", "false", false},
    {"machine_rank", "0", false},
    {"main_training_function", "main", true},
    {"num_machines", "1", false},
    {"num_processes", "-1", false},
    {"rdzv_backend", "static", true},
    {"same_network", "false", false},
    {"tpu_use_cluster", "false", false},
    {"tpu_use_sudo", "false", false},
    {"use_cpu", "false", false},
    {"command_file", NULL, true},
    {"commands", NULL, true},
    {"deepspeed_config", NULL, true},
    {"dynamo_config", NULL, true},
    {"fp8_config", NULL, true},
    {"fsdp_config", NULL, true},
    {"gpu_ids", NULL, true},
    {"main_process_ip", NULL, true},
    {"main_process_port", NULL, false},
    {"megatron_lm_config", NULL, true},
    {"mixed_precision", NULL, true},
    {"mpirun_config", NULL, true},
    {"parallelism_config", NULL, true},
    {"tpu_env", NULL, true},
    {"tpu_name", NULL, true},
    {"tpu_vm", NULL, true},
    {"tpu_zone", NULL, true},
};

static fsdp_status check_keys(const fsdp_yaml *config, const char *path)
{
    const char *names[FSDP_LENGTH(keys)];
    for (size_t k = 0; k < FSDP_LENGTH(keys); k++)
        names[k] = keys[k].key;
    for (size_t i = 0; i < config->n; i++) {
        const fsdp_yaml *value = &config->items[i];
        bool known = false;
        for (size_t k = 0; k < FSDP_LENGTH(keys) && !known; k++)
            known = strcmp(value->key, names[k]) == 0;
        if (known)
            continue;
        const int near = fsdp_nearest_name(value->key, names, FSDP_LENGTH(names));
        return fsdp_error(
            FSDP_ERR_INVALID,
            "%s:%d: %s is not a key of Accelerate's files; correct or remove it%s%s%s", path,
            value->line, value->key, near < 0 ? "" : "; did you mean ", near < 0 ? "" : names[near],
            near < 0 ? "" : "?");
    }
    return FSDP_OK;
}

static fsdp_status check_type(const fsdp_yaml *config, const char *path)
{
    const fsdp_yaml *type = fsdp_yaml_find(config, "distributed_type"),
                    *where = fsdp_yaml_find(config, "compute_environment");
    if (!type || !type->text)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: distributed_type is missing, such as FSDP or 'NO': 'fsdp config' "
                          "writes a complete file",
                          path);
    if (where && where->text && strcasecmp(where->text, "LOCAL_MACHINE") != 0)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "%s:%d: compute_environment: %.100s is not supported: ranks run on this "
                          "machine",
                          path, where->line, where->text);
    for (size_t i = 0; fsdp_accelerate_types[i]; i++)
        if (fsdp_option_choice_matches(fsdp_accelerate_types[i], type->text))
            return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s:%d: distributed_type: %.100s is none of FSDP, MULTI_GPU, MULTI_CPU, NO "
                      "and others that Accelerate has",
                      path, type->line, type->text);
}

static bool is_null(const fsdp_yaml *value)
{
    return value->kind == FSDP_YAML_SCALAR && !value->quoted &&
           (!*value->text || strcmp(value->text, "~") == 0 || strcasecmp(value->text, "null") == 0);
}

/* Move `backend`, the value of the old key dynamo_backend, into the map dynamo_config, which is
 * created if the file has none. */
static fsdp_status set_dynamo_backend(fsdp_yaml *config, const char *backend, const char *path)
{
    fsdp_yaml *map = fsdp_yaml_find(config, "dynamo_config");
    if (!map || map->kind != FSDP_YAML_MAP)
        FSDP_TRY(fsdp_yaml_set_empty(config, "dynamo_config", FSDP_YAML_MAP, &map));
    const char *other = fsdp_yaml_text(map, "dynamo_backend");
    if (other && strcasecmp(other, backend) != 0)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: dynamo_backend: %.100s contradicts dynamo_backend: %.100s in "
                          "dynamo_config; remove the first one, which is the old form",
                          path, backend, other);
    return other ? FSDP_OK : fsdp_yaml_set(map, "dynamo_backend", backend, true);
}

/* Replace keys of old files: fp16 by mixed_precision, and dynamo_backend by dynamo_config. */
static fsdp_status replace_old_keys(fsdp_yaml *config, const char *path)
{
    const char *fp16 = fsdp_yaml_text(config, "fp16"),
               *backend = fsdp_yaml_text(config, "dynamo_backend");
    bool is_fp16 = false;
    if (fp16 && fsdp_option_bool_from_text(fp16, &is_fp16) && is_fp16 &&
        !fsdp_yaml_find(config, "mixed_precision"))
        FSDP_TRY(fsdp_yaml_set(config, "mixed_precision", "fp16", true));
    fsdp_yaml_remove(config, "fp16");
    if (backend && strcasecmp(backend, "NO") != 0) {
        char *copy = fsdp_strdup(backend);
        fsdp_status status = copy ? set_dynamo_backend(config, copy, path) : fsdp_error_nomem();
        fsdp_free(copy);
        FSDP_TRY(status);
    }
    fsdp_yaml_remove(config, "dynamo_backend");
    return FSDP_OK;
}

/* Remove the keys whose value is null or an empty map. */
static void remove_empty(fsdp_yaml *config)
{
    for (size_t i = config->n; i-- > 0;) {
        const fsdp_yaml *value = &config->items[i];
        if (is_null(value) || (value->kind == FSDP_YAML_MAP && value->n == 0))
            fsdp_yaml_remove(config, value->key);
    }
}

static fsdp_status add_defaults(fsdp_yaml *config)
{
    const char *type = fsdp_yaml_text(config, "distributed_type");
    const bool is_one = type && strcasecmp(type, "NO") == 0;
    for (size_t i = 0; i < FSDP_LENGTH(keys); i++) {
        const bool counts = strcmp(keys[i].key, "num_processes") == 0;
        if (keys[i].value && !fsdp_yaml_find(config, keys[i].key))
            FSDP_TRY(fsdp_yaml_set(config, keys[i].key, counts && is_one ? "1" : keys[i].value,
                                   keys[i].is_string));
    }
    return FSDP_OK;
}

fsdp_status fsdp_accelerate_update(fsdp_yaml *config, const char *path)
{
    FSDP_TRY(check_type(config, path));
    FSDP_TRY(replace_old_keys(config, path));
    FSDP_TRY(check_keys(config, path));
    remove_empty(config);
    return add_defaults(config);
}
