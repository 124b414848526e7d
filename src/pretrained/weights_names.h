/* Finds the prefix that must be removed from the names of weights to obtain the names of a
 * model. */
#pragma once
#include <fsdp/models.h>

#include "src/hf/wrapped_names.h"
#include "src/models/model_type.h"

/* Return true if a model can be loaded although its weights lack the parameter `name`. The head is
 * such a parameter, because it may be tied to the embedding. The parameters of type->fresh_modules
 * are such parameters, too: if the weights lack them, they are initialized at random. */
bool fsdp_weights_name_is_optional(const fsdp_model_type *type, const char *name);

/* Find what must be removed from `names` [n], the names of weights, so that a model of `config`
 * finds every parameter that it requires. Set *change to it. The caller must first remove the parts
 * that wrappers add. *change is set to {0} in two cases: the names already fit, or they do not fit
 * and this function cannot find out why.
 *
 * @param label the path of the weights, with which error messages begin
 * @return FSDP_ERR_INVALID if the names do not fit and the reason is known: the weights are those
 * of an adapter, they are flat parameters, or their names have a prefix that cannot be removed. The
 * message contains one of the names and says what to do */
FSDP_MUST_CHECK fsdp_status fsdp_weights_names_fit(const fsdp_model_config *config,
                                                   const char *label, const char *const *names,
                                                   size_t n, fsdp_name_change *change);
