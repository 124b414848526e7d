/* See environment.h. fsdp_options_from_environment() reads the variables that set options of units.
 * The table in this file has the other variables. */
#include "src/accelerator/environment.h"

#include <stdlib.h>
#include <string.h>

#include <fsdp/options.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/fsdp/environment.h"

const char *const fsdp_accelerator_precisions[] = {"no", "fp16", "bf16", NULL};
/* For each precision, the name of its policy in PyTorch's tutorials
 * (fsdp_mixed_precision_preset()). Accelerate sets the same policies. */
static const char *const presets[] = {"fp32_policy", "fpSixteen", "bfSixteen"};

typedef struct variables {
    int accumulation_steps;
    bool use_cpu;
    int wrap; /* index into wrap_policies */
    fsdp_option_list classes;
    int64_t min_num_params;
    int state_dict_type;
    bool activation_offload, sync_module_states;
    int replicas, shard_size;
} variables;

static const char *const wrap_policies[] = {"TRANSFORMER_BASED_WRAP|1", "SIZE_BASED_WRAP|2",
                                            "NO_WRAP|3", NULL};
/* Indexed by fsdp_state_dict_type. The numbers after "|" are those of Accelerate's menu. */
static const char *const state_dict_types[] = {"SHARDED_STATE_DICT|3", "FULL_STATE_DICT|1",
                                               "LOCAL_STATE_DICT|2", NULL};

#define PLACE(field) .offset = offsetof(variables, field)

/* clang-format off */
static const fsdp_option table[] = {
    {.name = "gradient-accumulation-steps", .type = FSDP_OPTION_INT, PLACE(accumulation_steps),
     .value = "1", .bounds = FSDP_AT_LEAST(1), .env = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"},
    {.name = "use-cpu", .type = FSDP_OPTION_BOOL, PLACE(use_cpu), .env = "ACCELERATE_USE_CPU"},
    {.name = "auto-wrap-policy", .type = FSDP_OPTION_CHOICE, PLACE(wrap),
     .value = "TRANSFORMER_BASED_WRAP", .choices = wrap_policies},
    {.name = "transformer-cls-to-wrap", .type = FSDP_OPTION_LIST, PLACE(classes)},
    {.name = "min-num-params", .type = FSDP_OPTION_INT64, PLACE(min_num_params), .value = "0",
     .bounds = FSDP_AT_LEAST(0)},
    {.name = "state-dict-type", .type = FSDP_OPTION_CHOICE, PLACE(state_dict_type),
     .value = "SHARDED_STATE_DICT", .choices = state_dict_types},
    {.name = "activation-checkpointing-offload", .type = FSDP_OPTION_BOOL,
     PLACE(activation_offload)},
    {.name = "ignored-modules", .type = FSDP_OPTION_STRING, .offset = FSDP_OPTION_NOWHERE,
     .instead = "give the parameters in fully_shard.ignored_params of the accelerator's options"},
    {.name = "sync-module-states", .type = FSDP_OPTION_BOOL, PLACE(sync_module_states),
     .value = "true"},
    {.name = "dp-replicate-size", .type = FSDP_OPTION_INT, PLACE(replicas), .value = "0",
     .bounds = FSDP_AT_LEAST(0), .env = "PARALLELISM_CONFIG_DP_REPLICATE_SIZE"},
    {.name = "dp-shard-size", .type = FSDP_OPTION_INT, PLACE(shard_size), .value = "0",
     .bounds = FSDP_AT_LEAST(-1), .env = "PARALLELISM_CONFIG_DP_SHARD_SIZE"},
};
/* clang-format on */

static fsdp_status parse_variables(variables *v, fsdp_options **options)
{
    static const fsdp_options_spec spec = {
        .program = "environment", .table = table, .count = FSDP_LENGTH(table)};
    char name[] = "environment", *argv[] = {name, NULL};
    return fsdp_options_parse(&spec, 1, argv, v, options);
}

static fsdp_status read_precision(const fsdp_accelerator_options *o, fsdp_accelerator_settings *s)
{
    const char *word = o->mixed_precision;
    if (word && o->fully_shard)
        return fsdp_error(FSDP_ERR_INVALID,
                          "accelerator: mixed_precision \"%s\" and fully_shard are both given; "
                          "fully_shard.mp_policy says in what dtype to compute",
                          word);
    if (!word) {
        const fsdp_dtype dtype = s->fully_shard.mp_policy.param_dtype;
        s->precision = dtype == FSDP_DTYPE_F16 ? 1 : dtype == FSDP_DTYPE_BF16 ? 2 : 0;
        return FSDP_OK;
    }
    for (s->precision = 0; fsdp_accelerator_precisions[s->precision]; s->precision++)
        if (strcmp(word, fsdp_accelerator_precisions[s->precision]) == 0)
            return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "accelerator: mixed_precision \"%s\": expected no, fp16 or bf16%s", word,
                      strcmp(word, "fp8") == 0
                          ? "; for float8, choose bf16 and call fsdp_convert_to_float8_training()"
                          : "");
}

/* Set s->fully_shard to the options that the caller gave. If the caller gave none, set it to the
 * options that environment variables give, with the mp_policy of s->precision. */
static fsdp_status read_sharding(const fsdp_accelerator_options *o, fsdp_accelerator_settings *s)
{
    fsdp_mixed_precision mp;
    if (o->fully_shard) {
        s->fully_shard = *o->fully_shard;
        s->code_shards = true;
        return read_precision(o, s);
    }
    fsdp_environment_options environment;
    FSDP_TRY(fsdp_environment_read(o->mixed_precision, &environment));
    s->fully_shard = environment.fully_shard;
    s->activation_checkpointing = environment.activation_checkpointing;
    s->is_hybrid = environment.sharding_strategy >= FSDP_SHARDING_HYBRID_SHARD;
    FSDP_TRY(read_precision(o, s));
    FSDP_TRY(fsdp_mixed_precision_preset(presets[s->precision], &mp));
    return fsdp_mp_policy_from_fsdp1(&mp, FSDP_DTYPE_F32, &s->fully_shard.mp_policy);
}

static fsdp_status read_policy(const variables *v, fsdp_accelerator_settings *s)
{
    s->wraps = fsdp_options_given(s->variables, "auto-wrap-policy") || v->classes.count;
    if (!s->wraps)
        return FSDP_OK;
    if (v->wrap == 1) {
        s->policy = (fsdp_wrap_policy){.kind = FSDP_WRAP_SIZE, .min_num_params = v->min_num_params};
        return FSDP_OK;
    }
    if (v->wrap == 2) {
        s->policy = (fsdp_wrap_policy){.kind = FSDP_WRAP_NONE};
        return FSDP_OK;
    }
    s->default_units = v->classes.count == 0;
    s->classes = fsdp_calloc((size_t)v->classes.count + 1, sizeof *s->classes);
    if (!s->classes)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < (size_t)v->classes.count; i++)
        s->classes[i] = v->classes.items[i];
    s->policy =
        (fsdp_wrap_policy){.kind = FSDP_WRAP_TRANSFORMER, .transformer_layer_cls = s->classes};
    return FSDP_OK;
}

static fsdp_status copy_text(const char *text, char **copy)
{
    *copy = NULL;
    if (!text)
        return FSDP_OK;
    *copy = fsdp_strdup(text);
    return *copy ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status copy_texts(const fsdp_accelerator_options *o, fsdp_accelerator_settings *s)
{
    FSDP_TRY(copy_text(o->project_dir, &s->project_dir));
    FSDP_TRY(copy_text(o->logging_dir ? o->logging_dir : o->project_dir, &s->logging_dir));
    FSDP_TRY(copy_text(o->log_with, &s->log_with));
    return copy_text(o->tracker_command, &s->tracker_command);
}

static fsdp_status check_checkpoints(const fsdp_accelerator_options *o)
{
    if (o->state_dict_type < 0 || o->state_dict_type > 1 + FSDP_STATE_DICT_LOCAL)
        return fsdp_error(
            FSDP_ERR_INVALID,
            "accelerator: state_dict_type %d: expected 1 + fsdp_state_dict_type, or 0",
            o->state_dict_type);
    if (o->automatic_checkpoint_naming && !o->project_dir)
        return fsdp_error(FSDP_ERR_INVALID,
                          "accelerator: automatic_checkpoint_naming needs a project_dir");
    if (o->total_limit < 0 || o->iteration < 0)
        return fsdp_error(FSDP_ERR_INVALID,
                          "accelerator: total_limit %d and iteration %lld must not be negative",
                          o->total_limit, (long long)o->iteration);
    if ((o->total_limit || o->iteration) && !o->automatic_checkpoint_naming)
        return fsdp_error(FSDP_ERR_INVALID, "accelerator: total_limit and iteration are for "
                                            "automatic_checkpoint_naming, which is not set");
    return FSDP_OK;
}

fsdp_status fsdp_accelerator_settings_read(const fsdp_accelerator_options *o,
                                           fsdp_accelerator_settings *s)
{
    variables v;
    *s = (fsdp_accelerator_settings){0};
    if (o->gradient_accumulation_steps < 0)
        return fsdp_error(FSDP_ERR_INVALID,
                          "accelerator: gradient_accumulation_steps %d must be positive",
                          o->gradient_accumulation_steps);
    FSDP_TRY(check_checkpoints(o));
    FSDP_TRY(parse_variables(&v, &s->variables));
    FSDP_TRY(read_sharding(o, s));
    FSDP_TRY(read_policy(&v, s));
    s->cpu = o->cpu || v.use_cpu;
    s->gradient_accumulation_steps =
        o->gradient_accumulation_steps ? o->gradient_accumulation_steps : v.accumulation_steps;
    s->sync_with_dataloader = !o->no_sync_with_dataloader;
    s->split_batches = o->split_batches;
    s->even_batches = !o->no_even_batches;
    s->step_scheduler_with_optimizer = !o->no_step_scheduler_with_optimizer;
    s->activation_offload = v.activation_offload && s->activation_checkpointing;
    s->sync_module_states = v.sync_module_states;
    s->replicas = v.replicas;
    s->shard_size = v.shard_size;
    s->auto_wrap_policy = o->auto_wrap_policy;
    s->state_dict_type =
        (fsdp_state_dict_type)(o->state_dict_type ? o->state_dict_type - 1 : v.state_dict_type);
    s->automatic_checkpoint_naming = o->automatic_checkpoint_naming;
    s->total_limit = o->total_limit;
    return copy_texts(o, s);
}

void fsdp_accelerator_settings_fini(fsdp_accelerator_settings *s)
{
    fsdp_options_destroy(s->variables);
    fsdp_free(s->classes);
    fsdp_free(s->project_dir);
    fsdp_free(s->logging_dir);
    fsdp_free(s->log_with);
    fsdp_free(s->tracker_command);
    *s = (fsdp_accelerator_settings){0};
}
