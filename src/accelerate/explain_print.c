/* Prints what a configuration does (explain.h). */
#include <string.h>

#include "src/accelerate/explain.h"
#include "src/accelerate/explain_keys.h"

enum {
    /* bytes of a parameter: its float32 master value, its float32 gradient, and AdamW's moments */
    MASTER_BYTES = 4,
    GRAD_BYTES = 4,
    MOMENT_BYTES = 8
};

static const char *plural(long n)
{
    return n == 1 ? "" : "s";
}

static void print_strategy(const fsdp_explained *x, FILE *out)
{
    static const char *const texts[] = {
        "parameters, gradients and optimizer state are sharded: ZeRO stage 3. A unit's parameters "
        "are gathered for its forward, freed, and gathered again for its backward",
        "gradients and optimizer state are sharded: ZeRO stage 2. Parameters are sharded between "
        "steps, gathered once in forward, and stay until backward",
        "nothing is sharded: ZeRO stage 0, as DistributedDataParallel",
        "ZeRO stage 3 within each replica, whose gradients are then added: ZeRO++ stage 3",
        "ZeRO stage 2 within each replica, whose gradients are then added: ZeRO++ stage 2"};
    fprintf(out, "strategy      %s: %s\n", fsdp_explained_strategy_name(x->strategy),
            texts[x->strategy]);
    if (x->strategy >= FSDP_EXPLAINED_HYBRID_SHARD)
        fprintf(out, "replicas      %ld, each sharded over %ld rank%s%s\n", x->replicas, x->shards,
                plural(x->shards),
                x->replicas == 1 ? ": with one replica this is the same as without HYBRID_" : "");
}

/* Bytes that a rank receives in a step for each byte of parameters, and for each of gradients. */
static void print_communication(const fsdp_explained *x, FILE *out)
{
    const double part = (double)(x->shards - 1) / (double)x->shards;
    const bool twice =
        x->strategy == FSDP_EXPLAINED_FULL_SHARD || x->strategy == FSDP_EXPLAINED_HYBRID_SHARD;
    if (x->ranks == 1) {
        fprintf(out, "communication none: there is one rank\n");
        return;
    }
    fprintf(out, "communication a rank receives in a step, for each parameter: ");
    if (x->shards > 1)
        fprintf(out,
                "%.4g bytes of parameters (%s all-gather%s of %d bytes, of which it has 1/%ld), "
                "%.4g bytes of gradients (reduce-scatter in float32)",
                (twice ? 2 : 1) * part * x->param_bytes, twice ? "two" : "one", twice ? "s" : "",
                x->param_bytes, x->shards, part * GRAD_BYTES);
    if (x->replicas > 1)
        fprintf(out, "%s%.4g bytes of gradients from other replicas (all-reduce)",
                x->shards > 1 ? ", " : "",
                2.0 * (double)(x->replicas - 1) / (double)x->replicas * GRAD_BYTES /
                    (double)x->shards);
    fputc('\n', out);
}

static void print_memory(const fsdp_explained *x, FILE *out)
{
    const double all = (MASTER_BYTES + GRAD_BYTES + MOMENT_BYTES) / (double)x->shards;
    fprintf(out,
            "memory        a rank has for each parameter %.4g bytes: master weight, gradient and "
            "AdamW's two moments in float32%s",
            all, x->shards > 1 ? ", divided by the ranks of a replica" : "");
    if (x->strategy == FSDP_EXPLAINED_SHARD_GRAD_OP ||
        x->strategy == FSDP_EXPLAINED_HYBRID_SHARD_ZERO2)
        fprintf(out, ", and from forward to backward %d bytes more", x->param_bytes);
    else if (x->shards > 1)
        fprintf(out, ", and the gathered parameters of two or three units at a time");
    fprintf(out, "; plus activations\n");
}

static void print_units(const fsdp_explained *x, FILE *out)
{
    fprintf(out, "units         %s: ", x->wrap_policy);
    if (strcmp(x->wrap_policy, "NO_WRAP") == 0)
        fprintf(out, "the whole model is gathered at once\n");
    else if (strcmp(x->wrap_policy, "SIZE_BASED_WRAP") == 0)
        fprintf(out, "modules with at least %s parameters\n",
                x->min_num_params ? x->min_num_params : "100000000");
    else
        fprintf(out, "%s\n", x->classes ? x->classes : "the model's own blocks");
}

static void print_prefetch(const fsdp_explained *x, FILE *out)
{
    const char *text = "gathers the next unit of backward before the current one computes";
    if (x->prefetch && strcmp(x->prefetch, "BACKWARD_POST") == 0)
        text = "gathers the next unit of backward after the current one has computed: less memory, "
               "less overlap";
    if (x->prefetch && strcmp(x->prefetch, "NO_PREFETCH") == 0)
        text = "gathers a unit of backward when it is needed: least memory, no overlap";
    fprintf(out, "prefetch      %s%s%s%s\n", x->prefetch ? x->prefetch : "",
            x->prefetch ? ": " : "", text,
            x->forward_prefetch ? "; forward prefetches in the order of the first step" : "");
}

static void print_precision(const fsdp_explained *x, FILE *out)
{
    const char *text = "forward and backward in float32";
    if (strcmp(x->precision, "bf16") == 0)
        text = "forward and backward in bfloat16, gradients added and weights updated in float32";
    if (strcmp(x->precision, "fp16") == 0)
        text = "forward and backward in float16 with a scaled loss, gradients added and weights "
               "updated in float32";
    fprintf(out, "precision     %s: %s\n", x->precision, text);
}

static void print_checkpoints(const fsdp_explained *x, FILE *out)
{
    const char *text =
        "each rank writes its shards into one folder of torch.distributed.checkpoint; "
        "any number of ranks can continue";
    if (strcmp(x->state_dict, "FULL_STATE_DICT") == 0)
        text = "rank 0 writes whole tensors, one by one, into a file of torch.save";
    if (strcmp(x->state_dict, "LOCAL_STATE_DICT") == 0)
        text = "each rank writes a file, which only the same number of ranks can continue from";
    fprintf(out, "checkpoints   %s: %s\n", x->state_dict, text);
}

/* ---- what has no effect ---- */

static const char *reason(const fsdp_explained *x, const fsdp_yaml *value)
{
    const fsdp_explain_key *key = fsdp_explain_find_key(value->key);
    if (strcmp(value->key, "fsdp_transformer_layer_cls_to_wrap") == 0 && !x->classes)
        return "it needs fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP";
    if (strcmp(value->key, "fsdp_min_num_params") == 0 && !x->min_num_params)
        return "it needs fsdp_auto_wrap_policy SIZE_BASED_WRAP";
    if (strcmp(value->key, "fsdp_offload_params") == 0)
        return x->offload ? "on the CPU, where weights are in its memory anyway; --offload-dir DIR "
                            "keeps them in a file"
                          : NULL;
    if (x->version == 2 && key && key->no_effect_in_fsdp2)
        return key->no_effect_in_fsdp2;
    return key ? key->no_effect : NULL;
}

static void print_without_effect(const fsdp_yaml *map, const fsdp_explained *x, FILE *out)
{
    for (size_t i = 0; i < map->n; i++) {
        const fsdp_yaml *value = &map->items[i];
        const char *text = reason(x, value);
        if (text)
            fprintf(out, "  %s: %s\n", value->key, text);
        else if (value->kind == FSDP_YAML_MAP)
            print_without_effect(value, x, out);
    }
}

void fsdp_explain_print(const fsdp_yaml *config, const fsdp_explained *x, FILE *out)
{
    fprintf(out, "ranks         %ld on %ld machine%s, FSDP version %d\n", x->ranks, x->machines,
            plural(x->machines), x->version);
    print_strategy(x, out);
    print_units(x, out);
    if (x->shards > 1)
        print_prefetch(x, out);
    print_precision(x, out);
    fprintf(out, "activations   %s\n",
            x->checkpointing
                ? "each block keeps its input and computes the rest again in backward: "
                  "less memory, about a third more computation"
                : "kept from forward to backward");
    print_checkpoints(x, out);
    print_memory(x, out);
    print_communication(x, out);
    fprintf(out, "\nwithout effect here:\n");
    print_without_effect(config, x, out);
}
