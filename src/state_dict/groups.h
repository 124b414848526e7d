/* Options of parameter groups, with torch's names. */
#pragma once
#include "src/optim/optimizer.h"
#include "src/state_dict/state_dict.h"

/* Put every option of a group. The last of `keys` [n_keys] is memory for the key of an option; the
 * others are the group's keys. `prefix` is prepended to the names of options. */
FSDP_MUST_CHECK fsdp_status fsdp_state_put_group(fsdp_state_dict *dict, const char *optimizer,
                                                 const fsdp_optimizer_options *options,
                                                 fsdp_state_key *keys, int n_keys,
                                                 const char *prefix);
/* Copy the values of "<group>.<key>" in `dict` to *options. Options that `dict` does not have stay
 * unchanged. */
FSDP_MUST_CHECK fsdp_status fsdp_state_take_group(const fsdp_state_dict *dict, const char *group,
                                                  const char *optimizer,
                                                  fsdp_optimizer_options *options);
/* Is `key` an option of a group in torch's optimizer `optimizer`? */
bool fsdp_state_group_has(const char *optimizer, const char *key);
/* Return the first option that every version of torch's optimizer writes, but that is not in `dict`
 * as "<group>.<key>"; NULL if none is missing. */
const char *fsdp_state_group_lacks(const fsdp_state_dict *dict, const char *group,
                                   const char *optimizer);
