/* `fsdp checkpoint merge-adapter`: adds the updates of adapters to the weights of their base model,
 * and writes the resulting model. */
#include <stdio.h>
#include <stdlib.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/checkpoint_tools/merge_adapter.h"
#include "src/cli/checkpoint/checkpoint.h"
#include "src/cli/checkpoint/checkpoint_bar.h"
#include "src/cli/common/cli.h"

typedef struct merge_config {
    const char *model;
    fsdp_option_list weights;
    bool subtract, overwrite;
    fsdp_dtype dtype;
    int64_t max_shard_bytes;
} merge_config;

static const fsdp_option table[] = {
    {.name = "model",
     .type = FSDP_OPTION_STRING,
     .offset = offsetof(merge_config, model),
     .metavar = "DIR",
     .shown_default = "base_model_name_or_path of the first adapter",
     .help = "folder or hub name of the base model"},
    {.name = "weights",
     .type = FSDP_OPTION_LIST,
     .offset = offsetof(merge_config, weights),
     .metavar = "W,...",
     .shown_default = "1 for each",
     .help = "factors of the adapters' updates, one for each ADAPTER"},
    {.name = "subtract",
     .aliases = "unmerge",
     .type = FSDP_OPTION_BOOL,
     .offset = offsetof(merge_config, subtract),
     .help = "subtract the updates from --model, which undoes a merge up to rounding"},
    {.name = "dtype",
     .type = FSDP_OPTION_DTYPE,
     .offset = offsetof(merge_config, dtype),
     .optional = true,
     .shown_default = "as in the base model",
     .help = "of the floating-point tensors that are written; sums are computed in float32"},
    {.name = "max-shard-size",
     .type = FSDP_OPTION_SIZE,
     .offset = offsetof(merge_config, max_shard_bytes),
     .value = "50GB",
     .bounds = FSDP_AT_LEAST(1),
     .help = "largest size of a file, unless a single tensor is larger"},
    {.name = "overwrite",
     .type = FSDP_OPTION_BOOL,
     .offset = offsetof(merge_config, overwrite),
     .help = "replace the files of the model in the directory TO; other files in it are kept"},
};

static fsdp_status check_config(void *target, const fsdp_options *options)
{
    const merge_config *c = target;
    if (fsdp_options_given(options, "dtype") && !fsdp_dtype_is_floating(c->dtype))
        return fsdp_error(FSDP_ERR_INVALID, "--dtype %s: a floating-point type is needed",
                          fsdp_dtype_name(c->dtype));
    if (c->subtract && !c->model)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--subtract: needs --model, the merged model: the base model of an "
                          "adapter does not contain its update");
    return FSDP_OK;
}

static const fsdp_options_spec spec = {
    .program = "fsdp checkpoint merge-adapter",
    .usage = "ADAPTER... TO [options]",
    .summary = "Add LoRA adapters of PEFT or of 'fsdp train --lora-r' to the weights of their base "
               "model, as PEFT's merge_and_unload() does, and write the folder TO of a Hugging "
               "Face model. Tensors are read in pieces: memory does not grow with the model.",
    .epilogue =
        "examples:\n"
        "  fsdp checkpoint merge-adapter out merged\n"
        "  fsdp checkpoint merge-adapter poems code merged --weights 0.7,0.3 --dtype bf16\n",
    .table = table,
    .count = FSDP_LENGTH(table),
    .positional = "ADAPTER... TO",
    .min_positional = 2,
    .max_positional = 64,
    .check = check_config,
};

/* Read --weights, which has one number for each adapter. The caller owns *weights, which is NULL if
 * the option is not given. */
static fsdp_status read_weights(const merge_config *c, size_t n_adapters, double **weights)
{
    *weights = NULL;
    if (!c->weights.count)
        return FSDP_OK;
    if (c->weights.count != n_adapters)
        return fsdp_error(FSDP_ERR_INVALID, "--weights: %zu number%s for %zu adapter%s",
                          c->weights.count, c->weights.count == 1 ? "" : "s", n_adapters,
                          n_adapters == 1 ? "" : "s");
    double *list = fsdp_calloc(n_adapters, sizeof *list);
    if (!list)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n_adapters; i++) {
        char *end;
        list[i] = strtod(c->weights.items[i], &end);
        if (end == c->weights.items[i] || *end || !(list[i] > -1e30 && list[i] < 1e30)) {
            fsdp_free(list);
            return fsdp_error(FSDP_ERR_INVALID, "--weights %s: is not a number",
                              c->weights.items[i]);
        }
    }
    *weights = list;
    return FSDP_OK;
}

static void print_note(const char *note, void *context)
{
    fsdp_checkpoint_bar_clear(context);
    fprintf(stderr, "%s: note: %s\n", spec.program, note);
}

static int merge_into(char **names, size_t n_adapters, const char *to, const merge_config *c,
                      const fsdp_merge_options *options)
{
    fsdp_merge_result result;
    const char *adapters[64];
    for (size_t i = 0; i < n_adapters; i++)
        adapters[i] = names[i];
    const fsdp_status status = fsdp_merge_adapters(adapters, n_adapters, to, options, &result);
    fsdp_checkpoint_bar_end(options->context);
    if (status != FSDP_OK)
        return fsdp_cli_failed(spec.program);
    printf("%s: %zu tensor%s, %zu of them with the update%s %s", to, result.tensors,
           result.tensors == 1 ? "" : "s", result.merged, n_adapters == 1 ? "" : "s",
           c->subtract ? "subtracted" : "added");
    if (result.replaced)
        printf(", %zu from the adapter%s", result.replaced, n_adapters == 1 ? "" : "s");
    putchar('\n');
    return FSDP_EXIT_OK;
}

int fsdp_checkpoint_merge_adapter(int argc, char **argv)
{
    merge_config c = {0};
    fsdp_options *options;
    double *weights;
    int count, code = fsdp_cli_options(&spec, argc, argv, &c, &options);
    if (code != FSDP_CLI_RUN)
        return code;
    char **words = fsdp_options_positional(options, &count);
    const size_t n = (size_t)count - 1;
    fsdp_checkpoint_bar bar = {.description = "merging"};
    if (read_weights(&c, n, &weights) == FSDP_OK) {
        const fsdp_merge_options how = {.model = c.model,
                                        .weights = weights,
                                        .subtract = c.subtract,
                                        .has_dtype = fsdp_options_given(options, "dtype"),
                                        .dtype = c.dtype,
                                        .max_shard_bytes = c.max_shard_bytes,
                                        .overwrite = c.overwrite,
                                        .progress = fsdp_checkpoint_bar_step,
                                        .note = print_note,
                                        .context = &bar};
        code = merge_into(words, n, words[n], &c, &how);
        fsdp_free(weights);
    } else {
        code = fsdp_cli_misused(spec.program);
    }
    fsdp_options_destroy(options);
    return code;
}
