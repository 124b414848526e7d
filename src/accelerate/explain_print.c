/* Prints what a configuration does (explain.h). */
#include <stdarg.h>
#include <string.h>

#include "src/accelerate/explain.h"
#include "src/base/alloc.h"
#include "src/launch/accelerate.h"
#include "src/options/options_parse.h"
#include "src/train_config/config.h"

enum {
    /* bytes of a parameter: its float32 master value, its float32 gradient, and AdamW's moments */
    MASTER_BYTES = 4,
    GRAD_BYTES = 4,
    MOMENT_BYTES = 8,
    FLOAT8_BYTES = 1,
    HEADING_COLUMNS = 14,
    LINE_COLUMNS = 100,
    TEXT_BYTES = 1000,
    MAX_REASONS = 40 /* maximum number of different reasons why keys have no effect */
};

/* ---- lines ---- */

/* Print `text` in lines of at most LINE_COLUMNS columns. The caller has printed `indent` columns of
 * the first line. All other lines are indented by `indent` columns. */
static void print_wrapped(FILE *out, int indent, const char *text)
{
    int column = indent;
    while (*text) {
        const int n = (int)strcspn(text, " ");
        if (column > indent && column + 1 + n > LINE_COLUMNS) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            fputc(' ', out);
            column++;
        }
        fprintf(out, "%.*s", n, text);
        column += n;
        text += n + (text[n] == ' ');
    }
    fputc('\n', out);
}

/* Print `heading`, and the formatted text next to it. */
FSDP_PRINTF(3, 4)
static void line(FILE *out, const char *heading, const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(out, "%-*s", HEADING_COLUMNS, heading);
    print_wrapped(out, HEADING_COLUMNS, text);
}

static const char *plural(long n)
{
    return n == 1 ? "" : "s";
}

/* Like plural(), for a number that need not be whole. */
static const char *plural_of(double n)
{
    return n == 1.0 ? "" : "s";
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
    line(out, "strategy", "%s: %s", fsdp_sharding_strategy_name(x->strategy), texts[x->strategy]);
    if (fsdp_sharding_is_hybrid((int)x->strategy))
        line(out, "replicas", "%ld, each sharded over %ld rank%s%s", x->replicas, x->shards,
             plural(x->shards),
             x->replicas == 1 ? "; with one replica this is the same as without HYBRID_" : "");
}

/* Return the size of most parameters in an all-gather. */
static int gathered_bytes(const fsdp_explained *x)
{
    return x->float8_gathers ? FLOAT8_BYTES : x->param_bytes;
}

/* Print which parameters are not gathered in float8, and what the scales of the others cost. */
static void print_float8_gathers(const fsdp_explained *x, double gathers, FILE *out)
{
    line(
        out, "",
        "parameters that are not multiplied in float8 (embeddings, norms, biases, the first linear "
        "layer and the last) are gathered in bfloat16: %.4g bytes. The scales of the float8 "
        "weights "
        "are one float32 for each weight, in one all-reduce a step",
        gathers * x->param_bytes);
}

/* Print how many bytes a rank receives in a step for each parameter. */
static void print_communication(const fsdp_explained *x, FILE *out)
{
    const double part = (double)(x->shards - 1) / (double)x->shards;
    const double others = (double)(x->replicas - 1) / (double)x->replicas;
    const bool twice =
        x->strategy == FSDP_SHARDING_FULL_SHARD || x->strategy == FSDP_SHARDING_HYBRID_SHARD;
    /* bytes that a rank receives in all-gathers for each byte of a parameter */
    const double gathers = (twice ? 2 : 1) * part;
    char sharded[300] = "", replicated[200] = "";
    if (x->ranks == 1) {
        line(out, "communication", "none: there is one rank");
        return;
    }
    if (x->shards > 1)
        snprintf(sharded, sizeof sharded,
                 "%.4g byte%s of parameters (%s of %d byte%s, of which a rank has 1/%ld) and %.4g "
                 "byte%s of gradients (reduce-scatter in float32)",
                 gathers * gathered_bytes(x), plural_of(gathers * gathered_bytes(x)),
                 twice ? "two all-gathers" : "one all-gather", gathered_bytes(x),
                 plural(gathered_bytes(x)), x->shards, part * GRAD_BYTES,
                 plural_of(part * GRAD_BYTES));
    if (x->replicas > 1)
        snprintf(replicated, sizeof replicated,
                 "%s%.4g bytes of gradients from other replicas (all-reduce in float32)",
                 x->shards > 1 ? ", and " : "", 2.0 * others * GRAD_BYTES / (double)x->shards);
    line(out, "communication", "a rank receives in a step, for each parameter, %s%s", sharded,
         replicated);
    if (x->float8_gathers && x->shards > 1)
        print_float8_gathers(x, gathers, out);
}

static void print_memory(const fsdp_explained *x, FILE *out)
{
    const double all = (MASTER_BYTES + GRAD_BYTES + MOMENT_BYTES) / (double)x->shards;
    const char *gathered = "";
    char kept[100] = "";
    if (x->strategy == FSDP_SHARDING_SHARD_GRAD_OP ||
        x->strategy == FSDP_SHARDING_HYBRID_SHARD_ZERO2)
        snprintf(kept, sizeof kept, ", and from forward to backward %d byte%s more%s",
                 gathered_bytes(x), plural(gathered_bytes(x)),
                 x->float8_gathers ? " (2 where it is not multiplied in float8)" : "");
    else if (x->shards > 1)
        gathered = ", and the gathered parameters of two or three units at a time";
    line(out, "memory",
         "a rank has for each parameter %.4g bytes (master weight, gradient and AdamW's two "
         "moments in "
         "float32%s)%s%s; plus activations",
         all, x->shards > 1 ? ", divided by the ranks of a replica" : "", kept, gathered);
}

static void print_units(const fsdp_explained *x, FILE *out)
{
    if (strcmp(x->wrap_policy, "NO_WRAP") == 0)
        line(out, "units", "%s: the whole model is gathered at once", x->wrap_policy);
    else if (strcmp(x->wrap_policy, "SIZE_BASED_WRAP") == 0)
        line(out, "units", "%s: modules with at least %lld parameters", x->wrap_policy,
             (long long)(x->min_num_params ? x->min_num_params : 100000000));
    else
        line(out, "units", "%s: %s", x->wrap_policy,
             *x->classes ? x->classes : "the model's own blocks");
}

static void print_prefetch(const fsdp_explained *x, FILE *out)
{
    const char *text = "the next unit of backward is gathered before the current one computes";
    if (strcmp(x->prefetch, "BACKWARD_POST") == 0)
        text = "the next unit of backward is gathered after the current one has computed: less "
               "memory, "
               "less overlap";
    if (strcmp(x->prefetch, "NO_PREFETCH") == 0)
        text = "a unit of backward is gathered when it is needed: least memory, no overlap";
    line(out, "prefetch", "%s: %s%s", x->prefetch, text,
         x->forward_prefetch ? "; forward prefetches in the order of the first step" : "");
}

static void print_precision(const fsdp_explained *x, FILE *out)
{
    const char *text = "forward and backward in float32";
    if (strcmp(x->precision, "bf16") == 0)
        text = "forward and backward in bfloat16, gradients added and weights updated in float32";
    if (strcmp(x->precision, "fp8") == 0)
        text = "forward and backward in bfloat16, products of linear layers but the first and the "
               "last in float8, gradients added and weights updated in float32";
    if (strcmp(x->precision, "fp16") == 0)
        text = "forward and backward in float16 with a scaled loss, gradients added and weights "
               "updated in float32";
    line(out, "precision", "%s: %s", x->precision, text);
}

static void print_checkpoints(const fsdp_explained *x, FILE *out)
{
    const char *text = "each rank writes its shards into one folder of "
                       "torch.distributed.checkpoint; any number of ranks can continue";
    if (strcmp(x->state_dict, "FULL_STATE_DICT") == 0)
        text = "rank 0 writes whole tensors, one by one, into a file of torch.save";
    if (strcmp(x->state_dict, "LOCAL_STATE_DICT") == 0)
        text = "each rank writes a file, from which only the same number of ranks can continue";
    line(out, "checkpoints", "%s: %s", x->state_dict, text);
}

/* ---- keys that have no effect ---- */

/* Return the reason why `fsdp train` ignores option `name` of the launcher. Return NULL if it does
 * not ignore the option. */
static const char *reason_of_train(const char *name)
{
    const fsdp_options_spec *train = fsdp_train_options();
    const fsdp_options_spec accepted = {.table = train->compat, .count = train->n_compat};
    bool negated;
    const int index = fsdp_options_find(&accepted, name, &negated);
    return index < 0 ? NULL : accepted.table[index].no_effect;
}

/* Return the reason why an option of the launcher's table has no effect. Return NULL if it has an
 * effect. */
static const char *reason(const fsdp_launch_config *config, const fsdp_options *options,
                          const fsdp_option *row)
{
    if (strcmp(row->name, "num-processes") == 0)
        return NULL; /* `fsdp train` ignores this option only because the launcher reads it */
    if (row->no_effect)
        return row->instead ? row->instead : row->no_effect;
    const char *text = fsdp_accelerate_without_effect(config, options, row->name);
    if (text)
        return text;
    if (strcmp(row->name, "fsdp-offload-params") == 0 && config->accelerate.offload_params)
        return "weights are in the CPU's memory in any case; --offload-dir DIR keeps them in a "
               "file";
    return reason_of_train(row->name);
}

typedef struct reason_list {
    const char *reasons[MAX_REASONS];
    char keys[MAX_REASONS][TEXT_BYTES]; /* keys[i]: the keys that have no effect because of
                                           reasons[i], separated by commas */
    size_t n;
} reason_list;

static void add_reason(reason_list *list, const char *text, const char *key)
{
    size_t i = 0;
    while (i < list->n && strcmp(list->reasons[i], text) != 0)
        i++;
    if (i == MAX_REASONS)
        return;
    if (i == list->n) {
        list->reasons[list->n++] = text;
        *list->keys[i] = 0;
    }
    const size_t used = strlen(list->keys[i]);
    snprintf(list->keys[i] + used, sizeof list->keys[i] - used, "%s%s", used ? ", " : "", key);
}

/* Add to `list` the keys of the file that have no effect, grouped by reason. */
static void list_without_effect(const fsdp_launch_config *config, const fsdp_options *options,
                                reason_list *list)
{
    const fsdp_options_spec *spec = fsdp_launch_options();
    for (size_t i = 0; i < spec->count; i++) {
        const fsdp_option *row = &spec->table[i];
        const char *key = fsdp_options_key(options, row->name);
        const char *text = key ? reason(config, options, row) : NULL;
        if (text)
            add_reason(list, text, key);
    }
}

static void print_device(const fsdp_launch_config *config, FILE *out)
{
    const fsdp_option_list *cards = &config->accelerate.gpu_ids;
    char text[TEXT_BYTES] = "";
    if (config->cpu)
        line(out, "device", "the CPU");
    for (size_t i = 0; i < cards->count && strlen(text) < sizeof text - 1; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? ", " : "",
                 cards->items[i]);
    if (!config->cpu && *text && strcmp(text, "all") != 0)
        line(out, "device", "of the cards, only %s", text);
}

static void print_activations(const fsdp_explained *x, FILE *out)
{
    line(out, "activations", "%s%s",
         x->checkpointing
             ? "each block keeps its input and computes the rest again in backward: less "
               "memory, about a third more computation"
             : "kept from forward to backward",
         x->checkpointing_offload ? "; the inputs are in a file until then" : "");
}

fsdp_status fsdp_explain_print(const fsdp_launch_config *config, const fsdp_options *options,
                               FILE *out)
{
    const fsdp_explained explained = fsdp_explain(config, options), *x = &explained;
    reason_list *list = fsdp_calloc(1, sizeof *list);
    if (!list)
        return FSDP_ERR_NOMEM;
    line(out, "ranks", "%ld on %d machine%s, FSDP version %d", x->ranks, x->machines,
         x->machines == 1 ? "" : "s", x->version);
    print_device(config, out);
    print_strategy(x, out);
    print_units(x, out);
    if (x->ignored)
        line(out, "ignored", "%s: not sharded, so they must be frozen", x->ignored);
    if (x->shards > 1)
        print_prefetch(x, out);
    print_precision(x, out);
    print_activations(x, out);
    print_checkpoints(x, out);
    print_memory(x, out);
    print_communication(x, out);
    list_without_effect(config, options, list);
    if (list->n)
        fputs("\nwithout effect here:\n", out);
    for (size_t i = 0; i < list->n; i++) {
        char text[2 * TEXT_BYTES];
        snprintf(text, sizeof text, "%s: %s", list->keys[i], list->reasons[i]);
        fprintf(out, "  ");
        print_wrapped(out, 4, text);
    }
    fsdp_free(list);
    return FSDP_OK;
}
