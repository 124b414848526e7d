/* See remedies.h. */
#include "src/plan/remedies.h"

#include "src/train_config/config_device.h"

enum {
    MAX_ACCUMULATION = 65536 /* upper bound of --gradient-accumulation-steps */
};

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
    fsdp_str_printf(flags, " --activation-checkpointing%s%s",
                    every ? " --activation-checkpointing-every 1" : "",
                    some ? " --activation-checkpointing-kind full" : "");
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
    fsdp_str_printf(flags, " --sharding-strategy %s", hybrid ? "HYBRID_SHARD" : "FULL_SHARD");
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
    fsdp_str_printf(flags, " --batch-size %d --gradient-accumulation-steps %d", c->batch_size,
                    c->gradient_accumulation_steps);
    if (c->run_validation && c->validation_batch_size > c->batch_size) {
        c->validation_batch_size = c->batch_size;
        fsdp_str_printf(flags, " --validation-batch-size %d", c->batch_size);
    }
    return true;
}

bool fsdp_remedy_bf16(fsdp_train_config *c, fsdp_str *flags)
{
    if (c->param_dtype != FSDP_DTYPE_F32)
        return false;
    c->param_dtype = FSDP_DTYPE_BF16;
    fsdp_str_printf(flags, " --bf16");
    return true;
}

bool fsdp_remedy_adafactor(fsdp_train_config *c, fsdp_str *flags)
{
    if (!fsdp_optimizer_is_adam(c->optimizer) || c->optimizer_state_dtype != FSDP_DTYPE_F32)
        return false; /* Adafactor has no --optimizer-state-dtype */
    c->optimizer = FSDP_OPTIMIZER_ADAFACTOR;
    fsdp_str_printf(flags, " --optimizer adafactor");
    return true;
}

bool fsdp_remedy_save_in_step(fsdp_train_config *c, fsdp_str *flags)
{
    if (!c->async_save)
        return false;
    c->async_save = false;
    fsdp_str_printf(flags, " --no-async-save");
    return true;
}

/* Keep parameters in files between uses. This makes steps as slow as the disk, so it is tried
 * last. */
bool fsdp_remedy_offload(fsdp_train_config *c, fsdp_str *flags)
{
    if (c->offload_dir)
        return false;
    c->cpu_offload = true;
    c->offload_dir = "."; /* the path is not used, because a plan writes no files */
    fsdp_str_printf(flags, " --cpu-offload --offload-dir DIR");
    return true;
}

bool fsdp_remedy_checkpoint_ops(fsdp_train_config *c, fsdp_str *flags)
{
    if (c->activation_checkpointing)
        return false;
    c->activation_checkpointing = true;
    c->activation_checkpointing_every = 1;
    c->activation_checkpointing_kind = FSDP_CHECKPOINT_OP;
    fsdp_str_printf(flags, " --activation-checkpointing --activation-checkpointing-kind op");
    return true;
}

bool fsdp_remedy_adamw_8bit(fsdp_train_config *c, fsdp_str *flags)
{
    if (c->optimizer != FSDP_OPTIMIZER_ADAMW || c->optimizer_state_dtype != FSDP_DTYPE_F32)
        return false; /* adamw_8bit has no --optimizer-state-dtype */
    c->optimizer = FSDP_OPTIMIZER_ADAMW_8BIT;
    fsdp_str_printf(flags, " --optimizer adamw_8bit");
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
    fsdp_str_printf(flags, "%s --master-dtype bfloat16%s", computes ? "" : " --bf16",
                    rounds ? " --bf16-stochastic-round" : "");
    return true;
}

bool fsdp_remedy_activation_offload(fsdp_train_config *c, fsdp_str *flags)
{
    if (!c->activation_checkpointing || c->activation_offload)
        return false;
    c->activation_offload = true;
    fsdp_str_printf(flags, " --activation-offload");
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
    fsdp_str_printf(flags, "%s --float8-enable-fsdp-all-gather",
                    computes ? "" : " --float8-recipe tensorwise");
    return true;
}

/* Train an adapter instead of the weights. */
bool fsdp_remedy_lora(fsdp_train_config *c, fsdp_str *flags)
{
    if (c->lora_r || c->adapter || c->float8_recipe)
        return false;
    c->lora_r = 16;
    c->lora_alpha = 32;
    fsdp_str_printf(flags, " --lora-r 16 --lora-alpha 32");
    return true;
}

/* Store the frozen weights under an adapter in NF4 (QLoRA). */
bool fsdp_remedy_load_in_4bit(fsdp_train_config *c, fsdp_str *flags)
{
    if (!c->lora_r || c->quantize.load_in_4bit)
        return false;
    c->quantize.load_in_4bit = true;
    c->quantize.double_quant = true;
    fsdp_str_printf(flags, " --load-in-4bit --bnb-4bit-use-double-quant");
    return true;
}
