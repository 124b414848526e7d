/* See explain.h. explain_print.c prints it. */
#include "src/accelerate/explain.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "src/accelerate/explain_keys.h"
#include "src/accelerate/words.h"
#include "src/base/assert.h"
#include "src/base/nearest.h"

static const char *const precisions[] = {"no", "fp16", "bf16", NULL};

const char *fsdp_explained_strategy_name(fsdp_explained_strategy strategy)
{
    return fsdp_accelerate_strategies[strategy];
}

typedef struct explainer {
    const fsdp_yaml *config;
    const fsdp_yaml *section; /* fsdp_config; NULL if there is none */
    const char *path;
    fsdp_explained *out;
} explainer;

/* ---- keys ---- */

static fsdp_status unknown_key(const explainer *e, const fsdp_yaml *value, const char *map)
{
    const char *names[FSDP_EXPLAIN_MAX_KEYS];
    size_t n = 0;
    for (; n < FSDP_EXPLAIN_MAX_KEYS && fsdp_explain_keys[n].key; n++)
        names[n] = fsdp_explain_keys[n].key;
    const int nearest = fsdp_nearest_name(value->key, names, n);
    return fsdp_error(FSDP_ERR_INVALID, "%s:%d: %s: no key of %s%s%s%s", e->path, value->line,
                      value->key, map ? map : "a configuration",
                      nearest < 0 ? "" : "; did you mean ", nearest < 0 ? "" : names[nearest],
                      nearest < 0 ? "" : "?");
}

const fsdp_explain_key *fsdp_explain_find_key(const char *key)
{
    for (const fsdp_explain_key *k = fsdp_explain_keys; k->key; k++)
        if (strcmp(k->key, key) == 0)
            return k;
    return NULL;
}

static fsdp_status check_keys(const explainer *e, const fsdp_yaml *map, const char *name)
{
    for (size_t i = 0; i < map->n; i++) {
        const fsdp_yaml *value = &map->items[i];
        const fsdp_explain_key *key = fsdp_explain_find_key(value->key);
        if (!key)
            return unknown_key(e, value, name);
        if (key->refused && value->kind == FSDP_YAML_MAP && value->n > 0)
            return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s:%d: %s: %s", e->path, value->line,
                              value->key, key->refused);
        if (value->kind == FSDP_YAML_MAP && value->n > 0)
            FSDP_TRY(check_keys(e, value, value->key));
    }
    return FSDP_OK;
}

/* ---- values ---- */

/* Return the value of `key` in fsdp_config, or else at the top of the file; NULL: not given. */
static const fsdp_yaml *find(const explainer *e, const char *key)
{
    const fsdp_yaml *value = fsdp_yaml_find(e->section, key);
    return value ? value : fsdp_yaml_find(e->config, key);
}

static bool is_given(const fsdp_yaml *value)
{
    return value && !(value->kind == FSDP_YAML_SCALAR && !value->quoted &&
                      (!*value->text || strcasecmp(value->text, "null") == 0 ||
                       strcmp(value->text, "~") == 0));
}

static fsdp_status wrong(const explainer *e, const fsdp_yaml *value, const char *wanted)
{
    return fsdp_error(FSDP_ERR_INVALID, "%s:%d: %s: %.100s is not %s", e->path, value->line,
                      value->key, value->text ? value->text : "a list", wanted);
}

static fsdp_status get_bool(const explainer *e, const char *key, bool *out)
{
    static const char *const words[] = {"false", "no", "off", "0", "true", "yes", "on", "1"};
    const fsdp_yaml *value = find(e, key);
    if (!is_given(value))
        return FSDP_OK;
    for (size_t i = 0; value->text && i < FSDP_LENGTH(words); i++)
        if (strcasecmp(value->text, words[i]) == 0) {
            *out = i >= 4;
            return FSDP_OK;
        }
    return wrong(e, value, "true or false");
}

static fsdp_status get_number(const explainer *e, const char *key, long *out)
{
    char *end;
    const fsdp_yaml *value = find(e, key);
    if (!is_given(value))
        return FSDP_OK;
    const long number = value->text ? strtol(value->text, &end, 10) : 0;
    if (!value->text || end == value->text || *end || number < 1 || number > INT_MAX)
        return wrong(e, value, "a number from 1 on");
    *out = number;
    return FSDP_OK;
}

static fsdp_status get_word(const explainer *e, const char *key, const char *const *words,
                            const char *wanted, const char **out)
{
    const fsdp_yaml *value = find(e, key);
    if (!is_given(value))
        return FSDP_OK;
    const char *word = value->text ? fsdp_accelerate_word(value->text, words, NULL) : NULL;
    if (!word)
        return wrong(e, value, wanted);
    *out = word;
    return FSDP_OK;
}

/* ---- the strategy ---- */

static fsdp_status read_strategy(const explainer *e)
{
    const fsdp_yaml *old = find(e, "fsdp_sharding_strategy"),
                    *value = find(e, "fsdp_reshard_after_forward");
    bool reshards = true;
    int index = 0;
    e->out->strategy = FSDP_EXPLAINED_FULL_SHARD;
    if (is_given(value) && value->text && e->out->version == 2 &&
        fsdp_accelerate_word(value->text, fsdp_accelerate_strategies, &index) &&
        strcmp(value->text, "1") != 0)
        return fsdp_error(
            FSDP_ERR_INVALID,
            "%s:%d: %s: %s is a strategy of FSDP1: fsdp_version 2 takes true or false "
            "('fsdp config convert' converts files)",
            e->path, value->line, value->key, value->text);
    if (is_given(value) && value->text &&
        fsdp_accelerate_word(value->text, fsdp_accelerate_strategies, &index) &&
        e->out->version == 1) {
        e->out->strategy = (fsdp_explained_strategy)index;
        return FSDP_OK;
    }
    FSDP_TRY(get_bool(e, "fsdp_reshard_after_forward", &reshards));
    if (is_given(value))
        e->out->strategy = reshards ? FSDP_EXPLAINED_FULL_SHARD : FSDP_EXPLAINED_SHARD_GRAD_OP;
    if (!is_given(old) || (e->out->version == 2 && is_given(value)))
        return FSDP_OK;
    if (!old->text || !fsdp_accelerate_word(old->text, fsdp_accelerate_strategies, &index))
        return wrong(e, old,
                     "FULL_SHARD (1), SHARD_GRAD_OP (2), NO_SHARD (3), HYBRID_SHARD (4) or "
                     "HYBRID_SHARD_ZERO2 (5)");
    e->out->strategy = (fsdp_explained_strategy)index;
    return FSDP_OK;
}

/* Set the numbers of replicas and shards. */
static fsdp_status read_mesh(const explainer *e)
{
    fsdp_explained *o = e->out;
    const fsdp_yaml *mesh = fsdp_yaml_find(e->config, "parallelism_config");
    const explainer in_mesh = {.config = mesh, .path = e->path, .out = o};
    long replicas = 1, shards = 0;
    if (mesh && mesh->n) {
        FSDP_TRY(get_number(&in_mesh, "parallelism_config_dp_replicate_size", &replicas));
        FSDP_TRY(get_number(&in_mesh, "parallelism_config_dp_shard_size", &shards));
    }
    if (replicas > 1)
        o->strategy = o->strategy == FSDP_EXPLAINED_SHARD_GRAD_OP ||
                              o->strategy == FSDP_EXPLAINED_HYBRID_SHARD_ZERO2
                          ? FSDP_EXPLAINED_HYBRID_SHARD_ZERO2
                          : FSDP_EXPLAINED_HYBRID_SHARD;
    else if (o->strategy >= FSDP_EXPLAINED_HYBRID_SHARD)
        replicas = o->machines;
    if (o->strategy == FSDP_EXPLAINED_NO_SHARD)
        replicas = o->ranks;
    o->replicas = replicas;
    o->shards = o->ranks / replicas;
    if (o->ranks % replicas || (shards > 1 && shards != o->shards))
        return fsdp_error(
            FSDP_ERR_INVALID,
            "%s: %ld replicas of %ld shards are not the %ld processes of num_processes", e->path,
            replicas, shards > 1 ? shards : o->shards, o->ranks);
    return FSDP_OK;
}

/* ---- the whole ---- */

static fsdp_status read_units(const explainer *e)
{
    fsdp_explained *o = e->out;
    const fsdp_yaml *classes = find(e, "fsdp_transformer_layer_cls_to_wrap"),
                    *least = find(e, "fsdp_min_num_params");
    o->wrap_policy = fsdp_accelerate_wrap_policies[0];
    FSDP_TRY(get_word(e, "fsdp_auto_wrap_policy", fsdp_accelerate_wrap_policies,
                      "TRANSFORMER_BASED_WRAP (1), SIZE_BASED_WRAP (2) or NO_WRAP (3)",
                      &o->wrap_policy));
    if (is_given(classes) && o->wrap_policy == fsdp_accelerate_wrap_policies[0])
        o->classes = classes->text;
    if (is_given(least) && o->wrap_policy == fsdp_accelerate_wrap_policies[1])
        o->min_num_params = least->text;
    o->prefetch = o->version == 1 ? fsdp_accelerate_prefetches[0] : NULL;
    if (o->version == 1) {
        static const char wanted[] = "BACKWARD_PRE (1), BACKWARD_POST (2) or NO_PREFETCH (3)";
        FSDP_TRY(get_word(e, "fsdp_backward_prefetch_policy", fsdp_accelerate_prefetches, wanted,
                          &o->prefetch));
        FSDP_TRY(get_word(e, "fsdp_backward_prefetch", fsdp_accelerate_prefetches, wanted,
                          &o->prefetch));
        FSDP_TRY(get_bool(e, "fsdp_forward_prefetch", &o->forward_prefetch));
    }
    FSDP_TRY(get_bool(e, "fsdp_offload_params", &o->offload));
    return get_bool(e, "fsdp_activation_checkpointing", &o->checkpointing);
}

static fsdp_status read_rest(const explainer *e)
{
    fsdp_explained *o = e->out;
    bool fp16 = false;
    FSDP_TRY(get_bool(e, "fp16", &fp16)); /* an old key */
    o->precision = fp16 ? "fp16" : "no";
    o->state_dict = o->version == 1 ? "FULL_STATE_DICT" : "SHARDED_STATE_DICT";
    FSDP_TRY(get_word(e, "mixed_precision", precisions, "no, fp16 or bf16", &o->precision));
    FSDP_TRY(get_word(e, "fsdp_state_dict_type", fsdp_accelerate_state_dicts,
                      "FULL_STATE_DICT (1), LOCAL_STATE_DICT (2) or SHARDED_STATE_DICT (3)",
                      &o->state_dict));
    o->param_bytes = strcmp(o->precision, "no") == 0 ? 4 : 2;
    return FSDP_OK;
}

fsdp_status fsdp_explain_read(const fsdp_yaml *config, const char *path, fsdp_explained *out)
{
    fsdp_explained made = {.version = 1, .ranks = 1, .machines = 1};
    const explainer e = {.config = config,
                         .section = fsdp_yaml_find(config, "fsdp_config"),
                         .path = path,
                         .out = &made};
    long version = 1;
    FSDP_TRY(check_keys(&e, config, NULL));
    FSDP_TRY(get_number(&e, "fsdp_version", &version));
    if (version > 2)
        return wrong(&e, find(&e, "fsdp_version"), "1 or 2");
    made.version = (int)version;
    FSDP_TRY(get_number(&e, "num_processes", &made.ranks));
    FSDP_TRY(get_number(&e, "num_machines", &made.machines));
    FSDP_TRY(read_strategy(&e));
    FSDP_TRY(read_mesh(&e));
    FSDP_TRY(read_units(&e));
    FSDP_TRY(read_rest(&e));
    *out = made;
    return FSDP_OK;
}
