/* See remedies.h. */
#include "src/plan/remedies.h"

#include <string.h>

#include "src/options/options_added.h"
#include "src/train_config/config_device.h"

enum {
    MAX_ACCUMULATION = 65536 /* upper bound of --gradient-accumulation-steps */
};

/* Return true if the command line has the option `name`. */
static bool is_flag(const fsdp_train_config *c, const char *name)
{
    return c->options && fsdp_options_origin(c->options, name) == FSDP_ORIGIN_FLAG;
}

/* Append the option `name`, and the text `value` after it. If the command line has the option under
 * an alias, append this alias: giving two names of one option with different values is an error.
 * `value` is "" or begins with a blank. If `off` is true, the option is a switch that is turned
 * off. */
static void append_option(fsdp_str *flags, const fsdp_train_config *c, const char *name, bool off,
                          const char *value)
{
    const char *flag = is_flag(c, name) ? fsdp_options_source(c->options, name) : NULL;
    const size_t dashes = flag ? strspn(flag, "-") : 0;
    if (dashes == 1) {
        fsdp_str_printf(flags, " %s%s", flag, value); /* a name of one letter: -b */
        return;
    }
    if (flag && strncmp(flag, "--no", 4) == 0 && (flag[4] == '-' || flag[4] == '_'))
        flag += 5; /* --no-NAME */
    else if (flag)
        flag += dashes;
    fsdp_str_printf(flags, " --%s%s%s", off ? "no-" : "", flag ? flag : name, value);
}

static void append_number(fsdp_str *flags, const fsdp_train_config *c, const char *name, int value)
{
    char text[32];
    snprintf(text, sizeof text, " %d", value);
    append_option(flags, c, name, false, text);
}

/* Append a flag that sets the dtype of computation to bfloat16. If the command line has
 * --mixed-precision or --param-dtype, use the same option again, because two different options that
 * ask for different dtypes are an error. */
static void append_bf16(fsdp_str *flags, const fsdp_train_config *c)
{
    const bool mixed = is_flag(c, "mixed-precision"), param = is_flag(c, "param-dtype");
    if (mixed)
        append_option(flags, c, "mixed-precision", false, " bf16");
    if (param)
        append_option(flags, c, "param-dtype", false, " bfloat16");
    if (!mixed && !param)
        append_option(flags, c, "bf16", false, "");
}

bool fsdp_remedy_is_accepted(const fsdp_train_config *c, const char *flags)
{
    if (!c->options)
        return true;
    const fsdp_status status = fsdp_options_check_added(c->options, flags, c->parsed_bytes);
    return status != FSDP_ERR_INVALID && status != FSDP_ERR_UNSUPPORTED;
}

/* Use activation checkpointing of kind "full" for every block. This kind keeps the fewest
 * activations. */
bool fsdp_remedy_checkpoint(fsdp_train_config *c, fsdp_str *flags)
{
    const bool every = c->activation_checkpointing_every > 1;
    const bool some = c->activation_checkpointing_kind != FSDP_CHECKPOINT_FULL;
    if (c->activation_checkpointing && !every && !some)
        return false;
    c->activation_checkpointing = true;
    c->activation_checkpointing_every = 1;
    c->activation_checkpointing_kind = FSDP_CHECKPOINT_FULL;
    append_option(flags, c, "activation-checkpointing", false, "");
    if (every)
        append_number(flags, c, "activation-checkpointing-every", 1);
    if (some)
        append_option(flags, c, "activation-checkpointing-kind", false, " full");
    return true;
}

bool fsdp_remedy_reshard(fsdp_train_config *c, fsdp_str *flags)
{
    const bool hybrid = c->sharding_strategy == FSDP_SHARDING_HYBRID_SHARD_ZERO2;
    if (c->sharding_strategy == FSDP_SHARDING_FULL_SHARD ||
        c->sharding_strategy == FSDP_SHARDING_HYBRID_SHARD)
        return false;
    c->sharding_strategy = hybrid ? FSDP_SHARDING_HYBRID_SHARD : FSDP_SHARDING_FULL_SHARD;
    c->reshard_after_forward = true;
    /* The command line may have the strategy, or --reshard-after-forward false, or both. */
    const bool reshard = is_flag(c, "reshard-after-forward");
    if (reshard)
        append_option(flags, c, "reshard-after-forward", false, " true");
    if (!reshard || fsdp_options_given(c->options, "sharding-strategy"))
        append_option(flags, c, "sharding-strategy", false,
                      hybrid ? " HYBRID_SHARD" : " FULL_SHARD");
    return true;
}

/* Use smaller micro-batches and more of them. The number of rows per step does not change. */
bool fsdp_remedy_split_batch(fsdp_train_config *c, fsdp_str *flags)
{
    int parts = 2;
    while (parts <= c->batch_size && c->batch_size % parts != 0)
        parts++;
    if (c->batch_size == 1 || c->gradient_accumulation_steps > MAX_ACCUMULATION / parts)
        return false;
    c->batch_size /= parts;
    c->gradient_accumulation_steps *= parts;
    append_number(flags, c, "batch-size", c->batch_size);
    append_number(flags, c, "gradient-accumulation-steps", c->gradient_accumulation_steps);
    if (c->run_validation && c->validation_batch_size > c->batch_size) {
        c->validation_batch_size = c->batch_size;
        append_number(flags, c, "validation-batch-size", c->batch_size);
    }
    return true;
}

bool fsdp_remedy_bf16(fsdp_train_config *c, fsdp_str *flags)
{
    if (c->param_dtype != FSDP_DTYPE_F32)
        return false;
    c->param_dtype = FSDP_DTYPE_BF16;
    append_bf16(flags, c);
    return true;
}

bool fsdp_remedy_adafactor(fsdp_train_config *c, fsdp_str *flags)
{
    if (!fsdp_optimizer_is_adam(c->optimizer) && c->optimizer != FSDP_OPTIMIZER_ADAMW_8BIT)
        return false;
    if (c->optimizer_state_dtype != FSDP_DTYPE_F32)
        return false; /* Adafactor has no --optimizer-state-dtype */
    c->optimizer = FSDP_OPTIMIZER_ADAFACTOR;
    append_option(flags, c, "optimizer", false, " adafactor");
    return true;
}

bool fsdp_remedy_save_in_step(fsdp_train_config *c, fsdp_str *flags)
{
    if (!c->async_save)
        return false;
    c->async_save = false;
    append_option(flags, c, "async-save", true, "");
    return true;
}

/* Keep master weights and optimizer state in files while they are not in use. This makes steps as
 * slow as the disk, so it is tried last. */
bool fsdp_remedy_offload(fsdp_train_config *c, fsdp_str *flags)
{
    if (c->offload_dir)
        return false;
    c->cpu_offload = true;
    c->offload_dir = "."; /* the path is not used, because a plan writes no files */
    append_option(flags, c, "cpu-offload", false, "");
    append_option(flags, c, "offload-dir", false, " DIR");
    return true;
}

bool fsdp_remedy_checkpoint_ops(fsdp_train_config *c, fsdp_str *flags)
{
    if (c->activation_checkpointing)
        return false;
    c->activation_checkpointing = true;
    c->activation_checkpointing_every = 1;
    c->activation_checkpointing_kind = FSDP_CHECKPOINT_OP;
    append_option(flags, c, "activation-checkpointing", false, "");
    append_option(flags, c, "activation-checkpointing-kind", false, " op");
    return true;
}

bool fsdp_remedy_adamw_8bit(fsdp_train_config *c, fsdp_str *flags)
{
    if (c->optimizer != FSDP_OPTIMIZER_ADAMW || c->optimizer_state_dtype != FSDP_DTYPE_F32)
        return false; /* adamw_8bit has no --optimizer-state-dtype */
    c->optimizer = FSDP_OPTIMIZER_ADAMW_8BIT;
    append_option(flags, c, "optimizer", false, " adamw_8bit");
    return true;
}

/* Compute in bfloat16, and store the master weights in bfloat16, too. Adam optimizers round
 * the weights stochastically, so that small updates are not lost. */
bool fsdp_remedy_bf16_master(fsdp_train_config *c, fsdp_str *flags)
{
    const bool rounds = !c->bf16_stochastic_round && (fsdp_optimizer_is_adam(c->optimizer) ||
                                                      c->optimizer == FSDP_OPTIMIZER_ADAMW_8BIT);
    const bool computes = c->param_dtype == FSDP_DTYPE_BF16;
    if (c->master_dtype != FSDP_DTYPE_F32 || (!computes && c->param_dtype != FSDP_DTYPE_F32))
        return false;
    c->param_dtype = c->master_dtype = FSDP_DTYPE_BF16;
    c->bf16_stochastic_round |= rounds;
    if (!computes)
        append_bf16(flags, c);
    append_option(flags, c, "master-dtype", false, " bfloat16");
    if (rounds)
        append_option(flags, c, "bf16-stochastic-round", false, "");
    return true;
}

bool fsdp_remedy_activation_offload(fsdp_train_config *c, fsdp_str *flags)
{
    if (!c->activation_checkpointing || c->activation_offload)
        return false;
    c->activation_offload = true;
    append_option(flags, c, "activation-offload", false, "");
    return true;
}

/* Gather the weights of linear layers in float8. */
bool fsdp_remedy_float8_all_gather(fsdp_train_config *c, fsdp_str *flags)
{
    const bool computes = c->float8_recipe == 1 + FSDP_FLOAT8_TENSORWISE;
    if (c->float8_all_gather || (c->float8_recipe && !computes) || c->lora_r || c->adapter ||
        fsdp_train_uses_cards(c))
        return false;
    c->float8_recipe = 1 + FSDP_FLOAT8_TENSORWISE;
    c->float8_all_gather = true;
    if (!computes)
        append_option(flags, c, "float8-recipe", false, " tensorwise");
    append_option(flags, c, "float8-enable-fsdp-all-gather", false, "");
    return true;
}

/* Train an adapter instead of the weights. */
bool fsdp_remedy_lora(fsdp_train_config *c, fsdp_str *flags)
{
    if (c->lora_r || c->adapter || c->float8_recipe)
        return false;
    c->lora_r = 16;
    c->lora_alpha = 32;
    append_option(flags, c, "lora-r", false, " 16");
    append_option(flags, c, "lora-alpha", false, " 32");
    return true;
}

/* Store the frozen weights under an adapter in NF4 (QLoRA). */
bool fsdp_remedy_load_in_4bit(fsdp_train_config *c, fsdp_str *flags)
{
    if (!c->lora_r || c->quantize.load_in_4bit)
        return false;
    c->quantize.load_in_4bit = true;
    c->quantize.double_quant = true;
    append_option(flags, c, "load-in-4bit", false, "");
    append_option(flags, c, "bnb-4bit-use-double-quant", false, "");
    return true;
}
