/* The options of `fsdp train` for products of 8-bit floats (fsdp/float8.h). The options follow two
 * programs. As in torchtitan, options name a recipe and exclude layers by name. As in Accelerate,
 * mixed_precision fp8 with `backend: AO` means bfloat16 with the recipe tensorwise, a float8
 * all-gather unless it is switched off, and all linear layers except the first and the last. */
#pragma once
#include <fsdp/float8.h>

#include "src/train_config/config.h"

/* The choices of --float8-recipe: "none", then the names of the values of fsdp_float8_recipe, in
 * the order of that enum. */
extern const char *const fsdp_train_float8_recipes[];

/* Return true if products are computed in float8. */
bool fsdp_train_has_float8(const fsdp_train_config *c);
/* Derive the recipe and the all-gather from --mixed-precision fp8, if they are not given. */
void fsdp_train_float8_derive(fsdp_train_config *c, const fsdp_options *options);
/* Return an error if the options contradict each other or have no effect. */
FSDP_MUST_CHECK fsdp_status fsdp_train_float8_check(const fsdp_train_config *c,
                                                    const fsdp_options *options);
/* Set *config to what the options ask for. The names are borrowed from `c`. */
void fsdp_train_float8_init(fsdp_float8_linear_config *config, const fsdp_train_config *c);
