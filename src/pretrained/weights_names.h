/* Do the names of weights become those of a model once a prefix is taken off? */
#pragma once
#include <fsdp/models.h>

#include "src/hf/wrapped_names.h"
#include "src/models/model_type.h"

/* The head, and what is drawn where weights lack it. */
bool fsdp_weights_may_lack(const fsdp_model_type *type, const char *name);

/* Find what names [n], which are without wrappers already, lose further so that a model of `config`
 * finds every parameter that it must have. *change is all zero if they fit as they are, or if no
 * prefix is the reason that they do not.
 *
 * @param label begins messages: the path of the weights
 * @return FSDP_ERR_INVALID if they do not fit, and names of wrappers, adapters or flat parameters
 *         are the reason: it names what is there and says what to do */
FSDP_MUST_CHECK fsdp_status fsdp_weights_names_fit(const fsdp_model_config *config,
                                                   const char *label, const char *const *names,
                                                   size_t n, fsdp_name_change *change);
