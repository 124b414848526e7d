/* See config_sources.h. */
#include "src/train_config/config_sources.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/assert.h"

static const int source_tasks[] = {FSDP_TRAIN_SEQ2SEQ, FSDP_TRAIN_CAUSAL_LM,
                                   FSDP_TRAIN_CLASSIFICATION, FSDP_TRAIN_MASKED_LM,
                                   FSDP_TRAIN_SPAN_CORRUPTION};

/* ---- one source ---- */

static bool find_task(const char *name, size_t length, int *task)
{
    for (size_t i = 0; i < FSDP_LENGTH(source_tasks); i++) {
        const char *known = fsdp_train_given_task_name(source_tasks[i]);
        if (strlen(known) == length && strncmp(known, name, length) == 0) {
            *task = source_tasks[i];
            return true;
        }
    }
    return false;
}

fsdp_status fsdp_train_source_parse(const char *text, fsdp_train_source *out)
{
    fsdp_train_source source = {0};
    const char *weight = strchr(text, ':');
    const char *path = weight ? strchr(weight + 1, ':') : NULL;
    if (!path || !path[1])
        return fsdp_error(FSDP_ERR_INVALID,
                          "--mix-data %s: not of the form TASK:WEIGHT:PATH, such as "
                          "span-corruption:0.7:corpus.txt",
                          text);
    if (!find_task(text, (size_t)(weight - text), &source.task))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--mix-data %s: task '%.*s' is none of seq2seq, causal-lm, "
                          "classification, masked-lm and span-corruption",
                          text, (int)(weight - text), text);
    char *end;
    source.weight = strtod(weight + 1, &end);
    if (end != path || end == weight + 1 || !(source.weight > 0) || !isfinite(source.weight))
        return fsdp_error(FSDP_ERR_INVALID, "--mix-data %s: weight '%.*s' is not a number above 0",
                          text, (int)(path - weight - 1), weight + 1);
    source.path = path + 1;
    *out = source;
    return FSDP_OK;
}

size_t fsdp_train_sources_count(const fsdp_train_config *c)
{
    return 1 + c->mix_data.count;
}

fsdp_status fsdp_train_source_get(const fsdp_train_config *c, size_t i, fsdp_train_source *out)
{
    if (i > 0)
        return fsdp_train_source_parse(c->mix_data.items[i - 1], out);
    *out = (fsdp_train_source){.task = c->task, .weight = c->data_weight, .path = c->data};
    return FSDP_OK;
}

fsdp_span_corruption fsdp_train_span_corruption(const fsdp_train_config *c)
{
    return (fsdp_span_corruption){.noise_density = c->noise_density,
                                  .mean_noise_span_length = c->mean_noise_span_length};
}

/* ---- checks ---- */

static fsdp_status check_span_corruption(const fsdp_train_config *c)
{
    const fsdp_span_corruption noise = fsdp_train_span_corruption(c);
    int64_t tokens;
    fsdp_status status =
        fsdp_span_corruption_lengths(&noise, c->max_source_length, &tokens, NULL, NULL);
    if (status != FSDP_OK)
        fsdp_error_context(status, "--max-source-length %d", c->max_source_length);
    return status;
}

/* Return an error if options of span corruption are given, although no source uses span corruption.
 * An exception is --noise-density (--mlm-probability), which is also allowed if `any_masked` is
 * true: it is the share of tokens that a masked language model predicts. */
static fsdp_status check_without_span_corruption(const fsdp_options *options, bool any_masked)
{
    if (!any_masked && fsdp_options_asked_for(options, "noise-density"))
        return fsdp_error(FSDP_ERR_INVALID, "--noise-density is for --task span-corruption, and as "
                                            "--mlm-probability for masked-lm");
    if (fsdp_options_asked_for(options, "mean-noise-span-length"))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--mean-noise-span-length is for --task span-corruption");
    return FSDP_OK;
}

fsdp_status fsdp_train_sources_check(const fsdp_train_config *c, const fsdp_options *options)
{
    bool any_spans = false, any_masked = false;
    if (c->mix_data.count == 0 && fsdp_options_asked_for(options, "data-weight"))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--data-weight needs --mix-data: without it --data is the only source");
    for (size_t i = 0; i < fsdp_train_sources_count(c); i++) {
        fsdp_train_source source;
        FSDP_TRY(fsdp_train_source_get(c, i, &source));
        any_spans |= source.task == FSDP_TRAIN_SPAN_CORRUPTION;
        any_masked |= source.task == FSDP_TRAIN_MASKED_LM;
    }
    return any_spans ? check_span_corruption(c)
                     : check_without_span_corruption(options, any_masked);
}

fsdp_status fsdp_train_sources_check_task(const fsdp_train_config *c, fsdp_task task)
{
    for (size_t i = 1; i < fsdp_train_sources_count(c); i++) {
        fsdp_train_source source;
        FSDP_TRY(fsdp_train_source_get(c, i, &source));
        if (fsdp_train_model_task(source.task) != task)
            return fsdp_error(FSDP_ERR_INVALID, "--mix-data %s: %s is for %s",
                              c->mix_data.items[i - 1], c->model, fsdp_train_task_name(task));
    }
    return FSDP_OK;
}

bool fsdp_train_sources_have_pairs(const fsdp_train_config *c)
{
    for (size_t i = 0; i < fsdp_train_sources_count(c); i++) {
        fsdp_train_source source;
        if (fsdp_train_source_get(c, i, &source) != FSDP_OK ||
            source.task != FSDP_TRAIN_SPAN_CORRUPTION)
            return true;
    }
    return false;
}

int64_t fsdp_train_sources_target_length(const fsdp_train_config *c)
{
    int64_t longest = 0;
    const fsdp_span_corruption noise = fsdp_train_span_corruption(c);
    for (size_t i = 0; i < fsdp_train_sources_count(c); i++) {
        fsdp_train_source source;
        int64_t tokens, targets = c->max_target_length;
        fsdp_status status = fsdp_train_source_get(c, i, &source);
        if (status == FSDP_OK && source.task == FSDP_TRAIN_SPAN_CORRUPTION)
            status =
                fsdp_span_corruption_lengths(&noise, c->max_source_length, &tokens, &targets, NULL);
        FSDP_ASSERT(status == FSDP_OK);
        longest = targets > longest ? targets : longest;
    }
    return longest;
}
