/* `fsdp checkpoint init-adapter`: makes a new adapter (PiSSA) from the largest singular values of a
 * model's weights and their vectors. Also writes the model without this part. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/assert.h"
#include "src/checkpoint_tools/init_adapter.h"
#include "src/cli/checkpoint/checkpoint.h"
#include "src/cli/checkpoint/checkpoint_bar.h"
#include "src/cli/common/cli.h"
#include "src/train_config/config_lora.h"

typedef struct init_config {
    /* Only the fields of an adapter are set. */
    fsdp_train_config train;
    const char *init;
    int niter; /* iterations that --init-lora-weights names; -1: the exact decomposition */
    int64_t seed, max_shard_bytes;
    bool overwrite;
} init_config;

#define LORA(field) .offset = offsetof(init_config, train.field)

static const fsdp_option table[] = {
    {.name = "init-lora-weights",
     .type = FSDP_OPTION_STRING,
     .offset = offsetof(init_config, init),
     .value = "pissa",
     .metavar = "WORD",
     .help = "pissa: the exact singular values; pissa_niter_N: N iterations of a randomized "
             "method, which is much faster for large matrices; 16 iterations are usual"},
    {.name = "lora-r",
     .type = FSDP_OPTION_INT64,
     LORA(lora_r),
     .value = "8",
     .bounds = FSDP_BETWEEN(1, 1048576),
     .metavar = "RANK",
     .help = "number of singular values of each weight that go to the adapter"},
    {.name = "lora-alpha",
     .type = FSDP_OPTION_DOUBLE,
     LORA(lora_alpha),
     .value = "0",
     .shown_default = "8",
     .help = "the update is multiplied by alpha / r"},
    {.name = "lora-dropout",
     .type = FSDP_OPTION_DOUBLE,
     LORA(lora_dropout),
     .value = "0",
     .bounds = FSDP_FROM_TO_BELOW(0, 1),
     .help = "dropout of the update's input, when the adapter is trained"},
    {.name = "lora-target-modules",
     .aliases = "target-modules",
     .type = FSDP_OPTION_LIST,
     LORA(lora_target_modules),
     .metavar = "NAME,...",
     .shown_default = "PEFT's for the model: q_proj,v_proj; q,v; query,value; c_attn",
     .help = "layers with an adapter, as in 'fsdp train'"},
    {.name = "lora-exclude-modules",
     .aliases = "exclude-modules",
     .type = FSDP_OPTION_LIST,
     LORA(lora_exclude_modules),
     .metavar = "NAME,...",
     .help = "layers that get no adapter although they are targets"},
    {.name = "lora-layers-to-transform",
     .aliases = "layers-to-transform",
     .type = FSDP_OPTION_LIST,
     LORA(lora_layers_to_transform),
     .metavar = "INDEX,...",
     .help = "only these blocks get adapters, counted from 0"},
    {.name = "use-rslora",
     .type = FSDP_OPTION_BOOL,
     LORA(use_rslora),
     .help = "multiply the update by alpha / sqrt(r) instead"},
    {.name = "seed",
     .type = FSDP_OPTION_INT64,
     .offset = offsetof(init_config, seed),
     .value = "42",
     .help = "of the random vectors of pissa_niter_N"},
    {.name = "max-shard-size",
     .type = FSDP_OPTION_SIZE,
     .offset = offsetof(init_config, max_shard_bytes),
     .value = "50GB",
     .bounds = FSDP_AT_LEAST(1),
     .help = "largest size of a file of RESIDUAL, unless a single tensor is larger"},
    {.name = "overwrite",
     .type = FSDP_OPTION_BOOL,
     .offset = offsetof(init_config, overwrite),
     .help = "replace the files of the models in the two directories; other files are kept"},
};

/* Set *niter to what --init-lora-weights says. */
static fsdp_status read_init(const char *init, int *niter)
{
    static const char prefix[] = "pissa_niter_";
    char *end = NULL;
    *niter = -1;
    if (strcmp(init, "pissa") == 0)
        return FSDP_OK;
    if (strncmp(init, prefix, sizeof prefix - 1) == 0) {
        const long n = strtol(init + sizeof prefix - 1, &end, 10);
        *niter = (int)n;
        if (end > init + sizeof prefix - 1 && !*end && n >= 0 && n <= 10000)
            return FSDP_OK;
    }
    return fsdp_error(FSDP_ERR_INVALID,
                      "--init-lora-weights %s: is neither pissa nor pissa_niter_N with N from 0 to "
                      "10000%s",
                      init,
                      strcmp(init, "true") == 0 || strcmp(init, "kaiming") == 0 ||
                              strcmp(init, "gaussian") == 0
                          ? "; 'fsdp train --lora-r' makes such an adapter itself"
                          : "");
}

static fsdp_status check_config(void *target, const fsdp_options *options)
{
    init_config *c = target;
    FSDP_TRY(fsdp_train_check_lora_alpha(&c->train, options));
    return read_init(c->init, &c->niter);
}

static const fsdp_options_spec spec = {
    .program = "fsdp checkpoint init-adapter",
    .usage = "MODEL ADAPTER RESIDUAL [options]",
    .summary =
        "Make an adapter of PiSSA: the largest singular values of the weights of MODEL and their "
        "vectors go to the folder ADAPTER, and the weights without them to the model RESIDUAL. "
        "Both together compute what MODEL computes. The adapter is trained with 'fsdp train "
        "--model RESIDUAL --adapter ADAPTER'.",
    .epilogue =
        "example:\n"
        "  fsdp checkpoint init-adapter model init residual --lora-r 16 --lora-alpha 16 \\\n"
        "      --init-lora-weights pissa_niter_16\n",
    .table = table,
    .count = FSDP_LENGTH(table),
    .positional = "MODEL ADAPTER RESIDUAL",
    .min_positional = 3,
    .max_positional = 3,
    .check = check_config,
};

static fsdp_status make(char **folders, const init_config *c, fsdp_checkpoint_bar *bar,
                        fsdp_init_adapter_result *result)
{
    fsdp_train_lora lora;
    fsdp_status status = fsdp_train_lora_init(&lora, &c->train);
    const fsdp_init_adapter_options how = {.lora = &lora.config,
                                           .niter = c->niter,
                                           .seed = (uint64_t)c->seed,
                                           .max_shard_bytes = c->max_shard_bytes,
                                           .overwrite = c->overwrite,
                                           .progress = fsdp_checkpoint_bar_step,
                                           .context = bar};
    if (status == FSDP_OK)
        status = fsdp_init_adapter(folders[0], folders[1], folders[2], &how, result);
    fsdp_train_lora_fini(&lora);
    return status;
}

int fsdp_checkpoint_init_adapter(int argc, char **argv)
{
    init_config c = {0};
    fsdp_options *options;
    int count, code = fsdp_cli_options(&spec, argc, argv, &c, &options);
    if (code != FSDP_CLI_RUN)
        return code;
    char **words = fsdp_options_positional(options, &count);
    fsdp_checkpoint_bar bar = {.description = "decomposing"};
    fsdp_init_adapter_result result;
    const fsdp_status status = make(words, &c, &bar, &result);
    fsdp_checkpoint_bar_end(&bar);
    code = status == FSDP_OK ? FSDP_EXIT_OK : fsdp_cli_failed(spec.program);
    if (code == FSDP_EXIT_OK)
        printf("%s: an adapter for %zu layer%s\n%s: %zu tensor%s, without the update of the "
               "adapter\n",
               words[1], result.layers, result.layers == 1 ? "" : "s", words[2], result.tensors,
               result.tensors == 1 ? "" : "s");
    fsdp_options_destroy(options);
    return code;
}
