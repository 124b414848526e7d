/* Finds the prefix that must be removed from the names of weights to obtain the names of a
 * model. */
#pragma once
#include <fsdp/models.h>

#include "src/hf/wrapped_names.h"
#include "src/models/model_type.h"

/* Is `name` the head, or a parameter that is drawn if the weights lack it? */
bool fsdp_weights_name_is_optional(const fsdp_model_type *type, const char *name);

/* Find which prefix must be removed from names [n], so that a model of `config` finds every
 * parameter that it requires. Wrappers have already been removed from the names. *change is {0} if
 * the names fit as they are, or if removing a prefix does not make them fit.
 *
 * @param label the path of the weights, which is the prefix of messages
 * @return FSDP_ERR_INVALID if the names do not fit and the reason is known: they are those of an
 * adapter or of flat parameters, or have a prefix that cannot be removed; the message names one and
 * says what to do */
FSDP_MUST_CHECK fsdp_status fsdp_weights_names_fit(const fsdp_model_config *config,
                                                   const char *label, const char *const *names,
                                                   size_t n, fsdp_name_change *change);
