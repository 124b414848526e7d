/* See to_fsdp2.h. */
#include "src/accelerate/to_fsdp2.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "src/accelerate/words.h"
#include "src/base/alloc.h"
#include "src/base/assert.h"

enum {
    MESSAGE_BYTES = 400
};

typedef struct conversion {
    fsdp_yaml *config;
    const char *path;
    fsdp_to_fsdp2_say_fn *say;
    void *context;
} conversion;

FSDP_PRINTF(2, 3) static void say(const conversion *c, const char *format, ...)
{
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (c->say)
        c->say(c->context, text);
}

static fsdp_yaml *section(const conversion *c)
{
    return fsdp_yaml_find(c->config, "fsdp_config");
}

static fsdp_status wrong_value(const conversion *c, const fsdp_yaml *value)
{
    return fsdp_error(FSDP_ERR_INVALID, "%s:%d: %s: %.100s is not a value of this key", c->path,
                      value->line, value->key, value->text ? value->text : "a list or a map");
}

/* Keys of old files may lack the prefix fsdp_. Add it, so that the functions below find the keys.
 */
static fsdp_status add_prefixes(const conversion *c)
{
    static const char prefix[] = "fsdp_";
    fsdp_yaml *map = section(c);
    for (size_t i = 0; i < map->n; i++) {
        fsdp_yaml *item = &map->items[i];
        if (strncmp(item->key, prefix, strlen(prefix)) == 0)
            continue;
        char *key = fsdp_strdup_printf("%s%s", prefix, item->key);
        if (!key)
            return fsdp_error_nomem();
        const fsdp_yaml *other = fsdp_yaml_find(map, key);
        if (other) {
            const fsdp_status status = fsdp_error(
                FSDP_ERR_INVALID, "%s:%d: %.100s is the same key as %.100s in line %d: keep one",
                c->path, item->line, item->key, key, other->line);
            fsdp_free(key);
            return status;
        }
        fsdp_free(item->key);
        item->key = key;
    }
    return FSDP_OK;
}

/* ---- the strategy ---- */

static long number(const conversion *c, const char *key)
{
    const char *text = fsdp_yaml_text(c->config, key);
    return text ? atol(text) : 1;
}

/* Replace HYBRID_SHARD by its equivalent in FSDP2: a mesh of replicas and shards, with one replica
 * on each machine. If the file has a mesh already, keep it. */
static fsdp_status set_mesh(const conversion *c)
{
    static const char *const others[] = {"parallelism_config_tp_size",
                                         "parallelism_config_cp_size"};
    const long machines = number(c, "num_machines"), ranks = number(c, "num_processes");
    char text[32];
    fsdp_yaml *mesh;
    const fsdp_yaml *given = fsdp_yaml_find(c->config, "parallelism_config");
    if (given && given->kind == FSDP_YAML_MAP && given->n) {
        say(c, "HYBRID_SHARD is a mesh in FSDP2: the parallelism_config that the file has is kept");
        return FSDP_OK;
    }
    if (machines < 2) {
        say(c,
            "HYBRID_SHARD on one machine has one replica, which is what FSDP2 does without a mesh");
        return FSDP_OK;
    }
    if (ranks % machines) {
        say(c,
            "HYBRID_SHARD: num_machines does not divide num_processes, so no mesh of replicas can "
            "be written: FSDP2 will shard over all processes");
        return FSDP_OK;
    }
    FSDP_TRY(fsdp_yaml_set_empty(c->config, "parallelism_config", FSDP_YAML_MAP, &mesh));
    snprintf(text, sizeof text, "%ld", machines);
    FSDP_TRY(fsdp_yaml_set(mesh, "parallelism_config_dp_replicate_size", text, false));
    snprintf(text, sizeof text, "%ld", ranks / machines);
    FSDP_TRY(fsdp_yaml_set(mesh, "parallelism_config_dp_shard_size", text, false));
    for (size_t i = 0; i < FSDP_LENGTH(others); i++)
        FSDP_TRY(fsdp_yaml_set(mesh, others[i], "1", false));
    say(c, "HYBRID_SHARD is a mesh in FSDP2: parallelism_config with %ld replicas of %ld shards",
        machines, ranks / machines);
    return FSDP_OK;
}

static fsdp_status convert_strategy(const conversion *c)
{
    fsdp_yaml *map = section(c);
    const fsdp_yaml *old = fsdp_yaml_find(map, "fsdp_sharding_strategy");
    const fsdp_yaml *value = old ? old : fsdp_yaml_find(map, "fsdp_reshard_after_forward");
    if (!value)
        return FSDP_OK;
    if (!value->text)
        return wrong_value(c, value);
    const char *word = fsdp_accelerate_word(value->text, fsdp_accelerate_strategies, NULL);
    if (!word && old)
        return wrong_value(c, value);
    if (!word) /* The value of fsdp_reshard_after_forward may already be true or false, as in
                  FSDP2. */
        return strcasecmp(value->text, "true") == 0 || strcasecmp(value->text, "false") == 0
                   ? FSDP_OK
                   : wrong_value(c, value);
    const bool hybrid = strncmp(word, "HYBRID", 6) == 0, no_shard = strcmp(word, "NO_SHARD") == 0;
    const bool reshards = strcmp(word, "FULL_SHARD") == 0 || strcmp(word, "HYBRID_SHARD") == 0;
    fsdp_yaml_remove(map, "fsdp_sharding_strategy");
    FSDP_TRY(fsdp_yaml_set(map, "fsdp_reshard_after_forward", reshards ? "true" : "false", false));
    if (no_shard)
        say(c, "NO_SHARD does not exist in FSDP2: with fsdp_reshard_after_forward false, gradients "
               "and optimizer state will be sharded, as with SHARD_GRAD_OP");
    return hybrid ? set_mesh(c) : FSDP_OK;
}

/* ---- other keys ---- */

static fsdp_status remove_keys(const conversion *c)
{
    static const struct {
        const char *key, *why;
    } removed[] = {{"fsdp_backward_prefetch", "has been removed in FSDP2"},
                   {"fsdp_backward_prefetch_policy", "has been removed in FSDP2"},
                   {"fsdp_forward_prefetch", "is not yet implemented in FSDP2"},
                   {"fsdp_sync_module_states", "has been removed in FSDP2"},
                   {"fsdp_use_orig_params", "has been removed in FSDP2"}};
    for (size_t i = 0; i < FSDP_LENGTH(removed); i++)
        if (fsdp_yaml_find(section(c), removed[i].key)) {
            say(c, "Argument %s %s, skipping this key...", removed[i].key, removed[i].why);
            fsdp_yaml_remove(section(c), removed[i].key);
        }
    return FSDP_OK;
}

/* If the value of `key` is a number in the menu `words`, replace it by the word. Replace
 * LOCAL_STATE_DICT by SHARDED_STATE_DICT. */
static fsdp_status name_value(const conversion *c, const char *key, const char *const *words)
{
    const fsdp_yaml *value = fsdp_yaml_find(section(c), key);
    if (!value)
        return FSDP_OK;
    const char *word = value->text ? fsdp_accelerate_word(value->text, words, NULL) : NULL;
    if (!word)
        return wrong_value(c, value);
    if (strcmp(word, "LOCAL_STATE_DICT") == 0) {
        say(c, "LOCAL_STATE_DICT does not exist in FSDP2: SHARDED_STATE_DICT is written, which can "
               "also be loaded by another number of processes");
        word = "SHARDED_STATE_DICT";
    }
    return fsdp_yaml_set(section(c), key, word, true);
}

fsdp_status fsdp_to_fsdp2(fsdp_yaml *config, const char *path, fsdp_to_fsdp2_say_fn *say_fn,
                          void *context)
{
    const conversion c = {config, path, say_fn, context};
    const fsdp_yaml *map = section(&c);
    if (!map || map->kind != FSDP_YAML_MAP || map->n == 0)
        return fsdp_error(FSDP_ERR_INVALID, "%s: no fsdp_config in it: nothing to convert", path);
    FSDP_TRY(add_prefixes(&c));
    const char *version = fsdp_yaml_text(map, "fsdp_version");
    if (version && strcmp(version, "2") == 0)
        return fsdp_error(
            FSDP_ERR_INVALID,
            "%s: fsdp_version is 2 already; if the other keys are those of FSDP1, change "
            "it to 1",
            path);
    if (version && strcmp(version, "1") != 0)
        return fsdp_error(FSDP_ERR_INVALID, "%s:%d: fsdp_version: %.100s is neither 1 nor 2", path,
                          fsdp_yaml_find(map, "fsdp_version")->line, version);
    FSDP_TRY(remove_keys(&c));
    FSDP_TRY(convert_strategy(&c));
    FSDP_TRY(name_value(&c, "fsdp_auto_wrap_policy", fsdp_accelerate_wrap_policies));
    FSDP_TRY(name_value(&c, "fsdp_state_dict_type", fsdp_accelerate_state_dicts));
    return fsdp_yaml_set(section(&c), "fsdp_version", "2", false);
}
