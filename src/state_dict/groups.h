/* Options of parameter groups, with torch's names. */
#pragma once
#include "src/optim/optimizer.h"
#include "src/state_dict/state_dict.h"

/* Put every option of a group. The last of `keys` [n_keys] is overwritten with the key of each
 * option, which is `prefix` followed by its name. The keys before it are those of the group. */
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
/* Return the name of the first option that every version of torch's optimizer writes but that
 * `dict` does not have as "<group>.<name>"; NULL if none is missing. */
const char *fsdp_state_group_lacks(const fsdp_state_dict *dict, const char *group,
                                   const char *optimizer);
