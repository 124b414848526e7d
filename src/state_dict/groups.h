/* Puts the options of parameter groups into state dicts under torch's names, and reads them
 * back. */
#pragma once
#include "src/optim/optimizer.h"
#include "src/state_dict/state_dict.h"

/* Put every option of a parameter group into `dict`. The path of an option has n_keys keys. The
 * caller has set the first n_keys - 1 of `keys`, which lead to the group. For each option, this
 * function sets the last key, keys[n_keys - 1], to `prefix` followed by the name of the option. */
FSDP_MUST_CHECK fsdp_status fsdp_state_put_group(fsdp_state_dict *dict, const char *optimizer,
                                                 const fsdp_optimizer_options *options,
                                                 fsdp_state_key *keys, int n_keys,
                                                 const char *prefix);
/* Set the options in *options to the values that `dict` has under the names "<group>.<option>".
 * Options that `dict` does not have stay unchanged. */
FSDP_MUST_CHECK fsdp_status fsdp_state_take_group(const fsdp_state_dict *dict, const char *group,
                                                  const char *optimizer,
                                                  fsdp_optimizer_options *options);
/* Like fsdp_state_put_group(), but put only the options that the steps of the optimizer change,
 * such as Schedule-Free's sum of weights. */
FSDP_MUST_CHECK fsdp_status fsdp_state_put_changing_options(fsdp_state_dict *dict,
                                                            const char *optimizer,
                                                            const fsdp_optimizer_options *options,
                                                            fsdp_state_key *keys, int n_keys,
                                                            const char *prefix);
/* Return true if the parameter groups of torch's optimizer `optimizer` have an option `key`. */
bool fsdp_state_group_has(const char *optimizer, const char *key);
/* Check that `dict` contains "<group>.<option>" for each option that every version of torch writes
 * for this optimizer. Return the name of the first option that is missing, without "<group>.", or
 * NULL if none is missing. */
const char *fsdp_state_group_lacks(const fsdp_state_dict *dict, const char *group,
                                   const char *optimizer);
