/* Sets the variables of `accelerate launch` for the ranks. See accelerate.h. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/launch/accelerate.h"
#include "src/launch/accelerate_variables.h"
#include "src/tensor/cards.h"

static fsdp_status set_variable(const char *name, const char *value, bool overwrite)
{
    const char *now = getenv(name);
    if (now && *now && !overwrite)
        return FSDP_OK;
    if (setenv(name, value, 1) == 0)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_NOMEM, "%s: %s", name, strerror(errno));
}

static const fsdp_option *find_row(const char *name)
{
    const fsdp_options_spec *spec = fsdp_launch_options();
    for (size_t i = 0; i < spec->count; i++)
        if (strcmp(spec->table[i].name, name) == 0)
            return &spec->table[i];
    return NULL;
}

/* Return the value of the option v->option in the spelling v->spelling, or NULL when out of memory.
 * The caller owns the text. */
static char *value_of(const fsdp_accelerate_variable *v, const fsdp_launch_config *c,
                      const fsdp_options *options)
{
    const char *given =
        v->spelling == FSDP_SPELLED_AS_GIVEN ? fsdp_options_text(options, v->option) : NULL;
    const fsdp_option *row = find_row(v->option);
    FSDP_ASSERT(row);
    char *text = given ? fsdp_strdup(given) : fsdp_option_text(row, c);
    for (char *at = text; at && *at && v->spelling == FSDP_SPELLED_LOWER; at++)
        *at = (char)tolower((unsigned char)*at);
    if (text && v->spelling == FSDP_SPELLED_CAPITAL)
        *text = (char)toupper((unsigned char)*text);
    return text;
}

static fsdp_status set_variables(const fsdp_accelerate_variable *table, size_t n,
                                 const fsdp_launch_config *c, const fsdp_options *options)
{
    for (size_t i = 0; i < n; i++) {
        /* fp16, a key of old files, also counts as a choice of mixed_precision. fsdp_min_num_params
         * also counts as a choice of fsdp_auto_wrap_policy. */
        const bool chosen =
            fsdp_launch_is_chosen(options, table[i].option) ||
            (strcmp(table[i].option, "mixed-precision") == 0 && c->accelerate.fp16) ||
            (strcmp(table[i].option, "fsdp-auto-wrap-policy") == 0 && c->accelerate.wraps_by_size);
        if (!chosen && !table[i].always)
            continue;
        char *value = value_of(&table[i], c, options);
        if (!value)
            return fsdp_error_nomem();
        const fsdp_status status = set_variable(table[i].name, value, chosen);
        fsdp_free(value);
        FSDP_TRY(status);
    }
    return FSDP_OK;
}

/* Set the variables of parallelism_config. */
static fsdp_status set_parallelism(const fsdp_launch_config *c, const fsdp_options *options)
{
    static const char *const fixed[][2] = {{"ACCELERATE_USE_PARALLELISM_CONFIG", "true"},
                                           {"PARALLELISM_CONFIG_TP_SIZE", "1"},
                                           {"PARALLELISM_CONFIG_CP_SIZE", "1"},
                                           {"PARALLELISM_CONFIG_CP_BACKEND", "torch"},
                                           {"PARALLELISM_CONFIG_SP_SIZE", "1"},
                                           {"PARALLELISM_CONFIG_SP_BACKEND", "deepspeed"}};
    for (size_t i = 0; i < FSDP_LENGTH(fixed); i++)
        FSDP_TRY(set_variable(fixed[i][0], fixed[i][1], true));
    return set_variables(fsdp_accelerate_parallelism, FSDP_ACCELERATE_PARALLELISM, c, options);
}

fsdp_status fsdp_accelerate_set_environment(const fsdp_launch_config *c,
                                            const fsdp_options *options)
{
    const fsdp_accelerate_config *a = &c->accelerate;
    if (!c->is_accelerate)
        return FSDP_OK;
    FSDP_TRY(fsdp_cards_set_visible(a->gpu_ids.items, a->gpu_ids.count));
    FSDP_TRY(set_variables(fsdp_accelerate_common, FSDP_ACCELERATE_COMMON, c, options));
    if (a->mixed_precision == FSDP_ACCELERATE_PRECISION_FP8)
        FSDP_TRY(set_variables(fsdp_accelerate_fp8, FSDP_ACCELERATE_FP8, c, options));
    if (a->debug)
        FSDP_TRY(set_variable("ACCELERATE_DEBUG_MODE", "true", true));
    if (a->enable_cpu_affinity)
        FSDP_TRY(set_variable("ACCELERATE_CPU_AFFINITY", "1", true));
    if (!a->use_fsdp)
        return a->multi_gpu ? FSDP_OK
                            : set_variable("ACCELERATE_USE_CPU", c->cpu ? "True" : "False",
                                           fsdp_options_given(options, "cpu"));
    FSDP_TRY(set_variable("ACCELERATE_USE_FSDP", "true", true));
    FSDP_TRY(set_variables(fsdp_accelerate_fsdp, FSDP_ACCELERATE_FSDP, c, options));
    return a->use_parallelism_config ? set_parallelism(c, options) : FSDP_OK;
}
