/* Finds the prefix that must be removed from the names of weights to obtain the names of a
 * model. */
#pragma once
#include <fsdp/models.h>

#include "src/hf/wrapped_names.h"
#include "src/models/model_type.h"

/* Return true if the weights may lack the parameter `name`. This is so for the head, which may be
 * tied to the embedding. It is also so for the parameters of type->fresh_modules: they are drawn at
 * random if the weights lack them. */
bool fsdp_weights_name_is_optional(const fsdp_model_type *type, const char *name);

/* Find what must be removed from the names of weights, names [n], so that a model of `config` finds
 * every parameter that it requires. The caller has already removed the parts that wrappers add.
 * *change is {0} if the names already fit. It is also {0} if they do not fit and the reason is
 * unknown.
 *
 * @param label the path of the weights, with which error messages begin
 * @return FSDP_ERR_INVALID if the names do not fit and the reason is known: the weights are those
 * of an adapter, they are flat parameters, or their names have a prefix that cannot be removed. The
 * message contains one of the names and says what to do */
FSDP_MUST_CHECK fsdp_status fsdp_weights_names_fit(const fsdp_model_config *config,
                                                   const char *label, const char *const *names,
                                                   size_t n, fsdp_name_change *change);
