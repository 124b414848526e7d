/* See config_lora.h. */
#include "src/train_config/config_lora.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/lora/targets.h"

bool fsdp_train_has_lora(const fsdp_train_config *c)
{
    return c->lora_r > 0;
}

fsdp_status fsdp_train_check_lora_alpha(const fsdp_train_config *c, const fsdp_options *options)
{
    if (c->lora_alpha != 0.0 || !fsdp_options_given(options, "lora-alpha"))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "--lora-alpha 0: the update is multiplied by alpha / r, so the adapter would "
                      "never change anything: give another number, or leave it out for %d",
                      FSDP_LORA_DEFAULT_ALPHA);
}

fsdp_status fsdp_train_lora_check(const fsdp_train_config *c, const fsdp_options *options)
{
    const struct {
        const char *flag;
        bool given;
    } flags[] = {{"--lora-alpha", c->lora_alpha != 0.0},
                 {"--lora-dropout", c->lora_dropout != 0.0},
                 {"--lora-target-modules", c->lora_target_modules.count > 0},
                 {"--lora-exclude-modules", c->lora_exclude_modules.count > 0},
                 {"--lora-modules-to-save", c->lora_modules_to_save.count > 0},
                 {"--lora-layers-to-transform", c->lora_layers_to_transform.count > 0},
                 {"--lora-bias", c->lora_bias != FSDP_LORA_BIAS_NONE},
                 {"--use-rslora", c->use_rslora},
                 {"--use-dora", c->use_dora},
                 {"--init-lora-weights", c->init_lora_weights != FSDP_LORA_INIT_KAIMING}};
    if (c->init_lora_weights > FSDP_LORA_INIT_GAUSSIAN)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--init-lora-weights pissa: also changes the weights of the model; make "
                          "both first, with 'fsdp checkpoint init-adapter MODEL ADAPTER RESIDUAL "
                          "--lora-r %lld', and train with --model RESIDUAL --adapter ADAPTER",
                          (long long)(c->lora_r ? c->lora_r : 8));
    if (c->adapter && fsdp_train_has_lora(c))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--lora-r %lld: is for a new adapter, and --adapter %s goes on training "
                          "one: give one of them",
                          (long long)c->lora_r, c->adapter);
    for (size_t i = 0; i < FSDP_LENGTH(flags) && !fsdp_train_has_lora(c); i++)
        if (flags[i].given)
            return fsdp_error(
                FSDP_ERR_INVALID, "%s: has no effect without --lora-r, the rank of a new adapter%s",
                flags[i].flag, c->adapter ? "; --adapter takes it from adapter_config.json" : "");
    if (fsdp_train_has_lora(c))
        FSDP_TRY(fsdp_train_check_lora_alpha(c, options));
    FSDP_TRY(fsdp_quantize_flags_check(&c->quantize, c->param_dtype));
    if (c->quantize.load_in_4bit && !c->adapter && !fsdp_train_has_lora(c))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--load-in-4bit: weights in 4 bits cannot be trained; give --lora-r 16, "
                          "which trains an adapter for them");
    return FSDP_OK;
}

/* `list` has the values of a flag. Set *names to an array with the same pointers, followed by NULL.
 * If the list is empty, do not change *names. The caller owns *names. */
static fsdp_status end_list(const fsdp_option_list *list, const char ***names)
{
    if (!list->count)
        return FSDP_OK;
    *names = fsdp_calloc(list->count + 1, sizeof(const char *));
    if (!*names)
        return FSDP_ERR_NOMEM;
    memcpy(*names, list->items, list->count * sizeof(const char *));
    return FSDP_OK;
}

/* Return true if the flag has a single value, and this value is a regular expression or
 * "all-linear". PEFT expects a string for these, and a list for names. */
static bool is_pattern(const fsdp_option_list *list)
{
    return list->count == 1 && (strcasecmp(list->items[0], "all-linear") == 0 ||
                                strpbrk(list->items[0], "*+?()[]{}|\\^$"));
}

static fsdp_status set_targets(const fsdp_option_list *list, const char ***owned,
                               const char *const **names, const char **pattern)
{
    if (is_pattern(list)) {
        *pattern = list->items[0];
        return FSDP_OK;
    }
    FSDP_TRY(end_list(list, owned));
    *names = *owned;
    return FSDP_OK;
}

static fsdp_status set_layers(const fsdp_option_list *list, fsdp_train_lora *lora)
{
    if (!list->count)
        return FSDP_OK;
    lora->layers = fsdp_calloc(list->count, sizeof *lora->layers);
    if (!lora->layers)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < list->count; i++) {
        char *end;
        const long long layer = strtoll(list->items[i], &end, 10);
        if (end == list->items[i] || *end || layer < 0 || layer > INT32_MAX)
            return fsdp_error(FSDP_ERR_INVALID,
                              "--lora-layers-to-transform %s: is not the index of a layer (0, 1, "
                              "...)",
                              list->items[i]);
        lora->layers[i] = layer;
    }
    lora->config.layers_to_transform = lora->layers;
    lora->config.n_layers_to_transform = list->count;
    return FSDP_OK;
}

fsdp_status fsdp_train_lora_init(fsdp_train_lora *lora, const fsdp_train_config *c)
{
    *lora =
        (fsdp_train_lora){.config = {.r = c->lora_r,
                                     .lora_alpha = c->lora_alpha,
                                     .lora_dropout = c->lora_dropout,
                                     .use_rslora = c->use_rslora,
                                     .use_dora = c->use_dora,
                                     .bias = (fsdp_lora_bias)c->lora_bias,
                                     .init_lora_weights = (fsdp_lora_init)c->init_lora_weights}};
    fsdp_lora_config *to = &lora->config;
    FSDP_TRY(set_targets(&c->lora_target_modules, &lora->names[0], &to->target_modules,
                         &to->target_pattern));
    FSDP_TRY(set_targets(&c->lora_exclude_modules, &lora->names[1], &to->exclude_modules,
                         &to->exclude_pattern));
    FSDP_TRY(end_list(&c->lora_modules_to_save, &lora->names[2]));
    to->modules_to_save = lora->names[2];
    return set_layers(&c->lora_layers_to_transform, lora);
}

void fsdp_train_lora_fini(fsdp_train_lora *lora)
{
    for (size_t i = 0; i < FSDP_LENGTH(lora->names); i++)
        fsdp_free(lora->names[i]);
    fsdp_free(lora->layers);
    *lora = (fsdp_train_lora){0};
}
