/* The environment variables that `accelerate launch` sets for its workers, and the options of `fsdp
 * launch` that give their values. The names and defaults are those of Accelerate 1.15. */
#pragma once
#include "src/launch/launch_options.h"

/* How the value of a variable is spelled. */
typedef enum fsdp_spelling {
    FSDP_SPELLED_AS_GIVEN, /* as the user spelled it, such as the number of a menu */
    FSDP_SPELLED_BY_NAME,  /* the first spelling of the option's choice */
    FSDP_SPELLED_LOWER,    /* in lower case: true */
    FSDP_SPELLED_CAPITAL   /* with a capital letter, as Python prints it: True */
} fsdp_spelling;

typedef struct fsdp_accelerate_variable {
    const char *name, *option;
    fsdp_spelling spelling;
    bool always; /* the variable is set even if the option was not given */
} fsdp_accelerate_variable;

enum {
    FSDP_ACCELERATE_COMMON = 6,
    FSDP_ACCELERATE_FP8 = 3,
    FSDP_ACCELERATE_FSDP = 16,
    FSDP_ACCELERATE_PARALLELISM = 2
};

extern const fsdp_accelerate_variable fsdp_accelerate_common[FSDP_ACCELERATE_COMMON];
/* The variables that are set only with --mixed_precision fp8. */
extern const fsdp_accelerate_variable fsdp_accelerate_fp8[FSDP_ACCELERATE_FP8];
/* The variables that are set only if FSDP is used. Each gets its value from an option. If the user
 * gives one of these options, but neither --use_fsdp nor --no-use-fsdp, --use_fsdp is assumed
 * (fsdp_accelerate_derive()). */
extern const fsdp_accelerate_variable fsdp_accelerate_fsdp[FSDP_ACCELERATE_FSDP];
extern const fsdp_accelerate_variable fsdp_accelerate_parallelism[FSDP_ACCELERATE_PARALLELISM];

/* Return true if a flag or a file gave the option. Environment variables do not count. */
static inline bool fsdp_launch_is_chosen(const fsdp_options *options, const char *option)
{
    return fsdp_options_origin(options, option) > FSDP_ORIGIN_ENV;
}
