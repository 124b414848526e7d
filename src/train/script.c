/* Functions that a training script calls at the beginning and at the end of main(). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/text.h>
#include <fsdp/train.h>

#include "src/base/error_file.h"
#include "src/comm/comm.h"

fsdp_status fsdp_default_device(fsdp_group *group, fsdp_device **device)
{
    return fsdp_rank_device_create(group, &(fsdp_device_options){0}, device);
}

/* Return true if this is rank 0. There is no group yet, so read the rank from the environment. */
static bool is_rank_0(void)
{
    const char *rank = getenv("RANK");
    return !rank || !*rank || strcmp(rank, "0") == 0;
}

static fsdp_status print_text(char *text)
{
    if (!text)
        return FSDP_ERR_NOMEM;
    const bool printed = !is_rank_0() || (fputs(text, stdout) >= 0 && fflush(stdout) == 0);
    fsdp_text_free(text);
    return printed ? FSDP_OK : fsdp_error(FSDP_ERR_IO, "stdout: cannot be written");
}

static fsdp_status print_help(const fsdp_options *options)
{
    enum {
        COLUMNS = 80
    };
    char *text;
    FSDP_TRY(fsdp_options_requested_help(options, COLUMNS, &text));
    return print_text(text);
}

static bool is_noted(const fsdp_option *option, const fsdp_options *options, const void *target)
{
    return option->note && fsdp_options_origin(options, option->name) == FSDP_ORIGIN_FLAG &&
           (option->type != FSDP_OPTION_BOOL || option->offset == FSDP_OPTION_NOWHERE ||
            *(const bool *)((const char *)target + option->offset));
}

static void print_notes(const fsdp_options_spec *spec, const fsdp_options *options,
                        const void *target)
{
    for (size_t i = 0; is_rank_0() && i < spec->count; i++)
        if (is_noted(&spec->table[i], options, target))
            printf("note: --%s %s\n", spec->table[i].name, spec->table[i].note);
}

fsdp_status fsdp_parse_args(const fsdp_options_spec *spec, int argc, char **argv, void *target,
                            fsdp_options **options, bool *run)
{
    fsdp_options *parsed;
    FSDP_TRY(fsdp_options_parse(spec, argc, argv, target, &parsed));
    const fsdp_options_action wanted = fsdp_options_requested_action(parsed);
    fsdp_status status = FSDP_OK;
    if (wanted == FSDP_OPTIONS_HELP)
        status = print_help(parsed);
    else if (wanted == FSDP_OPTIONS_PRINT_CONFIG)
        status = print_text(fsdp_options_print(parsed, target));
    else
        print_notes(spec, parsed, target);
    if (status != FSDP_OK) {
        fsdp_options_destroy(parsed);
        return status;
    }
    *options = parsed;
    *run = wanted == FSDP_OPTIONS_RUN;
    return FSDP_OK;
}

void fsdp_error_print(const char *program)
{
    fsdp_error_report(program);
}
