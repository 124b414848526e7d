/* See rope_config.h.
 *
 * Note [Spellings of rope]. There are two spellings of the parameters of rope. transformers 4 reads
 * and writes rope_theta and the object rope_scaling. transformers 5 writes one object,
 * rope_parameters, but reads both spellings. transformers 5 first looks for the object
 * rope_scaling. If rope_scaling is missing, null or empty, transformers 5 uses the object
 * rope_parameters instead. If the object that it uses contains a rope_theta, this rope_theta
 * overrides that of the root.
 *
 * This program reads the parameters as transformers 5 does. This program always writes the spelling
 * of transformers 4, because both versions understand that spelling. If the document already has
 * rope_parameters, this program updates rope_parameters as well. */
#include "src/models/rope_config.h"

#include <string.h>

#include "src/base/assert.h"
#include "src/models/config_json.h"

/* --- reading --- */

/* The state of reading a configuration. root: the root of the document. rope: the object with the
 * parameters of rope. c: the configuration that is being filled in. */
typedef struct reader {
    fsdp_json_node root, rope;
    int64_t max_position_embeddings;
    fsdp_rope_config c;
} reader;

static fsdp_status get_positive(fsdp_json_node node, const char *key, double *value)
{
    FSDP_TRY(fsdp_json_get_f64(node, key, value));
    return *value > 0 ? FSDP_OK : fsdp_json_mismatch(node, key, "a positive number");
}

/* Read original_max_position_embeddings, as transformers 5 does: from the root of the document or,
 * if it is missing there, from the object `rope`. */
static fsdp_status read_original_length(reader *r)
{
    static const char key[] = "original_max_position_embeddings";
    return fsdp_config_opt_dim(fsdp_json_has(r->root, key) ? r->root : r->rope, key,
                               r->max_position_embeddings, &r->c.original_max_position_embeddings);
}

static fsdp_status read_default(reader *r)
{
    (void)r;
    return FSDP_OK;
}

static fsdp_status read_linear(reader *r)
{
    return get_positive(r->rope, "factor", &r->c.factor);
}

/* Read the parameters of dynamic NTK. As in transformers, the length of sequences is compared with
 * max_position_embeddings, not with original_max_position_embeddings. */
static fsdp_status read_dynamic(reader *r)
{
    r->c.original_max_position_embeddings = r->max_position_embeddings;
    return get_positive(r->rope, "factor", &r->c.factor);
}

static fsdp_status read_llama3(reader *r)
{
    FSDP_TRY(get_positive(r->rope, "factor", &r->c.factor));
    FSDP_TRY(get_positive(r->rope, "low_freq_factor", &r->c.low_freq_factor));
    FSDP_TRY(get_positive(r->rope, "high_freq_factor", &r->c.high_freq_factor));
    if (r->c.high_freq_factor <= r->c.low_freq_factor)
        return fsdp_json_mismatch(r->rope, "high_freq_factor",
                                  "a number greater than low_freq_factor (%g)",
                                  r->c.low_freq_factor);
    return read_original_length(r);
}

/* Read the optional numbers of YaRN. The values 0 and null have the same meaning as a missing
 * key. */
static fsdp_status read_yarn_numbers(reader *r)
{
    FSDP_TRY(fsdp_config_not_negative(r->rope, "attention_factor", 0.0, &r->c.attention_factor));
    FSDP_TRY(fsdp_config_not_negative(r->rope, "beta_fast", 0.0, &r->c.beta_fast));
    FSDP_TRY(fsdp_config_not_negative(r->rope, "beta_slow", 0.0, &r->c.beta_slow));
    FSDP_TRY(fsdp_config_not_negative(r->rope, "mscale", 0.0, &r->c.mscale));
    return fsdp_config_not_negative(r->rope, "mscale_all_dim", 0.0, &r->c.mscale_all_dim);
}

/* Read the parameters of YaRN. In the file, `factor` may be null, which means
 * max_position_embeddings / original_max_position_embeddings. */
static fsdp_status read_yarn(reader *r)
{
    FSDP_TRY(read_original_length(r));
    FSDP_TRY(read_yarn_numbers(r));
    FSDP_TRY(fsdp_json_opt_bool(r->rope, "truncate", true, &r->c.truncate));
    if (r->c.theta == 1.0)
        return fsdp_json_mismatch(fsdp_json_has(r->rope, "rope_theta") ? r->rope : r->root,
                                  "rope_theta",
                                  "a number other than 1, since \"yarn\" treats waves by length");
    if (fsdp_json_kind_of(fsdp_json_find(r->rope, "factor")) != FSDP_JSON_NULL)
        return get_positive(r->rope, "factor", &r->c.factor);
    r->c.factor =
        (double)r->max_position_embeddings / (double)r->c.original_max_position_embeddings;
    return FSDP_OK;
}

static const struct {
    const char *name;
    fsdp_status (*read)(reader *r);
} types[] = {
    [FSDP_ROPE_DEFAULT] = {"default", read_default},
    [FSDP_ROPE_LINEAR] = {"linear", read_linear},
    [FSDP_ROPE_LLAMA3] = {"llama3", read_llama3},
    [FSDP_ROPE_DYNAMIC] = {"dynamic", read_dynamic},
    [FSDP_ROPE_YARN] = {"yarn", read_yarn},
};

static fsdp_status read_type(reader *r)
{
    const char *key = fsdp_json_has(r->rope, "rope_type") ? "rope_type" : "type", *type;
    FSDP_TRY(fsdp_json_opt_str(r->rope, key, "default", &type));
    for (size_t i = 0; i < FSDP_LENGTH(types); i++) {
        if (strcmp(type, types[i].name) != 0)
            continue;
        r->c.type = (fsdp_rope_type)i;
        return types[i].read(r);
    }
    return fsdp_config_unsupported(r->rope, key,
                                   "\"default\", \"linear\", \"llama3\", \"dynamic\" or \"yarn\"");
}

static fsdp_status refuse_partial(fsdp_json_node node)
{
    double factor;
    FSDP_TRY(fsdp_json_opt_f64(node, "partial_rotary_factor", 1.0, &factor));
    return factor == 1.0 ? FSDP_OK : fsdp_config_unsupported(node, "partial_rotary_factor", "1.0");
}

/* Some models have separate rope parameters for each kind of layer. In that case, the keys of
 * `rope` are the names of the kinds of layers, and the values are objects. Refuse this form.
 * Without this check, the names would be ignored as unknown keys, and all layers would get the
 * default parameters. */
static fsdp_status refuse_nested(fsdp_json_node rope)
{
    for (fsdp_json_node v = fsdp_json_first(rope); v.value; v = fsdp_json_next(v))
        if (fsdp_json_kind_of(v) == FSDP_JSON_OBJECT)
            return fsdp_config_unsupported(rope, v.key, "the same parameters for all layers");
    return FSDP_OK;
}

/* Return the key of the object from which transformers 5 reads the parameters of rope (Note
 * [Spellings of rope]). transformers 5 chooses it with the Python expression `rope_scaling or
 * rope_parameters`. */
static const char *rope_key(fsdp_json_node root)
{
    fsdp_json_node scaling = fsdp_json_find(root, "rope_scaling");
    const bool is_empty =
        fsdp_json_kind_of(scaling) == FSDP_JSON_OBJECT && fsdp_json_len(scaling) == 0;
    return fsdp_json_has(root, "rope_scaling") && !is_empty ? "rope_scaling" : "rope_parameters";
}

fsdp_status fsdp_rope_config_read(fsdp_json_node root, int64_t max_position_embeddings,
                                  fsdp_rope_config *config)
{
    reader r = {.root = root, .max_position_embeddings = max_position_embeddings};
    FSDP_TRY(fsdp_json_opt_object(root, rope_key(root), &r.rope));
    FSDP_TRY(fsdp_config_positive(root, "rope_theta", 10000.0, &r.c.theta));
    FSDP_TRY(refuse_partial(root));
    if (r.rope.value) {
        FSDP_TRY(refuse_nested(r.rope));
        FSDP_TRY(refuse_partial(r.rope));
        FSDP_TRY(fsdp_config_positive(r.rope, "rope_theta", r.c.theta, &r.c.theta));
        FSDP_TRY(read_type(&r));
    }
    *config = r.c;
    return FSDP_OK;
}

/* --- writing --- */

/* Set `key` to `value`. Do nothing if `value` is 0, which means that the key was missing. */
static void set_optional(fsdp_json_node rope, const char *key, double value)
{
    if (value > 0)
        fsdp_json_set_f64(rope, key, value);
}

static void set_yarn(fsdp_json_node rope, const fsdp_rope_config *c)
{
    set_optional(rope, "attention_factor", c->attention_factor);
    set_optional(rope, "beta_fast", c->beta_fast);
    set_optional(rope, "beta_slow", c->beta_slow);
    set_optional(rope, "mscale", c->mscale);
    set_optional(rope, "mscale_all_dim", c->mscale_all_dim);
    if (!c->truncate)
        fsdp_json_set_bool(rope, "truncate", false);
}

static void set_type(fsdp_json_node rope, const fsdp_rope_config *c)
{
    fsdp_json_set_str(rope, "rope_type", types[c->type].name);
    if (c->type != FSDP_ROPE_DEFAULT)
        fsdp_json_set_f64(rope, "factor", c->factor);
    if (c->type == FSDP_ROPE_LLAMA3) {
        fsdp_json_set_f64(rope, "low_freq_factor", c->low_freq_factor);
        fsdp_json_set_f64(rope, "high_freq_factor", c->high_freq_factor);
    }
    if (c->type == FSDP_ROPE_LLAMA3 || c->type == FSDP_ROPE_YARN)
        fsdp_json_set_i64(rope, "original_max_position_embeddings",
                          c->original_max_position_embeddings);
    if (c->type == FSDP_ROPE_YARN)
        set_yarn(rope, c);
}

void fsdp_rope_config_set(fsdp_json_node root, const fsdp_rope_config *c)
{
    fsdp_json_set_f64(root, "rope_theta", c->theta);
    if (c->type == FSDP_ROPE_DEFAULT)
        fsdp_json_set_str(root, "rope_scaling", NULL);
    else
        set_type(fsdp_json_set_object(root, "rope_scaling"), c);
    if (!fsdp_json_has(root, "rope_parameters"))
        return;
    fsdp_json_node rope = fsdp_json_set_object(root, "rope_parameters");
    fsdp_json_set_f64(rope, "rope_theta", c->theta);
    set_type(rope, c);
}
