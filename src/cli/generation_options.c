/* See generation_options.h. */
#include "src/cli/generation_options.h"

const char *const fsdp_early_stopping_choices[] = {"false", "true", "never", NULL};

void fsdp_generation_options_given(const fsdp_options *options, fsdp_generation_settings *settings)
{
#define FSDP_GIVEN(name)                                                                           \
    settings->given.name = fsdp_options_given(options, #name);                                     \
    settings->asked_for.name = fsdp_options_asked_for(options, #name);
    FSDP_GENERATION_SETTINGS(FSDP_GIVEN)
#undef FSDP_GIVEN
}
